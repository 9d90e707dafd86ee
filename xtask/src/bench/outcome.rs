//! What a bench comes to, in text and as JSON.

use serde_json::Value;

/// What a bench came to.
pub(super) struct Outcome {
    /// For people.
    pub(super) text: String,
    /// For programs.
    pub(super) json: Value,
    /// Whether all its bars were met; `None` when it has none.
    pub(super) met: Option<bool>,
}

/// Lines of a table: the first column to the left, the others to the right.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().enumerate().map(|(column, cell)| match column {
            0 => format!("{cell:<0$}", width(0)),
            _ => format!("{cell:>0$}", width(column)),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(header.to_vec())).chain(rows).collect::<Vec<_>>().join("\n")
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "9".to_owned()]];
        assert_eq!(table(&["case", "ms"], &rows), "case  ms\na     10\nlong   9");
    }
}
