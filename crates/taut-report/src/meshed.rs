use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_fleet::{MeshOutcome, PairOutcome, Reached, Results, Sums, WorkOutcome};
use taut_record::{Ended, FORMAT_VERSION};

use crate::document::Error;
use crate::lines::{line_to, wrap};
use crate::{mesh_words, units};

/// Pairs that are named of those that failed for one reason.
const MOST_NAMED: usize = 8;

/// What a mesh came to: the one JSON object of `taut mesh run` and `taut mesh report`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct MeshDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `mesh`.
    pub command: String,
    /// The command line that measured it, ready to be pasted.
    pub command_line: String,
    /// The plan.
    pub file: String,
    /// Version of the Tautline that gathered it.
    pub tautline: String,
    /// When it began, in seconds since 1970 UTC.
    pub started_unix_s: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// How it ended.
    pub ended: Ended,
    /// Hosts and pairs.
    #[serde(flatten)]
    pub outcome: MeshOutcome,
}

impl MeshDocument {
    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// Reads what [`MeshDocument::to_json`] wrote.
    ///
    /// # Errors
    /// As [`crate::Document::read`]; also for a file of another command.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let value = crate::document::value_of(path)?;
        let shape = |at: &str, message: String| Error::Shape { path: path.to_owned(), at: at.to_owned(), message };
        if value["command"] != "mesh" {
            return Err(shape("command", "it is not `mesh`".to_owned()));
        }
        let document: Self = serde_json::from_value(value).map_err(|error| shape("the document", error.to_string()))?;
        let hosts = document.outcome.hosts.len();
        let pairs = document.outcome.works.iter().flat_map(|work| &work.pairs);
        match pairs.into_iter().find(|pair| pair.near.max(pair.far) >= hosts) {
            Some(_) => Err(shape("works[].pairs[]", format!("there are only {hosts} hosts"))),
            None => Ok(document),
        }
    }

    /// What the mesh came to, in a sentence.
    pub(crate) fn head(&self) -> String {
        let pairs = || self.outcome.works.iter().flat_map(|work| &work.pairs);
        let measured = pairs().filter(|pair| pair.reached == Reached::Measured).count();
        let beyond = pairs().filter(|pair| !pair.misses.is_empty()).count();
        let failed = pairs().filter(|pair| matches!(pair.reached, Reached::Failed(_))).count();
        let failed = if failed > 0 { format!("; {} failed", units::count(failed as u64)) } else { String::new() };
        let of_agents = self.outcome.results.as_ref().map_or_else(String::new, |results| {
            let (taken, lost) = (units::count(results.taken), units::count(results.dropped + results.missing));
            format!("; {taken} results taken, {lost} lost")
        });
        format!(
            "{} of {} measurements between {} hosts in {}{failed}; {} beyond a threshold{of_agents}",
            units::count(measured as u64),
            units::count(pairs().count() as u64),
            units::count(self.outcome.hosts.len() as u64),
            units::time(self.duration_ns),
            units::count(beyond as u64)
        )
    }

    /// That it did not end as it should have, if so.
    pub(crate) fn ended_early(&self) -> Option<String> {
        Some(match &self.ended {
            Ended::Complete => return None,
            Ended::Interrupted => "PARTIAL: interrupted. What was measured until then is here.".to_owned(),
            Ended::PeerGone(why) | Ended::Failed(why) => {
                format!("PARTIAL: the run failed: {why}. What was measured until then is here.")
            }
        })
    }

    /// What went wrong with hosts and pairs, a sentence each, and at most so many of each kind.
    pub(crate) fn failures(&self, most: usize) -> Vec<String> {
        let outcome = &self.outcome;
        let mut told = Vec::new();
        let mut tell = |sentences: Vec<String>, what: &str| {
            let left = sentences.len().saturating_sub(most);
            told.extend(sentences.into_iter().take(most));
            if left > 0 {
                told.push(format!("… and {} more {what}, which --json has.", units::count(left as u64)));
            }
        };
        let mut unreached = Vec::new();
        for (number, host) in outcome.hosts.iter().enumerate() {
            let Some(why) = &host.failed else { continue };
            let of = |pair: &&PairOutcome| pair.near == number || pair.far == number;
            let pairs = outcome.works.first().map_or(0, |work| work.pairs.iter().filter(of).count());
            let pairs = units::count(pairs as u64);
            unreached.push(format!("NOT REACHED {}: {why}. None of its {pairs} pairs was measured.", host.name));
        }
        tell(unreached, "hosts");
        for work in &outcome.works {
            let failed = work.pairs.iter().filter_map(|pair| match &pair.reached {
                Reached::Failed(why) => Some((pair, why.as_str())),
                Reached::Measured | Reached::NotRun(_) => None,
            });
            tell(self.by_reason(work, failed, "FAILED"), "reasons");
            let recovered = work.pairs.iter().filter(|pair| pair.reached == Reached::Measured);
            let recovered = recovered.filter_map(|pair| Some((pair, pair.failures.as_ref()?.why.as_str())));
            tell(self.by_reason(work, recovered, "FAILED before it was measured"), "reasons");
        }
        let other = outcome.hosts.iter().filter_map(|host| Some((host, host.version.as_ref()?)));
        let other = other.filter(|(_, version)| **version != self.tautline);
        tell(
            other
                .map(|(host, version)| format!("{} has taut {version}, and here is {}.", host.name, self.tautline))
                .collect(),
            "hosts",
        );
        told.extend(outcome.results.iter().flat_map(losses));
        told
    }

    /// Pairs that failed for one reason, in a sentence; what most failed for first.
    fn by_reason<'a>(
        &self,
        work: &WorkOutcome,
        failed: impl Iterator<Item = (&'a PairOutcome, &'a str)>,
        what: &str,
    ) -> Vec<String> {
        let mut reasons: BTreeMap<&str, Vec<&PairOutcome>> = BTreeMap::new();
        failed.for_each(|(pair, why)| reasons.entry(why).or_default().push(pair));
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, pairs)| std::cmp::Reverse(pairs.len()));
        let sentence = |(why, pairs): (&str, Vec<&PairOutcome>)| {
            let ends = |pair: &&PairOutcome| {
                let times = pair.failures.as_ref().map_or(1, |failures| failures.times);
                let times = if times > 1 { format!(" ({} times)", units::count(times)) } else { String::new() };
                mesh_words::ends(&self.outcome, pair) + &times
            };
            let mut named = pairs.iter().take(MOST_NAMED).map(ends).collect::<Vec<_>>().join(", ");
            if pairs.len() > MOST_NAMED {
                named.push_str(&format!(" and {} more", units::count((pairs.len() - MOST_NAMED) as u64)));
            }
            let count =
                if pairs.len() > 1 { format!("{} pairs: ", units::count(pairs.len() as u64)) } else { String::new() };
            format!("{what} {count}{named}, {}: {why}", mesh_words::work(work))
        };
        reasons.into_iter().map(sentence).collect()
    }
}

