use taut_explain::air::{LINES, Line as LedgerLine};
use taut_record::stats::Percentile;
use taut_record::{AirChangeRow, AirRow, AirSetting};

use super::{About, Cell, Column, Label, Line, Note, Sheet, Tone, air_labels};
use crate::units;

/// Links in virtual time: a row for each run.
pub(super) fn links(rows: &[&AirRow]) -> Sheet {
    let labels = air_labels(rows);
    let several = rows.len() > 1;
    let mut columns = vec![
        Column::text(if several { "run" } else { "scenario" }),
        Column::figure("interval"),
        Column::figure("throughput"),
        Column::figure("of the limit"),
        Column::figure("limit").when_wide(1),
        Column::figure("limit of whole exchanges").when_wide(5),
        Column::figure("data PDUs per event").when_wide(2),
        Column::figure("SDU p50"),
        Column::figure("SDU p99").when_wide(3),
        Column::figure("connection events").when_wide(4),
    ];
    columns.push(Column::text("held most by"));
    let mut sheet =
        Sheet { heading: "LE link in virtual time".to_owned(), context: labels.shared, columns, ..Sheet::default() };
    for (row, label) in rows.iter().zip(labels.each) {
        let latency = |which| Cell::percentile(row.sdu_latency_ns.as_ref(), which);
        // Where runs differ by what was set, that is their name.
        let name = if several && !label.detail.is_empty() { &label.detail } else { &label.name };
        sheet.lines.push(Line::new([
            Cell::toned(name, Tone::Strong),
            Cell::new(milliseconds(row.ci_ns)),
            Cell::new(units::bit_rate(row.throughput_bps)).strong(),
            Cell::new(units::share(row.throughput_bps / row.limit_bps.max(1.0))),
            Cell::new(units::bit_rate(row.limit_bps)),
            Cell::new(units::bit_rate(row.quantised_limit_bps)),
            Cell::new(by_pdus(&row.events_by_pdus)),
            latency(Percentile::P50),
            latency(Percentile::P99),
            Cell::new(units::count(row.connection_events)),
            held_by(row)
                .map_or_else(Cell::none, |(line, share)| Cell::new(format!("{line} ({})", units::share(share)))),
        ]));
        sheet.about.push(About { label, command: row.command.clone(), facts: Vec::new() });
    }
    sheet.notes.push(Note::toned(
        "The limit is that of the channel on this PHY: every PDU full, no time between connection events.",
        Tone::Faint,
    ));
    sheet
}

/// The time breakdown of the air: for one run with what each line means, for several beside one another.
pub(super) fn ledger(rows: &[&AirRow]) -> Sheet {
    let mut sheet =
        Sheet { heading: "Time breakdown".to_owned(), columns: vec![Column::text("air time")], ..Sheet::default() };
    let lines = lines(rows);
    if let [row] = rows {
        sheet.context = format!("where {} of virtual time went", units::limit(row.duration_ns));
        sheet.columns.extend([
            Column::figure("time"),
            Column::figure("share"),
            Column::text("what it means").when_wide(1),
        ]);
        for name in lines {
            let (words, meaning) = words(name);
            let ns = row.ledger_ns.get(name).copied().unwrap_or_default();
            let share = ns as f64 / row.duration_ns.max(1) as f64;
            sheet.lines.push(Line::new([
                Cell::toned(words, tone(name)),
                Cell::new(exact(ns)),
                Cell::new(units::share(share)),
                Cell::toned(meaning, Tone::Faint),
            ]));
        }
        return sheet;
    }
    sheet.context = "share of the run's time".to_owned();
    sheet.cases_from = Some(1);
    for label in air_labels(rows).each {
        let text = if label.detail.is_empty() { label.name.clone() } else { label.detail.clone() };
        sheet.columns.push(Column::series(&Label { name: text, detail: String::new() }));
    }
    for name in lines {
        let mut cells = vec![Cell::toned(words(name).0, tone(name))];
        cells.extend(rows.iter().map(|row| {
            let ns = row.ledger_ns.get(name).copied().unwrap_or_default();
            Cell::new(units::share(ns as f64 / row.duration_ns.max(1) as f64))
        }));
        sheet.lines.push(Line::new(cells));
    }
    sheet
}

/// A change that was not kept is told when it gave more than this.
const LEAST_TOLD: f64 = 1.02;

