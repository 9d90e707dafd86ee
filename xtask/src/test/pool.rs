//! Several jobs at once: a bounded number of guests, and with others no more than keep the cores busy.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::Result;

use super::job::{Finished, Job};
use super::kind::Kind;
use super::times::{Past, Times};

/// How much may run at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Jobs of any kind.
    pub(super) jobs: usize,
    /// Guests among them.
    pub(super) guests: usize,
    /// Cores that they may want together, going by what they did before. One always runs.
    pub(super) load: f64,
}

impl Limits {
    /// One after the other.
    pub(super) const ALONE: Self = Self { jobs: 1, guests: 1, load: f64::INFINITY };
    /// For cores that are busy already: several that are known to sleep nearly all the time, else one.
    pub(super) const BUSY: Self = Self { jobs: 4, guests: 1, load: 0.5 };
    /// For two cores or more that are to be quiet: four that are known to sleep nearly all the time, three of which
    /// nothing is known, or one.
    pub(super) const QUIET: Self = Self { jobs: 4, guests: 1, load: 0.75 };
}

/// What waits, the longest first, and what runs.
struct Queue {
    waiting: VecDeque<(Job, Past)>,
    running: usize,
    guests: usize,
    load: f64,
    limits: Limits,
}

impl Queue {
    fn new(jobs: Vec<Job>, times: &Times, limits: Limits) -> Self {
        let with_past = |job: Job| {
            let past = times.expected(&job);
            (job, past)
        };
        let mut waiting: Vec<(Job, Past)> = jobs.into_iter().map(with_past).collect();
        waiting.sort_by_key(|(_, past)| std::cmp::Reverse(past.time));
        Self { waiting: waiting.into(), running: 0, guests: 0, load: 0.0, limits }
    }

    /// The longest job that may run now.
    fn next(&mut self) -> Option<(Job, Past)> {
        let may_run = |(job, past): &(Job, Past)| {
            let has_room = self.running == 0 || self.load + past.load <= self.limits.load;
            has_room && (!job.kind.has_a_guest() || self.guests < self.limits.guests)
        };
        let index = self.waiting.iter().position(may_run)?;
        let (job, past) = self.waiting.remove(index)?;
        self.running += 1;
        self.guests += usize::from(job.kind.has_a_guest());
        self.load += past.load;
        Some((job, past))
    }

    fn ended(&mut self, kind: Kind, past: Past) {
        self.running -= 1;
        self.guests -= usize::from(kind.has_a_guest());
        // Nothing runs: nothing is left of rounding.
        self.load = if self.running == 0 { 0.0 } else { self.load - past.load };
    }
}

