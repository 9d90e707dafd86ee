//! A mesh as text: a square of all pairs, as wide as there is room, then the pairs that are named.

use taut_fleet::{Cell, Figure, Matrix, MeshOutcome, PairOutcome, WorkOutcome};

use super::paint::{paint, wrap};
use crate::sheet::Tone;
use crate::{MeshDocument, mesh_words, units};

/// Where nothing says how wide it may be.
const WIDTH: u16 = 100;
/// So few hosts have figures in their square, more have a mark for each pair, and still more have none.
const MOST_WITH_FIGURES: usize = 12;
const MOST_WITH_MARKS: usize = 200;
/// Pairs told one by one, of each work, and as many of each kind of failure.
const MOST_TOLD: usize = 20;
const NAME: usize = 16;

pub(super) fn render(document: &MeshDocument, width: Option<u16>) -> String {
    let width = width.unwrap_or(WIDTH).max(40);
    let outcome = &document.outcome;
    let mut out = wrap(&document.head(), Some(width), "", "  ", Tone::Strong);
    if let Some(told) = document.ended_early() {
        out.push_str(&wrap(&told, Some(width), "", "  ", Tone::Bad));
    }
    for work in &outcome.works {
        let lead = format!("{}, {}", mesh_words::work(work), mesh_words::usual(work));
        out.push('\n');
        out.push_str(&wrap(&lead, Some(width), "", "  ", Tone::Strong));
        if outcome.hosts.len() <= MOST_WITH_MARKS {
            out.push_str(&matrix(outcome, work, usize::from(width)));
        }
        out.push_str(&named(outcome, work, width));
    }
    let failures = document.failures(MOST_TOLD);
    if !failures.is_empty() {
        out.push('\n');
    }
    for told in failures {
        out.push_str(&wrap(&told, Some(width), "", "  ", Tone::Bad));
    }
    out
}

/// The square, folded where it is wider than there is room.
fn matrix(outcome: &MeshOutcome, work: &WorkOutcome, width: usize) -> String {
    let matrix = Matrix::of(outcome, work);
    let hosts = matrix.hosts.len();
    let with_figures = hosts <= MOST_WITH_FIGURES;
    let number = hosts.to_string().len();
    let label = |at: usize| {
        let name: String = taut_event::printable(&outcome.hosts[matrix.hosts[at]].name).chars().take(NAME).collect();
        (at + 1, name)
    };
    let names = (0..hosts).map(|at| label(at).1.chars().count()).max().unwrap_or(0);
    let cell = if with_figures { 10 } else { 1 };
    let columns = (width.saturating_sub(number + names + 3) / cell).max(1);
    let mut out = String::new();
    let mut from = 0;
    while from < hosts {
        let to = (from + columns).min(hosts);
        out.push_str(&header(from..to, number + names + 2, number, with_figures));
        for (row, cells) in matrix.rows.iter().enumerate() {
            let (at, name) = label(row);
            out.push_str(&format!("{at:>number$} {name:<names$} "));
            for (column, found) in cells.iter().enumerate().take(to).skip(from) {
                let is_itself = row == column;
                out.push_str(&if with_figures {
                    figure(work.figure, *found, is_itself)
                } else {
                    mark(work.figure, *found, is_itself)
                });
            }
            let kept = out.trim_end().len();
            out.truncate(kept);
            out.push('\n');
        }
        from = to;
    }
    if !with_figures {
        let legend = match work.figure {
            Figure::Throughput => "· usual, + half of that, # a fifth; ! beyond a threshold, x not measured",
            _ => "· usual, + twice that, # five times; ! beyond a threshold, l messages lost, x not measured",
        };
        out.push_str(&wrap(legend, u16::try_from(width).ok(), "", "  ", Tone::Faint));
    }
    out
}

