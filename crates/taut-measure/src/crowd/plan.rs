use taut_link::Endpoint;
use taut_time::Duration;

use crate::placement::Spot;
use taut_record::{CrowdRow, Ended};
use taut_serve::crowd::{CrowdEngine, HostProgram};

/// Bytes of one message.
pub const MESSAGE_BYTES: usize = 32;

/// What to compare.
#[derive(Clone, Debug)]
pub struct CrowdPlan {
    /// Who runs the hosts.
    pub server: HostedBy,
    /// The engines, interleaved; each is held against the first.
    pub engines: Vec<CrowdEngine>,
    /// Links of one host.
    pub connections: usize,
    /// Of these, how many are active: a cell of the table for each engine and number.
    pub active: Vec<usize>,
    /// Further numbers of links, each with the first number of active ones.
    pub by_connections: Vec<usize>,
    /// Independent repetitions, each with new hosts and links.
    pub rounds: usize,
    /// Time of one cell in one round. At least three exchanges are made, however long they take.
    pub time: Duration,
    /// How long no reply at all may come before those that are missing count as lost.
    pub timeout: Duration,
    /// Where we and the hosts stay.
    pub spot: Spot,
    /// The command that repeats the table.
    pub command: String,
}

impl CrowdPlan {
    /// Verdicts on the whole table: of the round trip and of the CPU time, for each number of links
    /// and active ones and each engine but the first.
    pub fn comparisons(&self) -> usize {
        2 * (self.active.len() + self.by_connections.len()) * self.engines.len().saturating_sub(1)
    }

    /// Whether the client never sleeps. With a processor of its own it need not, and then neither
    /// its waking up is in the round trips nor the work of waking it in the server's CPU time.
    pub(super) fn client_spins(&self) -> bool {
        self.spot.core.is_some_and(|core| self.spot.peer_core != Some(core))
    }
}

/// Who runs the hosts.
#[derive(Clone, Debug)]
pub enum HostedBy {
    /// We do.
    Own {
        /// The program that is one.
        program: HostProgram,
        /// Where each of them listens; one at a time, with a port of its own where the port is 0.
        listen: Endpoint,
    },
    /// A server of the tests.
    At(Endpoint),
}

/// What came of it.
#[derive(Debug)]
pub struct CrowdOutcome {
    /// A row for each number of links and of active ones, and each engine, in this order.
    pub rows: Vec<CrowdRow>,
    /// How it ended.
    pub ended: Ended,
}

/// A number of links, and the numbers of active ones that are tried on them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Case {
    pub(super) connections: usize,
    pub(super) active: Vec<usize>,
}
