use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_fleet::{AgentCounts, CountedPair, Measured, PairCounts};
use taut_record::stats::{Percentile, Summary};

use super::family::{Family, Kind, Sample, Unit, Value};

/// What an agent did in one interval: an object a line of `taut agent --jsonl`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AgentIntervalDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `agent`.
    pub command: String,
    /// Number of the interval, from 0.
    pub interval: u64,
    /// Its begin by the wall clock, in nanoseconds since 1970-01-01 UTC.
    pub began_unix_ns: u64,
    /// How long it took, by a clock that nobody sets.
    pub duration_ns: u64,
    /// Lines before this one that could not be written.
    pub lines_lost: u64,
    /// What the agent is called in plans.
    pub agent: String,
    /// Whether it had its NATS server at the end of the interval.
    pub connected: bool,
    /// Measurements that were begun in it, looks into pairs among them.
    pub begun: u64,
    /// Measurements that ended in it with a result.
    pub measured: u64,
    /// Measurements that failed in it.
    pub failed: u64,
    /// Measurements that were ended in it without a result, as their plan was over.
    pub stopped: u64,
    /// Measurements that were not begun, as the agent's own limits are against them.
    pub refused: u64,
    /// Measurements that were not begun, as no such peer or no lease was there any more.
    pub unreached: u64,
    /// Results that waited for the server at its end.
    pub results_waiting: u64,
    /// Results that the server took in it.
    pub results_taken: u64,
    /// Results that were dropped in it, since too many waited.
    pub results_dropped: u64,
    /// The pairs that were measured in it.
    pub results: Vec<AgentPairRow>,
}

/// What came of a pair in an interval.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AgentPairRow {
    /// Who was asked, by its name.
    pub peer: String,
    /// Which of the plan's works it is, from 0.
    pub work: usize,
    /// What was measured: `echo udp`.
    pub what: String,
    /// How often it was measured.
    pub measured: u64,
    /// How often that failed.
    pub failed: u64,
    /// Messages sent.
    pub messages: u64,
    /// Of these, those without a reply.
    pub lost: u64,
    /// Round trips of the last measurement; absent of a stream, and where that failed or nothing came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Summary>,
    /// Bits per second that arrived in the last measurement; of a stream only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
}

impl AgentIntervalDocument {
    /// What was done since an earlier count. Its number, its times and the agent's name are still to be entered.
    pub fn between(format_version: u32, before: &AgentCounts, now: &AgentCounts) -> Self {
        let since = |count: fn(&AgentCounts) -> u64| count(now).saturating_sub(count(before));
        Self {
            format_version,
            command: "agent".to_owned(),
            interval: 0,
            began_unix_ns: 0,
            duration_ns: 0,
            lines_lost: 0,
            agent: String::new(),
            connected: now.is_connected,
            begun: since(|counts| counts.begun),
            measured: since(|counts| counts.measured),
            failed: since(|counts| counts.failed),
            stopped: since(|counts| counts.stopped),
            refused: since(|counts| counts.refused),
            unreached: since(|counts| counts.unreached),
            results_waiting: now.waiting,
            results_taken: since(|counts| counts.taken),
            results_dropped: since(|counts| counts.dropped),
            results: now
                .pairs
                .iter()
                .filter_map(|(pair, counts)| AgentPairRow::since(pair, before.pairs.get(pair), counts))
                .collect(),
        }
    }

    /// One JSON object in one line.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        serde_json::to_string(self).expect("an interval is JSON") + "\n"
    }
}

impl AgentPairRow {
    /// `None` where nothing came of it since then. A pair that was forgotten meanwhile has begun at 0.
    fn since(pair: &CountedPair, before: Option<&PairCounts>, now: &PairCounts) -> Option<Self> {
        let before = before.filter(|before| before.measured <= now.measured && before.failed <= now.failed);
        let of = |count: fn(&PairCounts) -> u64| count(now).saturating_sub(before.map_or(0, count));
        let (measured, failed) = (of(|counts| counts.measured), of(|counts| counts.failed));
        if measured + failed == 0 {
            return None;
        }
        Some(Self {
            peer: pair.peer.clone(),
            work: pair.work,
            what: pair.what.clone(),
            measured,
            failed,
            messages: of(|counts| counts.messages),
            lost: of(|counts| counts.lost),
            rtt_ns: now.last.as_ref().and_then(|last| last.rtt_ns),
            throughput_bps: now.last.as_ref().and_then(|last| last.throughput_bps),
        })
    }
}

