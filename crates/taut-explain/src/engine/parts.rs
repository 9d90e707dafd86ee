//! Flows that were booked before their end to make room for others. One that goes on after that is counted once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use taut_event::{Flow, FlowKey};

use super::explanation::Verdict;

/// So many are known twice over: those of the newest, and those before them.
const KNOWN: usize = 1 << 17;
/// There are fewer causes.
const CAUSES: usize = 64;

/// What of a direction was counted, with a bit for each cause.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    itself: bool,
    found: u64,
    unknown: u64,
}

/// A flow, or what is left of it, as far as it was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    name: u64,
    /// The name has its ends the other way round.
    is_turned: bool,
    counted: [Counted; 2],
}

/// What of a part of a direction was not counted before: itself, and its verdicts by their places in the report.
#[derive(Clone, Debug, Default)]
pub(super) struct New {
    pub(super) direction: bool,
    pub(super) verdicts: Vec<bool>,
}

/// Those that may go on.
#[derive(Debug, Default)]
pub(super) struct Parts {
    newest: HashMap<u64, [Counted; 2]>,
    before: HashMap<u64, [Counted; 2]>,
}

impl Parts {
    /// A flow begins, and whether it is one that was not counted yet.
    pub(super) fn begin(&mut self, flow: &Flow) -> (Part, bool) {
        let part = named(&flow.key);
        let known = self.newest.remove(&part.name).or_else(|| self.before.remove(&part.name));
        match known.filter(|_| !flow.from_start) {
            Some(mut counted) => {
                if part.is_turned {
                    counted.reverse();
                }
                (Part { counted, ..part }, false)
            }
            None => (part, true),
        }
    }

    /// It was closed early.
    pub(super) fn closed_early(&mut self, part: Part) {
        if self.newest.len() >= KNOWN {
            self.before = mem::take(&mut self.newest);
        }
        let mut counted = part.counted;
        if part.is_turned {
            counted.reverse();
        }
        self.newest.insert(part.name, counted);
    }
}

impl Part {
    /// A direction of it is reported; whether none of its parts was before.
    pub(super) const fn count(&mut self, direction: usize) -> bool {
        !mem::replace(&mut self.counted[direction].itself, true)
    }

    /// One of its verdicts, whose cause has this place among all; whether no part of the direction had it before.
    pub(super) fn count_verdict(&mut self, direction: usize, place: usize, verdict: &Verdict) -> bool {
        let counted = &mut self.counted[direction];
        let known = match verdict {
            Verdict::Found(_) => &mut counted.found,
            Verdict::Unknown { .. } => &mut counted.unknown,
            Verdict::Clear => return false,
        };
        let bit = if place < CAUSES { 1 << place } else { 0 };
        let is_new = *known & bit == 0;
        *known |= bit;
        is_new
    }
}

/// The same flow has the same name, whichever end was seen first.
fn named(key: &FlowKey) -> Part {
    let (key, is_turned) = match *key {
        FlowKey::Tcp(first, second) if first > second => (FlowKey::Tcp(second, first), true),
        FlowKey::Udp(first, second) if first > second => (FlowKey::Udp(second, first), true),
        key => (key, false),
    };
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    Part { name: hasher.finish(), is_turned, counted: Default::default() }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use taut_event::{Address, Coverage};

    use super::*;

    const UNKNOWN: Verdict = Verdict::Unknown { missing: String::new(), ask: String::new() };

    fn flow(first: u16, second: u16, from_start: bool) -> Flow {
        let end = |port| Address { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port };
        Flow { key: FlowKey::Tcp(end(first), end(second)), from_start, coverage: Coverage::default() }
    }

    #[test]
    fn what_goes_on_was_counted_whichever_end_speaks_first() {
        let mut parts = Parts::default();
        let (mut part, is_new) = parts.begin(&flow(1, 2, true));
        assert!(is_new && part.count(0) && part.count_verdict(0, 3, &UNKNOWN));
        parts.closed_early(part);
        let (mut part, is_new) = parts.begin(&flow(2, 1, false));
        assert!(!is_new && part.count(0) && !part.count(1));
        assert!(!part.count_verdict(1, 3, &UNKNOWN) && part.count_verdict(1, 4, &UNKNOWN));
        parts.closed_early(part);
        let (mut part, _) = parts.begin(&flow(1, 2, false));
        assert!(!part.count(0) && !part.count(1) && !part.count_verdict(0, 4, &UNKNOWN));
    }

    #[test]
    fn an_opening_is_another_connection_and_so_are_other_ports() {
        let mut parts = Parts::default();
        let (part, _) = parts.begin(&flow(1, 2, true));
        parts.closed_early(part);
        assert!(parts.begin(&flow(1, 3, false)).1);
        assert!(parts.begin(&flow(1, 2, true)).1);
        // The one before is over.
        assert!(parts.begin(&flow(1, 2, false)).1);
    }

    #[test]
    fn the_newest_are_known_and_memory_is_bounded() {
        let mut parts = Parts::default();
        for number in 0..3 * KNOWN as u64 {
            parts.closed_early(Part { name: number, ..Part::default() });
        }
        assert!(parts.newest.len() + parts.before.len() <= 2 * KNOWN);
        assert!(parts.newest.contains_key(&(3 * KNOWN as u64 - 1)) && parts.before.contains_key(&(KNOWN as u64)));
    }
}
