use taut_link::Endpoint;
use taut_time::Duration;

use crate::stream::Direction;

/// What to raise, and how far one may go.
#[derive(Clone, Debug)]
pub struct RadioPlan {
    /// The peer.
    pub endpoint: Endpoint,
    /// Up or down; not both.
    pub direction: Direction,
    /// Bytes of one write in the base.
    pub block_bytes: usize,
    /// Any server that reads will do; nothing is asked of it.
    pub plain: bool,
    /// Independent repetitions of each setting; with fewer than
    /// [`LEAST_ROUNDS`](taut_record::stats::LEAST_ROUNDS) nothing can be told apart.
    pub rounds: usize,
    /// Time of one setting in one round; as long as the interval asks for, unless it is given.
    pub time: Option<Duration>,
    /// Shortest connection interval that may be asked for, in units of 1.25 ms.
    pub least_interval: u16,
    /// What helped stays in force: the adapters' limits of the interval, and what the server receives with.
    pub keep: bool,
    /// The command that repeats the table.
    pub command: String,
}
