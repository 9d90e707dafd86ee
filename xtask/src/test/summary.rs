//! What came of the tests: shown as they end, and summed up at the end.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::job::{Finished, Job, Verdict};
use super::kind::{Kind, needs_quiet_since};

/// Rows of the table of the slowest.
const SLOWEST: usize = 20;
/// Characters of what a failed test said, as the end repeats it.
const SAID: usize = 400;

/// The tests that have ended, and what else is to be said.
pub(super) struct Summary {
    /// What repeats a test when its name is added.
    repetition: String,
    pub(super) finished: Vec<Finished>,
    /// What failed tests said when they failed, by name.
    said: BTreeMap<String, String>,
    left_out: BTreeMap<Kind, usize>,
    /// Of these, those that need a quiet machine, by name.
    too_busy_for: Vec<String>,
    complaints: Vec<String>,
}

impl Summary {
    pub(super) const fn new(repetition: String) -> Self {
        Self {
            repetition,
            finished: Vec::new(),
            said: BTreeMap::new(),
            left_out: BTreeMap::new(),
            too_busy_for: Vec::new(),
            complaints: Vec::new(),
        }
    }

    /// Takes a test that has ended, and shows it.
    pub(super) fn add(&mut self, mut finished: Finished) {
        let word = match &finished.verdict {
            Verdict::Passed => "ok",
            Verdict::Failed => "FAILED",
            Verdict::Skipped(_) => "SKIPPED",
        };
        println!("test {} ... {word} ({:.1} s)", finished.name, finished.time.as_secs_f64());
        let output = std::mem::take(&mut finished.output);
        if finished.verdict == Verdict::Failed {
            println!("---- {} ----\n{}\n----", finished.name, output.trim());
            self.said.extend(panic_of(&output).map(|said| (finished.name.clone(), said)));
        }
        self.finished.push(finished);
    }

    /// A job that this mode does not run.
    pub(super) fn leave_out(&mut self, job: &Job) {
        *self.left_out.entry(job.kind).or_default() += 1;
        if job.kind == Kind::Timing {
            self.too_busy_for.push(job.name.clone());
        }
    }

    /// Something is wrong besides.
    pub(super) fn complain(&mut self, what: String) {
        self.complaints.push(what);
    }

    /// Whether nothing failed, and something passed.
    pub(super) fn is_ok(&self) -> bool {
        self.complaints.is_empty() && self.count(&Verdict::Failed) == 0 && self.count(&Verdict::Passed) > 0
    }

    fn count(&self, verdict: &Verdict) -> usize {
        self.finished.iter().filter(|test| test.verdict == *verdict).count()
    }

    /// Reasons by name.
    fn skipped(&self) -> BTreeMap<&str, &str> {
        let mut skipped = BTreeMap::new();
        for test in &self.finished {
            if let Verdict::Skipped(reason) = &test.verdict {
                skipped.insert(test.name.as_str(), reason.as_str());
            }
        }
        skipped
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut slowest: Vec<&Finished> = self.finished.iter().collect();
        slowest.sort_by_key(|test| std::cmp::Reverse(test.time));
        if !slowest.is_empty() {
            let cpu: f64 = slowest.iter().map(|test| test.cpu.as_secs_f64()).sum();
            writeln!(
                f,
                "\n{} took {cpu:.0} s of the processors; the slowest, with their part of it",
                plural(slowest.len())
            )?;
        }
        for test in slowest.iter().take(SLOWEST) {
            let [time, cpu] = [test.time, test.cpu].map(|time| time.as_secs_f64());
            writeln!(f, "{time:>8.1} s {cpu:>8.1} s  {}", test.name)?;
        }
        let timing = self.finished.iter().filter(|test| test.kind.needs_quiet());
        let (timing, failed) =
            timing.fold((0, 0), |(all, failed), test| (all + 1, failed + usize::from(test.verdict == Verdict::Failed)));
        if timing > 0 {
            let failed = if failed == 0 { String::new() } else { format!(": {failed} FAILED") };
            writeln!(
                f,
                "\n{} of these, which need a quiet machine, ran apart from the others{failed}",
                timing_tests(timing)
            )?;
        }
        let short = self.finished.iter().filter(|test| test.is_short).count();
        if short > 0 {
            writeln!(f, "\n{} ran in short form", plural(short))?;
        }
        if !self.left_out.is_empty() {
            let parts: Vec<String> = self.left_out.iter().map(|(kind, count)| kind.described(*count)).collect();
            writeln!(f, "\nleft out: {}", parts.join(", "))?;
        }
        for name in &self.too_busy_for {
            writeln!(f, "  {name}: {}", needs_quiet_since(name).unwrap_or_default())?;
        }
        let skipped = self.skipped();
        if !skipped.is_empty() {
            writeln!(f, "\n==== SKIPPED: {} could not run here ====", plural(skipped.len()))?;
        }
        for (name, reason) in &skipped {
            writeln!(f, "SKIPPED {name}: {reason}")?;
        }
        for complaint in &self.complaints {
            writeln!(f, "\nFAILED: {complaint}")?;
        }
        let (passed, failed) = (self.count(&Verdict::Passed), self.count(&Verdict::Failed));
        if failed > 0 {
            writeln!(f, "\nFAILED: {}. Each again by:", plural(failed))?;
        } else if passed == 0 && self.complaints.is_empty() {
            writeln!(f, "\nFAILED: nothing ran")?;
        }
        for test in self.finished.iter().filter(|test| test.verdict == Verdict::Failed) {
            writeln!(f, "  {} '{}'", self.repetition, test.name)?;
            if let Some(said) = self.said.get(&test.name) {
                writeln!(f, "    {said}")?;
            }
            if let Some(why) = needs_quiet_since(&test.name) {
                writeln!(f, "    It needs a quiet machine: {why}.")?;
            }
        }
        // What went wrong without a test of its own is a failure, too.
        let failed = if failed == 0 && !self.complaints.is_empty() { 1 } else { failed };
        writeln!(f, "\n{passed} passed, {failed} failed, {} skipped", skipped.len())
    }
}

