use taut_record::{SettingRow, SettingVerdict};

use super::{Cell, Column, Line, Sheet, Tone};

/// How the host is set, where what was seen bears on it.
pub(super) fn sheet(rows: &[&SettingRow]) -> Sheet {
    let columns = vec![
        Column::text(""),
        Column::text("setting"),
        Column::text("value"),
        Column::text("found"),
        Column::text("what to do").below(),
    ];
    let lines = rows.iter().map(|row| {
        let (mark, tone) = match row.verdict {
            SettingVerdict::Clear => ("✓", Tone::Good),
            SettingVerdict::Costs => ("✗", Tone::Bad),
            SettingVerdict::Unknown => ("?", Tone::Faint),
        };
        Line::new([
            Cell::toned(mark, tone),
            Cell::toned(&row.name, Tone::Strong),
            Cell::new(&row.value),
            Cell::new(&row.found),
            row.remedy.as_ref().map_or_else(Cell::empty, Cell::new),
        ])
    });
    let heading = "Settings of this host".to_owned();
    let context = "judged by what its connections and its kernel's counters showed".to_owned();
    Sheet { heading, context, columns, lines: lines.collect(), ..Sheet::default() }
}