/// What an agent has done since it began, and the last result of each pair.
pub fn agent_families(counts: &AgentCounts) -> Vec<Family<'static>> {
    use Kind::{Counter, Gauge};
    let plain = |name, help, kind, value: u64| Family::plain(name, help, kind, Unit::Plain, value as f64);
    let mut families = vec![
        plain("agent_connected", "Whether it has its NATS server.", Gauge, u64::from(counts.is_connected)),
        plain("agent_measurements_begun", "Measurements that were begun.", Counter, counts.begun),
        labelled(
            "agent_measurements_ended",
            "Of these, those that ended.",
            "how",
            &[("measured", counts.measured), ("failed", counts.failed), ("stopped", counts.stopped)],
        ),
        labelled(
            "agent_measurements_not_begun",
            "Measurements that own limits, or a peer that was not there, kept from beginning.",
            "why",
            &[("refused", counts.refused), ("unreached", counts.unreached)],
        ),
        plain("agent_results_waiting", "Results that wait for the NATS server.", Gauge, counts.waiting),
        plain("agent_results_taken", "Results that it has taken.", Counter, counts.taken),
        plain("agent_results_dropped", "Results dropped since too many waited.", Counter, counts.dropped),
    ];
    let number = |count: u64| Some(Value::Number(count as f64));
    let mut each = |name, help: &str, kind, unit, value: &dyn Fn(&PairCounts) -> Option<Value<'static>>| {
        let sample =
            |(pair, counts): (&CountedPair, &PairCounts)| Some(Sample { labels: labels(pair), value: value(counts)? });
        let samples = counts.pairs.iter().filter_map(sample).collect();
        families.push(Family { name, help: help.to_owned(), kind, unit, samples });
    };
    each("pair_measured", "Measurements of the pair.", Counter, Unit::Plain, &|counts| number(counts.measured));
    each("pair_failed", "Of the pair, those that failed.", Counter, Unit::Plain, &|counts| number(counts.failed));
    each("pair_messages", "Messages sent.", Counter, Unit::Plain, &|counts| number(counts.messages));
    each("pair_lost_messages", "Messages without a reply.", Counter, Unit::Plain, &|counts| number(counts.lost));
    each("pair_stream", "Throughput of the last measurement.", Gauge, Unit::BytesPerSecond, &|counts| {
        counts.last.as_ref()?.throughput_bps.map(|bps| Value::Number(bps / 8.0))
    });
    families.push(last_round_trips(counts));
    families.retain(|family| !family.samples.is_empty());
    families
}

/// Percentiles of the last measurement of each pair, as its recording has them.
fn last_round_trips(counts: &AgentCounts) -> Family<'static> {
    let mut samples = Vec::new();
    for (pair, counts) in &counts.pairs {
        let Some(Measured { rtt_ns: Some(times), .. }) = &counts.last else { continue };
        let mut enter = |share: String, ns: f64| {
            let mut labels = labels(pair);
            labels.push(("quantile", share));
            samples.push(Sample { labels, value: Value::Number(ns / 1e9) });
        };
        for percentile in Percentile::ALL {
            if let Some(value) = times.percentile(percentile) {
                enter(percentile.share().to_string(), value.as_f64());
            }
        }
        enter("1".to_owned(), times.max.as_f64());
    }
    let help = "Percentiles of the pair's last measurement; infinite where a message was lost.".to_owned();
    Family { name: "pair_last_round_trip", help, kind: Kind::Gauge, unit: Unit::Seconds, samples }
}

fn labelled(name: &'static str, help: &str, label: &'static str, counts: &[(&str, u64)]) -> Family<'static> {
    let sample = |(value, count): &(&str, u64)| Sample {
        labels: vec![(label, (*value).to_owned())],
        value: Value::Number(*count as f64),
    };
    let samples = counts.iter().map(sample).collect();
    Family { name, help: help.to_owned(), kind: Kind::Counter, unit: Unit::Plain, samples }
}

fn labels(pair: &CountedPair) -> Vec<(&'static str, String)> {
    vec![("peer", pair.peer.clone()), ("work", pair.work.to_string()), ("what", pair.what.clone())]
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn an_interval_has_what_was_added_and_the_families_have_the_sums() {
        let pair = |peer: &str| CountedPair { peer: peer.to_owned(), work: 0, what: "echo udp".to_owned() };
        let sent = |sent, lost| Some(Measured { sent, lost, ..Measured::default() });
        let mut before = AgentCounts { begun: 2, measured: 2, waiting: 1, ..AgentCounts::default() };
        before.enter(pair("a"), sent(20, 1));
        before.enter(pair("b"), sent(20, 0));
        let mut now = AgentCounts { begun: 4, measured: 3, failed: 1, is_connected: true, taken: 3, ..before.clone() };
        now.enter(pair("a"), sent(30, 2));
        let document = AgentIntervalDocument::between(3, &before, &now);
        assert_eq!((document.begun, document.measured, document.failed, document.results_taken), (2, 1, 1, 3));
        assert_eq!((document.connected, document.results_waiting), (true, 1));
        let rows: Vec<_> = document.results.iter().map(|row| (row.peer.as_str(), row.messages, row.lost)).collect();
        assert_eq!(rows, [("a", 30, 2)]);
        let text = text(&agent_families(&now));
        for line in [
            "taut_agent_connected 1",
            "taut_agent_measurements_begun_total 4",
            r#"taut_agent_measurements_ended_total{how="measured"} 3"#,
            r#"taut_agent_measurements_not_begun_total{why="refused"} 0"#,
            "taut_agent_results_waiting 1",
            r#"taut_pair_messages_total{peer="a",work="0",what="echo udp"} 50"#,
            r#"taut_pair_lost_messages_total{peer="a",work="0",what="echo udp"} 3"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        // Neither was a stream, nor had round trips.
        assert!(!text.contains("taut_pair_stream") && !text.contains("taut_pair_last"), "{text}");
    }
}
