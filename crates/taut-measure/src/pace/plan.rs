use taut_link::wire::AckPolicy;
use taut_link::{Endpoint, SocketOption, foreign};
use taut_time::{Duration, Timeline};

use crate::air::AirPlan;
use crate::placement::Spot;
use taut_record::stats::Distribution;
use taut_record::{Ended, PaceRow};

/// What to send, how often, and to whom.
#[derive(Clone, Debug)]
pub struct PacePlan {
    /// Who receives.
    pub peer: PeerKind,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Time between intended sendings.
    pub period: Duration,
    /// Time of sending, over all rounds.
    pub time: Duration,
    /// Independent repetitions, each with a new link.
    pub rounds: usize,
    /// Options of the sending socket.
    pub options: Vec<SocketOption>,
    /// Limits of the exceedance table.
    pub exceed: Vec<Duration>,
    /// Where both ends are put.
    pub spot: Spot,
    /// Send under `SCHED_FIFO`.
    pub fifo: bool,
    /// The command that repeats the row.
    pub command: String,
}

/// Who receives the messages.
#[derive(Clone, Debug)]
pub enum PeerKind {
    /// `taut serve`.
    Server {
        /// Its address.
        endpoint: Endpoint,
        /// How it should acknowledge.
        acks: AckPolicy,
    },
    /// Any server that reads; what it sends is thrown away.
    Plain(Endpoint),
    /// The built-in TCP peer unlike Linux, in a network namespace of its own.
    Foreign(foreign::AckTimer),
    /// The other side of a simulated link, in virtual time.
    Simulated(Box<AirPlan>),
}

/// What came of it.
#[derive(Debug)]
pub struct PaceOutcome {
    /// The figures.
    pub row: PaceRow,
    /// All times from the intended sending to the arrival; empty where the receiver does not tell.
    pub deliveries: Distribution,
    /// The events of each round, as far as there is room for them ([`PaceRow::dropped_rounds`]).
    pub timelines: Vec<Timeline>,
    /// How it ended.
    pub ended: Ended,
}

/// Longest wait for held messages at the end of a round.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
