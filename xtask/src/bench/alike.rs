//! Alike and unlike: the same thing under two names through every command that compares, and known
//! differences through the same commands. What a comparison is worth is how seldom it tells equal
//! things apart, and how surely unequal ones.

mod command;
mod effect;

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::outcome::{Outcome, table};
use super::setting::Setting;
use command::{Alike, Stage};
use effect::{By, Effect};

/// What belongs to `alike` alone.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "alike")]
pub(crate) struct Options {
    /// Runs of each command
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Only these commands; with --effects, `echo2` and `report` are there
    #[arg(long, value_name = "COMMAND,…", value_delimiter = ',', value_enum)]
    only: Vec<Alike>,
    /// Known differences instead: a server that waits longer, losses, one more hop
    #[arg(long)]
    effects: bool,
}

/// Share of the runs that may tell equal things apart.
const MOST_FALSE: f64 = 0.05;
/// Share of the runs, of those in which a difference is at least twice as wide as the interval, that have to find it.
const LEAST_FOUND: f64 = 0.95;

/// Most of the runs that may give no verdict: on a busy machine a round can end before anything came back.
const MOST_UNTOLD: f64 = 0.05;

/// Runs that gave no verdict, and why the last of them did not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Untold {
    runs: u64,
    why: Option<String>,
}

/// What the runs of one command came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Count {
    /// Runs that gave a verdict on everything.
    runs: u64,
    untold: Untold,
    /// Of these, runs in which anything was told apart.
    false_runs: u64,
    verdicts: u64,
    false_verdicts: u64,
}

/// What the runs with a known difference came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Found {
    /// Runs that said something of the two.
    runs: u64,
    untold: Untold,
    /// Runs in which the difference is at least twice as wide as the interval.
    plain: u64,
    /// Of these, runs that found it.
    found: u64,
    /// Of all, runs that found it.
    found_in_all: u64,
    /// Of all, runs that found the opposite.
    wrong: u64,
}

pub(super) fn run(setting: &Setting, options: &Options) -> Result<Outcome> {
    let stage = Stage::set_up(setting)?;
    if options.effects { unlike(options, &stage) } else { alike(options, &stage) }
}

impl Options {
    fn has(&self, command: Alike) -> bool {
        self.only.is_empty() || self.only.contains(&command)
    }
}

/// The same thing twice through every command.
fn alike(options: &Options, stage: &Stage<'_>) -> Result<Outcome> {
    let (mut rows, mut cells, mut notes, mut met) = (Vec::new(), Vec::new(), Vec::new(), true);
    for alike in Alike::ALL.into_iter().filter(|&alike| options.has(alike)) {
        let began = Instant::now();
        let mut count = Count::default();
        for run in 0..options.runs {
            eprint!("\r{}: run {} of {}, {} told apart ", alike.name(), run + 1, options.runs, count.false_runs);
            match alike.verdicts(stage) {
                Ok(told_apart) => count.add(&told_apart),
                Err(error) => count.untold.add(&error),
            }
        }
        eprintln!();
        met &= count.is_met();
        cells.push(count.cells(alike.name(), began.elapsed().as_secs_f64()));
        notes.extend(count.untold.note(alike.name()));
        rows.push(count.json(alike.name()));
    }
    let header =
        ["the same twice through", "runs", "told apart", "share", "at most (95 %)", "verdicts", "false", "s a run", ""];
    Ok(Outcome { text: with_notes(table(&header, &cells), &notes), json: json!({"alike": rows}), met: Some(met) })
}

