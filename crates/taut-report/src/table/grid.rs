use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width};

use super::letters::{self, Lettered};
use super::paint::{NO_BREAK, paint, wrap};
use crate::sheet::{Cell, Line, Room, Sheet, Tone};

/// Blanks between columns.
const GAP: u16 = 2;
const RULE_OVER_GAP: &str = "──";
const RULE_BELOW_HEADER: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));

/// A sheet as text: heading, table, what did not fit into the table, notes.
pub(super) fn render(sheet: &Sheet, width: Option<u16>) -> String {
    let mut out = paint(&sheet.heading, Tone::Strong);
    out.push('\n');
    if !sheet.context.is_empty() {
        out.push_str(&wrap(&sheet.context, width, "", "", Tone::Faint));
    }
    let lettered = width.and_then(|width| by_letter(sheet, width));
    for (letter, name) in lettered.iter().flat_map(|(_, legend)| legend) {
        out.push_str(&wrap(name, width, &format!("{letter}  "), "   ", Tone::Strong));
    }
    let sheet = lettered.as_ref().map_or(sheet, |(sheet, _)| sheet);
    let tables = tables(sheet, width);
    let tables: Vec<String> = tables.into_iter().map(|columns| table(sheet, columns, width)).collect();
    out.push_str(&tables.join("\n"));
    for note in &sheet.notes {
        out.push_str(&wrap(&note.text, width, "  ", "    ", note.tone));
    }
    out
}

/// The sheet with letters in the place of names that would be broken, or that would keep cases from standing next to
/// one another, and what the letters stand for.
fn by_letter(sheet: &Sheet, width: u16) -> Option<Lettered> {
    let lettered = match sheet.cases_from {
        Some(first) => letters::of_cases(sheet, first),
        None => letters::of_rows(sheet),
    }?;
    let helps = match sheet.cases_from {
        Some(first) => {
            let is_broken = |columns: &Vec<usize>| {
                let whole: u16 = columns.iter().map(|&i| least_width(sheet, i) + GAP).sum();
                columns.len() > first && whole > width.saturating_add(GAP)
            };
            let now = tables(sheet, Some(width));
            now.iter().any(is_broken) || tables(&lettered.0, Some(width)).len() < now.len()
        }
        None => breaks_names(sheet, width),
    };
    helps.then_some(lettered)
}

/// Whether a word in the first column would go on in the next line.
fn breaks_names(sheet: &Sheet, width: u16) -> bool {
    let shown = columns_that_fit(sheet, (0..sheet.columns.len()).collect(), Some(width));
    let table = lay_out(sheet, &shown);
    let longest = longest_word(sheet, 0, &[' ', '\n']);
    shown.first() == Some(&0)
        && natural_width(&table) > usize::from(width)
        && usize::from(squeezed(&table, sheet, &shown, width)[0] - GAP) < longest
}

/// Columns of each of its tables.
fn tables(sheet: &Sheet, width: Option<u16>) -> Vec<Vec<usize>> {
    sheet.tables(|columns| width.is_none_or(|width| fit(sheet, columns, width)))
}

/// Whether cases fit next to one another. Two that can be held against each other are worth a broken name.
fn fit(sheet: &Sheet, columns: &[usize], width: u16) -> bool {
    const BROKEN: u16 = 18;
    let first = sheet.cases_from.unwrap_or(columns.len());
    let most = if columns.len() <= first + 2 { BROKEN } else { u16::MAX };
    let least = |&i: &usize| least_width(sheet, i).min(if i < first { u16::MAX } else { most }) + GAP;
    columns.iter().map(least).sum::<u16>() <= width.saturating_add(GAP)
}

/// Some columns as a table, and what did not fit into it.
fn table(sheet: &Sheet, columns: Vec<usize>, width: Option<u16>) -> String {
    let shown = columns_that_fit(sheet, columns.clone(), width);
    let mut table = lay_out(sheet, &shown);
    if let Some(width) = width.filter(|&width| natural_width(&table) > usize::from(width)) {
        squeeze(&mut table, sheet, &shown, width);
    }
    let mut out = String::new();
    for line in lines(&table) {
        out.push_str(&line);
        out.push('\n');
    }
    for i in columns.into_iter().filter(|i| sheet.columns[*i].room == Room::Below && !shown.contains(i)) {
        out.push_str(&below(sheet, i, &sheet.columns[i].title, width));
    }
    out
}