/// Changes tried on the way to the limit.
pub(super) fn changes(rows: &[&AirChangeRow]) -> Sheet {
    let columns = vec![
        Column::text("change"),
        Column::text("where").when_wide(1),
        Column::figure("before"),
        Column::figure("after"),
        Column::figure("of the limit"),
        Column::text("held before by").when_wide(2),
        Column::text("verdict"),
        Column::text("apply").below(),
    ];
    // What gave nothing is in the recording; here it would bury what did.
    let told = rows.iter().filter(|row| row.kept || row.throughput_bps > row.before_bps * LEAST_TOLD);
    let others = rows.len() - told.clone().count();
    let mut notes = Vec::new();
    if told.clone().any(|row| !row.kept) {
        let kept = "What gave most was kept (see apply), and the next changes were tried on top of it.";
        notes.push(Note::toned(kept, Tone::Faint));
    }
    if others > 0 {
        let count = units::count(others as u64);
        let text = format!("Also tried, with less than 2 % more or something less: {count}.");
        notes.push(Note::toned(text, Tone::Faint));
    }
    let lines = told.map(|row| {
        let gain = row.throughput_bps / row.before_bps.max(1.0);
        let (verdict, tone) = match (row.kept, gain) {
            (true, gain) if gain >= 2.0 => (format!("{} times as much", units::number(gain)), Tone::Good),
            (true, gain) => (format!("{} more", units::share(gain - 1.0)), Tone::Good),
            (false, gain) if gain > 1.0 => (format!("{} more", units::share(gain - 1.0)), Tone::Faint),
            (false, gain) if gain < 1.0 => (format!("{} less", units::share(1.0 - gain)), Tone::Bad),
            (false, _) => ("no difference".to_owned(), Tone::Faint),
        };
        Line::new([
            Cell::toned(in_words(&row.set), if row.kept { Tone::Strong } else { Tone::Plain }),
            Cell::new(&row.place),
            Cell::new(units::bit_rate(row.before_bps)),
            Cell::new(units::bit_rate(row.throughput_bps)).strong(),
            Cell::new(units::share(row.throughput_bps / row.limit_bps.max(1.0))),
            Cell::new(words(&row.held_by).0),
            Cell::toned(verdict, tone),
            if row.kept { Cell::new(&row.apply) } else { Cell::empty() },
        ])
    });
    let lines = lines.collect();
    let about = rows.iter().filter(|row| row.kept).map(|row| About {
        label: Label { name: in_words(&row.set), detail: String::new() },
        command: row.command.clone(),
        facts: Vec::new(),
    });
    Sheet {
        heading: "Changes tried".to_owned(),
        context: rows.first().map_or_else(String::new, |row| row.scenario.clone()),
        columns,
        lines,
        notes,
        about: about.collect(),
        ..Sheet::default()
    }
}

/// The idle line that took most of the time, in words, with its share.
pub(crate) fn held_by(row: &AirRow) -> Option<(&'static str, f64)> {
    let idle = LINES.iter().filter(|line| line.idle);
    let longest = idle.max_by_key(|line| row.ledger_ns.get(line.name).copied().unwrap_or_default())?;
    let ns = row.ledger_ns.get(longest.name).copied().filter(|&ns| ns > 0)?;
    Some((longest.words, ns as f64 / row.duration_ns.max(1) as f64))
}

pub(crate) fn in_words(set: &[AirSetting]) -> String {
    set.iter().map(|set| format!("{}={}", set.name, set.value)).collect::<Vec<_>>().join(" ")
}

/// Names of the lines in which any of the runs has time, in the ledger's order.
fn lines<'a>(rows: &[&'a AirRow]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| row.ledger_ns.iter().filter(|&(_, &ns)| ns > 0).map(|(name, _)| name)) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| LedgerLine::place(name));
    names
}

fn words(name: &str) -> (&str, &str) {
    LedgerLine::of(name).map_or((name, ""), |line| (line.words, line.meaning))
}

fn tone(name: &str) -> Tone {
    if LedgerLine::of(name).is_some_and(|line| line.idle) { Tone::Strong } else { Tone::Plain }
}

/// Intervals have steps of 1.25 ms or 125 us: `112.5 ms`.
fn milliseconds(ns: u64) -> String {
    format!("{} ms", ns as f64 / 1e6)
}

/// A ledger is exact: microseconds in full.
fn exact(ns: u64) -> String {
    format!("{}.{:03} ms", units::count(ns / 1_000_000), ns / 1000 % 1000)
}

/// Share of the connection events by number of data PDUs, the commonest first: `3: 61 %, 0: 30 %`.
fn by_pdus(events: &[u64]) -> String {
    let all: u64 = events.iter().sum();
    let mut counted: Vec<(usize, u64)> = events.iter().copied().enumerate().filter(|&(_, count)| count > 0).collect();
    counted.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let shown = counted.iter().take(4);
    shown
        .map(|&(pdus, count)| format!("{pdus}: {:.0} %", 100.0 * count as f64 / all.max(1) as f64))
        .collect::<Vec<_>>()
        .join(", ")
}
