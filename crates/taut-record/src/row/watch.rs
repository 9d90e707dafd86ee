use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the live TCP connections of a host lost while they were looked at.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WatchRow {
    /// The command that looks again.
    pub command: String,
    /// How long was looked.
    pub span_ns: u64,
    /// Connections at the end, listening sockets and those of the tool itself left out.
    pub connections: u64,
    /// Of them, those that sent or received something meanwhile, or in which something waited.
    pub active: u64,
    /// Looks at all sockets.
    pub looks: u32,
    /// Looks at those alone in which something waited.
    pub suspect_looks: u32,
    /// From one look at all sockets to the next one, at last; 0 in what was recorded before this was kept.
    #[serde(default)]
    pub look_period_ns: u64,
    /// Processor time of all this.
    pub work_ns: u64,
    /// Whether there were enough looks to tell which connections lose time.
    pub is_enough: bool,
    /// What loses time, the longest time first.
    pub losses: Vec<WatchedLoss>,
    /// What could not be seen, a sentence each.
    pub remarks: Vec<String>,
}

/// Who loses time, and to what: all connections of one program with one service that lose it to the same cause.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct WatchedPlace {
    /// Short name, as `taut explain` has it.
    pub cause: String,
    /// Name of the program; `null` when it may not be looked at, or none has the socket.
    pub program: Option<String>,
    /// Its process.
    pub pid: Option<i32>,
    /// Which side of the connection loses: `server` where a program listens at the address, else `client`.
    pub side: String,
    /// Address of the service: this end's for a server, the other end's for a client.
    pub service: String,
}

/// A loss that stands.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WatchedLoss {
    /// Who loses, and to what.
    #[serde(flatten)]
    pub place: WatchedPlace,
    /// What is the matter.
    pub summary: String,
    /// What to change.
    pub remedy: String,
    /// Connections that lost time in this interval.
    pub connections: u64,
    /// This end of the one that lost most.
    pub worst_local: String,
    /// Its other end; of a listening socket that of no address and port 0.
    pub worst_peer: String,
    /// Name and number of the program at that end, if it is on this host.
    pub worst_peer_program: Option<String>,
    /// The part of the interval that it lost, from 0 to 1.
    pub worst_share: f64,
    /// From one look at it to the next one, on average: no wait is told more exactly. 0 in what was recorded before
    /// this was kept.
    #[serde(default)]
    pub worst_look_period_ns: u64,
    /// Time lost in this interval by all of them together.
    pub lost_ns: u64,
    /// Time lost since it began.
    pub total_lost_ns: u64,
    /// Since when it stands.
    pub stands_ns: u64,
    /// Whether it stands since this interval.
    pub is_new: bool,
}

/// Events that the kernel counted one by one, of all connections of one place: with grade 2 alone.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WatchedCount {
    /// Whose connections they befell, and what they are: `loss`, `handshake_repeated`, `refused` or `reset`.
    #[serde(flatten)]
    pub place: WatchedPlace,
    /// What is the matter.
    pub summary: String,
    /// What to change.
    pub remedy: String,
    /// Events in this interval.
    pub events: u64,
    /// Time lost by them; 0 for what takes none.
    pub lost_ns: u64,
    /// Events since the watch began.
    pub total_events: u64,
    /// Time lost by these.
    pub total_lost_ns: u64,
    /// The longest time lost at once.
    pub longest_ns: u64,
    /// How long before the end of the interval the first one was.
    pub first_ago_ns: u64,
    /// How long before the end of the interval the last one was.
    pub last_ago_ns: u64,
    /// This end of the connection of the last one.
    pub last_local: String,
    /// Its other end.
    pub last_peer: String,
    /// Whether these are the first ones, or the first ones after a minute.
    pub is_new: bool,
}

impl WatchedLoss {
    /// The one that lost most, by its ends: `10.0.0.1:4000 > 10.0.0.2:80`, or `10.0.0.1:80`, which listens.
    pub fn worst_ends(&self) -> String {
        match self.worst_peer.ends_with(":0") {
            true => format!("{}, which listens", self.worst_local),
            false => format!("{} > {}", self.worst_local, self.worst_peer),
        }
    }
}

impl WatchedPlace {
    /// `nginx (812), server at 10.0.0.1:80`
    pub fn name(&self) -> String {
        format!("{}, {}", self.program_name(), self.part())
    }

    /// `nginx (812)`
    pub fn program_name(&self) -> String {
        match (&self.program, self.pid) {
            (Some(program), Some(pid)) => format!("{program} ({pid})"),
            _ => "a program that is not seen".to_owned(),
        }
    }

    /// `server at 10.0.0.1:80`
    pub fn part(&self) -> String {
        let between = if self.side == "server" { "server at" } else { "client of" };
        format!("{between} {}", self.service)
    }
}
