//! The time that programs had, by their threads: who read late, who had no processor, who had not written.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::{Call, Direction as Way, Event, Holder, Stamp, Task, What};

/// Threads of one direction that are told apart. The time of more is laid to none.
const MOST_OF_DIRECTION: usize = 64;
/// Threads that are told apart over all directions. Beyond twice as many, those with the least time are added up.
const MOST: usize = 4096;

/// Time that was laid to programs, by holder.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct HeldByPrograms {
    /// All of it.
    pub held_ns: u64,
    /// What had come waited to be read (holder `receiving_program`).
    pub receiving_program_ns: u64,
    /// What had come waited since its reader was ready to run and had no processor (`processor`).
    pub processor_ns: u64,
    /// Nothing was to be sent, until the program wrote (`sending_program`).
    pub sending_program_ns: u64,
}

impl HeldByPrograms {
    fn add(&mut self, holder: Holder, ns: u64) {
        let of_holder = match holder {
            Holder::ReceivingProgram => &mut self.receiving_program_ns,
            Holder::Processor => &mut self.processor_ns,
            Holder::SendingProgram => &mut self.sending_program_ns,
            _ => return,
        };
        *of_holder = of_holder.saturating_add(ns);
        self.held_ns = self.held_ns.saturating_add(ns);
    }

    fn add_all(&mut self, other: &Self) {
        self.add(Holder::ReceivingProgram, other.receiving_program_ns);
        self.add(Holder::Processor, other.processor_ns);
        self.add(Holder::SendingProgram, other.sending_program_ns);
    }

    /// Time in which data waited. While a program has not written there is none.
    pub const fn data_waited_ns(&self) -> u64 {
        self.receiving_program_ns.saturating_add(self.processor_ns)
    }

    /// The worse, the larger.
    const fn weight(&self) -> (u64, u64) {
        (self.data_waited_ns(), self.held_ns)
    }
}

/// Time that was laid to a thread of a traced program, over all directions.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TracedThread {
    /// Its number.
    pub thread: u32,
    /// Name and number of its process, where known.
    pub program: Option<String>,
    /// That time.
    #[serde(flatten)]
    pub held: HeldByPrograms,
}

/// The time that the breakdowns of all directions lay to programs, by thread. The rows add up to it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TracedThreads {
    /// Those for which data waited longest, worst first; then those that had not written for longest.
    pub worst: Vec<TracedThread>,
    /// How many more there were. One that comes back after it was added up with others counts again.
    pub others: u64,
    /// What these had together.
    pub of_others: HeldByPrograms,
    /// What can't be laid to a thread: a program at the other end, one of several that use the socket, or one whose
    /// calls were not seen.
    pub no_thread: HeldByPrograms,
}

/// Threads that call on one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Callers {
    last: Option<u32>,
    are_several: bool,
}

/// What the threads of a program do on a connection, and the time that is laid to them.
#[derive(Debug, Default)]
pub(super) struct Users {
    callers: [Callers; 2],
    /// The thread that acts just now, and so ends what waited for that.
    actor: Option<(Way, u32)>,
    /// The thread that wrote last, before what happens now: one that begins to write had no part in it yet.
    wrote: Option<u32>,
    laid: [Laid; 2],
}

impl Users {
    /// An event is taken in.
    pub(super) fn event(&mut self, event: &Event) {
        let way = match event.what {
            What::Reached(Stamp::WriteBegin | Stamp::WriteEnd) => Some(Way::Forward),
            What::Reached(Stamp::Read) | What::Task(Task::Ran { .. }) => Some(Way::Backward),
            What::Call(Call::Begin { .. } | Call::End { .. }) => Some(event.direction),
            _ => None,
        };
        self.actor = way.zip(event.who.map(|task| task.0));
        let begins_to_write = event.direction == Way::Forward
            && matches!(event.what, What::Reached(Stamp::WriteBegin) | What::Call(Call::Begin { .. }));
        let had_written = self.callers[Way::Forward.index()].last;
        // One that runs is about to call.
        if let Some((way, thread)) = self.actor.filter(|_| !matches!(event.what, What::Task(_))) {
            let callers = &mut self.callers[way.index()];
            callers.are_several |= callers.last.is_some_and(|last| last != thread);
            callers.last = Some(thread);
        }
        self.wrote = if begins_to_write { had_written } else { self.callers[Way::Forward.index()].last };
    }

    pub(super) const fn last_caller(&self, way: Way) -> Option<u32> {
        self.callers[way.index()].last
    }

    /// What comes next is no event.
    pub(super) const fn nobody_acts(&mut self) {
        self.actor = None;
        self.wrote = self.callers[Way::Forward.index()].last;
    }

    /// The thread that a time is laid to: the one that ends it, or else the only one that ever called.
    fn laid_to(&self, way: Way, holder: Holder) -> Option<u32> {
        let is_own = match holder {
            Holder::SendingProgram => way == Way::Forward,
            // What is sent waits for the program at the other end.
            Holder::ReceivingProgram | Holder::Processor => way == Way::Backward,
            _ => false,
        };
        let callers = &self.callers[way.index()];
        let sole = callers.last.filter(|_| !callers.are_several);
        let acting = self.actor.filter(|(acts, _)| *acts == way).map(|(_, thread)| thread);
        acting.or(sole).filter(|_| is_own)
    }

