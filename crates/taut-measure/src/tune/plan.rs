use taut_link::Endpoint;
use taut_link::wire::AckPolicy;
use taut_time::Duration;

use crate::placement::Spot;

/// What to shorten, and how hard to try.
#[derive(Clone, Debug)]
pub struct TunePlan {
    /// The peer.
    pub endpoint: Endpoint,
    /// What the user cares about.
    pub workload: TuneWorkload,
    /// How the peer acknowledges in the base.
    pub acks: AckPolicy,
    /// Any server that echoes will do.
    pub plain: bool,
    /// Where both ends are put. Where the peer is placed the processor is no setting to be tried.
    pub spot: Spot,
    /// Independent repetitions of each setting in the screening, and again of each that stands out in it.
    pub rounds: usize,
    /// Time of one setting in one round.
    pub time: Duration,
    /// The command that repeats the table.
    pub command: String,
}

/// The workloads that can be tuned.
#[derive(Clone, Copy, Debug)]
pub enum TuneWorkload {
    /// Round trip of one message; its size.
    Echo {
        /// Bytes of a message.
        bytes: usize,
    },
    /// Round trip of a message that is written with two calls.
    WriteWriteRead {
        /// Bytes of the first call.
        first: usize,
        /// Bytes of the second call.
        rest: usize,
    },
    /// Delivery of messages sent on a schedule.
    Pace {
        /// Bytes of a message.
        bytes: usize,
        /// Time between them.
        period: Duration,
    },
    /// Time that 1 MiB of a stream takes.
    Stream {
        /// Bytes of one write.
        block: usize,
    },
}

impl TuneWorkload {
    /// Name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Echo { .. } => "echo",
            Self::WriteWriteRead { .. } => "write-write-read",
            Self::Pace { .. } => "pace",
            Self::Stream { .. } => "stream",
        }
    }

    /// Whether the messages' writes can be observed.
    pub(super) const fn has_timeline(&self) -> bool {
        !matches!(self, Self::Stream { .. })
    }
}
