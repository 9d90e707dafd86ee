//! What commands over there print: lines of a server, and documents.

use std::time::Duration;

use serde_json::Value;
use taut_record::{Ended, FORMAT_VERSION, Recording, Row};

use crate::outcome::{Explained, Explanation, PairOutcome};
use crate::work::Transport;

/// Shortest and longest time between two messages of a look.
pub(crate) const PERIODS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// The two last layers of a message, where they can't be told apart.
const UNTOLD: &str = "medium or peer program";
/// Lines of a command's output that are tried as the beginning of its document.
const MOST_BEGINS: usize = 100;
/// Of a text from over there, so many bytes are kept.
const MOST_KEPT: usize = 4 << 10;
/// Findings of a look that are kept.
pub(crate) const MOST_FINDINGS: usize = 32;

/// The JSON object in what a command printed.
pub(crate) struct Document<'a> {
    pub(crate) value: Value,
    /// As it was printed.
    pub(crate) text: &'a str,
}

/// A text from over there, as long as it is kept.
pub(crate) fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_KEPT)].to_owned()
}

/// The ports of the line that a server begins with.
pub(crate) fn listening(line: &str) -> Option<Vec<(Transport, u16)>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let port = |endpoint: &Value| {
        let (transport, rest) = endpoint.as_str()?.split_once("://")?;
        let transport = [Transport::Tcp, Transport::Udp].into_iter().find(|one| one.name() == transport)?;
        Some((transport, rest.rsplit_once(':')?.1.parse().ok()?))
    };
    value["listening"].as_array().map(|endpoints| endpoints.iter().filter_map(port).take(2).collect())
}

/// The one JSON object in what a command printed. Shells over there may greet before it.
pub(crate) fn document(text: &str) -> Option<Document<'_>> {
    let begins = text.match_indices('{').map(|(at, _)| at).filter(|&at| at == 0 || text[..at].ends_with('\n'));
    let read = move |at: usize| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        let value = values.next()?.ok()?;
        Some(Document { value, text: &text[at..at + values.byte_offset()] })
    };
    begins.take(MOST_BEGINS).filter_map(read).find(|found| found.value.get("format_version").is_some())
}

pub(crate) fn recording(value: &Value) -> Result<Recording, String> {
    let version = value["format_version"].as_u64().unwrap_or(0);
    if version > u64::from(FORMAT_VERSION) {
        return Err(format!("its document has format {version}, and this taut reads up to {FORMAT_VERSION}"));
    }
    serde_json::from_value(value.clone()).map_err(|error| cut(&format!("its document can't be read: {error}")))
}

/// Two round trips, so that no message waits for the acknowledgement of the one before unless that is late.
pub(crate) fn period(pair: &PairOutcome) -> Duration {
    let times = pair.measured.as_ref().and_then(|measured| measured.rtt_ns.as_ref());
    let two = times.and_then(|times| times.p50.time()).map_or(0, |ns| ns.saturating_mul(2));
    Duration::from_nanos(two).clamp(PERIODS[0], PERIODS[1])
}

pub(crate) fn explained(value: &Value) -> Result<Explained, String> {
    let recording = recording(value)?;
    let Some(Row::Pace(row)) = recording.results.first() else {
        return Err(match &recording.ended {
            Ended::PeerGone(why) | Ended::Failed(why) => cut(why),
            _ => "it has no results".to_owned(),
        });
    };
    let mut layers: Vec<(&str, u64)> = row.ledger_ns.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
    // Where the peer's kernel does not tell when a message came, all until it was read is booked on the last layer.
    if row.excerpt.iter().all(|message| message.received.is_none()) {
        layers.iter_mut().filter(|(name, _)| *name == "peer program").for_each(|(name, _)| *name = UNTOLD);
    }
    // What hosts say is not ours to overflow at.
    let whole = layers.iter().fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
    let longest = layers.iter().max_by_key(|(_, ns)| ns).filter(|_| whole > 0);
    let findings = value["findings"].as_array().into_iter().flatten();
    Ok(Explained {
        layer: longest.map(|(name, _)| cut(name)),
        layer_share: longest.map_or(0.0, |(_, ns)| *ns as f64 / whole as f64),
        delivery_p50_ns: row.delivery_ns.as_ref().and_then(|times| times.p50.time()),
        messages: row.messages,
        lost: row.lost,
        findings: findings.filter_map(Explanation::read).take(MOST_FINDINGS).collect(),
        ..Explained::default()
    })
}

impl Explanation {
    fn read(finding: &Value) -> Option<Self> {
        let text = |key: &str| Some(cut(finding.get(key)?.as_str()?));
        Some(Self { cause: text("cause")?, summary: text("summary")?, remedy: text("remedy")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_found_after_a_greeting_and_is_kept_as_it_was_printed() {
        let printed = "Welcome {you}\n{ no JSON\n{\"a\": 1}\n{\n  \"format_version\": 3,\n  \"x\": 1.50\n}\nbye\n";
        let found = document(printed).unwrap();
        assert_eq!(found.text, "{\n  \"format_version\": 3,\n  \"x\": 1.50\n}");
        assert_eq!(found.value["format_version"], 3);
        assert!(document("{\"a\": 1}\n").is_none() && document("").is_none());
    }

    #[test]
    fn of_a_text_as_much_is_kept_as_there_is_room_for() {
        assert_eq!(cut("né"), "né");
        let long = "é".repeat(MOST_KEPT);
        assert_eq!(cut(&format!("x{long}")).len(), MOST_KEPT - 1);
    }
}
