//! What went over the attributes of a bearer of ATT, as a table.

use taut_explain::{GattFacts, GattHandle};

use crate::lines::{cut, line_to, wrap};
use crate::units;

/// Rows of the table; the others are in JSON.
const ROWS: usize = 12;
/// Columns of a type's name.
const TYPE: usize = 16;

/// At most 100 columns wide.
pub(crate) fn lines(gatt: &GattFacts) -> Vec<String> {
    let (least, why) = match (gatt.is_mtu_known, gatt.is_mtu_exchanged) {
        (true, true) => ("", "agreed on"),
        (true, false) => ("", "the least; the log has no exchange of another one"),
        (false, true) => ("at least ", "longer than agreed on in the log"),
        (false, false) => ("at least ", "the log has no exchange of it"),
    };
    let mut lines = wrap("  ", &format!("ATT MTU {least}{} ({why}). By handle:", gatt.att_mtu_bytes));
    let head = ["handle", "type", "kind", "PDUs", "bytes", "rate", "turn p50", "p99", "limited by"];
    lines.push(row(head.map(str::to_owned)));
    lines.extend(gatt.handles.iter().take(ROWS).map(|handle| row(cells(handle))));
    if gatt.handles.len() > ROWS {
        lines.push(format!("    {} more are in --json.", gatt.handles.len() - ROWS));
    }
    if gatt.beyond > 0 {
        let beyond = units::count(gatt.beyond);
        lines.extend(wrap("  ", &format!("{beyond} PDUs are of further handles: the first 128 are followed.")));
    }
    lines.extend(gatt.handles.iter().take(ROWS).filter_map(unanswered).flat_map(|line| wrap("  ", &line)));
    lines.extend(gatt.handles.iter().take(ROWS).filter_map(advice).flat_map(|advice| wrap("  ", &advice)));
    lines
}

fn row([handle, kind_of, kind, pdus, bytes, rate, p50, p99, limits]: [String; 9]) -> String {
    let line = format!(
        "    {handle:<6} {kind_of:<TYPE$} {kind:<11} {pdus:>6} {bytes:>7} {rate:>11} {p50:>8} {p99:>8} {limits}"
    );
    let mut text = String::new();
    line_to(&mut text, &line);
    cut(text.trim_end())
}

fn cells(of: &GattHandle) -> [String; 9] {
    let none = || "-".to_owned();
    let kind_of = match (&of.name, &of.uuid) {
        (Some(name), _) => name.clone(),
        (None, Some(uuid)) => uuid.clone(),
        (None, None) => none(),
    };
    let kind_of =
        if kind_of.chars().count() > TYPE { kind_of.chars().take(TYPE - 1).chain(['…']).collect() } else { kind_of };
    let kind = match of.kind.as_str() {
        "write_request" => "write req.",
        "write_command" => "write cmd.",
        "prepare_write_request" => "prepare wr.",
        kind => kind,
    };
    let limits = if of.limits.is_empty() { none() } else { of.limits.join(", ") };
    [
        format!("{:#06x}", of.handle),
        kind_of,
        kind.to_owned(),
        of.count.to_string(),
        of.bytes.to_string(),
        of.bits_per_second.map_or_else(none, |rate| units::bit_rate(rate as f64)),
        of.turn_p50_ns.map_or_else(none, units::time),
        of.turn_p99_ns.map_or_else(none, units::time),
        limits,
    ]
}

/// Of how many there is no turn.
fn unanswered(of: &GattHandle) -> Option<String> {
    let kind = of.kind.replace('_', " ");
    (of.unanswered > 0).then(|| {
        format!(
            "{:#06x}: {} of {} ({kind}) had no answer; the turns are those of the others.",
            of.handle,
            units::count(of.unanswered),
            units::count(of.count)
        )
    })
}

/// What would make it faster, of what is limited.
fn advice(of: &GattHandle) -> Option<String> {
    let first = of.limits.first()?;
    let handle = format!("{:#06x}", of.handle);
    let what = match (first.as_str(), of.kind.as_str()) {
        ("turn", kind) => {
            let turns = match of.intervals_per_turn {
                Some(intervals) => format!("one turn takes {intervals:.1} connection intervals (median)"),
                None => "one turn waits for the other".to_owned(),
            };
            match kind {
                "write_request" => format!("{turns}; Write Commands need no answer, and several go in one event"),
                "indication" => format!("{turns}; notifications need no answer, and several go in one event"),
                "read" => format!("{turns}; let the server notify, or ask for more than one value at once"),
                _ => turns,
            }
        }
        ("mtu", _) => "values have all the room of the ATT MTU; a larger one takes more of them in a PDU".to_owned(),
        ("link", _) => "the link holds it; see the breakdown above".to_owned(),
        _ => return None,
    };
    let more = if first != "mtu" && of.limits.iter().any(|limit| limit == "mtu") {
        ", and a larger ATT MTU takes more in each PDU"
    } else {
        ""
    };
    Some(format!("{handle}: {what}{more}."))
}
