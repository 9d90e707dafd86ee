use taut_record::CheckRow;

use super::{Cell, Column, Line, Sheet, Tone};

/// What works here.
pub(super) fn sheet(rows: &[&CheckRow]) -> Sheet {
    let columns = vec![
        Column::text(""),
        Column::text("what"),
        Column::text("found"),
        Column::text("needed for").when_wide(1),
        Column::text("what to do").below(),
    ];
    let lines = rows.iter().map(|row| {
        let (mark, tone) = if row.works { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
        let remedy = row.remedy.as_ref().filter(|_| !row.works);
        Line::new([
            Cell::toned(mark, tone),
            Cell::toned(&row.what, Tone::Strong),
            Cell::new(&row.found),
            Cell::new(&row.needed_for),
            remedy.map_or_else(Cell::empty, Cell::new),
        ])
    });
    let working = rows.iter().filter(|row| row.works).count();
    let context = format!("{working} of {} work", rows.len());
    Sheet { heading: "What works here".to_owned(), context, columns, lines: lines.collect(), ..Sheet::default() }
}
