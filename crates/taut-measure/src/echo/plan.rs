use std::fmt;

use taut_link::wire::AckPolicy;
use taut_link::{Endpoint, SocketOption};
use taut_time::{Duration, Instant};

use crate::engine::EngineKind;
use crate::placement::Spot;
use taut_record::stats::Distribution;

/// What to send, how often, and for how long; the same for all endpoints of a comparison.
#[derive(Clone, Debug)]
pub struct EchoPlan {
    /// Independent repetitions, each with new links.
    pub rounds: usize,
    /// How much of it.
    pub limit: RunLength,
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

impl EchoPlan {
    /// Messages of a round that begins now, and when no more of them are begun.
    pub(super) fn share_of(&self, round: usize, now: Instant) -> (u64, Instant) {
        let rounds = self.rounds as u64;
        let never = Instant::from_nanos(u64::MAX);
        let time = match self.limit {
            RunLength::Count(count) => return (count / rounds + u64::from((round as u64) < count % rounds), never),
            RunLength::Time(time) => time / u32::try_from(rounds).unwrap_or(1),
        };
        match self.rate_hz {
            // The plan of an open loop is a number of messages, those that are due before the end (less what a product
            // of floating-point numbers is off by). A late one is sent late; but a sender that falls behind for good
            // must end.
            Some(rate) => (((time.as_secs_f64() * rate - 1e-6).ceil() as u64).max(1), now + time + self.timeout),
            None => (u64::MAX, now + time),
        }
    }
}

/// When a measurement has enough.
#[derive(Clone, Copy, Debug)]
pub enum RunLength {
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
    /// Where both ends are put.
    pub spot: Spot,
    /// Whether a timeline of the writes is kept, in rounds of their own.
    pub observe: bool,
    /// The command that repeats the row.
    pub command: String,
}

/// All times of a subject's messages, whichever round they were of.
#[derive(Clone, Debug)]
pub struct EchoTimes {
    /// From the actual sending to the reply.
    pub round_trip: Distribution,
    /// From the intended sending to the reply; empty in a closed loop.
    pub response: Distribution,
}

/// How a message is handed to the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WriteStyle {
    /// With one call.
    #[default]
    One,
    /// With two calls, `first` bytes and the rest: the write-write-read case.
    Two {
        /// Bytes of the first call.
        first: usize,
    },
    /// With two calls between `TCP_CORK` on and off.
    Corked {
        /// Bytes of the first call.
        first: usize,
    },
    /// With one writev of two pieces.
    Vectored {
        /// Bytes of the first piece.
        first: usize,
    },
}

impl fmt::Display for WriteStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "write",
            Self::Two { .. } => "write-write",
            Self::Corked { .. } => "cork",
            Self::Vectored { .. } => "writev",
        })
    }
}
