//! What the time from the arrival of data to its reading is made of, where a program waits for several descriptors at
//! once: its event loop was busy with something else, the wait came back, and then the task that reads had its turn.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tcp::sample::Sample;
use crate::words;

/// Arrivals into what was empty, from the first byte of each to the first read after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness {
    spell: Spell,
    /// All of it has been taken, and the read that took it has not come back yet: it acknowledges before that.
    is_taken: bool,
    /// Until the program waits for its descriptors again; nothing if it did when the data came.
    at_work: Stretch,
    /// In waits that the data did not end.
    asleep: Stretch,
    /// From the last such call, until it comes back.
    waking: Stretch,
    /// From there to the read.
    task: Stretch,
    unpolled: u64,
    /// How long its thread was ready to run, and did not, since the last wait came back.
    not_run_ns: u64,
}

/// A wait for a descriptor that can be read comes back at once. One that goes on for longer, but for the time without a
/// processor, is for other descriptors. This leaves room for a processor that has to wake up itself.
const AT_ONCE_NS: u64 = 500_000;

#[derive(Clone, Copy, Debug, Default)]
enum Spell {
    /// Something may wait, or not; if so, nobody knows since when.
    #[default]
    NotKnown,
    Empty,
    Arrived(Since),
    Polled {
        since: Since,
        waking: u64,
    },
    /// Something waits that was partly read, and its arrival is not known.
    Begun,
}

/// What the time since an arrival was made of, up to a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    at_work: u64,
    asleep: u64,
    until: u64,
}

impl Since {
    const fn arrival(at: u64) -> Self {
        Self { at_work: 0, asleep: 0, until: at }
    }
}

#[derive(Clone, Debug, Default)]
struct Stretch {
    ns: u64,
    each: Sample,
}

impl Stretch {
    fn add(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        self.each.add(ns);
    }

    fn told(&self) -> ReadinessPart {
        ReadinessPart {
            held_ns: self.ns,
            median_ns: self.each.median().unwrap_or_default(),
            longest_ns: self.each.max(),
        }
    }
}

impl Readiness {
    /// Something waits to be read now, or nothing does.
    pub(super) const fn state(&mut self, at: u64, has_unread: bool) {
        match self.spell {
            Spell::Arrived(_) | Spell::Polled { .. } if !has_unread => self.is_taken = true,
            _ if !has_unread => self.spell = Spell::Empty,
            Spell::Empty => self.spell = Spell::Arrived(Since::arrival(at)),
            // How that was read was not seen.
            _ if self.is_taken => (self.spell, self.is_taken) = (Spell::Arrived(Since::arrival(at)), false),
            _ => {}
        }
    }

    /// Its thread runs, after it was ready to for so long.
    pub(super) const fn ran(&mut self, waited_ns: u64) {
        self.not_run_ns = self.not_run_ns.saturating_add(waited_ns);
    }

    /// A wait for several descriptors came back after so long.
    pub(super) fn polled(&mut self, at: u64, waited_ns: u64) {
        let at_once_ns = AT_ONCE_NS.saturating_add(std::mem::take(&mut self.not_run_ns));
        self.came_back(at, waited_ns, Some(at_once_ns));
    }

    /// The same, but none of its descriptors was ready.
    pub(super) fn timed_out(&mut self, at: u64, waited_ns: u64) {
        self.not_run_ns = 0;
        self.came_back(at, waited_ns, None);
    }

    /// It told of what came if it took no longer than so.
    fn came_back(&mut self, at: u64, waited_ns: u64, at_once_ns: Option<u64>) {
        let Spell::Arrived(mut since) = self.spell else { return };
        let called = at.saturating_sub(waited_ns).max(since.until);
        let stayed = at.saturating_sub(called);
        since.at_work += called - since.until;
        since.until = at.max(called);
        self.spell = if at_once_ns.is_some_and(|most| stayed <= most) {
            Spell::Polled { since, waking: stayed }
        } else {
            since.asleep += stayed;
            Spell::Arrived(since)
        };
    }