/// Known differences through the commands that can be shown them.
fn unlike(options: &Options, stage: &Stage<'_>) -> Result<Outcome> {
    let commands: Vec<By> = By::ALL.into_iter().filter(|by| options.has(by.command())).collect();
    ensure!(!commands.is_empty(), "known differences are shown to echo2 and report");
    let (mut rows, mut cells, mut notes, mut met) = (Vec::new(), Vec::new(), Vec::new(), true);
    for (by, effect) in commands.into_iter().flat_map(|by| Effect::ALL.map(|effect| (by, effect))) {
        let name = format!("{}, {}", by.name(), effect.name());
        let mut found = Found::default();
        for run in 0..options.runs {
            eprint!("\r{name}: run {} of {}, {} found ", run + 1, options.runs, found.found);
            match by.look(effect, stage) {
                Ok(look) => found.add(look),
                Err(error) => found.untold.add(&error),
            }
        }
        eprintln!();
        met &= found.is_met();
        cells.push(found.cells(by.name(), effect.name()));
        notes.extend(found.untold.note(&name));
        rows.push(found.json(by.name(), effect.name()));
    }
    let header = [
        "known difference",
        "through",
        "runs",
        "2 x the interval",
        "found",
        "share",
        "at least (95 %)",
        "found in all",
        "wrong sign",
        "at most (95 %)",
        "",
    ];
    Ok(Outcome { text: with_notes(table(&header, &cells), &notes), json: json!({"effects": rows}), met: Some(met) })
}

fn with_notes(table: String, notes: &[String]) -> String {
    notes.iter().fold(table, |text, note| format!("{text}\n{note}"))
}

impl Untold {
    fn add(&mut self, error: &anyhow::Error) {
        self.runs += 1;
        self.why = Some(format!("{error:#}"));
    }

    /// Whether they are few beside the runs that gave a verdict.
    fn are_few(&self, told: u64) -> bool {
        self.runs as f64 <= MOST_UNTOLD * (self.runs + told) as f64
    }

    fn note(&self, name: &str) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(format!("{name}: {} runs gave no verdict, the last one because: {why}", self.runs))
    }
}

impl Count {
    /// Adds a run, by whether each of its verdicts told equal things apart.
    fn add(&mut self, told_apart: &[bool]) {
        let false_verdicts = told_apart.iter().filter(|&&apart| apart).count() as u64;
        self.runs += 1;
        self.false_runs += u64::from(false_verdicts > 0);
        self.verdicts += told_apart.len() as u64;
        self.false_verdicts += false_verdicts;
    }

    fn share(&self) -> f64 {
        self.false_runs as f64 / self.runs.max(1) as f64
    }

    fn is_met(&self) -> bool {
        self.runs > 0 && self.share() <= MOST_FALSE && self.untold.are_few(self.runs)
    }

    fn cells(&self, name: &str, seconds: f64) -> Vec<String> {
        vec![
            name.to_owned(),
            self.runs.to_string(),
            self.false_runs.to_string(),
            percent(self.share()),
            percent(upper_bound(self.false_runs, self.runs)),
            self.verdicts.to_string(),
            self.false_verdicts.to_string(),
            format!("{:.1}", seconds / (self.runs + self.untold.runs).max(1) as f64),
            if self.is_met() { String::new() } else { "MISSED".to_owned() },
        ]
    }

    fn json(&self, name: &str) -> Value {
        json!({
            "command": name,
            "runs": self.runs,
            "runs_without_a_verdict": self.untold.runs,
            "why": self.untold.why,
            "runs_told_apart": self.false_runs,
            "share": self.share(),
            "share_upper_bound": upper_bound(self.false_runs, self.runs),
            "verdicts": self.verdicts,
            "verdicts_told_apart": self.false_verdicts,
            "met": self.is_met(),
        })
    }
}

impl Found {
    fn add(&mut self, look: effect::Look) {
        self.runs += 1;
        self.plain += u64::from(look.is_plain);
        self.found += u64::from(look.is_plain && look.is_found);
        self.found_in_all += u64::from(look.is_found);
        self.wrong += u64::from(look.is_wrong);
    }

    fn is_met(&self) -> bool {
        let is_found = self.found as f64 >= LEAST_FOUND * self.plain as f64;
        self.wrong == 0 && is_found && self.untold.are_few(self.runs)
    }

    /// The share of those that had to find it, and its lower bound.
    fn share(&self) -> Option<(f64, f64)> {
        let least = 1.0 - upper_bound(self.plain - self.found, self.plain);
        (self.plain > 0).then(|| (self.found as f64 / self.plain as f64, least))
    }

