//! What a sheet is made of.

use taut_record::stats::{Percentile, Quantile, Summary};

use super::about::About;
use super::label::Label;
use crate::units;

/// A table with all that belongs to it.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) heading: String,
    /// What all its rows share.
    pub(crate) context: String,
    pub(crate) columns: Vec<Column>,
    /// Columns from here on are cases next to one another. Where there is no room for all, they go into several tables,
    /// each with the columns before.
    pub(crate) cases_from: Option<usize>,
    pub(crate) lines: Vec<Line>,
    /// Sentences below the table.
    pub(crate) notes: Vec<Note>,
    /// What repeats each row, and the options it was measured with.
    pub(crate) about: Vec<About>,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) numeric: bool,
    pub(crate) room: Room,
}

/// What becomes of a column where there is little room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Room {
    /// Always stays.
    Always,
    /// Left out, the highest number first.
    WhenWide(u8),
    /// Moves below the table, as a list.
    Below,
}

/// One line of a sheet. A line that starts no row of its own continues the row above.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) cells: Vec<Cell>,
    pub(crate) continues: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// What may stand on a line of its own, less prominently.
    pub(crate) detail: String,
    pub(crate) tone: Tone,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Strong,
    Good,
    Bad,
    Faint,
    /// To be copied as it stands.
    Code,
}

#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Sheet {
    /// Columns of each table that the sheet becomes: all in one, unless cases next to one another
    /// do not fit. Then they are spread evenly.
    pub(crate) fn tables(&self, fits: impl Fn(&[usize]) -> bool) -> Vec<Vec<usize>> {
        if self.columns.is_empty() {
            return Vec::new();
        }
        let Some(first) = self.cases_from else {
            return vec![(0..self.columns.len()).collect()];
        };
        let cases: Vec<usize> = (first..self.columns.len()).collect();
        let spread = |tables: usize| -> Vec<Vec<usize>> {
            let each = cases.len().div_ceil(tables).max(1);
            cases.chunks(each).map(|cases| (0..first).chain(cases.iter().copied()).collect()).collect()
        };
        let mut spreads = (1..=cases.len()).map(spread);
        spreads.find(|tables| tables.iter().all(|columns| fits(columns))).unwrap_or_else(|| spread(usize::MAX))
    }
}

impl Column {
    pub(crate) fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: false, room: Room::Always }
    }

    pub(crate) fn figure(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: true, room: Room::Always }
    }

    /// A column for one row of the recording, its label broken into lines.
    pub(crate) fn series(label: &Label) -> Self {
        Self::figure(label.to_string().replace(", ", "\n"))
    }

    pub(crate) fn when_wide(self, rank: u8) -> Self {
        Self { room: Room::WhenWide(rank), ..self }
    }

    pub(crate) fn below(self) -> Self {
        Self { room: Room::Below, ..self }
    }
}

impl Line {
    pub(crate) fn new(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), continues: false }
    }

    pub(crate) fn continuing(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self { cells: cells.into_iter().collect(), continues: true }
    }
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Plain)
    }

    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), detail: String::new(), tone }
    }

    pub(crate) fn label(label: &Label) -> Self {
        Self { detail: label.detail.clone(), ..Self::toned(&label.name, Tone::Strong) }
    }

    pub(crate) fn empty() -> Self {
        Self::new("")
    }

    /// Stands where a figure is not known or would not mean anything.
    pub(crate) fn none() -> Self {
        Self::toned("–", Tone::Faint)
    }

    pub(crate) fn time(nanos: Option<u64>) -> Self {
        nanos.map_or_else(Self::none, |nanos| Self::new(units::time(nanos)))
    }

    /// A figure of all messages, which may be that of a lost one.
    pub(crate) fn quantile(quantile: Option<Quantile>) -> Self {
        match quantile {
            Some(Quantile::Lost) => Self::toned(units::LOST, Tone::Bad),
            time => Self::time(time.and_then(Quantile::time)),
        }
    }

    /// A percentile of all messages, if there are enough of them.
    pub(crate) fn percentile(summary: Option<&Summary>, percentile: Percentile) -> Self {
        Self::quantile(summary.and_then(|summary| summary.percentile(percentile)))
    }

    /// The longest of all.
    pub(crate) fn max(summary: Option<&Summary>) -> Self {
        Self::quantile(summary.map(|summary| summary.max))
    }

    pub(crate) fn interval(interval: Option<(Quantile, Quantile)>) -> Self {
        interval.map_or_else(Self::none, |interval| Self::toned(units::quantile_interval(interval), Tone::Faint))
    }

    /// A number of mishaps: any is bad.
    pub(crate) fn mishaps(count: u64) -> Self {
        Self::toned(units::count(count), if count > 0 { Tone::Bad } else { Tone::Plain })
    }

    pub(crate) fn strong(self) -> Self {
        let tone = if self.tone == Tone::Bad { Tone::Bad } else { Tone::Strong };
        Self { tone, ..self }
    }
}

impl Note {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }

    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}
