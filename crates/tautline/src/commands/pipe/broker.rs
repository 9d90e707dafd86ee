//! What `taut pipe` says of the messages at an end that is a broker.

use serde_json::{Value, json};
use taut_explain::Finding;
use taut_explain::broker_loss::{self, Lost};
use taut_link::broker::{BrokerAccount, HeardAccount};
use taut_link::{Endpoint, Link};
use taut_pipe::{Address, Plan};

use crate::published;

/// One broker's account, and what it shows.
#[derive(Debug)]
pub(super) struct Told {
    endpoint: String,
    account: BrokerAccount,
    pub(super) findings: Vec<Finding>,
}

impl Told {
    /// Of the account of a plan's end. A broker that lost something is asked what it is.
    pub(super) fn of(plan: &Plan, end: usize, account: &BrokerAccount) -> Self {
        let endpoint = match &plan.sides[end].address {
            Address::Link(endpoint) => Some(endpoint),
            _ => None,
        };
        let mut account = account.clone();
        if account.missing() > 0 && account.broker.is_none() {
            account.broker = endpoint.and_then(Link::broker_of);
        }
        let endpoint = endpoint.map(Endpoint::to_string).unwrap_or_default();
        let findings = findings(&endpoint, &account);
        Self { endpoint, account, findings }
    }

    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let written = self.account.written.iter().filter(|written| written.sent > 0 || !written.readers.is_empty());
        let mut lines: Vec<String> = written.flat_map(published::lines).collect();
        lines.extend(
            self.account.heard.iter().filter(|heard| heard.writers > 0 || heard.read > 0).flat_map(heard_lines),
        );
        for finding in &self.findings {
            lines.push(format!("{}: {}", finding.cause, finding.summary));
            lines.extend(finding.evidence.iter().map(|evidence| format!("  {evidence}")));
            lines.push(format!("  CHANGE {}", finding.remedy));
        }
        lines.into_iter().map(|line| format!("{}: {line}", self.endpoint)).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "endpoint": self.endpoint,
            "broker": self.account.broker,
            "reconnections": self.account.reconnections,
            "cut_off": self.account.cut_off,
            "written": self.account.written,
            "heard": self.account.heard.as_ref().map(heard_json),
        })
    }
}

fn findings(on: &str, account: &BrokerAccount) -> Vec<Finding> {
    let broker = account.broker.as_deref();
    let lost = Lost { on, broker, reconnections: account.reconnections, cut_offs: account.cut_off, ..Lost::default() };
    let readers = account.written.iter().flat_map(|written| &written.readers);
    let worst = readers.max_by_key(|reader| reader.passed_over).map(|reader| Lost {
        messages: reader.read.saturating_add(reader.missing),
        passed_over: reader.passed_over,
        ..lost
    });
    let heard = account.heard.as_ref().map(|heard| Lost {
        messages: heard.read.saturating_add(heard.missing),
        passed_over: heard.passed_over,
        behind_cut_offs: heard.cut_off,
        ..lost
    });
    worst.into_iter().chain(heard).flat_map(|lost| broker_loss::find(&lost)).collect()
}

fn heard_lines(heard: &HeardAccount) -> Vec<String> {
    let mut line = format!(
        "read from {}: {} read, {} twice, {} out of order, {} missing",
        heard.topic, heard.read, heard.twice, heard.out_of_order, heard.missing
    );
    for (count, what) in [
        (heard.dropped_there, "dropped by the writer"),
        (heard.before, "sent before this reader was there"),
        (heard.too_long, "too long for a pipe"),
        (heard.without_number, "without a number, of which nothing can be told"),
    ] {
        if count > 0 {
            line += &format!(", {count} {what}");
        }
    }
    vec![line]
}

fn heard_json(heard: &HeardAccount) -> Value {
    json!({
        "topic": heard.topic,
        "writers": heard.writers,
        "read": heard.read,
        "twice": heard.twice,
        "out_of_order": heard.out_of_order,
        "missing": heard.missing,
        "passed_over": heard.passed_over,
        "cut_off": heard.cut_off,
        "before": heard.before,
        "dropped_there": heard.dropped_there,
        "too_long": heard.too_long,
        "without_number": heard.without_number,
    })
}