    /// The thread of a wait: of what is sent the one that wrote last.
    pub(super) fn of_wait(&self, way: Way, holder: Holder) -> Option<u32> {
        match way {
            Way::Forward => self.wrote,
            Way::Backward => self.laid_to(way, holder),
        }
    }

    /// A holder had so much time.
    pub(super) fn book(&mut self, way: Way, holder: Holder, ns: u64) {
        let thread = self.laid_to(way, holder);
        self.laid[way.index()].add(thread, holder, ns);
    }

    pub(super) const fn laid(&self, way: Way) -> &Laid {
        &self.laid[way.index()]
    }

    /// The same of what is sent, where others tell who held it.
    pub(super) fn laid_anew(&self, held: impl Iterator<Item = (Holder, u64)>) -> Laid {
        let mut laid = Laid::default();
        held.for_each(|(holder, ns)| laid.add(self.laid_to(Way::Forward, holder), holder, ns));
        laid
    }
}

/// The time of one direction, by thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Laid(Vec<(Option<u32>, HeldByPrograms)>);

impl Laid {
    fn add(&mut self, thread: Option<u32>, holder: Holder, ns: u64) {
        if !matches!(holder, Holder::SendingProgram | Holder::ReceivingProgram | Holder::Processor) {
            return;
        }
        let find = |rows: &[(Option<u32>, HeldByPrograms)], thread| rows.iter().position(|(known, _)| *known == thread);
        // The row of those that are not told apart is none of theirs.
        let most = MOST_OF_DIRECTION + usize::from(find(&self.0, None).is_some());
        let thread = thread.filter(|&own| self.0.len() < most || find(&self.0, Some(own)).is_some());
        let place = find(&self.0, thread).unwrap_or_else(|| {
            self.0.push((thread, HeldByPrograms::default()));
            self.0.len() - 1
        });
        self.0[place].1.add(holder, ns);
    }
}

/// The same over all directions.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: BTreeMap<u32, HeldByPrograms>,
    others: u64,
    of_others: HeldByPrograms,
    no_thread: HeldByPrograms,
}

impl Threads {
    pub(super) fn add(&mut self, laid: &Laid) {
        for (thread, held) in &laid.0 {
            let row = thread.map_or(&mut self.no_thread, |thread| self.known.entry(thread).or_default());
            row.add_all(held);
        }
        if self.known.len() > 2 * MOST {
            let rows = std::mem::take(&mut self.known).into_iter().collect();
            self.known = self.worst(rows, MOST).into_iter().collect();
        }
    }

    /// So many of the worst, worst first; the rest is added up.
    fn worst(&mut self, mut rows: Vec<(u32, HeldByPrograms)>, most: usize) -> Vec<(u32, HeldByPrograms)> {
        rows.sort_by_key(|(thread, held)| (Reverse(held.weight()), *thread));
        for (_, held) in rows.drain(most.min(rows.len())..) {
            self.others += 1;
            self.of_others.add_all(&held);
        }
        rows
    }

    /// At most so many are told by themselves.
    pub(super) fn finish(mut self, most: usize) -> TracedThreads {
        let rows = std::mem::take(&mut self.known).into_iter().collect();
        let rows = self.worst(rows, most);
        let worst = rows.into_iter().map(|(thread, held)| TracedThread { thread, program: None, held }).collect();
        TracedThreads { worst, others: self.others, of_others: self.of_others, no_thread: self.no_thread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_threads_there_are_memory_is_bounded_and_nothing_is_lost() {
        let mut laid = Laid::default();
        (0..1000).for_each(|thread| laid.add(Some(thread), Holder::ReceivingProgram, 3));
        laid.add(Some(0), Holder::Processor, 5);
        assert_eq!(laid.0.len(), MOST_OF_DIRECTION + 1, "and those that are not told apart");
        let mut after = Laid::default();
        [None].into_iter().chain((0..1000).map(Some)).for_each(|thread| after.add(thread, Holder::Processor, 1));
        assert_eq!(after.0.len(), MOST_OF_DIRECTION + 1, "also where the first one is not known");
        let mut threads = Threads::default();
        threads.add(&laid);
        for thread in 2000..40_000 {
            let mut laid = Laid::default();
            laid.add(Some(thread), Holder::SendingProgram, u64::from(thread));
            threads.add(&laid);
            assert!(threads.known.len() <= 2 * MOST);
        }
        let told = threads.finish(5);
        let rows = told.worst.iter().map(|row| row.held).chain([told.of_others, told.no_thread]);
        let sum = rows.fold(HeldByPrograms::default(), |mut sum, row| {
            sum.add_all(&row);
            sum
        });
        assert_eq!((sum.receiving_program_ns, sum.processor_ns), (3000, 5));
        assert_eq!(sum.sending_program_ns, (2000..40_000).sum::<u64>());
        assert_eq!(sum.held_ns, sum.sending_program_ns + 3005);
        // Those for which data waited come before those that did not write, however long that was.
        assert_eq!((told.worst.len(), told.worst[0].thread, told.worst[0].held.data_waited_ns()), (5, 0, 8));
        assert!(told.no_thread.receiving_program_ns > 0 && told.others > 30_000);
    }
}
