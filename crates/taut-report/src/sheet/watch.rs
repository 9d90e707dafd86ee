use taut_record::WatchRow;

use super::{Cell, Column, Line, Note, Sheet, Tone};
use crate::{units, watched};

/// What the live connections of the host lose.
pub(super) fn sheet(row: &WatchRow) -> Sheet {
    let columns = vec![
        Column::text("cause"),
        Column::text("program"),
        Column::text("as"),
        Column::figure("connections"),
        Column::figure("worst"),
        Column::figure("lost"),
        Column::text("what is the matter").below(),
        Column::text("what to do").below(),
    ];
    let lines = row.losses.iter().map(|loss| {
        Line::new([
            Cell::toned(&loss.place.cause, Tone::Strong),
            Cell::new(loss.place.program_name()),
            Cell::new(loss.place.part()),
            Cell::new(units::count(loss.connections)),
            Cell::toned(units::share(loss.worst_share), Tone::Bad),
            Cell::time(Some(loss.lost_ns)),
            Cell::new(&loss.summary),
            Cell::new(&loss.remedy),
        ])
    });
    let (looks, suspects) = (units::count(row.looks.into()), units::count(row.suspect_looks.into()));
    let work = units::share(row.work_ns as f64 / row.span_ns.max(1) as f64);
    let context = format!("all looked at {looks} times, the suspicious {suspects} times; {work} of a processor");
    let mut notes = vec![Note::new(watched::sentence(row))];
    notes.extend(row.remarks.iter().map(|remark| Note::toned(remark, Tone::Faint)));
    let columns = if row.losses.is_empty() { Vec::new() } else { columns };
    let heading = "Connections of this host".to_owned();
    Sheet { heading, context, columns, lines: lines.collect(), notes, ..Sheet::default() }
}
