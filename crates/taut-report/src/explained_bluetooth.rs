//! What stands of joined files of Bluetooth in the text on captures.

use taut_explain::join::{BluetoothWay, BluetoothWays, InController, Joined, TimesOn};

use crate::lines::wrap;
use crate::units;

/// Directions of links that are told without `--full`.
const WAYS: usize = 2;

/// At most 100 columns wide.
pub(crate) fn lines(joined: &Joined, ways: &BluetoothWays, is_full: bool) -> Vec<String> {
    let error = units::time(joined.clock.uncertainty_ns);
    let mut lines = Vec::new();
    let by_order = joined.matched_packets.saturating_sub(ways.by_bytes);
    if by_order > 0 && !joined.is_same_place {
        lines.extend(wrap(
            "  ",
            &format!("{} of them are told by their order and length alone, as in cipher text.", units::count(by_order)),
        ));
    }
    let told = if is_full { ways.ways.len() } else { ways.ways.len().min(WAYS) };
    for way in &ways.ways[..told] {
        one(way, &error, &mut lines);
    }
    if ways.ways.len() > told {
        lines.push(format!("  {} more directions of links are in --full and --json.", ways.ways.len() - told));
    }
    lines
}

fn one(way: &BluetoothWay, error: &str, lines: &mut Vec<String>) {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let (sender, receiver, sniffer) = (name(&way.sender), name(&way.receiver), name(&way.sniffer));
    let pdus = match way.pdus {
        1 => "1 L2CAP PDU".to_owned(),
        count => format!("{} L2CAP PDUs", units::count(count)),
    };
    let head = match (&way.sender, &way.receiver) {
        (Some(_), Some(_)) => format!("{sender} > {receiver}: {pdus}"),
        (Some(_), None) => format!("What {sender}'s host sends: {pdus}"),
        _ => format!("What {receiver}'s host receives: {pdus}"),
    };
    let repeats = match (&way.sniffer, way.repeats) {
        (None, _) => String::new(),
        (_, 0) => ", nothing sent again on the air".to_owned(),
        (_, 1) => ", 1 repeat on the air".to_owned(),
        (_, count) => format!(", {} repeats on the air", units::count(count)),
    };
    let missing = match way.missing {
        0 => String::new(),
        1 => "; 1 more is not in the other file".to_owned(),
        count => format!("; {} more are not in the other file", units::count(count)),
    };
    let not_in_log = match way.not_in_log {
        0 => String::new(),
        1 => "; 1 on the air is not in the log".to_owned(),
        count => format!("; {} on the air are not in the log", units::count(count)),
    };
    lines.extend(wrap("  ", &format!("{head}{repeats}{missing}{not_in_log}. Times, each ± {error}:")));
    let to_host = format!("from the end on the air in {sniffer} to the host");
    let rows: [(&str, &Option<TimesOn>); 5] = [
        ("from hand-over to the first transmission", &way.to_air),
        ("from hand-over to the acknowledgement", &way.to_acknowledgement),
        ("from the acknowledgement to its report", &way.to_report),
        (&to_host, &way.to_host),
        ("from hand-over to the other host", &way.end_to_end),
    ];
    for (what, times) in rows {
        let Some(times) = times else { continue };
        let [first, last] = times.most_frames;
        let [least, median, p99, most] = [times.least_ns, times.median_ns, times.p99_ns, times.most_ns].map(signed);
        lines.extend(wrap(
            "    ",
            &format!("{what}: {least} at least, {median} (median), {p99} (p99), {most} at most (frame {first}, there {last})."),
        ));
    }
    if let Some(split) = &way.in_controller {
        lines.extend(wrap(
            "  ",
            &format!("The controller had {} of these for {}:", count_of(split), units::time(split.held_ns)),
        ));
        for (what, ns) in split.parts().into_iter().filter(|(_, ns)| *ns > 0) {
            let share = units::share(ns as f64 / split.held_ns.max(1) as f64);
            lines.push(format!("    {what:<26} {:>12}  {share:>6}", units::time(ns)));
        }
    }
}

fn count_of(split: &InController) -> String {
    units::count(split.pdus)
}

fn signed(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "" }, units::time(ns.unsigned_abs()))
}
