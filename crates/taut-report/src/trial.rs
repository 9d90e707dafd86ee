use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_record::stats::{interval, median};

use crate::lines::wrap;
use crate::units;

/// What an option was worth that was set on live sockets, in turn with spans without it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Trial {
    /// What was tried.
    pub option: Tried,
    /// Most sockets on which it was set at once.
    pub sockets: u64,
    /// Sockets that had it anyway.
    pub had: u64,
    /// Sockets that were left alone as they are corked on purpose.
    pub corked: u64,
    /// Sockets that may not be changed.
    pub refused: u64,
    /// Sockets that still have it: their programs have moved them where they can't be reached.
    pub stuck: u64,
    /// Length of a span with it, and of one without.
    pub slice_ns: u64,
    /// The spans: two a pair, one without it and one with it.
    pub pairs: Vec<TrialPair>,
    /// What the pairs come to.
    pub outcome: TrialOutcome,
}

/// An option that can be tried.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Tried {
    /// `TCP_NODELAY` set.
    #[serde(rename = "TCP_NODELAY")]
    NoDelay,
}

/// A span without the option and the one with it that stands beside it.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TrialPair {
    /// Without the option.
    pub without: TrialSlice,
    /// With it.
    pub with: TrialSlice,
}

/// What one span came to.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TrialSlice {
    /// How long it was.
    pub span_ns: u64,
    /// Writes of the programs.
    pub writes: u64,
    /// Time for which Nagle's algorithm held something, over all connections.
    pub held_ns: u64,
}

impl TrialSlice {
    fn held_a_write(self) -> Option<f64> {
        (self.writes > 0).then(|| self.held_ns as f64 / self.writes as f64)
    }

    fn writes_a_second(self) -> f64 {
        self.writes as f64 * 1e9 / self.span_ns.max(1) as f64
    }
}

/// What a trial shows.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// Less was held with the option in every pair, of at least six.
    Proven,
    /// Nothing was held without it either.
    NothingHeld,
    /// The pairs do not agree.
    NotProven,
    /// There are fewer than six pairs in which something was written.
    TooFew,
    /// There was no socket that could be changed.
    NoSocket,
}

/// With the same held in both, all of six pairs agree by chance in 1 of 32 trials.
pub const TRIAL_PAIRS: u32 = 6;

/// What pairs of spans say.
pub fn trial_outcome(sockets: u64, pairs: &[TrialPair]) -> TrialOutcome {
    let both = |pair: &TrialPair| Some((pair.without.held_a_write()?, pair.with.held_a_write()?));
    let told: Vec<(f64, f64)> = pairs.iter().filter_map(both).collect();
    if sockets == 0 {
        TrialOutcome::NoSocket
    } else if told.len() < TRIAL_PAIRS as usize {
        TrialOutcome::TooFew
    } else if told.iter().all(|(without, with)| with < without) {
        TrialOutcome::Proven
    } else if told.iter().all(|(without, _)| *without <= 0.0) {
        TrialOutcome::NothingHeld
    } else {
        TrialOutcome::NotProven
    }
}

impl Trial {
    /// The figures side by side, and what they say.
    pub(crate) fn lines(&self) -> Vec<String> {
        let sockets = match self.sockets {
            1 => "1 socket".to_owned(),
            many => format!("{} sockets", units::count(many)),
        };
        let (slice, pairs) = (units::time(self.slice_ns), self.pairs.len());
        let spans = if pairs == 1 { "once".to_owned() } else { format!("{pairs} times") };
        let head = format!("TRIED TCP_NODELAY on {sockets}: {spans} {slice} with it and as often without, in turn.");
        let mut lines = wrap("", &head);
        if !self.pairs.is_empty() {
            let row = |name: &str, of: &dyn Fn(TrialSlice) -> Option<f64>, words: fn(f64) -> String| {
                let side = |slice: fn(&TrialPair) -> TrialSlice| {
                    let values: Vec<f64> = self.pairs.iter().filter_map(|pair| of(slice(pair))).collect();
                    figure(&values, words)
                };
                format!("  {name:<22}  {:<28}  {}", side(|pair| pair.without), side(|pair| pair.with))
            };
            lines.push(format!("  {:22}  {:<28}  WITH", "", "WITHOUT"));
            lines.push(row("held by Nagle a write", &TrialSlice::held_a_write, |ns| units::time(ns.round() as u64)));
            lines.push(row("writes a second", &|slice| Some(slice.writes_a_second()), units::number));
        }
        lines.extend(wrap("  ", &self.verdict()));
        for (count, why) in [
            (self.had, "had it already"),
            (self.corked, "are corked and were left alone"),
            (self.refused, "may not be changed: run it as root"),
            (self.stuck, "still have it, as their programs have moved them where taut can't reach them"),
        ] {
            if count > 0 {
                lines.extend(wrap("  ", &format!("Sockets that {why}: {}.", units::count(count))));
            }
        }
        lines
    }

