//! What is told of pipes: while they open, while bytes move, and when they end.

use taut_link::broker::BrokerAccount;
use taut_time::{Duration, Instant};

use crate::open::Which;

/// Told of everything that happens to pipes.
pub trait Observer {
    /// Two ends were joined.
    fn opened(&mut self, pipe: u64, names: [&str; 2]) {
        let _ = (pipe, names);
    }

    /// Something that a user may want to read: a connection that is tried again, a client that waits.
    fn note(&mut self, text: &str) {
        let _ = text;
    }

    /// Whether [`bytes`](Self::bytes) is wanted. Then all bytes pass through this process.
    fn wants_bytes(&self) -> bool {
        false
    }

    /// Bytes taken from one end.
    fn bytes(&mut self, pipe: u64, from: Which, at: Instant, bytes: &[u8]) {
        let _ = (pipe, from, at, bytes);
    }

    /// When [`look`](Self::look) is wanted next.
    fn next_look(&self) -> Option<Instant> {
        None
    }

    /// What those pipes that are open have carried so far.
    fn look(&mut self, open: &OpenPipes) {
        let _ = open;
    }

    /// A pipe has ended.
    fn ended(&mut self, summary: PipeReport) {
        let _ = summary;
    }
}

/// Who ended a pipe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndedBy {
    /// The first end was done, or failed.
    A,
    /// The second end.
    B,
    /// Nothing moved for as long as the limit says.
    IdleLimit,
    /// The time was over.
    TimeLimit,
    /// We were asked to end.
    Signal,
}

impl EndedBy {
    /// As it stands in the summary.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::IdleLimit => "idle_limit",
            Self::TimeLimit => "time_limit",
            Self::Signal => "signal",
        }
    }
}

/// One direction's account, in bytes as they are on the wire of the end that they belong to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Account {
    /// Bytes given to the kernel of the end that they go to.
    pub bytes: u64,
    /// Those of them that did not pass through this process' memory.
    pub spliced: u64,
    /// Writes that it took.
    pub writes: u64,
    /// Messages given on; 0 between streams.
    pub messages: u64,
    /// Messages that had no room, or were too long for the link.
    pub lost_messages: u64,
    /// Bytes that were there to be given on and were not: taken and held by us, or not taken from the source any more.
    pub undelivered: u64,
    /// Bytes given to the kernel of which it was not known at the end that the other side had got
    /// them. 0 where the kind can't tell.
    pub unconfirmed: u64,
}

/// Pipes that are open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenPipes {
    /// How many there are.
    pub count: u64,
    /// What all of them have carried, from A to B and from B to A. What is known at a pipe's end alone is 0.
    pub accounts: [Account; 2],
}

/// What became of a pipe.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PipeReport {
    /// Its number, from 1.
    pub pipe: u64,
    /// The plan that it belongs to.
    pub plan: usize,
    /// Who was at the two ends.
    pub names: [String; 2],
    /// From its beginning to its end.
    pub duration: Duration,
    /// Who ended it.
    pub ended_by: EndedBy,
    /// How.
    pub why: String,
    /// Whether something went wrong: an end failed, could not be opened, bytes were left, or a broker's messages are
    /// missing.
    pub failed: bool,
    /// The same but for messages that are missing, which another try would not bring.
    pub broke: bool,
    /// The error of an end that could not be opened.
    pub fault: Option<taut_link::Fault>,
    /// From A to B, and from B to A.
    pub accounts: [Account; 2],
    /// What became of the messages at an end that is a broker.
    pub brokers: [Option<BrokerAccount>; 2],
    /// Exit codes of programs at the two ends; the negative number of a signal that ended one.
    pub exits: [Option<i32>; 2],
}