/// What became of the results of agents, where it is not all well.
fn losses(results: &Results) -> Vec<String> {
    let count = |number: u64, what: &str| match number {
        1 => format!("1 {what}"),
        more => format!("{} {what}s", units::count(more)),
    };
    let mut told = Vec::new();
    if results.missing > 0 {
        told.push(format!("MISSING {}, and nobody said why.", count(results.missing, "result")));
    }
    if results.dropped > 0 {
        let dropped = count(results.dropped, "result");
        told.push(format!("{dropped} dropped by agents that could not send them for too long."));
    }
    if !results.unclosed.is_empty() {
        let agents = results.unclosed.join(", ");
        told.push(format!("Not known what these had not sent when they ended: {agents}."));
    }
    if results.strange > 0 {
        told.push(format!("{} that no agent of this run can have sent.", count(results.strange, "message")));
    }
    told
}

/// What a plan comes to: the one JSON object of `taut mesh check`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct MeshCheckDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `mesh check`.
    pub command: String,
    /// The plan.
    pub file: String,
    /// Which pairs it has, as it says.
    pub pairs_of_plan: String,
    /// What it comes to.
    #[serde(flatten)]
    pub sums: Sums,
}

impl MeshCheckDocument {
    /// A document on a plan.
    pub fn new(file: String, pairs_of_plan: String, sums: Sums) -> Self {
        Self { format_version: FORMAT_VERSION, command: "mesh check".to_owned(), file, pairs_of_plan, sums }
    }

    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        json(self)
    }

    /// The sums in lines of at most 100 columns.
    pub fn to_text(&self) -> String {
        let sums = &self.sums;
        let number = |number: usize| units::count(number as u64);
        let mut lines = Vec::new();
        let racks = if sums.racks > 0 { format!(" in {} racks", number(sums.racks)) } else { String::new() };
        let of_a_host = match (sums.fewest_pairs_of_a_host, sums.most_pairs_of_a_host) {
            (few, most) if few == most => format!("each in {}", number(most)),
            (few, most) => format!("each in {} to {}", number(few), number(most)),
        };
        let (hosts, pairs) = (number(sums.hosts), number(sums.pairs));
        lines.push(format!("{hosts} hosts{racks}, {pairs} pairs ({}), {of_a_host}", self.pairs_of_plan));
        for work in &sums.works {
            lines.push(String::new());
            let every = seconds(work.every_s);
            let at_once = number(work.at_once);
            let run = seconds(work.least_run_s);
            lines.push(format!("{} {} every {every}", work.work, work.transport));
            if let Some(probes) = work.probes_per_second_of_a_host {
                lines.push(format!("  messages of a host        {}", units::per_second(probes)));
            }
            let busiest = work.most_packets_per_second_of_a_host.zip(work.most_bits_per_second_of_a_host);
            match busiest {
                Some((packets, bits)) => lines.push(format!(
                    "  packets at the busiest    {}, {}",
                    units::per_second(packets),
                    units::bit_rate(bits)
                )),
                None => lines.push("  packets at the busiest    as many as its link carries".to_owned()),
            }
            let busy = units::share(work.most_busy_share_of_a_host);
            lines.push(format!("  it is measuring           {busy} of the time"));
            lines.push(format!("  one run takes at least    {run}, {at_once} at once"));
            if work.least_run_s > work.every_s {
                let text = "That is longer than `every`: choose fewer peers, a longer `every`, or more at once.";
                lines.extend(wrap("  ", text));
            }
            if work.most_busy_share_of_a_host > 1.0 {
                lines.extend(wrap(
                    "  ",
                    "The busiest host has no time for that: choose fewer peers, or a longer `every`.",
                ));
            }
        }
        lines.push(String::new());
        lines.push(format!("series                      {}", number(sums.series)));
        lines.push(format!("measurements a day          {}", units::count(sums.measurements_per_day as u64)));
        lines.push(format!("echoes on the wire a day    {}", units::amount(sums.wire_bytes_per_day)));
        lines.push(format!("documents a day, all kept   {}", units::amount(sums.kept_bytes_per_day)));
        let mut text = String::new();
        lines.iter().for_each(|line| line_to(&mut text, line));
        text
    }
}

