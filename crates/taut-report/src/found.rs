//! A breakdown and a finding, in lines of text.

use taut_explain::{Found, Held};

use crate::explained_file::held_by;
use crate::lines::{WIDTH, width, wrap};
use crate::units;

/// Columns of the names of a breakdown.
const NAMES: usize = 44;

/// The rows of a breakdown, of which the last one is the sum of those that have no row of their own.
pub(crate) fn breakdown(all: &[Held], span_ns: u64, rows: usize) -> Vec<String> {
    let shown = if all.len() <= rows { all.len() } else { rows - 1 };
    let mut table: Vec<(String, u64, String)> =
        all[..shown].iter().map(|held| (held_by(held), held.held_ns, times(held.episodes))).collect();
    let rest: u64 = all[shown..].iter().map(|held| held.held_ns).sum();
    if shown < all.len() {
        table.push((format!("{} others", all.len() - shown), rest, String::new()));
    }
    let micros = adding_up(&table.iter().map(|(_, ns, _)| *ns).collect::<Vec<_>>());
    let whole = span_ns.max(1);
    // As wide as all of them are, so that each table looks alike; in a narrow terminal as wide as need be.
    let longest = table.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or_default();
    let column = if width() < WIDTH { longest.min(NAMES) } else { NAMES };
    let row = |((name, ns, times), micros): (&(String, u64, String), u64)| {
        let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let share = units::share(*ns as f64 / whole as f64);
        format!("  {name:<column$} {seconds:>6}.{fraction:06} s {share:>7}  {times}")
    };
    table.iter().zip(micros).map(row).collect()
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", units::count(count)) }
}

/// Microseconds of parts in nanoseconds, such that they add up to the microseconds of the sum.
fn adding_up(ns: &[u64]) -> Vec<u64> {
    let mut micros: Vec<u64> = ns.iter().map(|ns| ns / 1000).collect();
    let lacking = ns.iter().sum::<u64>() / 1000 - micros.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..ns.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(ns[index] % 1000));
    order.into_iter().take(usize::try_from(lacking).unwrap_or(0)).for_each(|index| micros[index] += 1);
    micros
}

pub(crate) fn finding(cause: &str, found: &Found, evidence: usize) -> Vec<String> {
    let summary = found.summary.trim_end_matches('.');
    let share = units::share(found.cost.share);
    let mut lines = wrap("  ", &format!("FOUND {cause} ({share}, {}): {summary}.", found.side));
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    for seen in found.evidence.iter().take(evidence) {
        let frames =
            seen.frames.map_or_else(String::new, |[from, to]| format!(" Wireshark: frame.number in {{{from}..{to}}}"));
        lines.extend(wrap("    ", &format!("{}{frames}", seen.text)));
    }
    lines.extend(wrap("  ", &format!("CHANGE {}", found.remedy)));
    lines
}
