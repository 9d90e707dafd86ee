//! Results that are not yet with the server.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::message::{Found, LONGEST_REPORT, Report, written};
use crate::error::Error;

/// Results that are kept while the server is away; the oldest is dropped then, and counted.
pub(super) const MOST_UNSENT: usize = 300;

/// Results in their order. With a directory each of them is in a file there as well, until it is sent, so that an agent
/// that is killed finds them again.
pub(super) struct Unsent {
    waiting: VecDeque<Report>,
    directory: Option<PathBuf>,
    /// Of this plan and life.
    dropped: u64,
    of: (String, u64),
    /// Results of all plans since this was opened.
    all_dropped: u64,
    /// Held as long as the directory is used.
    lock: Option<File>,
}

/// In the directory: how far a life has come under its plan, whether what it made is sent or not.
const LAST: &str = "last";
/// The same while it is written.
const LAST_NEW: &str = "last.new";
/// In the directory: locked by who uses it.
const LOCK: &str = "lock";

/// What stands in [`LAST`].
#[derive(Deserialize, Serialize)]
struct Last {
    agent: String,
    epoch: u64,
    plan: String,
    before: u64,
    /// Of its last result, or the one before its first.
    seq: u64,
    dropped: u64,
    is_closed: bool,
}

impl Unsent {
    /// With what an earlier life has left; if that life has not closed its plan, it is closed after that.
    ///
    /// # Errors
    /// Where the directory can't be made or read, or another agent uses it. Files in it that are no results are left
    /// alone.
    pub(super) fn open(directory: Option<&Path>) -> Result<Self, Error> {
        let (mut left, mut lock) = (Vec::new(), None);
        if let Some(directory) = directory {
            let wrong = |error: io::Error| Error::new(format!("--state {}: {error}", directory.display()));
            fs::create_dir_all(directory).map_err(wrong)?;
            lock = Some(locked(directory)?);
            for entry in fs::read_dir(directory).map_err(wrong)? {
                let path = entry.map_err(wrong)?.path();
                if path.extension().is_some_and(|extension| extension == "result") {
                    left.extend(read::<Report>(&path).map(|report| (path, report)));
                }
            }
        }
        left.sort_by_key(|(_, report)| (report.epoch, report.seq));
        let too_many = left.len().saturating_sub(MOST_UNSENT);
        // It can be in nobody's way but the next start's.
        left.drain(..too_many).for_each(|(path, _)| drop(fs::remove_file(path)));
        let waiting: VecDeque<Report> = left.into_iter().map(|(_, report)| report).collect();
        let (directory, of) = (directory.map(Path::to_owned), (String::new(), 0));
        let mut unsent = Self { waiting, directory, dropped: 0, of, all_dropped: 0, lock };
        unsent.close_last();
        Ok(unsent)
    }

    /// Closes the life before this one, unless that is done. What does not say how far it came is left unclosed: with
    /// too low a number it would be lost untold.
    fn close_last(&mut self) {
        let last = self.directory.as_ref().and_then(|directory| read::<Last>(&directory.join(LAST)));
        let Some(mut last) = last.filter(|last| !last.is_closed) else { return };
        if let Some(newest) = self.waiting.back().filter(|newest| newest.epoch >= last.epoch) {
            // Killed between the one file and the other, it is one behind.
            let is_next = newest.epoch == last.epoch && newest.seq <= last.seq.saturating_add(1);
            if !is_next || matches!(newest.found, Found::Closed) {
                return;
            }
            last.seq = last.seq.max(newest.seq);
            if newest.plan == last.plan {
                last.dropped = last.dropped.max(newest.dropped);
            }
        }
        self.dropped = last.dropped;
        self.of = (last.plan.clone(), last.epoch);
        let seq = last.seq.saturating_add(1);
        self.push(Report::new(&last.agent, last.epoch, seq, last.before, &last.plan, Found::Closed));
    }

    /// Says that a plan is in force from now on, so that it is closed also if nothing is ever made under it.
    pub(super) fn begin(&mut self, agent: &str, epoch: u64, before: u64, plan: &str) {
        (self.dropped, self.of) = (0, (plan.to_owned(), epoch));
        let (agent, plan) = (agent.to_owned(), plan.to_owned());
        self.note(&Last { agent, epoch, plan, before, seq: before, dropped: 0, is_closed: false });
    }

