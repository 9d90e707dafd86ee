//! Results that are not yet with the server.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
}

/// In the directory: the last result that was made, whether it is sent or not.
const LAST: &str = "last";

impl Unsent {
    /// With what an earlier life has left; if that life has not closed its plan, it is closed after that.
    ///
    /// # Errors
    /// Where the directory can't be made or read. Files in it that are no results are left alone.
    pub(super) fn open(directory: Option<&Path>) -> Result<Self, Error> {
        let mut left = Vec::new();
        if let Some(directory) = directory {
            let wrong = |error: io::Error| Error::new(format!("--state {}: {error}", directory.display()));
            fs::create_dir_all(directory).map_err(wrong)?;
            for entry in fs::read_dir(directory).map_err(wrong)? {
                let path = entry.map_err(wrong)?.path();
                if path.extension().is_some_and(|extension| extension == "result") {
                    left.extend(read(&path).map(|report| (path, report)));
                }
            }
        }
        left.sort_by_key(|(_, report)| (report.epoch, report.seq));
        let too_many = left.len().saturating_sub(MOST_UNSENT);
        // It can be in nobody's way but the next start's.
        left.drain(..too_many).for_each(|(path, _)| drop(fs::remove_file(path)));
        let waiting = left.into_iter().map(|(_, report)| report).collect();
        let mut unsent = Self { waiting, directory: directory.map(Path::to_owned), dropped: 0, of: (String::new(), 0) };
        let last = directory.and_then(|directory| read(&directory.join(LAST)));
        let last =
            unsent.waiting.back().cloned().into_iter().chain(last).max_by_key(|report| (report.epoch, report.seq));
        if let Some(last) = last.filter(|last| !matches!(last.found, Found::Closed)) {
            unsent.dropped = last.dropped;
            unsent.of = (last.plan.clone(), last.epoch);
            let seq = last.seq.saturating_add(1);
            unsent.push(Report { found: Found::Closed, seq, ..last });
        }
        Ok(unsent)
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
        }
        report.dropped = self.dropped;
        if let Some(directory) = &self.directory {
            let bytes = written(&report);
            // Without room on the disk it is sent all the same.
            for path in self.path(&report).into_iter().chain([directory.join(LAST)]) {
                let _ = fs::write(path, &bytes);
            }
        }
        self.waiting.push_back(report);
    }

    pub(super) fn first(&self) -> Option<&Report> {
        self.waiting.front()
    }

    /// Takes out what has been sent, unless it was dropped meanwhile.
    pub(super) fn sent(&mut self, id: &str) {
        if let Some(report) = self.waiting.pop_front_if(|first| first.id() == id) {
            self.forget(&report);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn forget(&self, report: &Report) {
        self.path(report).into_iter().for_each(|path| drop(fs::remove_file(path)));
    }

    fn path(&self, report: &Report) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{}-{}.result", report.epoch, report.seq)))
    }
}

fn read(path: &Path) -> Option<Report> {
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
        // One more for the last one.
        let files = || fs::read_dir(directory.path()).unwrap().count() - 1;
        let mut unsent = Unsent::open(Some(directory.path())).unwrap();
        (1..=302).for_each(|seq| unsent.push(report(seq)));
        assert_eq!((unsent.len(), files()), (MOST_UNSENT, MOST_UNSENT));
        assert_eq!(unsent.first().map(|report| (report.seq, report.dropped)), Some((3, 0)));
        assert_eq!(unsent.waiting.back().map(|report| (report.seq, report.dropped)), Some((302, 2)));
        // What is acknowledged after it was dropped takes nothing else away.
        unsent.sent(&report(1).id());
        assert_eq!(unsent.len(), MOST_UNSENT);
        unsent.sent(&report(3).id());
        assert_eq!((unsent.len(), files()), (MOST_UNSENT - 1, MOST_UNSENT - 1));
    }

    #[test]
    fn the_next_life_finds_what_is_unsent_and_closes_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut unsent = Unsent::open(Some(directory.path())).unwrap();
        (1..=3).for_each(|seq| unsent.push(report(seq)));
        unsent.sent(&report(1).id());
        fs::write(directory.path().join("x.result"), "{ no JSON").unwrap();
        let mut again = Unsent::open(Some(directory.path())).unwrap();
        let found: Vec<u64> = again.waiting.iter().map(|report| report.seq).collect();
        assert_eq!(found, [2, 3, 4]);
        assert!(matches!(again.waiting.back().unwrap().found, Found::Closed));
        (2..=4).for_each(|seq| again.sent(&report(seq).id()));
        // It is closed once.
        assert_eq!(Unsent::open(Some(directory.path())).unwrap().len(), 0);
        // What was sent to its last is closed, too.
        again.push(Report { epoch: 2, ..report(1) });
        again.sent(&Report { epoch: 2, ..report(1) }.id());
        let third = Unsent::open(Some(directory.path())).unwrap();
        assert_eq!(third.first().map(|report| (report.epoch, report.seq)), Some((2, 2)));
    }
}
