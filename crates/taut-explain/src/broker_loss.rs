//! Messages that a broker did not bring, by an account from the writer to the reader.
//!
//! A broker acknowledges a message when it has taken it, whatever becomes of it then. It is shown to be lost by a later
//! one of the same writer that was read: MQTT (5.0, section 4.6) and NATS keep the order of a writer's messages.

use crate::finding::{Finding, Unit};

/// What is known at one end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost<'a> {
    /// The broker's endpoint.
    pub on: &'a str,
    /// What the broker says that it is.
    pub broker: Option<&'a str>,
    /// Messages that were read or are missing.
    pub messages: u64,
    /// The missing ones that the broker had acknowledged and after which others were read.
    pub passed_over: u64,
    /// How often the server closed the reader's connection and was still there.
    pub cut_offs: u64,
    /// The missing ones behind which it had done so.
    pub behind_cut_offs: u64,
    /// How often the connection was made again.
    pub reconnections: u64,
}

/// The broker, the reader that did not keep up, both or none.
pub fn find(lost: &Lost<'_>) -> Vec<Finding> {
    let dropped = (lost.passed_over > 0).then(|| broker_dropped(lost));
    let slow = (lost.cut_offs > 0 && lost.behind_cut_offs > 0).then(|| slow_consumer(lost));
    dropped.into_iter().chain(slow).collect()
}

fn broker_dropped(lost: &Lost<'_>) -> Finding {
    let name = lost.broker.map_or_else(String::new, |name| format!(" ({name})"));
    let mut evidence = vec![format!(
        "of {} messages the broker{name} had acknowledged {} that were not read, while later ones of the same writer were",
        lost.messages, lost.passed_over
    )];
    if lost.reconnections > 0 {
        evidence.push(format!("its connection was made again {}", times(lost.reconnections)));
    }
    let is = |word: &str| lost.broker.is_some_and(|name| name.to_lowercase().contains(word));
    let remedy = if is("mosquitto") {
        "In mosquitto.conf, raise `max_queued_messages` (1000 as it comes, 0 for no limit) for a reader that is away or slow; \
         and so that a broker that is killed or restarted keeps its messages, set `persistence true`, \
         `autosave_on_changes true` and `autosave_interval 1`, and give the reader session=NAME and qos=1."
    } else if is("nats") {
        "Use a stream (JetStream) in place of core NATS: core keeps nothing for a reader that is away."
    } else {
        "Raise the broker's limit of messages that are queued for a client, have it keep its queues on disk \
         (persistence), and give the reader session=NAME and qos=1. Of Mosquitto these are max_queued_messages and \
         persistence."
    };
    finding(
        "broker_dropped",
        "The broker acknowledged messages and did not bring them to the reader.",
        lost,
        lost.passed_over,
        evidence,
        remedy,
    )
}

fn slow_consumer(lost: &Lost<'_>) -> Finding {
    let server = lost.broker.unwrap_or("the server");
    let evidence = vec![format!(
        "{server} closed the reader's connection {} and was still there; {} messages are missing behind that",
        times(lost.cut_offs),
        lost.behind_cut_offs
    )];
    finding(
        "slow_consumer",
        "The server cut the reader off, which did not read as fast as messages came.",
        lost,
        lost.behind_cut_offs,
        evidence,
        "Have the reader take messages faster, or write fewer; use a stream (JetStream), which waits for its readers; or \
         raise `max_pending` and `write_deadline` of the server.",
    )
}

fn finding(
    cause: &str,
    summary: &str,
    lost: &Lost<'_>,
    concerned: u64,
    evidence: Vec<String>,
    remedy: &str,
) -> Finding {
    Finding {
        cause: cause.to_owned(),
        summary: summary.to_owned(),
        on: lost.on.to_owned(),
        share: concerned as f64 / lost.messages.max(concerned).max(1) as f64,
        share_of: Unit::Messages,
        cost_ns: 0,
        evidence,
        remedy: remedy.to_owned(),
        proof: None,
    }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stands_where_its_evidence_is_and_names_the_broker() {
        let lost = Lost { on: "mqtt://h/t", messages: 5000, passed_over: 4000, ..Lost::default() };
        let with = |broker| find(&Lost { broker: Some(broker), ..lost }).swap_remove(0);
        let stock = with("mosquitto version 2.0.11");
        assert_eq!((stock.cause.as_str(), stock.share), ("broker_dropped", 0.8));
        assert!(stock.remedy.contains("max_queued_messages") && stock.evidence[0].contains("2.0.11"), "{stock:?}");
        assert!(with("nats-server 2.9.10").remedy.contains("JetStream"));
        assert!(with("other").remedy.contains("persistence"));
        // Missing without an acknowledgement, or cut off without a loss, is neither.
        assert!(find(&Lost { passed_over: 0, cut_offs: 1, ..lost }).is_empty());
        let cut = find(&Lost { passed_over: 0, cut_offs: 2, behind_cut_offs: 7, ..lost });
        assert_eq!(cut[0].cause, "slow_consumer");
        assert!(cut[0].evidence[0].contains("2 times") && cut[0].evidence[0].contains("7 messages"), "{cut:?}");
    }
}