    /// Takes one in; the oldest is dropped for it where there is no room.
    pub(super) fn push(&mut self, mut report: Report) {
        if self.of.0 != report.plan || self.of.1 != report.epoch {
            (self.dropped, self.of) = (0, (report.plan.clone(), report.epoch));
        }
        while self.waiting.len() >= MOST_UNSENT {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.forget(&oldest);
            // Nobody who reads this plan misses the number of another one's.
            self.dropped += u64::from(oldest.plan == report.plan && oldest.epoch == report.epoch);
            self.all_dropped += u64::from(is_result(&oldest));
        }
        report.dropped = self.dropped;
        if let Some(path) = self.path(&report)
            && fs::write(&path, written(&report)).is_err()
        {
            // Without room on the disk it is sent all the same. A part of it would be in the way.
            let _ = fs::remove_file(path);
        }
        self.note(&Last {
            agent: report.agent.clone(),
            epoch: report.epoch,
            plan: report.plan.clone(),
            before: report.before,
            seq: report.seq,
            dropped: report.dropped,
            is_closed: matches!(report.found, Found::Closed),
        });
        self.waiting.push_back(report);
    }

    /// Writes how far this life is, whole or not at all: nothing there is better than less than it made.
    fn note(&self, last: &Last) {
        let Some(directory) = &self.directory else { return };
        let (new, path) = (directory.join(LAST_NEW), directory.join(LAST));
        if fs::write(&new, written(last)).and_then(|()| fs::rename(&new, &path)).is_err() {
            let _ = (fs::remove_file(&new), fs::remove_file(&path));
        }
    }

    pub(super) fn first(&self) -> Option<&Report> {
        self.waiting.front()
    }

    /// Takes out what has been sent, unless it was dropped meanwhile. Whether it was a result.
    pub(super) fn sent(&mut self, id: &str) -> bool {
        let Some(report) = self.waiting.pop_front_if(|first| first.id() == id) else { return false };
        self.forget(&report);
        is_result(&report)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many results wait: what says that a plan is over is none.
    pub(super) fn results(&self) -> usize {
        self.waiting.iter().filter(|report| is_result(report)).count()
    }

    /// How many results were dropped since this was opened.
    pub(super) const fn all_dropped(&self) -> u64 {
        self.all_dropped
    }

    /// Whether there is room for what could as well be said later: nothing that was measured is dropped for it.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MOST_UNSENT / 2
    }

    fn forget(&self, report: &Report) {
        self.path(report).into_iter().for_each(|path| drop(fs::remove_file(path)));
    }

    fn path(&self, report: &Report) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{}-{}.result", report.epoch, report.seq)))
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        // Also where a process that is being started has it still open.
        self.lock.iter().for_each(|lock| drop(lock.unlock()));
    }
}

const fn is_result(report: &Report) -> bool {
    !matches!(report.found, Found::Closed)
}

