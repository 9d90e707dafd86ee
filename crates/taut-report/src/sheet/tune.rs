use taut_record::stats::{Percentile, Quantile};
use taut_record::{TuneRow, Verdict};

use super::label::placement;
use super::{About, Cell, Column, Label, Line, Note, Sheet, Tone, not_placed, tone_of, too_few_rounds};
use crate::units;

/// Settings tried, a sheet for each endpoint, workload and placement, in the order given.
pub(super) fn sheets(rows: &[&TuneRow]) -> Vec<Sheet> {
    let by_path =
        |a: &&TuneRow, b: &&TuneRow| a.endpoint == b.endpoint && a.measured == b.measured && a.placement == b.placement;
    rows.chunk_by(by_path).map(sheet).collect()
}

fn sheet(rows: &[&TuneRow]) -> Sheet {
    // Of a stream the rate is what one knows; times of 1 MiB are for comparing.
    let has_rates = rows.iter().any(|row| row.throughput_bps.is_some());
    let mut columns = vec![
        Column::text("setting"),
        Column::text("where").when_wide(1),
        Column::figure("p50"),
        Column::figure("p99").when_wide(3),
        Column::figure("ratio"),
        Column::figure("ratio across rounds").when_wide(2),
        Column::text("verdict"),
        Column::text("apply").below(),
    ];
    if has_rates {
        columns.insert(2, Column::figure("throughput"));
    }
    let lines = rows.iter().map(|row| {
        let mut cells = vec![
            Cell::toned(&row.setting, Tone::Strong),
            Cell::new(&row.place),
            figure(row, row.p50_ns, Percentile::P50),
            figure(row, row.p99_ns, Percentile::P99),
            row.p50_ratio.map_or_else(Cell::none, |ratio| Cell::new(units::number(ratio)).strong()),
            row.p50_ratio_ci.map_or_else(Cell::none, |(low, high)| {
                Cell::toned(format!("{}–{}", units::number(low), units::number(high)), Tone::Faint)
            }),
            verdict(row),
            // Only what helps is worth doing.
            row.apply
                .as_ref()
                .filter(|_| helps(row, rows))
                .map_or_else(Cell::empty, |apply| Cell::toned(apply, Tone::Code)),
        ];
        if has_rates {
            let rate = row.throughput_bps.map_or_else(Cell::none, |bps| Cell::new(units::bit_rate(bps)).strong());
            cells.insert(2, rate);
        }
        Line::new(cells)
    });
    let context = rows.first().map_or_else(String::new, |row| {
        let between = if row.placement.is_some() { ", " } else { "" };
        format!("{} over {}{between}{}", row.measured, row.endpoint, placement(row.placement.as_ref()))
    });
    let path = Label { name: context.clone(), detail: String::new() };
    let placed = rows.first().and_then(|row| not_placed(&path, row.placement.as_ref()));
    let is_none_of_use = rows.len() > 1 && !rows.iter().any(|row| helps(row, rows));
    let none = is_none_of_use.then(|| Note::new("None of these settings helps for certain.".to_owned()));
    let notes = placed.into_iter().chain(none).collect();
    let about = rows.iter().map(|row| About {
        label: Label { name: row.setting.clone(), detail: context.clone() },
        command: row.command.clone(),
        facts: Vec::new(),
    });
    let about = about.collect();
    Sheet {
        heading: "Settings tried".to_owned(),
        context,
        columns,
        lines: lines.collect(),
        notes,
        about,
        ..Sheet::default()
    }
}

/// Whether it is worth doing: it is shorter, or loses less than base, which comes first.
fn helps(row: &TuneRow, rows: &[&TuneRow]) -> bool {
    let loses_less = || rows.first().is_some_and(|base| row.lost_share < base.lost_share);
    row.verdict == Verdict::Shorter || row.verdict == Verdict::LossesDiffer && loses_less()
}

/// A figure of all messages: absent where there are too few, or where that share of them was lost.
fn figure(row: &TuneRow, nanos: Option<u64>, percentile: Percentile) -> Cell {
    let is_lost = nanos.is_none() && row.lost_share > 1.0 - percentile.share();
    Cell::quantile(if is_lost { Some(Quantile::Lost) } else { nanos.map(Quantile::Time) })
}

fn because(row: &TuneRow) -> String {
    row.why_not.as_deref().map_or_else(String::new, |why| format!(": {why}"))
}

fn verdict(row: &TuneRow) -> Cell {
    let text = match row.verdict {
        _ if row.setting == "base" => "–".to_owned(),
        Verdict::Shorter | Verdict::Longer => row.p50_ratio.map_or_else(String::new, units::ratio_in_words),
        Verdict::CannotTellApart => format!("cannot tell apart from base{}", because(row)),
        Verdict::TooFewRounds => too_few_rounds(row.rounds_needed),
        Verdict::LossesDiffer => "loses more or less than base".to_owned(),
        Verdict::NotAvailable => format!("not available{}", because(row)),
    };
    let tone = if row.setting == "base" { Tone::Faint } else { tone_of(row.verdict) };
    Cell::toned(text, tone)
}
