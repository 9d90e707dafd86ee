//! Several jobs at once: as many guests as there are cores, and with others no more than is asked for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::Result;

use super::job::{Finished, Job};
use super::kind::Kind;

/// What waits and how many guests run.
struct Queue {
    waiting: VecDeque<Job>,
    guests: usize,
    most_guests: usize,
}

impl Queue {
    /// The next job that may run now. Guests come first, since they take longest.
    fn next(&mut self) -> Option<Job> {
        let may_run = |job: &Job| job.kind != Kind::Guest || self.guests < self.most_guests;
        let index = self.waiting.iter().position(may_run)?;
        let job = self.waiting.remove(index)?;
        self.guests += usize::from(job.kind == Kind::Guest);
        Some(job)
    }
}

/// Runs all jobs, at most `at_once` at a time; each that has ended is told of.
///
/// # Errors
/// A job that can't be started; the others run all the same.
pub(super) fn run(jobs: Vec<Job>, at_once: usize, most_guests: usize, mut tell: impl FnMut(Finished)) -> Result<()> {
    let (mut guests, others): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.kind == Kind::Guest);
    guests.extend(others);
    let queue = Mutex::new(Queue { waiting: guests.into(), guests: 0, most_guests });
    let freed = Condvar::new();
    let (ended, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (ended, queue, freed) = (ended.clone(), &queue, &freed);
            scope.spawn(move || {
                let mut waiting = queue.lock().unwrap_or_else(PoisonError::into_inner);
                while !waiting.waiting.is_empty() {
                    let Some(job) = waiting.next() else {
                        waiting = freed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                        continue;
                    };
                    drop(waiting);
                    let is_guest = job.kind == Kind::Guest;
                    // The receiver outlives all that send.
                    let _ = ended.send(job.run());
                    waiting = queue.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting.guests -= usize::from(is_guest);
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

    use super::super::job::{Verdict, Work};
    use super::*;

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
        run(jobs, 3, 1, |finished| {
            assert_eq!(finished.verdict, Verdict::Passed, "{finished:?}");
            names.push(finished.name);
        })
        .unwrap();
        names.sort();
        assert_eq!(names, ["g0", "g1", "g2", "g3", "g4", "h0", "h1", "h2", "h3", "h4"]);
    }

    #[test]
    fn what_cannot_be_started_is_an_error_and_the_rest_runs() {
        let broken =
            Job { name: "broken".to_owned(), kind: Kind::Host, work: Work::Test(Command::new("/nonexistent/program")) };
        let mut count = 0;
        let outcome = run(vec![broken, job("other", Kind::Host, "")], 1, 1, |_| count += 1);
        assert!(format!("{:#}", outcome.unwrap_err()).contains("program"));
        assert_eq!(count, 1);
    }
}
