//! In which order the operations of one descriptor may run.
//!
//! - A stream (socket, pipe, terminal) has one read and one write in flight, each first in, first out.
//! - A file runs its operations side by side, except writes to one opened with `O_APPEND`: POSIX
//!   wants them in call order.
//! - A synchronisation (aio_fsync(3)) waits for everything queued on the descriptor before it.

use std::collections::VecDeque;

/// What an operation does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// fsync(2).
    Sync,
    /// fdatasync(2).
    DataSync,
}

impl Kind {
    /// Whether it reads or writes.
    pub(crate) const fn moves_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// What a descriptor is, as far as the order goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Class {
    Socket,
    /// A pipe, terminal or other thing without offsets.
    Stream,
    File {
        append: bool,
    },
}

/// The operations of one open file under one number.
#[derive(Debug)]
pub(crate) struct Order {
    class: Class,
    reads: Lane,
    writes: Lane,
    #[expect(clippy::box_collection, reason = "small where there is none")]
    syncs: Option<Box<Vec<Barrier>>>,
    /// Operations not done yet, waiting ones included.
    live: u32,
    next_sequence: u64,
}

/// One at a time, first in, first out.
#[derive(Debug, Default)]
struct Lane {
    busy: bool,
    /// Most descriptors never have more than one at a time, and there may be thousands of them.
    #[expect(clippy::box_collection, reason = "small where there is none")]
    waiting: Option<Box<VecDeque<u32>>>,
}

/// A synchronisation that waits for older operations.
#[derive(Debug)]
struct Barrier {
    operation: u32,
    sequence: u64,
    older: u32,
}

/// An operation's place in the order, to be given back with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) sequence: u64,
    /// Whether it may run at once.
    pub(crate) runs: bool,
}

