use taut_record::stats::{Percentile, Summary};
use taut_record::{EchoRow, Verdict};

use super::{
    About, Cell, Column, Label, Line, Note, Sheet, Tone, across_rounds, cut_short, echo_labels, loss_note, not_placed,
    observer_cost, ratio_interval, tone_of, too_few_rounds, whole_rounds,
};
use crate::units;

/// Round trips, one row per endpoint; an open loop takes three lines, since its three times mean
/// three different things.
pub(super) fn sheet(rows: &[&EchoRow]) -> Sheet {
    let labels = echo_labels(rows);
    let open = rows.iter().any(|row| row.rate_hz.is_some());
    let mut columns = vec![Column::text("endpoint")];
    columns.extend(open.then(|| Column::text("time")));
    columns.extend([
        Column::figure("p50"),
        Column::figure("p50 across rounds").when_wide(4),
        Column::figure("p90").when_wide(3),
        Column::figure("p99"),
        Column::figure("p99.9").when_wide(1),
        Column::figure("p99.99").when_wide(2),
        Column::figure("max"),
        Column::figure("sent"),
        Column::figure("lost"),
    ]);
    let mut sheet = Sheet { heading: "Round trips".to_owned(), context: labels.shared, columns, ..Sheet::default() };
    let times = |row: &EchoRow| row.response_ns.or(row.rtt_ns);
    let level = |row: &EchoRow| times(row).and_then(|summary| summary.ci_level);
    sheet.notes.extend(across_rounds(rows.iter().map(|row| (whole_rounds(&row.rounds), level(row)))));
    for (row, label) in rows.iter().zip(labels.each) {
        sheet.lines.extend(lines(row, &label, open));
        sheet.notes.extend(row.loss_compared.as_ref().map(|losses| loss_note(&label, losses)));
        sheet.notes.extend(compared(row, &label));
        sheet.notes.extend(not_placed(&label, row.placement.as_ref()));
        sheet.notes.extend(cut_short(&label, row.rounds.iter().map(|round| (round.complete, round.sent)), "messages"));
        sheet.notes.extend(observer(row, &label));
        sheet.notes.extend(came_late(row, &label));
        sheet.notes.extend(came_again(row, &label));
        sheet.notes.extend(never_sent(row, &label));
        sheet.notes.extend(too_short(row, &label));
        sheet.about.push(About { label, command: row.command.clone(), facts: row.options.clone() });
    }
    sheet
}

fn lines(row: &EchoRow, label: &Label, open: bool) -> Vec<Line> {
    let counts = || [Cell::new(units::count(row.sent)), Cell::mishaps(row.lost)];
    let first = |what: &str, summary: Option<&Summary>| {
        let mut cells = vec![Cell::label(label)];
        cells.extend(open.then(|| Cell::new(what)));
        cells.extend(figures(summary).into_iter().chain(counts()));
        Line::new(cells)
    };
    let further = |what: &str, summary: Option<&Summary>| {
        let cells = [Cell::empty(), Cell::toned(what, Tone::Faint)];
        Line::continuing(cells.into_iter().chain(figures(summary)).chain([Cell::empty(), Cell::empty()]))
    };
    if row.rate_hz.is_none() {
        return vec![first("round trip", row.rtt_ns.as_ref())];
    }
    vec![
        first("response", row.response_ns.as_ref()),
        further("service", row.rtt_ns.as_ref()),
        further("timer error (own)", row.send_lateness_ns.as_ref()),
    ]
}

fn figures(summary: Option<&Summary>) -> [Cell; 7] {
    let at = |percentile| Cell::percentile(summary, percentile);
    [
        at(Percentile::P50).strong(),
        Cell::interval(summary.and_then(|summary| summary.p50_ci)),
        at(Percentile::P90),
        at(Percentile::P99),
        at(Percentile::P999),
        at(Percentile::P9999),
        Cell::max(summary),
    ]
}

fn compared(row: &EchoRow, label: &Label) -> Option<Note> {
    let compared = row.compared.as_ref()?;
    let (with, interval) =
        (label.other(&compared.with), ratio_interval(compared.p50_ratio_ci, compared.p50_ratio_level));
    let text = match compared.verdict {
        Verdict::Shorter | Verdict::Longer => {
            format!("{label}: median {} that of {with}, {interval}.", units::ratio_than(compared.p50_ratio))
        }
        Verdict::CannotTellApart => format!("{label}: cannot tell apart from {with}, {interval}."),
        Verdict::LossesDiffer => return None,
        Verdict::NotAvailable => format!("{label}: could not be held against {with}."),
        Verdict::TooFewRounds => {
            let ratio = units::number(compared.p50_ratio);
            format!(
                "{label}: median {ratio} times that of {with}, {interval}: {}.",
                too_few_rounds(compared.rounds_needed)
            )
        }
    };
    Some(Note::toned(text, tone_of(compared.verdict)))
}

/// What it costs to keep a timeline.
fn observer(row: &EchoRow, label: &Label) -> Option<Note> {
    let more = observer_cost(row.observer?);
    let text = format!(
        "{label}: the timeline is of rounds of its own, where a round trip takes {more}; no figure here is of them."
    );
    Some(Note::new(text))
}

/// Not all that was lost was lost on the way.
fn came_late(row: &EchoRow, label: &Label) -> Option<Note> {
    let (late, lost) = (units::count(row.late_replies), units::count(row.lost));
    let timeout = units::limit(row.timeout_ns);
    (row.late_replies > 0)
        .then(|| Note::new(format!("{label}: {late} of the {lost} lost ones came after the time-out of {timeout}.")))
}

/// More than one reply to one message.
fn came_again(row: &EchoRow, label: &Label) -> Option<Note> {
    let text = match row.duplicates {
        0 => return None,
        1 => format!("{label}: 1 reply came a second time."),
        duplicates => format!("{label}: {} replies came a second time.", units::count(duplicates)),
    };
    Some(Note::new(text))
}

/// What tells replies apart repeats itself.
fn too_short(row: &EchoRow, label: &Label) -> Option<Note> {
    let (numbers, size) = (units::count(row.numbers?), units::size(row.message_bytes));
    let text = format!(
        "{label}: datagrams of {size} have room for {numbers} numbers, so a reply that comes {numbers} messages late is taken for a \
         later one's; with --size 8 or more each message has a number of its own."
    );
    Some(Note::new(text))
}

/// The plan of an open loop that our own side could not keep.
fn never_sent(row: &EchoRow, label: &Label) -> Option<Note> {
    let (unsent, planned) = (units::count(row.unsent), units::count(row.unsent + row.sent));
    let text = format!(
        "{label}: {unsent} of the {planned} messages planned were never sent, since the sender could not keep up; they count as late."
    );
    (row.unsent > 0).then(|| Note::toned(text, Tone::Bad))
}
