//! From a link's state to the report of one direction.

use taut_event::{Direction as Way, FlowKey, Holder};

use super::{Sniffed, verdict};
use crate::engine::{AirFacts, Breakdown, Direction, held};
use crate::words;

/// The report of a direction in which data went, with its breakdown and its weight among others.
pub(crate) fn direction(link: &Sniffed, way: Way, start: u64) -> Option<(Direction, &Breakdown, u64)> {
    let half = &link.halves[way.index()];
    let (tally, breakdown) = (&half.tally, &half.breakdown);
    let FlowKey::Le(key) = link.flow.key else { return None };
    if tally.data_pdus == 0 {
        return None;
    }
    let now = &link.link;
    let events = &link.events;
    let is_central = way == Way::Forward;
    let name = ["1M", "2M", "Coded"][usize::from(tally.phy().number()) - 1];
    let facts = AirFacts {
        access_address: format!("{:#010x}", key.access_address),
        interval_ns: Some(now.interval_ns).filter(|&interval| interval > 0),
        is_interval_told: now.is_told,
        latency: now.latency,
        phy: now.tells_phy.then(|| name.to_owned()),
        length_bytes: now.length.map(|length| length[way.index()]),
        is_encrypted: now.is_encrypted,
        events: events.seen,
        unseen_events: events.unseen,
        silent_events: events.silent,
        exchanges_per_event: events.exchanges.median(),
        most_exchanges: events.exchanges.max(),
        full_events: events.ended.full,
        ended_by_central: events.ended.by_central,
        ended_by_peripheral: events.ended.by_peripheral,
        ended_by_crc: events.ended.by_crc,
        control_pdus: tally.control_pdus,
        empty_pdus: tally.empty_pdus,
        refused: tally.refused,
        wrong_crc: now.tells_crc.then_some(tally.wrong_crc),
        unseen_pdus: tally.lost_by_sniffer,
        air_ns: tally.air_ns,
    };
    let report = Direction {
        from: key.end(is_central).to_string(),
        to: key.end(!is_central).to_string(),
        bytes: tally.bytes,
        segments: tally.data_pdus,
        begin_ns: half.begin.unwrap_or(start).saturating_sub(start),
        span_ns: breakdown.total_ns(),
        frames: [tally.first_place, tally.last_place],
        mss_bytes: tally.longest.into(),
        repeated_segments: tally.repeated,
        breakdown: held(breakdown, start),
        verdicts: verdict::verdicts(link, way),
        remarks: remarks(link, way),
        air: Some(facts),
        picture: None,
        ..Direction::default()
    };
    // Of what its sender's host had nobody knows how much could be had back; the most of it, with the most data.
    let weight = [Holder::ClosedEvent, Holder::LossRecovery].iter().map(|&holder| breakdown.ns(holder)).sum();
    Some((report, breakdown, weight))
}

/// What a sniffer does not see, and what follows from that.
fn remarks(link: &Sniffed, way: Way) -> Vec<String> {
    let mut remarks = Vec::new();
    let (now, tally) = (&link.link, &link.halves[way.index()].tally);
    if !link.flow.from_start {
        remarks.push("The link was made before the capture: its interval is that of the anchors.".to_owned());
    }
    if link.lacks_latency {
        remarks.push(
            "How many events the peripheral may skip is not known, at least for a time: what says so was not seen, or is \
             encrypted. What was sent again after events without an answer counts neither as lost nor as skipped then."
                .to_owned(),
        );
    }
    if now.interval_ns == 0 {
        remarks
            .push("Too few anchors were seen to tell the connection interval, or whether events are missing.".into());
    }
    if link.intervals.len() > 1 {
        let all: Vec<String> = link.intervals.iter().map(|&interval| words::time(interval)).collect();
        remarks.push(format!("The connection interval changed: {}.", all.join(", then ")));
    }
    if now.is_encrypted {
        remarks.push(
            "The link is encrypted: lengths, numbers and marks of PDUs are seen, but not what is in them, such as credits \
             of L2CAP. A host's log has that."
                .to_owned(),
        );
    }
    if link.events.unseen > 0 {
        remarks.push(format!(
            "Of {} connection events nothing was seen: the sniffer missed them, or the central did not send.",
            link.events.unseen
        ));
    }
    if tally.lost_by_sniffer > 0 {
        remarks.push(format!(
            "The sniffer missed PDUs: {} the sequence number did not change although the data did or was acknowledged.",
            words::times(tally.lost_by_sniffer)
        ));
    }
    if !now.tells_direction {
        remarks.push(
            "The capture does not say who sent a PDU; that is told by turns, and wrong where one is lacking.".into(),
        );
    }
    if !now.tells_crc {
        remarks.push("The capture does not say whether a CRC was right.".to_owned());
    }
    let phys = tally.on_phys();
    if phys.iter().filter(|&&count| count > 0).count() > 1 {
        let [slow, fast, coded] = phys;
        remarks.push(format!("The PHY changed: {slow} data PDUs on LE 1M, {fast} on LE 2M, {coded} on LE Coded."));
    }
    if now.is_over {
        remarks.push("The link was ended (LL_TERMINATE_IND).".to_owned());
    }
    remarks
}
