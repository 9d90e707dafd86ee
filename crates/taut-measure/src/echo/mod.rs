//! Round trips: each message comes back from the peer.
//!
//! In a closed loop a link's next message waits for the reply to the one before; in an open loop ([`EchoPlan::rate_hz`])
//! messages leave on an absolute schedule, whatever comes back. Only an open loop shows what a stalled peer does to
//! those who send on a schedule (coordinated omission); it reports both the time from the intended sending (response
//! time) and from the actual one (service time), and its own lateness.

mod event_loop;
mod ping_pong;
mod samples;
mod simulated;
mod target;

use taut_link::wire::AckPolicy;
use taut_link::{Endpoint, SocketOption};
use taut_time::{Duration, Timeline};

use crate::engine::EngineKind;
use crate::interrupt::Interrupt;
use crate::recording::{EchoRow, Ended, Verdict};
pub use simulated::run_simulated;
use target::Target;
pub use target::WriteStyle;

/// What to send, how often, and for how long; the same for all endpoints of a comparison.
#[derive(Clone, Debug)]
pub struct EchoPlan {
    /// Independent repetitions, each with new links.
    pub rounds: usize,
    /// How much of it.
    pub limit: Limit,
    /// Messages per second over all links of an endpoint (open loop); `None` for a closed loop.
    pub rate_hz: Option<f64>,
    /// After which a message counts as lost.
    pub timeout: Duration,
    /// Limits of the exceedance table.
    pub exceed: Vec<Duration>,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Links open at once.
    pub connections: usize,
    /// Any server that echoes will do: no handshake.
    pub plain: bool,
}

/// When a measurement has enough.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Messages for each endpoint, over all rounds.
    Count(u64),
    /// Time for each endpoint, over all rounds.
    Time(Duration),
}

/// One way to reach one peer.
#[derive(Clone, Debug)]
pub struct EchoSubject {
    /// The peer.
    pub endpoint: Endpoint,
    /// How it is waited for.
    pub engine: EngineKind,
    /// Options of the socket.
    pub options: Vec<SocketOption>,
    /// How the peer should acknowledge.
    pub acks: AckPolicy,
    /// How a message is written.
    pub writes: WriteStyle,
    /// Processor that the sender is put on.
    pub core: Option<usize>,
    /// Whether the timeline of the writes is kept.
    pub observe: bool,
    /// The command that repeats the row.
    pub command: String,
}

/// What came of it.
#[derive(Debug)]
pub struct EchoOutcome {
    /// A row for each subject, in the order given; a subject that failed has none.
    pub rows: Vec<Option<EchoRow>>,
    /// Events of the last round of each subject that was observed.
    pub timelines: Vec<Option<Timeline>>,
    /// How it ended.
    pub ended: Ended,
}

/// Measures all subjects, interleaved round by round, and compares each with the first.
///
/// # Errors
/// A subject can't be reached or used at all. A peer that goes away later ends the measurement, and what there is is
/// returned.
pub fn run(
    plan: &EchoPlan,
    subjects: &[EchoSubject],
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> taut_link::Result<EchoOutcome> {
    let mut targets: Vec<Target<'_>> = subjects.iter().map(|subject| Target::new(plan, subject)).collect();
    let mut ended = Ended::Complete;
    let steps = plan.rounds * targets.len();
    'rounds: for round in 0..plan.rounds {
        for index in 0..targets.len() {
            if interrupt.is_set() {
                ended = Ended::Interrupted;
                break 'rounds;
            }
            progress(round * targets.len() + index, steps);
            // Each round begins with another subject, so that none always follows the same one.
            let turn = (index + round) % targets.len();
            match targets[turn].run_round(round, interrupt) {
                Ok(()) => {}
                Err(error) if targets.iter().any(Target::has_samples) => {
                    ended = Ended::PeerGone(error.to_string());
                    break 'rounds;
                }
                Err(error) => return Err(error),
            }
        }
    }
    if interrupt.is_set() {
        ended = Ended::Interrupted;
    }
    let timelines = targets.iter_mut().map(Target::take_timeline).collect();
    let rows = target::rows(&targets);
    Ok(EchoOutcome { rows, timelines, ended })
}

/// What an interval of ratios allows to say; a difference of less than 1 % is called none.
pub fn verdict(ratio_ci: (f64, f64)) -> Verdict {
    if ratio_ci.1 < 0.99 {
        Verdict::Shorter
    } else if ratio_ci.0 > 1.01 {
        Verdict::Longer
    } else {
        Verdict::CannotTellApart
    }
}