    fn verdict(&self) -> String {
        let as_before = if self.stuck == 0 { " The sockets are as they were before." } else { "" };
        match self.outcome {
            TrialOutcome::Proven => format!(
                "PROVEN: in each of {} pairs less was held with it.{as_before} CHANGE set TCP_NODELAY in the program.",
                self.pairs.len(),
            ),
            TrialOutcome::NothingHeld => "Nagle's algorithm held nothing of what these sockets sent, without it \
                                          either: there is nothing to gain by it at this end."
                .to_owned(),
            TrialOutcome::NotProven => {
                "NOT PROVEN: not in each pair less was held with it. A longer --for may tell.".to_owned()
            }
            TrialOutcome::TooFew => format!(
                "TOO FEW: {TRIAL_PAIRS} pairs are needed in which the program writes. A longer --for, or more load, may tell."
            ),
            TrialOutcome::NoSocket => "No socket could be changed, so nothing was tried: TCP_NODELAY is set on open \
                                       connections of this network namespace that have it not."
                .to_owned(),
        }
    }
}

/// Median and interval across the spans.
fn figure(values: &[f64], words: fn(f64) -> String) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let spread =
        interval(values).map_or_else(String::new, |ends| format!(" ({}-{})", words(ends.low), words(ends.high)));
    format!("{}{spread}", words(middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(count: usize, with: u64) -> Vec<TrialPair> {
        let slice = |writes, held_ns| TrialSlice { span_ns: 1_000_000_000, writes, held_ns };
        vec![TrialPair { without: slice(50, 1_000_000_000), with: slice(2000, with) }; count]
    }

    #[test]
    fn only_pairs_that_all_agree_prove_anything() {
        let mut some = pairs(6, 0);
        assert_eq!(trial_outcome(1, &some), TrialOutcome::Proven);
        assert_eq!(trial_outcome(0, &some), TrialOutcome::NoSocket);
        assert_eq!(trial_outcome(1, &some[..5]), TrialOutcome::TooFew);
        some[3].with = some[3].without;
        assert_eq!(trial_outcome(1, &some), TrialOutcome::NotProven);
        some[3].with = TrialSlice::default();
        assert_eq!(trial_outcome(1, &some), TrialOutcome::TooFew, "one without writes tells nothing");
        for pair in &mut some {
            *pair = TrialPair { without: TrialSlice { held_ns: 0, ..pair.without }, with: pair.without };
        }
        assert_eq!(trial_outcome(1, &some), TrialOutcome::NothingHeld);
    }

    #[test]
    fn it_fits_a_terminal_and_says_what_it_proves() {
        let pairs = pairs(6, 1000);
        let outcome = trial_outcome(2, &pairs);
        let option = Tried::NoDelay;
        let trial = Trial {
            option,
            sockets: 2,
            had: 1,
            corked: 0,
            refused: 0,
            stuck: 0,
            slice_ns: 1_000_000_000,
            pairs,
            outcome,
        };
        let lines = trial.lines();
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
        let text = lines.join("\n");
        for part in [
            "on 2 sockets: 6 times 1.00 s",
            "20.0 ms (20.0 ms-20.0 ms)",
            "PROVEN: in each of 6 pairs",
            "had it already: 1.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("as they were before"), "{text}");
        let text = Trial { stuck: 2, ..trial }.lines().join("\n");
        assert!(text.contains("Sockets that still have it") && !text.contains("as they were before"), "{text}");
    }
}