/// A long time: `40 s`, `25 min`, `3.25 h`.
fn seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..120.0 => return units::limit((seconds * 1e9) as u64),
        120.0..7200.0 => (seconds / 60.0, "min"),
        7200.0..172_800.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "days"),
    };
    let value = units::number(value);
    let value = if value.contains('.') { value.trim_end_matches('0').trim_end_matches('.') } else { &value };
    format!("{value} {unit}")
}

fn json(document: &impl Serialize) -> String {
    // Keys are strings and nothing else can fail, so an error would be a bug of ours.
    let mut json = serde_json::to_string_pretty(document).expect("a document is always JSON");
    json.push('\n');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_results_is_told_where_it_is_not_well() {
        let well = Results { taken: 7, again: 1, ..Results::default() };
        assert!(losses(&well).is_empty());
        let unclosed = vec!["b (since 5)".to_owned()];
        let told = losses(&Results { missing: 1, dropped: 1200, unclosed, strange: 2, ..well });
        assert_eq!(
            told,
            [
                "MISSING 1 result, and nobody said why.",
                "1,200 results dropped by agents that could not send them for too long.",
                "Not known what these had not sent when they ended: b (since 5).",
                "2 messages that no agent of this run can have sent.",
            ]
        );
    }

    #[test]
    fn what_a_plan_comes_to_is_told_in_lines_that_fit() {
        let text = "[mesh]\nper_host = 1\nhosts = [\"a\", \"b\", \"c\"]\n\
                    [[mesh.work]]\necho = \"udp\"\nevery = \"100ms\"\n[[mesh.work]]\nstream = \"tcp\"\n";
        let plan = taut_fleet::Plan::parse(text).unwrap();
        let sums = Sums::of(&plan, &taut_fleet::choose(&plan, false).unwrap());
        let document = MeshCheckDocument::new("m.toml".to_owned(), plan.pairs.to_string(), sums);
        let text = document.to_text();
        assert!(text.starts_with("3 hosts, 3 pairs (all), each in 2\n"), "{text}");
        assert!(text.contains("messages of a host        1,000 per second"), "{text}");
        assert!(text.contains("The busiest host has no time for that"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100));
        let read: MeshCheckDocument = serde_json::from_str(&document.to_json()).unwrap();
        assert_eq!(read.sums, document.sums);
    }
}
