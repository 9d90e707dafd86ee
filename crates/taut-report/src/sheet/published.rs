use taut_record::{FigureUnit, PublishedFigure, PublishedRow};

use super::{Cell, Column, Line, Note, Sheet, Tone};
use crate::units;

/// A published experiment beside its repetition.
pub(super) fn sheet(row: &PublishedRow) -> Sheet {
    let columns = vec![Column::text("figure"), Column::figure("published"), Column::figure("here")];
    let lines = row.figures.iter().map(|figure| {
        let published = match &figure.published_in_words {
            Some(words) => Cell::new(words),
            None => value(figure, figure.published),
        };
        Line::new([Cell::new(&figure.figure), published, value(figure, figure.here).strong()])
    });
    let notes = vec![
        Note::toned(format!("There: {}.", row.there), Tone::Faint),
        Note::toned(format!("Here: {}.", row.here), Tone::Faint),
        Note::toned(format!("It means: {}", row.meaning), Tone::Good),
    ];
    let context = "as published, and measured here".to_owned();
    Sheet { heading: row.experiment.clone(), context, columns, lines: lines.collect(), notes, ..Sheet::default() }
}

fn value(figure: &PublishedFigure, value: Option<f64>) -> Cell {
    let Some(value) = value else { return Cell::none() };
    Cell::new(match figure.unit {
        FigureUnit::Ns => units::time(value as u64),
        FigureUnit::Bps => units::bit_rate(value),
        FigureUnit::Number => units::number(value),
        FigureUnit::Share => units::share(value),
    })
}