impl Order {
    pub(crate) fn new(class: Class) -> Self {
        Self { class, reads: Lane::default(), writes: Lane::default(), syncs: None, live: 0, next_sequence: 0 }
    }

    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.live == 0
    }

    /// Whether any operation waits for others.
    pub(crate) fn has_waiting(&self) -> bool {
        let waits = |lane: &Lane| lane.waiting.as_ref().is_some_and(|waiting| !waiting.is_empty());
        waits(&self.reads) || waits(&self.writes) || self.syncs.as_ref().is_some_and(|syncs| !syncs.is_empty())
    }

    fn lane(&mut self, kind: Kind) -> Option<&mut Lane> {
        match (self.class, kind) {
            (_, Kind::Sync | Kind::DataSync) | (Class::File { .. }, Kind::Read) => None,
            (Class::File { append: false }, Kind::Write) => None,
            (Class::File { append: true }, Kind::Write) => Some(&mut self.writes),
            (Class::Socket | Class::Stream, Kind::Read) => Some(&mut self.reads),
            (Class::Socket | Class::Stream, Kind::Write) => Some(&mut self.writes),
        }
    }

    /// Lines an operation up.
    pub(crate) fn admit(&mut self, operation: u32, kind: Kind) -> Place {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let older = self.live;
        self.live += 1;
        let runs = if matches!(kind, Kind::Sync | Kind::DataSync) {
            if older > 0 {
                self.syncs.get_or_insert_default().push(Barrier { operation, sequence, older });
            }
            older == 0
        } else if let Some(lane) = self.lane(kind) {
            let runs = !lane.busy;
            lane.busy = true;
            if !runs {
                lane.waiting.get_or_insert_default().push_back(operation);
            }
            runs
        } else {
            true
        };
        Place { sequence, runs }
    }

    /// The synchronisations that wait for this place and others.
    pub(crate) fn syncs_behind(&self, sequence: u64) -> impl Iterator<Item = u32> {
        let syncs = self.syncs.iter().flat_map(|syncs| syncs.iter());
        syncs.filter(move |barrier| barrier.sequence > sequence).map(|barrier| barrier.operation)
    }

    /// Takes an operation out that ran to its end; `next` gets those that may run now.
    pub(crate) fn retire(&mut self, kind: Kind, sequence: u64, next: &mut Vec<u32>) {
        if let Some(lane) = self.lane(kind) {
            match lane.waiting.as_mut().and_then(|waiting| waiting.pop_front()) {
                Some(operation) => next.push(operation),
                None => lane.busy = false,
            }
        }
        self.leave(sequence, next);
    }

    /// Takes an operation out that has not begun to run.
    pub(crate) fn withdraw(&mut self, operation: u32, kind: Kind, sequence: u64, next: &mut Vec<u32>) {
        if let Some(lane) = self.lane(kind) {
            let waiting = lane.waiting.get_or_insert_default();
            // Of all that are withdrawn, the oldest first, each is found at the front.
            if let Some(place) = waiting.iter().position(|&waiting| waiting == operation) {
                waiting.remove(place);
            }
        }
        if let Some(syncs) = &mut self.syncs {
            syncs.retain(|barrier| barrier.operation != operation);
        }
        self.leave(sequence, next);
    }

    fn leave(&mut self, sequence: u64, next: &mut Vec<u32>) {
        self.live -= 1;
        let Some(syncs) = &mut self.syncs else { return };
        syncs.retain_mut(|barrier| {
            if barrier.sequence > sequence {
                barrier.older -= 1;
            }
            if barrier.older == 0 {
                next.push(barrier.operation);
            }
            barrier.older > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(order: &mut Order, operation: u32, kind: Kind) -> bool {
        let place = order.admit(operation, kind);
        // In these tests an operation is named by its place.
        assert_eq!(place.sequence, u64::from(operation));
        place.runs
    }

    fn retire(order: &mut Order, operation: u32, kind: Kind) -> Vec<u32> {
        let mut next = Vec::new();
        order.retire(kind, operation.into(), &mut next);
        next
    }

    #[test]
    fn a_stream_runs_one_read_and_one_write() {
        let mut order = Order::new(Class::Socket);
        assert!(admit(&mut order, 0, Kind::Read));
        assert!(admit(&mut order, 1, Kind::Write));
        assert!(!admit(&mut order, 2, Kind::Read));
        assert!(!admit(&mut order, 3, Kind::Write));
        assert!(!admit(&mut order, 4, Kind::Read));
        assert_eq!(retire(&mut order, 0, Kind::Read), [2]);
        assert_eq!(retire(&mut order, 1, Kind::Write), [3]);
        assert_eq!(retire(&mut order, 2, Kind::Read), [4]);
        assert_eq!(retire(&mut order, 4, Kind::Read), []);
        assert_eq!(retire(&mut order, 3, Kind::Write), []);
        assert!(order.is_idle());
    }

    #[test]
    fn a_file_runs_all_but_its_appends_side_by_side() {
        let mut order = Order::new(Class::File { append: false });
        assert!((0..4).all(|operation| admit(&mut order, operation, Kind::Write)));
        let mut order = Order::new(Class::File { append: true });
        assert!(admit(&mut order, 0, Kind::Write));
        assert!(!admit(&mut order, 1, Kind::Write));
        assert!(admit(&mut order, 2, Kind::Read));
        assert_eq!(retire(&mut order, 0, Kind::Write), [1]);
    }

    #[test]
    fn a_sync_waits_for_what_is_older_and_for_nothing_else() {
        let mut order = Order::new(Class::File { append: false });
        assert!(admit(&mut order, 0, Kind::Write));
        assert!(admit(&mut order, 1, Kind::Write));
        assert!(!admit(&mut order, 2, Kind::Sync));
        assert!(admit(&mut order, 3, Kind::Write));
        assert_eq!(order.syncs_behind(1).collect::<Vec<_>>(), [2]);
        assert_eq!(order.syncs_behind(3).count(), 0);
        assert_eq!(retire(&mut order, 1, Kind::Write), []);
        assert_eq!(retire(&mut order, 3, Kind::Write), []);
        assert_eq!(retire(&mut order, 0, Kind::Write), [2]);
        assert_eq!(retire(&mut order, 2, Kind::Sync), []);
        assert!(order.is_idle());
        let mut order = Order::new(Class::File { append: false });
        assert!(admit(&mut order, 0, Kind::DataSync));
    }

    #[test]
    fn to_withdraw_all_is_not_quadratic() {
        const MANY: u32 = 500_000;
        let mut order = Order::new(Class::Socket);
        for operation in 0..MANY {
            admit(&mut order, operation, Kind::Read);
        }
        let begun = std::time::Instant::now();
        for operation in 1..MANY {
            order.withdraw(operation, Kind::Read, operation.into(), &mut Vec::new());
        }
        // Linear it is a few milliseconds, quadratic minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
        assert!(!order.has_waiting());
    }

    #[test]
    fn what_was_withdrawn_does_not_run_and_holds_nobody_up() {
        let mut order = Order::new(Class::Stream);
        assert!(admit(&mut order, 0, Kind::Read));
        assert!(!admit(&mut order, 1, Kind::Read));
        assert!(!admit(&mut order, 2, Kind::Sync));
        assert!(!admit(&mut order, 3, Kind::Read));
        let mut next = Vec::new();
        order.withdraw(1, Kind::Read, 1, &mut next);
        assert!(next.is_empty());
        assert_eq!(retire(&mut order, 0, Kind::Read), [3, 2]);
    }
}
