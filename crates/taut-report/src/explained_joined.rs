//! What stands of joined captures in the text on captures.

use taut_explain::join::{ClockFit, Joined, Way};

use crate::explained_bluetooth::lines as of_bluetooth;
use crate::explained_lost::lines as lost;
use crate::lines::wrap;
use crate::units;

/// At most 100 columns wide.
pub(crate) fn lines(joined: &Joined, is_full: bool) -> Vec<String> {
    let mut lines = wrap("  ", &format!("JOINED {}", clock(joined)));
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    lines.extend(wrap("  ", &error(joined)));
    match &joined.bluetooth {
        Some(bluetooth) => lines.extend(of_bluetooth(joined, bluetooth, is_full)),
        None => lines.extend(ways(joined).iter().flat_map(|way| wrap("  ", way))),
    }
    if is_full {
        let ([ours, theirs], [our_last, their_last]) = (joined.first_frames, joined.last_frames);
        lines.extend(wrap(
            "  ",
            &format!(
                "The first packet in both is frame {ours} of {} and {theirs} of {}, the last one {our_last} and \
                 {their_last}.",
                joined.reference, joined.other
            ),
        ));
    }
    lines.extend(joined.remarks.iter().flat_map(|remark| wrap("  ", remark)));
    lines
}

/// The time on the way, in both directions, and which of them has the queue.
fn ways(joined: &Joined) -> Vec<String> {
    if joined.is_same_place {
        return Vec::new();
    }
    let Joined { reference, other, there, back, .. } = joined;
    let error = units::time(joined.clock.uncertainty_ns);
    let one = |from: &str, to: &str, way: &Way| {
        let [left, came] = way.slowest_frames;
        let least = units::time(way.least_ns.unsigned_abs());
        let sign = if way.least_ns < 0 { "-" } else { "" };
        let [median, p99, most] = [way.median_beyond_ns, way.p99_beyond_ns, way.most_beyond_ns].map(units::time);
        let doubt = units::time(way.beyond_uncertainty_ns);
        format!(
            "{from} > {to}: {sign}{least} at least, ± {error}; beyond that {median} (median), {p99} (p99), {most} at \
             most (frame {left}, there {came}), ± {doubt}."
        )
    };
    let mut lines = vec![one(reference, other, there)];
    lines.extend(lost(reference, other, there));
    lines.push(one(other, reference, back));
    lines.extend(lost(other, reference, back));
    let with = [(there, back, reference, other), (back, there, other, reference)];
    for (way, back, from, to) in with {
        if way.has_the_queue(back) {
            lines.push(format!("Packets wait on the way from {from} to {to}, and not on the way back."));
        }
    }
    lines
}

/// `b.pcap's clock is 3.20 ms ahead of a.pcap's, ± 80.0 µs, …`
fn clock(joined: &Joined) -> String {
    let Joined { reference, other, clock, .. } = joined;
    let offset = clock.offset_ns.unsigned_abs();
    let is_none = offset <= clock.uncertainty_ns;
    let side = if clock.offset_ns < 0 { "behind" } else { "ahead of" };
    let error = units::time(clock.uncertainty_ns);
    let place = if joined.is_same_place {
        format!("{other} has the same packets at the same times as {reference}: ")
    } else {
        String::new()
    };
    let offset = if is_none && offset == 0 {
        format!("shows the time of {reference}'s")
    } else {
        format!("is {} {side} {reference}'s", units::time(offset))
    };
    let packets = units::count(joined.matched_packets);
    let (packet, connection) = match &joined.bluetooth {
        Some(_) => ("L2CAP PDUs", "link"),
        None => ("packets", "connection"),
    };
    let counted = |count: u64, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{} {what}s", units::count(count))),
    };
    let [tcp, udp] = [counted(joined.connections, connection), counted(joined.udp_flows, "flow")];
    let udp = udp.map(|flows| format!("{flows} of UDP"));
    let connections = tcp.into_iter().chain(udp).collect::<Vec<_>>().join(" and ");
    format!(
        "{place}{other}'s clock {offset}, ± {error}, and {}; by {packets} {packet} of {connections} that both have.",
        rate(clock)
    )
}

pub(crate) fn rate(clock: &ClockFit) -> String {
    let [least, most] = clock.rate_between_ppm;
    let ppm = clock.rate_ppm;
    let doubt = (most - ppm).max(ppm - least);
    let (ppm, doubt) = if doubt < 0.1 {
        (format!("{:.3}", ppm.abs()), format!("{doubt:.3}"))
    } else {
        (format!("{:.1}", ppm.abs()), format!("{doubt:.1}"))
    };
    match (least..=most).contains(&0.0) {
        true => format!("runs as fast as far as these tell (± {doubt} ppm)"),
        false if clock.rate_ppm > 0.0 => format!("gains {ppm} ppm, ± {doubt}"),
        false => format!("loses {ppm} ppm, ± {doubt}"),
    }
}

fn error(joined: &Joined) -> String {
    if joined.is_same_place {
        return "Both were taken at one place, or on one machine.".to_owned();
    }
    let round_trip = units::time(joined.clock.least_round_trip_ns);
    format!(
        "The error is what no packet contradicts: between both places the round trip takes {round_trip} at least, and \
         how much of it is the way there, no capture can tell. No packet arrives before it left."
    )
}