    /// Something was read.
    pub(super) fn read(&mut self, at: u64) {
        let rest = if std::mem::take(&mut self.is_taken) { Spell::Empty } else { Spell::Begun };
        match std::mem::replace(&mut self.spell, rest) {
            Spell::Polled { since, waking } => {
                self.at_work.add(since.at_work);
                self.asleep.add(since.asleep);
                self.waking.add(waking);
                self.task.add(at.saturating_sub(since.until));
            }
            Spell::Arrived(_) => self.unpolled += 1,
            _ => {}
        }
    }

    /// What happened since the last event is not known.
    pub(super) const fn forget(&mut self) {
        (self.spell, self.is_taken) = (Spell::NotKnown, false);
    }

    /// What it came to; nothing if no wait for descriptors was seen to tell of an arrival.
    pub(super) fn told(&self) -> Option<TracedReadiness> {
        let arrivals = self.task.each.count();
        (arrivals > 0).then(|| TracedReadiness {
            arrivals,
            other_arrivals: self.unpolled,
            at_work: self.at_work.told(),
            asleep: self.asleep.told(),
            waking: self.waking.told(),
            task: self.task.told(),
        })
    }
}

/// From the arrival of data into an empty receive queue to the first read after it, where epoll_wait(2), poll(2) or
/// select(2) told the program of it. The parts add up to that time.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct TracedReadiness {
    /// Such arrivals.
    pub arrivals: u64,
    /// Arrivals that were read without such a call between: in a blocking read, since the program asked for more, or
    /// while it waited for other descriptors.
    pub other_arrivals: u64,
    /// Until the program called epoll_wait, poll or select: its event loop was at something else.
    pub at_work: ReadinessPart,
    /// In such calls that went on although the data was there: they did not wait for this one, as where the program had
    /// paused its reading.
    pub asleep: ReadinessPart,
    /// Until the call that told of it came back: the wake-up.
    pub waking: ReadinessPart,
    /// Until the read: the asynchronous runtime, and the program's own tasks before this one with all that they wait
    /// for.
    pub task: ReadinessPart,
}

