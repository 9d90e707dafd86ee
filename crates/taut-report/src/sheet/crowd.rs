use taut_record::stats::{Percentile, Quantile};
use taut_record::{CrowdRow, Starvation};

use super::{About, Cell, Column, Label, Line, Note, Sheet, Tone, across_rounds, crowd_labels, not_placed, tone_of};
use crate::units;

/// Many links, few of them active: a row for each engine and number of active links.
pub(super) fn sheet(rows: &[&CrowdRow]) -> Sheet {
    let labels = crowd_labels(rows);
    let to = |what: &str, other: Option<&String>| {
        other.map_or_else(|| format!("{what} ratio"), |other| format!("{what} to {other}"))
    };
    // What all rows share stands in the context.
    let differ = |of: fn(&CrowdRow) -> usize| rows.iter().any(|row| of(row) != of(rows[0]));
    let (several_active, several_connections) = (differ(|row| row.active), differ(|row| row.connections));
    let mut columns = vec![Column::text("server")];
    columns.extend(several_active.then(|| Column::figure("active")));
    columns.extend(several_connections.then(|| Column::figure("connections")));
    columns.extend([
        Column::figure("p50"),
        Column::figure("p50 across rounds").when_wide(5),
        Column::figure("p99").when_wide(3),
        Column::figure(to("p50", rows.iter().find_map(|row| Some(&row.compared.as_ref()?.with)))),
        Column::figure("CPU per message"),
        Column::figure("CPU across rounds").when_wide(6),
        Column::figure(to("CPU", rows.iter().find_map(|row| Some(&row.cpu_compared.as_ref()?.with)))).when_wide(2),
        Column::figure("threads"),
        Column::figure("memory").when_wide(1),
        Column::figure("messages").when_wide(4),
        Column::figure("lost"),
    ]);
    let context = labels.shared;
    let mut sheet = Sheet { heading: "Many connections, few active".to_owned(), context, columns, ..Sheet::default() };
    let mut told: Vec<&str> = Vec::new();
    for (row, label) in rows.iter().zip(labels.each) {
        let mut cells = vec![Cell::toned(&row.engine, Tone::Strong)];
        cells.extend(several_active.then(|| Cell::new(units::count(row.active as u64))));
        cells.extend(several_connections.then(|| Cell::new(units::count(row.connections as u64))));
        cells.extend(figures(row));
        sheet.lines.push(Line::new(cells));
        if !told.contains(&row.engine.as_str()) {
            let notes = row.starved.map(|starved| starvation(row, starved)).into_iter().chain(not_tried(row));
            let before = sheet.notes.len();
            sheet.notes.extend(notes);
            if sheet.notes.len() > before {
                told.push(&row.engine);
            }
        }
        sheet.about.push(About { label, command: row.command.clone(), facts: Vec::new() });
    }
    let first = Label { name: rows[0].endpoint.clone(), detail: String::new() };
    sheet.notes.extend(not_placed(&first, rows[0].placement.as_ref()));
    let level = |row: &CrowdRow| row.rtt_ns.and_then(|summary| summary.ci_level);
    sheet.notes.extend(across_rounds(rows.iter().map(|row| (row.rounds.len(), level(row)))));
    sheet
}

fn figures(row: &CrowdRow) -> [Cell; 11] {
    let summary = row.rtt_ns.as_ref();
    let p50_ratio = row.compared.as_ref().map(|compared| (compared.p50_ratio, tone_of(compared.verdict)));
    let cpu_ratio = row.cpu_compared.as_ref().map(|compared| (compared.ratio, tone_of(compared.verdict)));
    let ratio = |ratio: Option<(f64, Tone)>| {
        ratio.map_or_else(Cell::none, |(ratio, tone)| Cell::toned(units::number(ratio), tone))
    };
    let across = row.cpu_ns_per_message_ci.map(|(low, high)| (Quantile::Time(low as u64), Quantile::Time(high as u64)));
    let messages = |cell: Cell| if row.sent > 0 { cell } else { Cell::none() };
    [
        Cell::percentile(summary, Percentile::P50).strong(),
        Cell::interval(summary.and_then(|summary| summary.p50_ci)),
        Cell::percentile(summary, Percentile::P99),
        ratio(p50_ratio),
        Cell::time(row.cpu_ns_per_message.map(|ns| ns.round() as u64)),
        Cell::interval(across),
        ratio(cpu_ratio),
        row.threads.map_or_else(Cell::none, |threads| Cell::new(units::count(threads.into()))),
        row.rss_bytes.map_or_else(Cell::none, |bytes| Cell::new(units::amount(bytes as f64))),
        messages(Cell::new(units::count(row.sent))),
        messages(Cell::mishaps(row.lost)),
    ]
}

fn starvation(row: &CrowdRow, starved: Starvation) -> Note {
    let Starvation { connections, asked, answered, waited_ns, threads } = starved;
    let (connections, asked, answered) = (units::count(connections), units::count(asked), units::count(answered));
    let text = format!(
        "{}: of {connections} connections {asked} were sent a message and {answered} answered, until nothing came for {}; \
         the server had {} threads.",
        row.engine,
        units::limit(waited_ns),
        units::count(threads.into())
    );
    Note::toned(text, Tone::Bad)
}

fn not_tried(row: &CrowdRow) -> Option<Note> {
    Some(Note::toned(format!("{}: not available: {}", row.engine, row.why_not.as_ref()?), Tone::Faint))
}
