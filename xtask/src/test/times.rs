//! What tests took before: the longest begin first, and those that mostly wait stand beside those that compute.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::job::{Finished, Job, Verdict};
use super::kind::Kind;

/// What is known of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Past {
    /// How long it took.
    pub(super) time: Duration,
    /// Cores that it kept busy meanwhile, on average.
    pub(super) load: f64,
}

/// Times of the last run of each test, kept beside what is built.
pub(super) struct Times {
    file: PathBuf,
    past: BTreeMap<String, Past>,
}

impl Times {
    /// Those in the file; none when there was no run, or it can't be read.
    pub(super) fn of(file: &Path) -> Self {
        let file = file.to_owned();
        let text = fs::read_to_string(&file).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let past = value.as_object().into_iter().flatten().filter_map(|(name, row)| {
            let [time, load] = ["seconds", "load"].map(|field| row[field].as_f64());
            Some((name.clone(), Past { time: Duration::try_from_secs_f64(time?).ok()?, load: load? }))
        });
        Self { past: past.collect(), file }
    }

    /// What a job will need. One that has not run yet is taken for a long one if its kind is.
    pub(super) fn expected(&self, job: &Job) -> Past {
        // Of a job with several tests each has the time of all.
        let tests = self.past.range(job.name.clone()..).take_while(|(name, _)| name.starts_with(&job.name));
        let tests = tests.filter(|(name, _)| job.is_meant_by(name)).map(|(_, past)| *past);
        let unknown = match job.kind {
            Kind::Guest | Kind::DebugKernel | Kind::Apart => Past { time: Duration::from_secs(60), load: 1.0 },
            Kind::Host | Kind::Browser | Kind::Bench | Kind::Timing => Past { time: Duration::ZERO, load: 1.0 },
        };
        tests.max_by_key(|past| past.time).unwrap_or(unknown)
    }

    /// Takes the time of a test that passed.
    pub(super) fn note(&mut self, finished: &Finished) {
        if finished.verdict == Verdict::Passed {
            let load = finished.cpu.as_secs_f64() / finished.time.as_secs_f64().max(0.001);
            self.past.insert(finished.name.clone(), Past { time: finished.time, load });
        }
    }

    /// Keeps them.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn keep(&self) -> Result<()> {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let row = |past: &Past| json!({ "seconds": round(past.time.as_secs_f64()), "load": round(past.load) });
        let rows: serde_json::Map<String, Value> =
            self.past.iter().map(|(name, past)| (name.clone(), row(past))).collect();
        let text = serde_json::to_string_pretty(&Value::Object(rows))?;
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::job::Work;
    use super::*;

    fn finished(name: &str, verdict: Verdict, time: u64, cpu: u64) -> Finished {
        let [time, cpu] = [time, cpu].map(Duration::from_secs);
        Finished { name: name.to_owned(), kind: Kind::Host, verdict, time, cpu, is_short: false, output: String::new() }
    }

    #[test]
    fn what_passed_is_known_in_the_next_run() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("times");
        let mut times = Times::of(&file);
        times.note(&finished("a b", Verdict::Passed, 10, 5));
        times.note(&finished("a bc", Verdict::Passed, 100, 5));
        times.note(&finished("a c", Verdict::Failed, 10, 5));
        times.note(&finished("loom one", Verdict::Passed, 20, 0));
        times.keep().unwrap();

        let times = Times::of(&file);
        let test = |name: &str, kind| {
            times.expected(&Job { name: name.to_owned(), kind, work: Work::Test(Command::new("true")) })
        };
        assert_eq!(test("a b", Kind::Host), Past { time: Duration::from_secs(10), load: 0.5 });
        assert_eq!(test("a c", Kind::Host), Past { time: Duration::ZERO, load: 1.0 });
        assert_eq!(test("a c", Kind::Guest).time, Duration::from_secs(60));
        let several = Job { name: "loom".to_owned(), kind: Kind::Apart, work: Work::Command(Command::new("true")) };
        assert_eq!(times.expected(&several).time, Duration::from_secs(20));
    }

    #[test]
    fn a_file_that_is_none_is_as_no_run() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("times");
        fs::write(&file, "[1, {\"a\":").unwrap();
        assert!(Times::of(&file).past.is_empty());
        assert!(Times::of(directory.path()).past.is_empty());
    }
}
