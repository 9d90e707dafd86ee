//! What tests took before: the longest begin first, and those that mostly wait stand beside those that compute.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::job::{Finished, Job, Verdict};
use super::kind::{self, Kind};

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
    /// Of those that have none there, the nearest first: from runs of another form, and on another machine.
    elsewhere: Vec<BTreeMap<String, Past>>,
}

/// Cores that a test keeps busy of which nothing is known. Most mostly wait; but the first run on a
/// machine, which knows of none, has to leave each the time that it needs.
const UNKNOWN_LOAD: f64 = 1.0;
/// The same where those are known that took longer on another machine: it is a short one, or new.
const SHORT_LOAD: f64 = 0.5;
/// The same for those that look at times: they wait for timers nearly always.
const TIMING_LOAD: f64 = 0.25;
/// What is left of the load that a test had once when the next run finds less: it may have waited for others then.
const FADING: f64 = 0.9;
/// What takes less is told to no other machine: it comes after all that is known, and its turn is short.
const TOLD: Duration = Duration::from_secs(1);
/// Steps of the load that is told, so that another run changes few lines.
const STEPS: f64 = 20.0;

impl Times {
    /// Those in the file; none when there was no run, or it can't be read. `others` have those of runs in another form
    /// or on another machine, good for what has not run in this one here yet; the first that knows a test counts.
    pub(super) fn of(file: &Path, others: &[&Path]) -> Self {
        Self { file: file.to_owned(), past: read(file), elsewhere: others.iter().map(|other| read(other)).collect() }
    }

    /// What a job will need. One that has not run yet is taken for a long one if its kind is.
    pub(super) fn expected(&self, job: &Job) -> Past {
        let (seconds, load) = match job.kind {
            _ if job.kind.has_a_guest() && kind::is_long(&job.name) => (200, UNKNOWN_LOAD),
            Kind::Guest | Kind::ArmGuest | Kind::DebugKernel | Kind::QuietGuest | Kind::Apart | Kind::Bench => {
                (60, UNKNOWN_LOAD)
            }
            Kind::Host | Kind::Browser if self.elsewhere.iter().any(|past| !past.is_empty()) => (0, SHORT_LOAD),
            Kind::Host | Kind::Browser => (0, UNKNOWN_LOAD),
            Kind::Timing if kind::COMPUTING.contains(&job.name.as_str()) => (60, UNKNOWN_LOAD),
            Kind::Timing => (0, TIMING_LOAD),
        };
        let known = iter::once(&self.past).chain(&self.elsewhere).find_map(|past| longest(past, job));
        let past = known.unwrap_or_else(|| Past { time: Duration::from_secs(seconds), load });
        Past { load: past.load.max(kind::least_load(&job.name)), ..past }
    }

    /// Takes the time of a test that passed.
    pub(super) fn note(&mut self, finished: &Finished) {
        if finished.verdict == Verdict::Passed {
            let load = finished.cpu.as_secs_f64() / finished.time.as_secs_f64().max(0.001);
            let before = self.past.get(&finished.name).map_or(0.0, |past| past.load);
            let load = load.max(before * FADING);
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

    /// The rows for machines on which nothing has run yet, and how many there are.
    pub(super) fn told(&self) -> (String, usize) {
        let told = self.past.iter().filter(|(_, past)| past.time >= TOLD);
        let rows: Vec<String> = told
            .map(|(name, past)| {
                let (seconds, load) = (past.time.as_secs_f64().round() as u64, (past.load * STEPS).ceil() / STEPS);
                format!("  {}: {{ \"seconds\": {seconds}, \"load\": {load} }}", json!(name))
            })
            .collect();
        (format!("{{\n{}\n}}\n", rows.join(",\n")), rows.len())
    }
}

/// The rows of a file.
fn read(file: &Path) -> BTreeMap<String, Past> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let past = value.as_object().into_iter().flatten().filter_map(|(name, row)| {
        let [time, load] = ["seconds", "load"].map(|field| row[field].as_f64());
        Some((name.clone(), Past { time: Duration::try_from_secs_f64(time?).ok()?, load: load? }))
    });
    past.collect()
}

/// What is known of a job. Of one with several tests each has the time of all.
fn longest(past: &BTreeMap<String, Past>, job: &Job) -> Option<Past> {
    let tests = past.range(job.name.clone()..).take_while(|(name, _)| name.starts_with(&job.name));
    tests.filter(|(name, _)| job.is_meant_by(name)).map(|(_, past)| *past).max_by_key(|past| past.time)
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
        let mut times = Times::of(&file, &[]);
        times.note(&finished("a b", Verdict::Passed, 10, 5));
        times.note(&finished("a bc", Verdict::Passed, 100, 5));
        times.note(&finished("a c", Verdict::Failed, 10, 5));
        times.note(&finished("loom one", Verdict::Passed, 20, 0));
        times.keep().unwrap();

        let times = Times::of(&file, &[]);
        let test = |name: &str, kind| {
            times.expected(&Job { name: name.to_owned(), kind, work: Work::Test(Command::new("true")) })
        };
        assert_eq!(test("a b", Kind::Host), Past { time: Duration::from_secs(10), load: 0.5 });
        assert_eq!(test("a c", Kind::Host), Past { time: Duration::ZERO, load: UNKNOWN_LOAD });
        assert_eq!(test("a c", Kind::Guest).time, Duration::from_secs(60));
        let several = Job { name: "loom".to_owned(), kind: Kind::Apart, work: Work::Command(Command::new("true")) };
        assert_eq!(times.expected(&several).time, Duration::from_secs(20));
    }