/// Columns to show: all, or fewer when they are too wide together.
fn columns_that_fit(sheet: &Sheet, mut shown: Vec<usize>, width: Option<u16>) -> Vec<usize> {
    let Some(width) = width else {
        return shown;
    };
    while natural_width(&lay_out(sheet, &shown)) > usize::from(width) {
        let rank = |&&i: &&usize| match sheet.columns[i].room {
            Room::Always => 0,
            Room::WhenWide(rank) => rank,
            Room::Below => u8::MAX,
        };
        match shown.iter().max_by_key(rank).copied() {
            Some(last) if sheet.columns[last].room != Room::Always => shown.retain(|&i| i != last),
            _ => break,
        }
    }
    shown
}

fn lay_out(sheet: &Sheet, shown: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(RULE_BELOW_HEADER).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(shown.iter().map(|&i| paint(&sheet.columns[i].title, Tone::Faint)));
    for line in &sheet.lines {
        table.add_row(shown.iter().map(|&i| paint(&cell_text(sheet, line, i), line.cells[i].tone)));
    }
    for (place, &i) in shown.iter().enumerate() {
        if let Some(column) = table.column_mut(place) {
            let alignment = if sheet.columns[i].numeric { CellAlignment::Right } else { CellAlignment::Left };
            column.set_padding((0, GAP));
            column.set_cell_alignment(alignment);
        }
    }
    table
}

/// Arranges the table for a width.
fn squeeze(table: &mut Table, sheet: &Sheet, shown: &[usize], width: u16) {
    let widths = squeezed(table, sheet, shown, width);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width + GAP);
    for (place, width) in widths.into_iter().enumerate() {
        if let Some(column) = table.column_mut(place) {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
}

/// Widths of the columns, with their gaps. The column with most to spare gives way first. A word broken over lines is
/// hard to read, so a column goes below its longest word only when all have come down to theirs.
fn squeezed(table: &Table, sheet: &Sheet, shown: &[usize], width: u16) -> Vec<u16> {
    let least: Vec<u16> = shown.iter().map(|&i| least_width(sheet, i) + GAP).collect();
    let mut widths: Vec<u16> = table.column_max_content_widths().iter().map(|content| content + GAP).collect();
    while widths.iter().sum::<u16>() > width + GAP && widths.iter().any(|&width| width > GAP + 1) {
        let to_spare = |&i: &usize| (widths[i].saturating_sub(least[i]), widths[i]);
        if let Some(i) = (0..widths.len()).max_by_key(to_spare) {
            widths[i] -= 1;
        }
    }
    widths
}

/// The longest word, or where cases stand next to one another the whole of what they are figures of.
fn least_width(sheet: &Sheet, column: usize) -> u16 {
    const VERY_LONG: usize = 32;
    let breaks: &[char] = if sheet.cases_from.is_some_and(|first| column < first) { &['\n'] } else { &[' ', '\n'] };
    longest_word(sheet, column, breaks).min(VERY_LONG) as u16
}

fn longest_word(sheet: &Sheet, column: usize, breaks: &[char]) -> usize {
    let cells = sheet.lines.iter().map(|line| cell_text(sheet, line, column));
    let texts = cells.chain([sheet.columns[column].title.clone()]);
    let lengths = texts.flat_map(|text| text.split(breaks).map(|word| word.chars().count()).collect::<Vec<_>>());
    lengths.max().unwrap_or(0)
}

/// A figure stays with its unit: blanks in it are made ones that do not break.
fn cell_text(sheet: &Sheet, line: &Line, column: usize) -> String {
    let Cell { text, detail, .. } = &line.cells[column];
    match sheet.columns[column].numeric {
        true => text.replace(' ', NO_BREAK).replace(&format!(",{NO_BREAK}"), ", "),
        false if detail.is_empty() => text.clone(),
        false => format!("{text}, {detail}"),
    }
}

/// The table's lines without the gap after the last column.
fn lines(table: &Table) -> impl Iterator<Item = String> {
    table.lines().map(|line| match line.strip_suffix(RULE_OVER_GAP) {
        Some(rule) => rule.to_owned(),
        None => line.trim_end().to_owned(),
    })
}

fn natural_width(table: &Table) -> usize {
    lines(table).map(|line| line.chars().filter(|c| !is_mark(*c)).count()).max().unwrap_or(0)
}

fn is_mark(c: char) -> bool {
    ('\u{2061}'..='\u{2069}').contains(&c)
}

fn below(sheet: &Sheet, column: usize, title: &str, width: Option<u16>) -> String {
    let name = sheet.columns.iter().position(|column| !column.title.is_empty()).unwrap_or(0);
    let filled = sheet.lines.iter().filter(|line| !line.cells[column].text.is_empty());
    let lines: String = filled
        .map(|line| {
            let text = format!("{}: {}", line.cells[name].text, line.cells[column].text);
            wrap(&text, width, "  ", "    ", Tone::Plain)
        })
        .collect();
    if lines.is_empty() { lines } else { format!("{}\n{lines}", paint(title, Tone::Faint)) }
}
