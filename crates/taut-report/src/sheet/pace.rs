use taut_record::stats::{Percentile, Summary};
use taut_record::{BrokerHold, PaceRow};

use super::{
    About, Cell, Column, Label, Line, Note, Sheet, Tone, across_rounds, cut_short, ledger_shares, not_placed,
    observer_cost, pace_labels, pace_stages,
};
use crate::units;

type Figure = fn(&PaceRow) -> Cell;

/// There are many figures and few rows, so the figures run down.
const FIGURES: [(&str, &str, Figure); 19] = [
    ("messages", "sent", |row| Cell::new(units::count(row.messages))),
    ("", "lost", lost),
    ("", "per segment", |row| row.messages_per_segment.map_or_else(Cell::none, |n| Cell::new(units::number(n)))),
    ("gap at the sender", "mean", |row| mean(row.sender_gap_ns.as_ref()).strong()),
    ("", "p50", |row| at(row.sender_gap_ns.as_ref(), Percentile::P50)),
    ("", "p99", |row| at(row.sender_gap_ns.as_ref(), Percentile::P99)),
    ("gap at the receiver", "mean", |row| mean(row.receiver_gap_ns.as_ref()).strong()),
    ("", "p50", |row| at(row.receiver_gap_ns.as_ref(), Percentile::P50)),
    ("", "p99", |row| at(row.receiver_gap_ns.as_ref(), Percentile::P99)),
    ("queued in socket", "p50", |row| at(row.hold_ns.as_ref(), Percentile::P50).strong()),
    ("", "max", |row| Cell::max(row.hold_ns.as_ref())),
    ("delivery", "p50", |row| at(row.delivery_ns.as_ref(), Percentile::P50).strong()),
    ("", "across rounds", |row| Cell::interval(row.delivery_ns.and_then(|summary| summary.p50_ci))),
    ("", "p99", |row| at(row.delivery_ns.as_ref(), Percentile::P99)),
    ("", "max", |row| Cell::max(row.delivery_ns.as_ref())),
    ("sending call", "p50", |row| at(row.send_call_ns.as_ref(), Percentile::P50)),
    ("acknowledged", "p50", |row| at(row.ack_ns.as_ref(), Percentile::P50)),
    ("timer error (own)", "p50", |row| at(row.send_lateness_ns.as_ref(), Percentile::P50)),
    ("", "p99", |row| at(row.send_lateness_ns.as_ref(), Percentile::P99)),
];

/// Where messages pass a broker, after the others.
const OF_BROKER: [(&str, &str, Figure); 3] = [
    ("with the broker", "at most, p50", |row| of_broker(row, |hold| hold.at_most_ns, Percentile::P50).strong()),
    ("", "at most, p99", |row| of_broker(row, |hold| hold.at_most_ns, Percentile::P99)),
    ("", "at least, p50", |row| of_broker(row, |hold| hold.at_least_ns, Percentile::P50)),
];

const MEANING: &str = "Queued in socket: from the return of the sending call until it left the host. Acknowledged: after it left. Delivery: \
    from the intended sending until the peer's program had read it. Timer error is the tool's own.";

pub(super) fn sheets(rows: &[&PaceRow]) -> Vec<Sheet> {
    let labels = pace_labels(rows);
    let figures = figures(rows, &labels.each, labels.shared);
    [figures].into_iter().chain(ledger(rows, &labels.each)).collect()
}

fn figures(rows: &[&PaceRow], labels: &[Label], context: String) -> Sheet {
    let mut columns = vec![Column::text("figure"), Column::text("")];
    let cases_from = Some(columns.len());
    columns.extend(labels.iter().map(Column::series));
    let heading = "Periodic sending".to_owned();
    let mut sheet = Sheet { heading, context, columns, cases_from, ..Sheet::default() };
    let has_broker = rows.iter().any(|row| row.broker.is_some());
    for (name, of, figure) in FIGURES.into_iter().chain(OF_BROKER.into_iter().filter(|_| has_broker)) {
        let cells: Vec<Cell> = rows.iter().map(|row| figure(row)).collect();
        let name = [Cell::new(name), Cell::toned(of, Tone::Faint)];
        let continues = name[0].text.is_empty();
        sheet.lines.push(Line { cells: name.into_iter().chain(cells).collect(), continues });
    }
    sheet.notes.push(Note::toned(MEANING, Tone::Faint));
    let level = |row: &PaceRow| row.delivery_ns.and_then(|summary| summary.ci_level);
    let whole = |row: &PaceRow| row.rounds.iter().filter(|round| round.complete).count();
    sheet.notes.extend(across_rounds(rows.iter().map(|row| (whole(row), level(row)))));
    for (row, label) in rows.iter().zip(labels) {
        sheet.notes.extend(not_placed(label, row.placement.as_ref()));
        sheet.notes.extend(cut_short(
            label,
            row.rounds.iter().map(|round| (round.complete, round.messages)),
            "messages",
        ));
        sheet.notes.extend(remarks(row, label).into_iter().map(|text| Note::toned(text, Tone::Faint)));
        sheet.about.push(About { label: label.clone(), command: row.command.clone(), facts: row.options.clone() });
    }
    sheet
}

