//! What stands of joined captures in the text on captures.

use taut_explain::join::{ClockFit, Joined};

use crate::lines::wrap;
use crate::units;

/// At most 100 columns wide.
pub(crate) fn lines(joined: &Joined, is_full: bool) -> Vec<String> {
    let mut lines = wrap("  ", &format!("JOINED {}", clock(joined)));
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    lines.extend(wrap("  ", &error(joined)));
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
    let connections = match joined.connections {
        1 => "1 connection".to_owned(),
        count => format!("{} connections", units::count(count)),
    };
    format!(
        "{place}{other}'s clock {offset}, ± {error}, and {}; by {packets} packets of {connections} that both have.",
        rate(clock)
    )
}

fn rate(clock: &ClockFit) -> String {
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