/// Where a test panicked and with which words, in one line: of a long log often only the end is kept.
fn panic_of(output: &str) -> Option<String> {
    let (_, from) = output.split_once("panicked at ")?;
    let words = from.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: String = words.chars().take(SAID).collect();
    Some(if said.len() < words.len() { format!("{said}…") } else { said })
}

fn timing_tests(count: usize) -> String {
    if count == 1 { "1 timing test".to_owned() } else { format!("{count} timing tests") }
}

fn plural(count: usize) -> String {
    if count == 1 { "1 test".to_owned() } else { format!("{count} tests") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn summary(tests: &[(&str, Kind, Verdict, u64)]) -> Summary {
        let mut summary = Summary::new("cargo xtask test --quick --only".to_owned());
        for (name, kind, verdict, seconds) in tests {
            summary.add(Finished {
                name: (*name).to_owned(),
                kind: *kind,
                verdict: verdict.clone(),
                time: Duration::from_secs(*seconds),
                cpu: Duration::from_secs(*seconds) / 2,
                is_short: *seconds == 1,
                output: String::new(),
            });
        }
        summary
    }

    #[test]
    fn the_failed_and_how_to_repeat_them_come_last_but_for_the_counts() {
        let summary = summary(&[
            ("tautline::pace a", Kind::Timing, Verdict::Failed, 2),
            ("tautline::pace b", Kind::Timing, Verdict::Passed, 30),
            ("xtask::lab c", Kind::Guest, Verdict::Skipped("no QEMU".to_owned()), 1),
        ]);
        assert!(!summary.is_ok());
        let text = summary.to_string();
        let end = "\nFAILED: 1 test. Each again by:\n  cargo xtask test --quick --only 'tautline::pace a'\n\n\
                   1 passed, 1 failed, 1 skipped\n";
        assert!(text.ends_with(end), "{text}");
        assert!(text.contains("\nSKIPPED xtask::lab c: no QEMU\n"), "{text}");
        assert!(
            text.contains("2 timing tests of these, which need a quiet machine, ran apart from the others: 1 FAILED"),
            "{text}"
        );
        assert!(text.contains("\n1 test ran in short form\n"), "{text}");
        assert!(
            text.find("30.0 s     15.0 s  tautline::pace b") < text.find("2.0 s      1.0 s  tautline::pace a"),
            "{text}"
        );
    }

    #[test]
    fn the_end_repeats_where_a_test_panicked() {
        let long = "x ".repeat(SAID);
        let output = format!("running 1 test\nthread 'a' panicked at src/a.rs:1:2:\nleft:  1\nright: 2\n{long}");
        let said = panic_of(&output).unwrap();
        assert!(said.starts_with("src/a.rs:1:2: left: 1 right: 2 x x") && said.ends_with('…'), "{said}");
        assert_eq!(said.chars().count(), SAID + 1);
        assert_eq!(panic_of("killed"), None);
        let mut summary = summary(&[]);
        summary.add(Finished {
            name: "a".to_owned(),
            kind: Kind::Host,
            verdict: Verdict::Failed,
            time: Duration::ZERO,
            cpu: Duration::ZERO,
            is_short: false,
            output: "thread 'a' panicked at src/a.rs:1:2:\nno".to_owned(),
        });
        let text = summary.to_string();
        assert!(text.contains("--only 'a'\n    src/a.rs:1:2: no\n\n0 passed, 1 failed"), "{text}");
    }

    #[test]
    fn a_timing_test_that_failed_says_what_it_needs() {
        let name = "tautline::pace a_veth_pair_behaves_alike";
        let text = summary(&[(name, Kind::Timing, Verdict::Failed, 2)]).to_string();
        assert!(text.contains(&format!("--only '{name}'\n    It needs a quiet machine: messages of 10 ms")), "{text}");
    }

    #[test]
    fn the_table_has_the_slowest() {
        let names: Vec<String> = (0..30).map(|index| format!("test {index}")).collect();
        let tests: Vec<_> =
            names.iter().zip(1..).map(|(name, time)| (name.as_str(), Kind::Host, Verdict::Passed, time)).collect();
        let summary = summary(&tests);
        assert!(summary.is_ok());
        let text = summary.to_string();
        assert!(text.contains("test 10\n") && !text.contains("test 9\n"), "{text}");
        assert!(text.ends_with("\n30 passed, 0 failed, 0 skipped\n"), "{text}");
    }

    #[test]
    fn what_went_wrong_without_a_test_is_a_failure() {
        let mut one = summary(&[("a", Kind::Host, Verdict::Passed, 1)]);
        one.complain("the tests do not build".to_owned());
        assert!(!one.is_ok());
        let text = one.to_string();
        assert!(text.ends_with("\nFAILED: the tests do not build\n\n1 passed, 1 failed, 0 skipped\n"), "{text}");
        let none = summary(&[]);
        assert!(!none.is_ok());
        assert!(none.to_string().contains("FAILED: nothing ran"));
    }
}
