//! Letters in the place of names that a table has no room for.

use crate::sheet::{Cell, Line, Sheet};

/// A sheet with letters, and what they stand for.
pub(super) type Lettered = (Sheet, Vec<(char, String)>);

/// For the names of cases, which are columns from `first` on; nothing for more than there are letters.
pub(super) fn of_cases(sheet: &Sheet, first: usize) -> Option<Lettered> {
    let names = sheet.columns.iter().skip(first).map(|column| column.title.replace('\n', ", "));
    let legend = legend(names)?;
    let mut lettered = copy(sheet);
    for (column, (letter, _)) in lettered.columns.iter_mut().skip(first).zip(&legend) {
        column.title = letter.to_string();
    }
    Some((lettered, legend))
}

/// For the names of rows, in the first column.
pub(super) fn of_rows(sheet: &Sheet) -> Option<Lettered> {
    let name = |line: &Line| match line.cells.first() {
        Some(cell) if !cell.text.is_empty() && !cell.detail.is_empty() => format!("{}, {}", cell.text, cell.detail),
        cell => cell.map(|cell| cell.text.clone()).unwrap_or_default(),
    };
    let mut names: Vec<String> = Vec::new();
    for name in sheet.lines.iter().map(name).filter(|name| !name.is_empty()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let legend = legend(names)?;
    let mut lettered = copy(sheet);
    for line in &mut lettered.lines {
        let own = name(line);
        let letter = legend.iter().find(|(_, name)| *name == own).map(|(letter, _)| letter.to_string());
        if let (Some(letter), Some(cell)) = (letter, line.cells.first_mut()) {
            *cell = Cell::toned(letter, cell.tone);
        }
    }
    Some((lettered, legend))
}

fn legend(names: impl IntoIterator<Item = String>) -> Option<Vec<(char, String)>> {
    let mut letters = 'A'..='Z';
    let legend: Option<Vec<(char, String)>> =
        names.into_iter().map(|name| letters.next().map(|letter| (letter, name))).collect();
    legend.filter(|legend| !legend.is_empty())
}

/// All that a table shows of it.
fn copy(sheet: &Sheet) -> Sheet {
    Sheet {
        heading: sheet.heading.clone(),
        context: sheet.context.clone(),
        columns: sheet.columns.clone(),
        cases_from: sheet.cases_from,
        lines: sheet.lines.clone(),
        notes: sheet.notes.clone(),
        about: Vec::new(),
    }
}