/// A part of that time.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ReadinessPart {
    /// In all.
    pub held_ns: u64,
    /// Of one arrival, the median.
    pub median_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl TracedReadiness {
    /// In words.
    pub(super) fn lines(&self) -> Vec<String> {
        let parts = [self.at_work, self.asleep, self.waking, self.task];
        let whole = parts.iter().map(|part| part.held_ns).sum::<u64>().max(1);
        let part = |part: &ReadinessPart| {
            let share = part.held_ns as f64 / whole as f64 * 100.0;
            format!("{share:.0} % ({} at most)", words::time(part.longest_ns))
        };
        let mut lines = vec![format!(
            "epoll_wait, poll or select told the program of {} arrivals. Of the time from arrival to read, its event \
             loop was busy with something else for {}, the wake-up took {}, and the runtime's and the program's tasks \
             {}.",
            self.arrivals,
            part(&self.at_work),
            part(&self.waking),
            part(&self.task)
        )];
        if self.asleep.held_ns > 0 {
            lines.push(format!(
                "{} of it passed in such calls that went on although the data was there: the program had paused its \
                 reading, or waited for other descriptors.",
                part(&self.asleep)
            ));
        }
        match self.other_arrivals {
            0 => {}
            1 => lines.push("1 more arrival was read without such a call.".to_owned()),
            more => lines.push(format!("{more} more arrivals were read without such a call.")),
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(told: &TracedReadiness) -> [u64; 3] {
        assert_eq!(told.asleep.held_ns, 0);
        [told.at_work.held_ns, told.waking.held_ns, told.task.held_ns]
    }

    #[test]
    fn a_busy_loop_is_told_from_a_task_that_waits() {
        let mut readiness = Readiness::default();
        // What was there before nobody knows the arrival of.
        readiness.state(5, true);
        readiness.polled(6, 1);
        readiness.read(7);
        readiness.state(7, false);
        assert_eq!(readiness.told(), None);
        // The loop waits when it comes.
        readiness.state(100, true);
        readiness.polled(103, 50);
        readiness.read(110);
        readiness.state(110, false);
        assert_eq!(parts(&readiness.told().unwrap()), [0, 3, 7]);
        // The loop is at something else until 1,000; more comes, and half of it is read.
        readiness.state(200, true);
        readiness.state(300, true);
        readiness.polled(1_001, 1);
        readiness.polled(1_002, 1);
        readiness.read(1_011);
        readiness.state(1_011, true);
        readiness.polled(2_000, 1);
        readiness.read(2_001);
        readiness.state(2_001, false);
        assert_eq!(parts(&readiness.told().unwrap()), [800, 4, 17]);
        // It is taken before the read comes back, and one of which that is not seen.
        readiness.state(2_100, true);
        readiness.polled(2_101, 5);
        readiness.state(2_102, false);
        readiness.read(2_103);
        readiness.state(2_103, false);
        readiness.state(2_200, true);
        readiness.polled(2_201, 5);
        readiness.state(2_202, false);
        readiness.state(2_300, true);
        readiness.polled(2_301, 5);
        readiness.read(2_302);
        readiness.state(2_302, false);
        assert_eq!(parts(&readiness.told().unwrap()), [800, 6, 20]);
        // A blocking read, and one of which events are missing.
        readiness.state(3_000, true);
        readiness.read(3_001);
        readiness.state(3_001, false);
        readiness.state(4_000, true);
        readiness.forget();
        readiness.read(4_001);
        let told = readiness.told().unwrap();
        assert_eq!((told.arrivals, told.other_arrivals), (4, 1));
    }

    #[test]
    fn a_wait_that_the_data_does_not_end_is_for_something_else() {
        let mut readiness = Readiness::default();
        readiness.state(0, false);
        // The loop waits when it comes and goes on waiting, works, waits for 2 ms more, and is told at last.
        readiness.state(1_000_000, true);
        readiness.polled(4_000_000, 3_500_000);
        readiness.polled(7_000_000, 2_000_000);
        readiness.polled(8_000_100, 100);
        readiness.read(8_000_400);
        readiness.state(8_000_400, false);
        // Woken at once, but without a processor.
        readiness.state(9_000_000, true);
        readiness.ran(2_900_000);
        readiness.polled(12_000_000, 3_500_000);
        readiness.read(12_000_000);
        readiness.state(12_000_000, false);
        // Its time is up, though data is there.
        readiness.state(13_000_000, true);
        readiness.timed_out(13_400_000, 300_000);
        readiness.polled(13_400_100, 100);
        readiness.read(13_400_100);
        readiness.state(13_400_100, false);
        // Read in the end, though nothing told of it.
        readiness.state(20_000_000, true);
        readiness.polled(24_000_000, 3_500_000);
        readiness.read(24_000_100);
        let told = readiness.told().unwrap();
        assert_eq!((told.arrivals, told.other_arrivals), (3, 1));
        let parts = [told.at_work, told.asleep, told.waking, told.task].map(|part| part.held_ns);
        assert_eq!(parts, [2_100_000, 5_300_000, 3_000_200, 300]);
        assert!(told.lines().iter().any(|line| line.contains("paused its reading")), "{:?}", told.lines());
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_time_from_arrival_to_read(
            steps in prop::collection::vec((0_u8..6, 0_u64..400_000, 0_u64..900_000), 0..60),
        ) {
            let mut readiness = Readiness::default();
            let (mut at, mut arrived, mut whole) = (0, None, 0);
            let all = |readiness: &Readiness| {
                readiness.told().map_or((0, 0), |told| {
                    let parts = [told.at_work, told.asleep, told.waking, told.task];
                    (told.arrivals, parts.iter().map(|part| part.held_ns).sum())
                })
            };
            readiness.state(0, false);
            for (kind, step, waited) in steps {
                at += step;
                match kind {
                    0 => {
                        readiness.state(at, true);
                        arrived.get_or_insert(at);
                    }
                    1 => readiness.polled(at, waited),
                    4 => readiness.ran(waited),
                    5 => readiness.timed_out(at, waited),
                    _ => {
                        if kind == 2 {
                            readiness.state(at, false);
                        }
                        let (told, _) = all(&readiness);
                        readiness.read(at);
                        readiness.state(at, false);
                        let came = arrived.take();
                        whole += came.filter(|_| all(&readiness).0 > told).map_or(0, |came| at - came);
                    }
                }
            }
            prop_assert_eq!(all(&readiness).1, whole);
        }
    }
}