    #[test]
    fn a_form_that_has_not_run_is_taken_for_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let [all, quick] = ["all", "quick"].map(|name| directory.path().join(name));
        let job = |name: &str| Job { name: name.to_owned(), kind: Kind::Host, work: Work::Test(Command::new("true")) };
        let mut times = Times::of(&all, &[]);
        times.note(&finished("a b", Verdict::Passed, 60, 30));
        times.note(&finished("a c", Verdict::Passed, 20, 10));
        times.keep().unwrap();
        let mut times = Times::of(&quick, &[&all]);
        times.note(&finished("a b", Verdict::Passed, 8, 2));
        times.keep().unwrap();
        let times = Times::of(&quick, &[&all]);
        assert_eq!(times.expected(&job("a b")), Past { time: Duration::from_secs(8), load: 0.25 });
        assert_eq!(times.expected(&job("a c")), Past { time: Duration::from_secs(20), load: 0.5 });
        // What is of the other form stays there.
        assert!(!fs::read_to_string(&quick).unwrap().contains("a c"));
    }

    #[test]
    fn a_machine_on_which_nothing_ran_goes_by_what_another_told() {
        let directory = tempfile::tempdir().unwrap();
        let [here, told] = ["here", "told"].map(|name| directory.path().join(name));
        let job = |name: &str| Job { name: name.to_owned(), kind: Kind::Host, work: Work::Test(Command::new("true")) };
        let mut others = Times::of(&directory.path().join("others"), &[]);
        others.note(&finished("a b", Verdict::Passed, 60, 1));
        others.note(&finished("a c", Verdict::Passed, 20, 10));
        others.note(&finished("a d", Verdict::Passed, 0, 0));
        let (text, count) = others.told();
        assert_eq!(count, 2);
        let rows = [r#""a b": { "seconds": 60, "load": 0.05 }"#, r#""a c": { "seconds": 20, "load": 0.5 }"#];
        assert_eq!(text, format!("{{\n  {}\n}}\n", rows.join(",\n  ")));
        fs::write(&told, text).unwrap();
        let mut times = Times::of(&here, &[&told]);
        assert_eq!(times.expected(&job("a b")), Past { time: Duration::from_secs(60), load: 0.05 });
        assert_eq!(times.expected(&job("a d")), Past { time: Duration::ZERO, load: SHORT_LOAD });
        // Its own run counts for more.
        times.note(&finished("a b", Verdict::Passed, 30, 15));
        times.keep().unwrap();
        let times = Times::of(&here, &[&told]);
        assert_eq!(times.expected(&job("a b")), Past { time: Duration::from_secs(30), load: 0.5 });
        assert_eq!(times.expected(&job("a c")).time, Duration::from_secs(20));
    }

    #[test]
    fn a_pair_has_two_processors_whatever_it_took() {
        let directory = tempfile::tempdir().unwrap();
        let mut times = Times::of(&directory.path().join("times"), &[]);
        let pair = "xtask::lab_two the_receivers_rule_of_credits_counts";
        times.note(&finished(pair, Verdict::Passed, 60, 30));
        let job = Job { name: pair.to_owned(), kind: Kind::Guest, work: Work::Test(Command::new("true")) };
        assert_eq!(times.expected(&job), Past { time: Duration::from_secs(60), load: 2.0 });
    }

    #[test]
    fn a_load_is_forgotten_slowly_and_a_greater_one_taken_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut times = Times::of(&directory.path().join("times"), &[]);
        let mut load_after = |cpu| {
            times.note(&finished("a b", Verdict::Passed, 10, cpu));
            times.past["a b"].load
        };
        assert!((load_after(10) - 1.0).abs() < 1e-9);
        assert!((load_after(5) - 0.9).abs() < 1e-9);
        assert!((load_after(20) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_file_that_is_none_is_as_no_run() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("times");
        fs::write(&file, "[1, {\"a\":").unwrap();
        assert!(Times::of(&file, &[]).past.is_empty());
        assert!(Times::of(directory.path(), &[]).past.is_empty());
    }
}