fn remarks(row: &PaceRow, label: &Label) -> Vec<String> {
    let mut remarks = Vec::new();
    if row.sender_gap_of != "left" && row.sender_gap_ns.is_some() {
        remarks.push(format!(
            "{label}: the gap at the sender is that of the sending calls; the driver gives no times here."
        ));
    }
    if let Some(hold) = row.broker {
        remarks.push(format!(
            "{label}: the broker's time goes from leaving this host to the arrival in the reader's kernel, with the \
             network and the kernels on both ways, which can't be told from it here. At least: from the broker's \
             acknowledgement on; none where that came later."
        ));
        if hold.read_together > 0 {
            let (together, all) = (units::count(hold.read_together), units::count(row.messages));
            remarks.push(format!(
                "{label}: the reader took {together} of {all} messages together with later ones. When they arrived is \
                 not known: what the broker seems to have held of them may have waited for the reader."
            ));
        }
    } else if matches!(row.transport.as_str(), "mqtt" | "mqtts" | "nats") {
        remarks.push(format!(
            "{label}: the reader's kernel does not tell when messages arrived, so the broker's time can't be told from the \
             peer program's."
        ));
    }
    match row.clock_uncertainty_ns {
        Some(0) => {}
        Some(off) => remarks.push(format!("{label}: the peer's clock may be off ours by {}.", units::time(off))),
        None => remarks.push(format!("{label}: the peer does not tell its times.")),
    }
    if row.dropped_rounds > 0 {
        let (dropped, all) = (units::count(row.dropped_rounds), units::count(row.rounds.len() as u64));
        remarks.push(format!(
            "{label}: the events of the last {dropped} of {all} rounds were dropped once their figures were known: where the \
             time went and what is explained is of the rounds before."
        ));
    }
    if let Some(cost) = row.observer {
        let more = observer_cost(cost);
        remarks
            .push(format!("{label}: every message is observed, which makes a round trip over loopback take {more}."));
    }
    remarks
}

fn ledger(rows: &[&PaceRow], labels: &[Label]) -> Option<Sheet> {
    let with_ledger: Vec<(&&PaceRow, &Label)> =
        rows.iter().zip(labels).filter(|(row, _)| !row.ledger_ns.is_empty()).collect();
    if with_ledger.is_empty() {
        return None;
    }
    let mut columns = vec![Column::text("share of the messages' time in")];
    columns.extend(pace_stages(rows).map(|(_, stage)| Column::figure(stage.name())));
    let lines = with_ledger.iter().map(|(row, label)| {
        let shares = ledger_shares(row);
        let largest = shares.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let cells = pace_stages(rows).map(|(_, stage)| {
            let share = shares.iter().find(|(name, _)| *name == stage.name()).map(|(_, share)| *share);
            share.map_or_else(Cell::none, |share| {
                Cell::toned(units::share(share), if share == largest { Tone::Strong } else { Tone::Plain })
            })
        });
        Line::new([Cell::label(label)].into_iter().chain(cells))
    });
    Some(Sheet { heading: "Where the time went".to_owned(), columns, lines: lines.collect(), ..Sheet::default() })
}

fn of_broker(row: &PaceRow, of: fn(&BrokerHold) -> Option<Summary>, percentile: Percentile) -> Cell {
    at(row.broker.as_ref().and_then(of).as_ref(), percentile)
}

/// Of a peer that tells nothing it is not known whether anything came.
fn lost(row: &PaceRow) -> Cell {
    let tells = row.lost > 0 || row.clock_uncertainty_ns.is_some() || row.delivery_ns.is_some();
    if tells { Cell::mishaps(row.lost) } else { Cell::none() }
}

fn mean(summary: Option<&Summary>) -> Cell {
    Cell::time(summary.and_then(|summary| summary.mean))
}

fn at(summary: Option<&Summary>, percentile: Percentile) -> Cell {
    Cell::percentile(summary, percentile)
}
