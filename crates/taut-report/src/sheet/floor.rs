use taut_record::FloorRow;
use taut_record::stats::Percentile;

use super::{Cell, Column, Line, Sheet, Tone};

/// What the tool and the host cost by themselves.
pub(super) fn sheet(rows: &[&FloorRow]) -> Sheet {
    let columns = vec![
        Column::text("what"),
        Column::figure("p50"),
        Column::figure("p99"),
        Column::figure("max"),
        Column::text("what it means").below(),
    ];
    let lines = rows.iter().map(|row| {
        let at = |percentile| Cell::percentile(Some(&row.ns), percentile);
        Line::new([
            Cell::toned(&row.what, Tone::Strong),
            at(Percentile::P50).strong(),
            at(Percentile::P99),
            Cell::max(Some(&row.ns)),
            Cell::new(&row.meaning),
        ])
    });
    let heading = "What the tool and the host cost by themselves".to_owned();
    Sheet { heading, columns, lines: lines.collect(), ..Sheet::default() }
}
