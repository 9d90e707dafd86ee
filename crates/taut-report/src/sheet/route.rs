use taut_record::RouteRow;
use taut_record::stats::Percentile;

use super::{About, Cell, Column, Line, Sheet, Tone, across_rounds, loss_note, route_labels, tone_of, whole_rounds};
use crate::units;

/// What is timed in rows of one kind.
pub(crate) fn heading(rows: &[&RouteRow]) -> &'static str {
    let is_loop = rows.iter().any(|row| row.loop_ns.is_some());
    if is_loop { "A turn of read, decide and write" } else { "From edge to edge" }
}

/// One row for each path and number of sinks.
pub(super) fn sheet(rows: &[&RouteRow]) -> Sheet {
    let labels = route_labels(rows);
    let base = rows.iter().find_map(|row| Some(row.compared.as_ref()?.with.clone()));
    let to = |what: &str| base.as_ref().map_or_else(|| format!("{what} ratio"), |base| format!("{what} to {base}"));
    let columns = vec![
        Column::text("path"),
        Column::figure("sinks"),
        Column::figure("routes").when_wide(1),
        Column::figure("p50"),
        Column::figure("p50 across rounds").when_wide(2),
        Column::figure("p99"),
        Column::figure("p99.9").when_wide(1),
        Column::figure("max").when_wide(3),
        Column::figure(to("p50")),
        Column::figure(to("p99")),
        Column::figure("events"),
        Column::figure("lost"),
        Column::figure("says it lost").when_wide(1),
    ];
    let mut sheet = Sheet { heading: heading(rows).to_owned(), context: labels.shared, columns, ..Sheet::default() };
    for (row, label) in rows.iter().zip(labels.each) {
        let summary = row.times();
        let at = |percentile| Cell::percentile(summary, percentile);
        let compared = row.compared.as_ref();
        let ratio =
            |ratio: Option<f64>, tone| ratio.map_or_else(Cell::none, |ratio| Cell::toned(units::number(ratio), tone));
        sheet.lines.push(Line::new([
            Cell::toned(&row.path, Tone::Strong),
            Cell::new(units::count(row.sinks as u64)),
            Cell::new(units::count(row.routes as u64)),
            at(Percentile::P50).strong(),
            Cell::interval(summary.and_then(|summary| summary.p50_ci)),
            at(Percentile::P99),
            at(Percentile::P999),
            Cell::max(summary),
            ratio(compared.map(|compared| compared.p50_ratio), compared.map_or(Tone::Plain, |c| tone_of(c.verdict))),
            ratio(row.p99_ratio, Tone::Plain),
            Cell::new(units::count(row.sent)),
            Cell::mishaps(row.lost),
            row.reported_lost.map_or_else(Cell::none, |lost| Cell::new(units::count(lost))),
        ]));
        sheet.notes.extend(row.loss_compared.as_ref().map(|losses| loss_note(&label, losses)));
        sheet.about.push(About { label, command: row.command.clone(), facts: Vec::new() });
    }
    let level = |row: &RouteRow| row.times().and_then(|summary| summary.ci_level);
    sheet.notes.extend(across_rounds(rows.iter().map(|row| (whole_rounds(&row.rounds), level(row)))));
    sheet
}
