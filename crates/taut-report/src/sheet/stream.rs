use taut_record::{Coarse, Counted, StreamRow};

use super::{About, Cell, Column, Label, Line, Note, Sheet, Tone, across_rounds, cut_short, not_placed, stream_labels};
use crate::units;

/// Throughput, one row per endpoint and direction.
pub(super) fn sheet(rows: &[&StreamRow]) -> Sheet {
    let labels = stream_labels(rows);
    let plain = rows.iter().any(|row| row.counted != Counted::Received);
    let datagrams = rows.iter().any(|row| row.lost_bytes > 0);
    let mut columns = vec![
        Column::text("endpoint"),
        Column::figure("throughput"),
        Column::figure("across rounds").when_wide(1),
        if plain { Column::figure("counted") } else { Column::figure("arrived").when_wide(2) },
    ];
    columns.extend(datagrams.then(|| Column::figure("lost")));
    columns.extend([Column::figure("per CPU second"), Column::figure("retransmitted")]);
    let mut sheet = Sheet { heading: "Throughput".to_owned(), context: labels.shared, columns, ..Sheet::default() };
    for (row, label) in rows.iter().zip(labels.each) {
        let across = row.throughput_bps_ci.map(units::bit_rate_interval);
        let mut cells = vec![
            Cell::toned(label.to_string(), Tone::Strong),
            Cell::new(units::bit_rate(row.throughput_bps)).strong(),
            across.map_or_else(Cell::none, |across| Cell::toned(across, Tone::Faint)),
            amount(row, plain),
        ];
        cells.extend(datagrams.then(|| lost(row)));
        cells.push(per_cpu_second(row));
        cells.push(row.tcp.map_or_else(Cell::none, |tcp| Cell::new(units::count(tcp.retransmitted_segments.into()))));
        sheet.lines.push(Line::new(cells));
        sheet.notes.extend(not_placed(&label, row.placement.as_ref()));
        sheet.notes.extend(cut_short(&label, row.rounds.iter().map(|round| (round.complete, round.bytes)), "bytes"));
        sheet.notes.extend(row.coarse.map(|coarse| coarse_note(&label, coarse)));
        sheet.about.push(About { label, command: row.command.clone(), facts: row.options.clone() });
    }
    let whole = |row: &StreamRow| row.rounds.iter().filter(|round| round.complete).count();
    let levels = rows.iter().map(|row| (whole(row), row.throughput_bps_ci_level));
    sheet.notes.extend(across_rounds(levels));
    sheet
}

/// Why rounds are not independent, and what a single one of them is worth.
fn coarse_note(label: &Label, Coarse { steps, step_bytes }: Coarse) -> Note {
    let step = units::amount(step_bytes as f64);
    let times = match steps {
        0 => "in some rounds not at all".to_owned(),
        1 => "in some rounds only once".to_owned(),
        steps => format!("in some rounds only {steps} times"),
    };
    let text = format!(
        "{label}: the peer takes up to {step} at a time, {times}. So the rounds go on on the same links, and the rate of each \
         may be off by one such step; a longer --time narrows that."
    );
    Note::new(text)
}

/// The bytes, and whose they were where not all were received by a program that says so.
fn amount(row: &StreamRow, plain: bool) -> Cell {
    let bytes = units::amount(row.bytes as f64);
    Cell::new(match row.counted {
        Counted::Received if plain => format!("{bytes} arrived"),
        Counted::Received => bytes,
        Counted::Acknowledged => format!("{bytes} acknowledged by the peer's kernel"),
        Counted::Taken => format!("{bytes} taken by this host's socket"),
    })
}

fn lost(row: &StreamRow) -> Cell {
    let share = row.lost_bytes as f64 / (row.bytes + row.lost_bytes).max(1) as f64;
    Cell::toned(units::share(share), if row.lost_bytes > 0 { Tone::Bad } else { Tone::Plain })
}

fn per_cpu_second(row: &StreamRow) -> Cell {
    if row.cpu_ns == 0 {
        // Virtual time: a model has no processor.
        return Cell::none();
    }
    let sides = if row.peer_cpu_ns.is_some() { "both sides" } else { "this side" };
    Cell::new(format!("{} ({sides})", units::amount(row.bytes_per_cpu_second)))
}
