//! What a trace has found before its end.

use std::cmp::Reverse;

use taut_event::Direction;

use super::report::{self, TracedDirection};
use super::{Connection, Trace};
use crate::engine::{Found, Verdict};

/// More connections are not judged while the trace goes on: that takes time from reading what is recorded.
const MOST_JUDGED: usize = 256;

/// A cause that holds the data of one direction of a connection, as of the connection's last event.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundSoFar {
    /// Address and port of the sender.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// Thread that used the traced socket last.
    pub thread: Option<u32>,
    /// Short name of the cause.
    pub cause: String,
    /// Which end has to act.
    pub side: String,
    /// Time held until now.
    pub held_ns: u64,
    /// Share of the direction's time, 0 to 1.
    pub share: f64,
}

impl Trace {
    /// What was found so far in connections that are open, and in the kept ones of those that are closed: the longest
    /// time held first. Of many open connections the first 256 are judged.
    pub fn so_far(&self) -> Vec<FoundSoFar> {
        let start = self.start.unwrap_or_default();
        let judged = |connection: &Connection| {
            Direction::BOTH.map(|way| report::direction(connection, way, start)).into_iter().flatten()
        };
        let open = self.connections.iter().flatten().take(MOST_JUDGED);
        let open = open.flat_map(|connection| judged(connection)).flat_map(|direction| found_in(&direction));
        let mut found: Vec<FoundSoFar> =
            self.worst.iter().flat_map(|kept| found_in(&kept.direction)).chain(open).collect();
        found.sort_by_key(|found| Reverse(found.held_ns));
        found
    }
}

fn found_in(direction: &TracedDirection) -> Vec<FoundSoFar> {
    let one = |cause: &str, found: &Found| FoundSoFar {
        from: direction.from.clone(),
        to: direction.to.clone(),
        thread: direction.thread,
        cause: cause.to_owned(),
        side: found.side.clone(),
        held_ns: found.cost.held_ns,
        share: found.cost.share,
    };
    let verdicts = direction.verdicts.iter();
    verdicts
        .filter_map(|on| match &on.verdict {
            Verdict::Found(found) => Some(one(&on.cause, found)),
            _ => None,
        })
        .collect()
}