/// Two agents in one directory would send each other's results, and remove them.
fn locked(directory: &Path) -> Result<File, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::new(format!("--state {}: {why}", directory.display()));
    let lock = File::options().create(true).append(true).open(directory.join(LOCK)).map_err(|error| wrong(&error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(wrong(&"another agent uses this directory: each needs one of its own")),
        Err(TryLockError::Error(error)) => Err(wrong(&error)),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let length = fs::metadata(path).ok()?.len();
    let bytes = if length <= LONGEST_REPORT as u64 { fs::read(path).ok()? } else { return None };
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seq: u64) -> Report {
        let failed = Found::Failed { work: 0, peer: "b".to_owned(), look: false, why: String::new() };
        Report::new("a", 1, seq, 0, "p", failed)
    }

    #[test]
    fn the_oldest_is_dropped_and_the_newest_says_so() {
        let directory = tempfile::tempdir().unwrap();
        // Beside the lock and the last one.
        let files = || fs::read_dir(directory.path()).unwrap().count() - 2;
        let mut unsent = Unsent::open(Some(directory.path())).unwrap();
        (1..=302).for_each(|seq| unsent.push(report(seq)));
        assert_eq!((unsent.len(), files()), (MOST_UNSENT, MOST_UNSENT));
        assert_eq!(unsent.first().map(|report| (report.seq, report.dropped)), Some((3, 0)));
        assert_eq!(unsent.waiting.back().map(|report| (report.seq, report.dropped)), Some((302, 2)));
        assert_eq!((unsent.results(), unsent.all_dropped()), (MOST_UNSENT, 2));
        // What is acknowledged after it was dropped takes nothing else away.
        assert!(!unsent.sent(&report(1).id()));
        assert_eq!(unsent.len(), MOST_UNSENT);
        assert!(unsent.sent(&report(3).id()));
        assert_eq!((unsent.len(), files()), (MOST_UNSENT - 1, MOST_UNSENT - 1));
    }

    #[test]
    fn the_next_life_finds_what_is_unsent_and_closes_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut unsent = Unsent::open(Some(directory.path())).unwrap();
        (1..=3).for_each(|seq| unsent.push(report(seq)));
        assert!(unsent.sent(&report(1).id()));
        fs::write(directory.path().join("x.result"), "{ no JSON").unwrap();
        drop(unsent);
        let mut again = Unsent::open(Some(directory.path())).unwrap();
        let found: Vec<u64> = again.waiting.iter().map(|report| report.seq).collect();
        assert_eq!(found, [2, 3, 4]);
        assert!(matches!(again.waiting.back().unwrap().found, Found::Closed));
        assert_eq!((again.len(), again.results()), (3, 2));
        // Of these, the last one is no result.
        assert_eq!([2, 3, 4].map(|seq| again.sent(&report(seq).id())), [true, true, false]);
        drop(again);
        // It is closed once.
        let mut again = Unsent::open(Some(directory.path())).unwrap();
        assert_eq!(again.len(), 0);
        // What was sent to its last is closed, too.
        again.push(Report { epoch: 2, ..report(1) });
        assert!(again.sent(&Report { epoch: 2, ..report(1) }.id()));
        drop(again);
        let third = Unsent::open(Some(directory.path())).unwrap();
        assert_eq!(third.first().map(|report| (report.epoch, report.seq)), Some((2, 2)));
    }

    #[test]
    fn a_life_that_made_nothing_is_closed_too() {
        let directory = tempfile::tempdir().unwrap();
        Unsent::open(Some(directory.path())).unwrap().begin("a", 7, 5, "p");
        let again = Unsent::open(Some(directory.path())).unwrap();
        let first = again.first().unwrap();
        assert_eq!((first.epoch, first.before, first.seq, first.plan.as_str()), (7, 5, 6, "p"));
        assert!(matches!(first.found, Found::Closed));
    }

    fn two_behind() -> String {
        let (agent, plan) = ("a".to_owned(), "p".to_owned());
        let last = Last { agent, epoch: 1, plan, before: 0, seq: 1, dropped: 0, is_closed: false };
        serde_json::to_string(&last).unwrap()
    }

    #[test]
    fn who_can_t_say_how_far_it_came_does_not_close() {
        for last in ["", "{\"epoch\":1", &two_behind()] {
            let directory = tempfile::tempdir().unwrap();
            let mut unsent = Unsent::open(Some(directory.path())).unwrap();
            (1..=3).for_each(|seq| unsent.push(report(seq)));
            drop(unsent);
            // As a full disk leaves it.
            fs::write(directory.path().join(LAST), last).unwrap();
            assert_eq!(Unsent::open(Some(directory.path())).unwrap().len(), 3);
        }
        // What can't be written is not there rather than old.
        let directory = tempfile::tempdir().unwrap();
        let mut unsent = Unsent::open(Some(directory.path())).unwrap();
        unsent.push(report(1));
        fs::create_dir(directory.path().join(LAST_NEW)).unwrap();
        unsent.push(report(2));
        assert!(!directory.path().join(LAST).exists());
    }

    #[test]
    fn a_directory_is_one_agent_s() {
        let directory = tempfile::tempdir().unwrap();
        let first = Unsent::open(Some(directory.path())).unwrap();
        let error = Unsent::open(Some(directory.path())).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("another agent uses this directory"), "{error}");
        drop(first);
        assert!(Unsent::open(Some(directory.path())).is_ok());
    }
}