/// Numbers of the columns: in a line, or their digits one below another.
fn header(columns: std::ops::Range<usize>, indent: usize, digits: usize, in_a_line: bool) -> String {
    let indent = " ".repeat(indent);
    if in_a_line {
        let numbers: String = columns.map(|at| format!("{:>10}", at + 1)).collect();
        return format!("{indent}{}\n", paint_wide(&numbers));
    }
    let digit = |at: usize, place: usize| format!("{:>digits$}", at + 1).chars().nth(place).unwrap_or(' ');
    (0..digits)
        .map(|place| {
            let line: String = columns.clone().map(|at| digit(at, place)).collect();
            format!("{indent}{}\n", paint_wide(line.trim_end()))
        })
        .collect()
}

/// Words faint, and the blanks between them as they are.
fn paint_wide(text: &str) -> String {
    paint(text, Tone::Faint)
}

fn figure(figure: Figure, cell: Cell<'_>, is_itself: bool) -> String {
    let (text, tone) = match cell {
        Cell::Empty if is_itself => ("\\".to_owned(), Tone::Faint),
        Cell::Empty => (String::new(), Tone::Plain),
        Cell::Missing(_) => ("x".to_owned(), Tone::Bad),
        Cell::Pair(pair) => {
            let found = pair.measured.as_ref().map_or_else(String::new, |found| mesh_words::of_pair(figure, found));
            let found = found.replace(' ', "").replace("bit/s", "b/s");
            let marks = [(is_lossy(pair), 'l'), (!pair.misses.is_empty(), '!')];
            let marks: String = marks.into_iter().filter(|(there, _)| *there).map(|(_, mark)| mark).collect();
            (found + &marks, if pair.misses.is_empty() { Tone::Plain } else { Tone::Bad })
        }
    };
    format!("{}{}", " ".repeat(10_usize.saturating_sub(text.chars().count()).max(1)), paint(&text, tone))
}

fn mark(figure: Figure, cell: Cell<'_>, is_itself: bool) -> String {
    match cell {
        Cell::Empty if is_itself => paint("\\", Tone::Faint),
        Cell::Empty => " ".to_owned(),
        Cell::Missing(_) => paint("x", Tone::Bad),
        Cell::Pair(pair) if is_lossy(pair) => paint("l", Tone::Bad),
        Cell::Pair(pair) if !pair.misses.is_empty() => paint("!", Tone::Bad),
        Cell::Pair(pair) => match mesh_words::distance(figure, pair) {
            times if times >= 5.0 => "#".to_owned(),
            times if times >= 2.0 => "+".to_owned(),
            _ => "·".to_owned(),
        },
    }
}

fn is_lossy(pair: &PairOutcome) -> bool {
    pair.measured.as_ref().is_some_and(|measured| measured.lost > 0)
}

/// The pairs beyond a threshold, worst first, with what is known of why.
fn named(outcome: &MeshOutcome, work: &WorkOutcome, width: u16) -> String {
    let worst = work.worst();
    let Some(warn) = &work.warn else { return String::new() };
    if worst.is_empty() {
        return wrap(&format!("No pair is beyond `{warn}`."), Some(width), "", "  ", Tone::Good);
    }
    let pairs = if worst.len() == 1 {
        "1 pair is".to_owned()
    } else {
        format!("{} pairs are", units::count(worst.len() as u64))
    };
    let mut out = wrap(&format!("{pairs} beyond `{warn}`, worst first:"), Some(width), "", "  ", Tone::Bad);
    for &number in worst.iter().take(MOST_TOLD) {
        let pair = &work.pairs[number];
        let misses: Vec<String> = pair.misses.iter().map(|miss| mesh_words::miss(pair, miss)).collect();
        let told = format!("{}: {}", mesh_words::ends(outcome, pair), misses.join("; "));
        out.push_str(&wrap(&told, Some(width), "  ", "    ", Tone::Strong));
        for told in mesh_words::explained(work, pair) {
            out.push_str(&wrap(&told, Some(width), "    → ", "      ", Tone::Plain));
        }
    }
    if worst.len() > MOST_TOLD {
        let more = units::count((worst.len() - MOST_TOLD) as u64);
        out.push_str(&format!("  … and {more} more, which --json and --html have\n"));
    }
    out
}
