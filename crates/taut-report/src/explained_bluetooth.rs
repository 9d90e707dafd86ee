//! What stands of joined files of Bluetooth in the text on captures.

use taut_event::Holder;
use taut_explain::join::{BluetoothWay, BluetoothWays, HeldOnAir, InController, Joined, ProgramOnAir, TimesOn};

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
    programs(joined, ways, is_full, &mut lines);
    let told = if is_full { ways.ways.len() } else { ways.ways.len().min(WAYS) };
    let has_several = ways.ways.iter().any(|way| way.link != ways.ways[0].link);
    for way in &ways.ways[..told] {
        one(way, has_several, &error, &mut lines);
    }
    if ways.ways.len() > told {
        lines.push(format!("  {} more directions of links are in --full and --json.", ways.ways.len() - told));
    }
    lines
}

fn one(way: &BluetoothWay, has_several: bool, error: &str, lines: &mut Vec<String>) {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let (sender, receiver, sniffer) = (name(&way.sender), name(&way.receiver), name(&way.sniffer));
    let pdus = match way.pdus {
        1 => "1 L2CAP PDU".to_owned(),
        count => format!("{} L2CAP PDUs", units::count(count)),
    };
    let (adapter, handle) = way.link;
    let link = if has_several { format!(" on hci{adapter}, handle {handle}") } else { String::new() };
    let head = match (&way.sender, &way.receiver) {
        (Some(_), Some(_)) => format!("{sender} > {receiver}{link}: {pdus}"),
        (Some(_), None) => format!("What {sender}'s host sends{link}: {pdus}"),
        _ => format!("What {receiver}'s host receives{link}: {pdus}"),
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
    if let Some(split) = way.in_controller.as_ref().filter(|split| split.held_ns > 0) {
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

/// Holders and what the air did meanwhile that are told of a program without `--full`.
const ROWS: usize = 4;
/// Less of the time is told by `--full` alone.
const LEAST_SHARE: f64 = 0.005;

/// What traced programs send: who held it, and what the air did meanwhile.
fn programs(joined: &Joined, ways: &BluetoothWays, is_full: bool, lines: &mut Vec<String>) {
    let told = if is_full { ways.programs.len() } else { ways.programs.len().min(WAYS) };
    for program in &ways.programs[..told] {
        one_program(joined, program, is_full, lines);
    }
    if ways.programs.len() > told {
        lines.push(format!("  {} more are in --full and --json.", ways.programs.len() - told));
    }
}

fn one_program(joined: &Joined, program: &ProgramOnAir, is_full: bool, lines: &mut Vec<String>) {
    let name = program.program.as_ref().map_or_else(String::new, |name| format!(", from {name}"));
    lines.extend(wrap(
        "  ",
        &format!(
            "{} > {}{name}: {} on one timeline, who held it by {} and what the link did meanwhile by {}, ± {}:",
            program.from,
            program.to,
            units::time(program.held_ns),
            joined.other,
            joined.reference,
            units::time(joined.clock.uncertainty_ns)
        ),
    ));
    let line = |indent: &str, what: &str, ns: u64| {
        let share = units::share(ns as f64 / program.held_ns.max(1) as f64);
        let width = 48 - indent.len();
        format!("{indent}{what:<width$} {:>12}  {share:>6}", units::time(ns))
    };
    let is_told = |ns: u64| is_full || ns as f64 >= LEAST_SHARE * program.held_ns as f64;
    let rows = program.rows.iter().filter(|row| is_told(row.held_ns));
    let shown: Vec<&HeldOnAir> = rows.take(if is_full { usize::MAX } else { ROWS }).collect();
    for row in &shown {
        let holder = Holder::named(&row.holder).map_or_else(|| row.holder.clone(), |holder| holder.to_string());
        lines.push(line("    ", &holder, row.held_ns));
        for (what, ns) in row.air.parts().into_iter().filter(|&(_, ns)| ns > 0 && is_told(ns)) {
            lines.push(line("      ", what, ns));
        }
    }
    if program.rows.len() > shown.len() {
        let others: u64 =
            program.rows.iter().map(|row| row.held_ns).sum::<u64>() - shown.iter().map(|row| row.held_ns).sum::<u64>();
        let told = match program.rows.len() - shown.len() {
            1 => "1 other".to_owned(),
            count => format!("{count} others"),
        };
        lines.push(line("    ", &told, others));
    }
    if let Some(credits) = program.rows.iter().find(|row| row.holder == Holder::Credits.name()) {
        lines.extend(wrap("    ", &on_credits(credits)).into_iter().filter(|line| !line.trim().is_empty()));
    }
    if program.outside_ns > 0 {
        let outside = units::time(program.outside_ns);
        lines.extend(wrap("    ", &format!("{outside} more of the trace lie outside the capture of the link.")));
    }
    lines.extend(program.remarks.iter().flat_map(|remark| wrap("    ", remark)));
}

/// What the air tells of credits that did not come; nothing where that is little.
fn on_credits(credits: &HeldOnAir) -> String {
    let between = credits.air.nothing_between_events_ns;
    if credits.share < 0.05 || between * 2 < credits.held_ns {
        return String::new();
    }
    format!(
        "For {} of the time without credits the controller had nothing to send and no connection event was on: credits \
         come with the next event only.",
        units::share(between as f64 / credits.held_ns.max(1) as f64)
    )
}
