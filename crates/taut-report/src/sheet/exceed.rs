use std::collections::BTreeSet;

use taut_measure::recording::{EchoRow, PaceRow};
use taut_measure::stats::Exceedance;

use super::{Cell, Column, Line, Note, Sheet, Tone, echo_labels, pace_labels};
use crate::units;

/// Series next to one another in one sheet; more would not fit a terminal.
const SERIES: usize = 3;

struct Series<'a> {
    label: String,
    exceed: &'a [Exceedance],
    messages: u64,
    rate_hz: Option<f64>,
}

pub(super) fn of_echo(rows: &[&EchoRow]) -> Vec<Sheet> {
    let series = rows.iter().zip(echo_labels(rows).each).map(|(row, label)| Series {
        label,
        exceed: &row.exceed,
        messages: row.sent,
        rate_hz: row.rate_hz,
    });
    sheets("Replies later than a limit, losses included", series.collect())
}

pub(super) fn of_pace(rows: &[&PaceRow]) -> Vec<Sheet> {
    let series = rows.iter().zip(pace_labels(rows).each).map(|(row, label)| Series {
        label,
        exceed: &row.exceed,
        messages: row.messages,
        rate_hz: Some(1e9 / row.period_ns.max(1) as f64),
    });
    sheets("Deliveries later than a limit, losses included", series.collect())
}

fn sheets(heading: &str, mut series: Vec<Series<'_>>) -> Vec<Sheet> {
    series.retain(|series| !series.exceed.is_empty());
    series.chunks(SERIES).map(|chunk| sheet(heading, chunk)).collect()
}

fn sheet(heading: &str, series: &[Series<'_>]) -> Sheet {
    let limits: BTreeSet<u64> = series.iter().flat_map(|series| series.exceed).map(|exceed| exceed.over_ns).collect();
    let mut columns = vec![Column::figure("later than")];
    columns.extend(series.iter().map(|series| Column::series(&series.label)));
    let lines = limits.iter().map(|&limit| {
        let name = Cell::toned(format!("> {}", units::limit(limit)), Tone::Strong);
        let cells = series.iter().map(|series| {
            let found = series.exceed.iter().find(|exceed| exceed.over_ns == limit);
            found.map_or_else(Cell::none, |exceed| match exceed.count {
                0 => Cell::toned("none", Tone::Faint),
                _ if exceed.share > 0.5 => Cell::new(units::share(exceed.share)),
                _ => Cell::new(format!("{}, {}", units::share(exceed.share), units::one_in(exceed.share))),
            })
        });
        Line::new([name].into_iter().chain(cells))
    });
    let notes = series.iter().filter_map(in_time).map(Note::new).collect();
    Sheet { heading: heading.to_owned(), columns, lines: lines.collect(), notes, ..Sheet::default() }
}

/// What a share means to one who waits: how often a message at this rate misses the limit that is its period, or the next
/// longer one.
fn in_time(series: &Series<'_>) -> Option<String> {
    let rate = series.rate_hz?;
    let period_ns = 1e9 / rate;
    // A limit that stands for the period may be rounded: 16.7 ms at 60 per second.
    let exceed = series.exceed.iter().find(|exceed| exceed.over_ns as f64 >= period_ns * 0.98)?;
    let rate_in_words = units::per_second(rate);
    let name = series.label.replace(&format!(", {rate_in_words}"), "");
    let start = format!("{name}: at {rate_in_words}");
    let (messages, limit) = (units::count(series.messages), units::limit(exceed.over_ns));
    if exceed.count == 0 {
        return Some(format!("{start} none of {messages} messages came later than {limit}."));
    }
    let every = units::time((1e9 / (rate * exceed.share)) as u64);
    let count = units::count(exceed.count);
    Some(format!("{start} {count} of {messages} messages came later than {limit}: one every {every}."))
}
