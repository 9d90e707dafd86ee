//! Periodic small messages over TCP: Nagle's algorithm on beside off, against a foreign peer that acknowledges after
//! 56 ms and against Linux with delayed ACKs.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::outcome::{Outcome, median, table};
use super::process::Transport;
use super::setting::Setting;
use super::taut;

/// What acknowledges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Peer {
    Foreign,
    Linux,
}

/// One run of `taut pace`.
struct Run {
    gap_ns: f64,
    messages_per_segment: Option<f64>,
    findings: Vec<(String, Option<f64>)>,
}

/// The runs of one case.
struct Case {
    peer: Peer,
    nagle: &'static str,
    runs: Vec<Run>,
}

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let mut cases: Vec<Case> = [Peer::Foreign, Peer::Linux]
        .into_iter()
        .flat_map(|peer| ["on", "off"].map(|nagle| Case { peer, nagle, runs: Vec::new() }))
        .collect();
    for _ in 0..setting.rounds {
        for case in &mut cases {
            case.runs.push(case.peer.pace(setting, case.nagle)?);
        }
    }
    let header = ["peer", "Nagle", "gap (mean)", "min", "max", "messages/segment", "finding (share)"];
    let rows: Vec<Vec<String>> = cases.iter().map(Case::row).collect();
    Ok(Outcome { text: table(&header, &rows), json: cases.iter().map(Case::json).collect(), met: None })
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Foreign => "foreign, ACK after 56 ms",
            Self::Linux => "Linux, delayed ACKs",
        }
    }

    fn pace(self, setting: &Setting, nagle: &str) -> Result<Run> {
        let object = match self {
            Self::Foreign => {
                let arguments =
                    ["pace", "--emulate-delack", "56ms", "--nagle", nagle, "--time", "10s", "--place", "free"];
                setting.taut.run(&arguments, Duration::from_secs(120))?
            }
            Self::Linux => {
                let serving = setting.taut.serve()?;
                let endpoint = serving.endpoint(Transport::Tcp)?;
                let arguments =
                    ["pace", endpoint, "--peer-ack", "delayed", "--nagle", nagle, "--time", "5s", "--place", "free"];
                setting.taut.run(&arguments, Duration::from_secs(120))?
            }
        };
        Run::of(&object)
    }
}

impl Run {
    fn of(object: &Value) -> Result<Self> {
        let findings = object["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Self {
            gap_ns: taut::number(object, "/results/0/sender_gap_ns/mean")?,
            messages_per_segment: taut::number(object, "/results/0/messages_per_segment").ok(),
            findings: findings
                .iter()
                .filter_map(|finding| Some((finding["cause"].as_str()?.to_owned(), finding["share"].as_f64())))
                .collect(),
        })
    }

    fn finding(&self) -> Option<String> {
        let (cause, share) = self.findings.first()?;
        Some(share.map_or_else(|| cause.clone(), |share| format!("{cause} ({share:.2})")))
    }
}

impl Case {
    fn gaps(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.gap_ns).collect()
    }

    fn row(&self) -> Vec<String> {
        let gaps = self.gaps();
        let per_segment: Vec<f64> = self.runs.iter().filter_map(|run| run.messages_per_segment).collect();
        let ms = |ns: f64| format!("{:.2} ms", ns / 1e6);
        vec![
            self.peer.name().to_owned(),
            self.nagle.to_owned(),
            ms(median(&gaps)),
            ms(gaps.iter().copied().fold(f64::INFINITY, f64::min)),
            ms(gaps.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            if per_segment.is_empty() { "-".to_owned() } else { format!("{:.2}", median(&per_segment)) },
            self.runs.iter().find_map(Run::finding).unwrap_or_else(|| "none".to_owned()),
        ]
    }

    fn json(&self) -> Value {
        let findings = |run: &Run| -> Value {
            run.findings.iter().map(|(cause, share)| json!({"cause": cause, "share": share})).collect()
        };
        json!({
            "peer": self.peer.name(),
            "nagle": self.nagle,
            "sender_gap_mean_ns_by_round": self.gaps(),
            "messages_per_segment_by_round": self.runs.iter().map(|run| run.messages_per_segment).collect::<Vec<_>>(),
            "findings_by_round": self.runs.iter().map(findings).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_from_tauts_object() {
        let object = json!({
            "results": [{"sender_gap_ns": {"mean": 56_000_000.0}, "messages_per_segment": 5.6}],
            "findings": [{"cause": "nagle_delayed_ack", "share": 0.99}],
        });
        let run = Run::of(&object).unwrap();
        assert_eq!((run.gap_ns, run.messages_per_segment), (56e6, Some(5.6)));
        assert_eq!(run.finding().as_deref(), Some("nagle_delayed_ack (0.99)"));
        assert!(Run::of(&json!({"results": []})).is_err());
    }
}
