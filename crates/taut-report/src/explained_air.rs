//! What stands of a link of Bluetooth LE on the air in the text on captures.

use taut_explain::{AirFacts, Direction};

use crate::units;

/// `central 00:AA:01:00:00:00 > peripheral: 56 KiB in 2.01 s, LE 1M, interval 7.50 ms`.
pub(crate) fn title(direction: &Direction, facts: &AirFacts) -> String {
    let (bytes, span) = (units::size(direction.bytes), units::time(direction.span_ns));
    let phy = facts.phy.as_ref().map_or_else(String::new, |phy| format!(", LE {phy}"));
    let interval = facts.interval_ns.map_or_else(
        || ", interval not known".to_owned(),
        |interval| {
            format!(
                ", interval {}{}",
                units::time(interval),
                if facts.is_interval_told { "" } else { " by its anchors" }
            )
        },
    );
    // The sender's address tells which link it is.
    let to = direction.to.split(' ').next().unwrap_or_default();
    format!("{} > {to}: {bytes} in {span}{phy}{interval}", direction.from)
}

/// A sentence for each kind of thing, for the details.
pub(crate) fn facts(direction: &Direction, facts: &AirFacts) -> Vec<String> {
    let count = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", units::count(count)));
    let listed = |first: String, more: Vec<Option<String>>| {
        let all: Vec<String> = std::iter::once(first).chain(more.into_iter().flatten()).collect();
        format!("{}.", all.join(", "))
    };
    let exchanges = facts.exchanges_per_event.map_or_else(String::new, |median| {
        format!(" of {median} exchanges (median), {} at most", facts.most_exchanges)
    });
    let events = listed(
        format!("{} connection events{exchanges}", units::count(facts.events)),
        vec![
            count(facts.unseen_events, "not seen at all"),
            count(facts.silent_events, "without an answer of the peripheral"),
            count(facts.full_events, "ended with more data and no time left"),
            count(facts.ended_by_central, "ended early by the central"),
            count(facts.ended_by_peripheral, "ended early for want of an answer"),
            count(facts.ended_by_crc, "ended early by a wrong CRC"),
        ],
    );
    let pdus = listed(
        format!("{} PDUs of at most {} bytes", units::count(direction.segments), direction.mss_bytes),
        vec![
            Some(format!("{} of time on air", units::time(facts.air_ns))),
            count(facts.control_pdus, "of them link layer control"),
            Some(format!("{} sent again", units::count(direction.repeated_segments))),
            count(facts.refused, "asked for once more by the answer"),
            facts.wrong_crc.map(|wrong| format!("{} with a wrong CRC at the sniffer", units::count(wrong))),
            count(facts.unseen_pdus, if facts.unseen_pdus == 1 { "gap of the sniffer" } else { "gaps of the sniffer" }),
            Some(format!("{} empty ones", units::count(facts.empty_pdus))),
        ],
    );
    let mut link = vec![format!("Access address {}", facts.access_address)];
    link.extend(facts.latency.map(|latency| format!("latency {latency}")));
    link.extend(facts.length_bytes.map(|length| format!("data PDUs of up to {length} B agreed on")));
    link.push(if facts.is_encrypted { "encrypted" } else { "not seen to be encrypted" }.to_owned());
    vec![events, pdus, format!("{}.", link.join(", "))]
}