    fn cells(&self, by: &str, effect: &str) -> Vec<String> {
        let verdict = match self.is_met() {
            // Nothing was asked of it; on a busy machine intervals are wide.
            true if self.plain == 0 => "never as wide",
            true => "",
            false => "MISSED",
        };
        let share =
            self.share().map_or_else(|| ["-", "-"].map(str::to_owned), |(share, least)| [share, least].map(percent));
        let counts = [self.runs, self.plain, self.found].map(|count| count.to_string());
        let wrong = [self.wrong.to_string(), percent(upper_bound(self.wrong, self.runs))];
        let cells = [effect, by].map(str::to_owned).into_iter().chain(counts).chain(share);
        cells.chain([self.found_in_all.to_string()]).chain(wrong).chain([verdict.to_owned()]).collect()
    }

    fn json(&self, by: &str, effect: &str) -> Value {
        json!({
            "effect": effect,
            "command": by,
            "runs": self.runs,
            "runs_without_a_verdict": self.untold.runs,
            "why": self.untold.why,
            "runs_beyond_twice_the_interval": self.plain,
            "found": self.found,
            "share": self.share().map(|(share, _)| share),
            "share_lower_bound": self.share().map(|(_, least)| least),
            "found_in_all": self.found_in_all,
            "wrong_sign": self.wrong,
            "wrong_sign_upper_bound": upper_bound(self.wrong, self.runs),
            "met": self.is_met(),
        })
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Upper end of the one-sided 95 % interval of a share (Clopper and Pearson, 1934): the share with
/// which so few or fewer of `of` come out with a probability of 5 %.
fn upper_bound(count: u64, of: u64) -> f64 {
    if count >= of {
        return 1.0;
    }
    let (mut low, mut high) = (count as f64 / of as f64, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(count, of, middle) > 0.05 { low = middle } else { high = middle }
    }
    high
}

/// Probability of at most `count` of `of`, each with this probability.
fn at_most(count: u64, of: u64, each: f64) -> f64 {
    let mut log_term = of as f64 * (1.0 - each).ln();
    let mut sum = log_term.exp();
    for k in 0..count {
        log_term += ((of - k) as f64 / (k + 1) as f64).ln() + (each / (1.0 - each)).ln();
        sum += log_term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_tables() {
        // None of 100: 1 - 0.05^(1/100). Five of 100 and one of 20 are in every table of binomial limits.
        for (count, of, exact) in [(0, 100, 0.029_513), (5, 100, 0.102_26), (1, 20, 0.216_11), (3, 3, 1.0)] {
            assert!((upper_bound(count, of) - exact).abs() < 1e-4, "{count} of {of}: {}", upper_bound(count, of));
        }
    }

    #[test]
    fn one_false_verdict_of_several_spoils_a_run() {
        let mut count = Count::default();
        for run in 0..20 {
            count.add(&[false, run == 3, run == 3]);
        }
        assert_eq!((count.runs, count.false_runs, count.verdicts, count.false_verdicts), (20, 1, 60, 2));
        assert!(count.is_met());
        count.add(&[true]);
        assert!(!count.is_met());
        assert!(!Count::default().is_met(), "no run proves nothing");
        let mut count = Count::default();
        (0..19).for_each(|_| count.add(&[false]));
        count.untold.add(&anyhow::anyhow!("the command gave no verdict"));
        assert!(count.is_met());
        count.untold.add(&anyhow::anyhow!("the command gave no verdict"));
        assert!(!count.is_met(), "two of twenty-one say nothing");
    }

    #[test]
    fn a_wrong_sign_is_never_forgiven() {
        let look = |is_plain, is_found, is_wrong| effect::Look { is_plain, is_found, is_wrong };
        let mut found = Found::default();
        (0..19).for_each(|_| found.add(look(true, true, false)));
        found.add(look(true, false, false));
        found.add(look(false, false, false));
        assert!(found.is_met());
        // Of 20 that had to find it, one did not: at least 78 % with 95 % probability, by the tables.
        let (share, least) = found.share().unwrap();
        assert!(share == 0.95 && (least - 0.783_89).abs() < 1e-4, "{least}");
        assert_eq!((found.plain, found.found, found.found_in_all), (20, 19, 19));
        found.add(look(false, true, false));
        assert_eq!((found.found, found.found_in_all), (19, 20));
        found.add(look(false, false, true));
        assert!(!found.is_met());
    }
}
