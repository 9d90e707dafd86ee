//! How many came later than limits that matter: a table of rows by limits, or a sentence when none did.

use std::ptr;

use taut_record::stats::Exceedance;
use taut_record::{EchoRow, PaceRow};

use super::label::Label;
use super::{Cell, Column, Line, Note, Sheet, Tone, echo_labels, pace_labels};
use crate::units;

struct Words {
    heading: &'static str,
    row: &'static str,
    one: &'static str,
}

struct Series<'a> {
    label: Label,
    exceed: &'a [Exceedance],
    messages: u64,
    rate_hz: Option<f64>,
}

/// Adds what is to be said of round trips to their sheets.
pub(super) fn add_echo(sheets: &mut Vec<Sheet>, rows: &[&EchoRow]) {
    const WORDS: Words =
        Words { heading: "Replies later than a limit, losses included", row: "endpoint", one: "reply" };
    let series = rows.iter().zip(echo_labels(rows).each).map(|(row, label)| Series {
        label,
        exceed: &row.exceed,
        messages: row.losses().messages,
        rate_hz: row.rate_hz,
    });
    add(sheets, &WORDS, series);
}

/// Adds what is to be said of periodic sending to its sheets.
pub(super) fn add_pace(sheets: &mut Vec<Sheet>, rows: &[&PaceRow]) {
    const WORDS: Words =
        Words { heading: "Deliveries later than a limit, losses included", row: "case", one: "delivery" };
    let series = rows.iter().zip(pace_labels(rows).each).map(|(row, label)| Series {
        label,
        exceed: &row.exceed,
        messages: row.messages,
        rate_hz: Some(1e9 / row.period_ns.max(1) as f64),
    });
    add(sheets, &WORDS, series);
}

fn add<'a>(sheets: &mut Vec<Sheet>, words: &Words, series: impl Iterator<Item = Series<'a>>) {
    for series in by_limits(series) {
        match (none_late(words, &series), sheets.first_mut()) {
            (Some(sentence), Some(main)) => main.notes.extend([sentence].into_iter().chain(in_time(&series))),
            _ => sheets.push(table(words, &series)),
        }
    }
}

/// One table holds what was held against the same limits.
fn by_limits<'a>(series: impl Iterator<Item = Series<'a>>) -> Vec<Vec<Series<'a>>> {
    let limits = |series: &Series<'_>| series.exceed.iter().map(|exceed| exceed.over_ns).collect::<Vec<_>>();
    let mut groups: Vec<(Vec<u64>, Vec<Series<'_>>)> = Vec::new();
    for series in series.filter(|series| !series.exceed.is_empty()) {
        let limits = limits(&series);
        match groups.iter_mut().find(|(others, _)| *others == limits) {
            Some((_, group)) => group.push(series),
            None => groups.push((limits, vec![series])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn none_late(words: &Words, series: &[Series<'_>]) -> Option<Note> {
    let mut exceed = series.iter().flat_map(|series| series.exceed);
    let lowest = exceed.clone().map(|exceed| exceed.over_ns).min()?;
    let messages = units::count(sum(series));
    exceed
        .all(|exceed| exceed.count == 0)
        .then(|| Note::new(format!("No {} of {messages} came later than {}.", words.one, units::limit(lowest))))
}

/// All messages; what a file says may be more than fits.
fn sum<'a, 'b: 'a>(series: impl IntoIterator<Item = &'a Series<'b>>) -> u64 {
    series.into_iter().fold(0, |all, series| all.saturating_add(series.messages))
}

fn table(words: &Words, series: &[Series<'_>]) -> Sheet {
    let limits = series.first().map_or(&[][..], |series| series.exceed);
    let mut columns = vec![Column::text(words.row)];
    // A figure stays with its unit.
    let title = |exceed: &Exceedance| format!("> {}", units::limit(exceed.over_ns)).replace(' ', "\u{a0}");
    columns.extend(limits.iter().map(|exceed| Column::figure(title(exceed))));
    let lines = series.iter().map(|series| {
        let cells = series.exceed.iter().map(|exceed| match exceed.count {
            0 => Cell::toned("none", Tone::Faint),
            _ if exceed.share > 0.5 => Cell::new(units::share(exceed.share)),
            _ => Cell::new(format!("{}, {}", units::share(exceed.share), units::one_in(exceed.share))),
        });
        Line::new([Cell::label(&series.label)].into_iter().chain(cells))
    });
    let (heading, lines, notes) = (words.heading.to_owned(), lines.collect(), in_time(series));
    Sheet { heading, columns, lines, notes, ..Sheet::default() }
}

/// What a share means to one who waits: how often a message at this rate misses the limit that is
/// its period, or the next longer one.
fn in_time(series: &[Series<'_>]) -> Vec<Note> {
    let due: Vec<Due<'_>> = series.iter().filter_map(Due::of).collect();
    let sentences = due.iter().filter_map(|one| {
        let alike: Vec<&Due<'_>> = due.iter().filter(|other| other.is_like(one)).collect();
        if alike.len() == 1 || alike.iter().any(|due| due.late.count > 0) {
            return Some(one.sentence());
        }
        let messages = units::count(sum(alike.iter().map(|due| due.series)));
        let limit = units::limit(one.late.over_ns);
        let sentence = || format!("At {} none of {messages} messages came later than {limit}.", one.rate_in_words());
        ptr::eq(alike[0], one).then(sentence)
    });
    sentences.map(Note::new).collect()
}

/// Messages at a rate, and those of them that came too late for it.
struct Due<'a> {
    series: &'a Series<'a>,
    rate_hz: f64,
    late: &'a Exceedance,
}

impl<'a> Due<'a> {
    fn of(series: &'a Series<'a>) -> Option<Self> {
        let rate_hz = series.rate_hz?;
        let period_ns = 1e9 / rate_hz;
        // A limit that stands for the period may be rounded: 16.7 ms at 60 per second.
        let late = series.exceed.iter().find(|exceed| exceed.over_ns as f64 >= period_ns * 0.98)?;
        Some(Self { series, rate_hz, late })
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.rate_hz, self.late.over_ns) == (other.rate_hz, other.late.over_ns)
    }

    fn rate_in_words(&self) -> String {
        units::per_second(self.rate_hz)
    }

    fn sentence(&self) -> String {
        let rate = self.rate_in_words();
        let name = self.series.label.to_string().replace(&format!(", {rate}"), "");
        let (messages, limit) = (units::count(self.series.messages), units::limit(self.late.over_ns));
        if self.late.count == 0 {
            return format!("{name}: at {rate} none of {messages} messages came later than {limit}.");
        }
        let every = units::time((1e9 / (self.rate_hz * self.late.share)) as u64);
        let count = units::count(self.late.count);
        format!("{name}: at {rate} {count} of {messages} messages came later than {limit}: one every {every}.")
    }
}