/// Runs all jobs, the longest first; each that has ended is told of.
///
/// # Errors
/// A job that can't be started; the others run all the same.
pub(super) fn run(jobs: Vec<Job>, times: &Times, limits: Limits, mut tell: impl FnMut(Finished)) -> Result<()> {
    let queue = Mutex::new(Queue::new(jobs, times, limits));
    let freed = Condvar::new();
    let (ended, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..limits.jobs {
            let (ended, queue, freed) = (ended.clone(), &queue, &freed);
            scope.spawn(move || {
                let mut waiting = queue.lock().unwrap_or_else(PoisonError::into_inner);
                while !waiting.waiting.is_empty() {
                    let Some((job, past)) = waiting.next() else {
                        waiting = freed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                        continue;
                    };
                    drop(waiting);
                    let kind = job.kind;
                    // The receiver outlives all that send.
                    let _ = ended.send(job.run());
                    waiting = queue.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting.ended(kind, past);
                    freed.notify_all();
                }
                freed.notify_all();
            });
        }
        drop(ended);
        let mut wrong = Ok(());
        for result in results {
            match result {
                Ok(all) => all.into_iter().for_each(&mut tell),
                Err(error) => wrong = Err(error),
            }
        }
        wrong
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use std::path::Path;
    use std::time::Duration;

    use super::super::job::{Verdict, Work};
    use super::super::kind;
    use super::*;

    fn no_times() -> Times {
        Times::of(Path::new("/nonexistent"), &[])
    }

    fn job(name: &str, kind: Kind, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{script}\necho 'test result: ok. 1 passed;'")]);
        Job { name: name.to_owned(), kind, work: Work::Test(command) }
    }

    #[test]
    fn guests_are_bounded_and_all_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        // Each guest fails that finds another.
        let alone = format!("mkdir {path}/guest || exit 1; sleep 0.05; rmdir {path}/guest");
        let jobs: Vec<Job> = (0..5)
            .flat_map(|index| {
                [job(&format!("g{index}"), Kind::Guest, &alone), job(&format!("h{index}"), Kind::Host, "sleep 0.01")]
            })
            .collect();
        let mut names = Vec::new();
        let limits = Limits { jobs: 3, guests: 1, load: f64::INFINITY };
        run(jobs, &no_times(), limits, |finished| {
            assert_eq!(finished.verdict, Verdict::Passed, "{finished:?}");
            names.push(finished.name);
        })
        .unwrap();
        names.sort();
        assert_eq!(names, ["g0", "g1", "g2", "g3", "g4", "h0", "h1", "h2", "h3", "h4"]);
    }

    #[test]
    fn the_longest_comes_first_and_what_waits_has_room_beside_what_computes() {
        let mut times = no_times();
        for (name, time, cpu) in [("long", 100, 100), ("computes", 50, 50), ("waits", 40, 4), ("short", 1, 1)] {
            let [time, cpu] = [time, cpu].map(Duration::from_secs);
            let (name, output) = (name.to_owned(), String::new());
            let (kind, verdict) = (Kind::Host, Verdict::Passed);
            times.note(&Finished { name, kind, verdict, time, cpu, is_short: false, output });
        }
        let jobs = ["short", "waits", "computes", "long"].map(|name| job(name, Kind::Host, ""));
        let mut queue = Queue::new(jobs.into(), &times, Limits { jobs: 9, guests: 1, load: 1.5 });
        let mut next = || queue.next().map(|(job, past)| (job.name, past));
        let (name, long) = next().unwrap();
        assert_eq!(name, "long");
        assert_eq!(next().unwrap().0, "waits");
        assert_eq!(next(), None);
        queue.ended(Kind::Host, long);
        assert_eq!(queue.next().unwrap().0.name, "computes");
    }

    #[test]
    fn beside_what_needs_quiet_is_only_what_is_known_to_wait() {
        let mut times = no_times();
        for (name, time, cpu) in [("paces", 40, 2), ("waits", 20, 4), ("computes", 10, 6)] {
            let [time, cpu] = [time, cpu].map(Duration::from_secs);
            let (name, output) = (name.to_owned(), String::new());
            let (kind, verdict) = (Kind::Timing, Verdict::Passed);
            times.note(&Finished { name, kind, verdict, time, cpu, is_short: false, output });
        }
        let jobs = ["computes", "waits", "paces"].map(|name| job(name, Kind::Timing, ""));
        let mut queue = Queue::new(jobs.into(), &times, Limits::QUIET);
        let mut next = || queue.next().map(|(job, past)| (job.name, past));
        let paces = next().unwrap();
        let waits = next().unwrap();
        assert_eq!((paces.0.as_str(), waits.0.as_str()), ("paces", "waits"));
        assert_eq!(next(), None);
        queue.ended(Kind::Timing, paces.1);
        assert!(queue.next().is_none());
        queue.ended(Kind::Timing, waits.1);
        assert_eq!(queue.next().unwrap().0.name, "computes");
        assert!(queue.next().is_none());
    }

    /// On a machine where none has run yet, three stand beside each other all the same.
    #[test]
    fn what_needs_quiet_is_taken_to_wait_but_for_what_is_known_to_compute() {
        let computes = kind::COMPUTING[0];
        let jobs = [computes, "one", "other", "third", "fourth"].map(|name| job(name, Kind::Timing, ""));
        let mut queue = Queue::new(jobs.into(), &no_times(), Limits::QUIET);
        assert_eq!(queue.next().unwrap().0.name, computes);
        assert!(queue.next().is_none());
        queue.ended(Kind::Timing, no_times().expected(&job(computes, Kind::Timing, "")));
        let three = [queue.next().unwrap(), queue.next().unwrap(), queue.next().unwrap()].map(|(job, _)| job.name);
        assert_eq!(three, ["one", "other", "third"]);
        assert!(queue.next().is_none());
    }

    #[test]
    fn what_cannot_be_started_is_an_error_and_the_rest_runs() {
        let broken =
            Job { name: "broken".to_owned(), kind: Kind::Host, work: Work::Test(Command::new("/nonexistent/program")) };
        let mut count = 0;
        let jobs = vec![broken, job("other", Kind::Host, "")];
        let outcome = run(jobs, &no_times(), Limits::ALONE, |_| count += 1);
        assert!(format!("{:#}", outcome.unwrap_err()).contains("program"));
        assert_eq!(count, 1);
    }
}
