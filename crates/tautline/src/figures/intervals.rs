use std::time::{SystemTime, UNIX_EPOCH};

use taut_link::{Error, Fault, clock};
use taut_measure::{Interrupt, turns};
use taut_record::stats::Distribution;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::figures::{IntervalDocument, IntervalRow, IntervalSums, RowTimes};
use taut_time::{Duration, Instant};

use super::args::IntervalArgs;
use super::exports::Exports;
use crate::exit::Code;
use crate::output;

/// What one row of an interval came to, with its times.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) row: IntervalRow,
    pub(crate) round_trips: Option<Distribution>,
    pub(crate) responses: Option<Distribution>,
    pub(crate) deliveries: Option<Distribution>,
}

impl Measured {
    /// A row of which no times are known.
    pub(crate) const fn without_times(row: IntervalRow) -> Self {
        Self { row, round_trips: None, responses: None, deliveries: None }
    }
}

/// Measures interval after interval until the user, or `--for`, ends it. `measure` gets the interval's number and how
/// long it may take, and gives the same rows each time; `rows` are those of an interval in which nothing could be
/// measured.
///
/// Intervals begin on a schedule, so that what one takes for its links the next does not add to: one that begins late
/// is that much shorter. After one that has overrun the next begins at once, and ends at the next time that leaves it
/// at least half its length.
pub(crate) fn run(
    command: &str,
    args: &IntervalArgs,
    every: Duration,
    interrupt: &Interrupt,
    rows: &[IntervalRow],
    measure: &mut dyn FnMut(usize, Duration) -> taut_link::Result<(Vec<Measured>, Ended)>,
) -> anyhow::Result<Code> {
    let mut exports = Exports::open(&args.exports)?;
    let mut sums = IntervalSums::since(unix_ns());
    exports.sums(sums.families(), None);
    let begin = clock::now();
    let end = args.length.map(|time| begin + time);
    let mut has_failed = false;
    for number in 0.. {
        let (began_unix_ns, began) = (unix_ns(), clock::now());
        let due = due(begin, every, began);
        let due = end.map_or(due, |end| due.min(end));
        let measured = measure(number, due.saturating_since(began));
        let (measured, ended) = match measured {
            Ok(measured) => measured,
            _ if interrupt.is_set() => (Vec::new(), Ended::Interrupted),
            // A wrong command does not get better, and one that never worked is more likely wrong than its peer away.
            Err(error) if number == 0 || error.fault() == Fault::Input => return Err(error.into()),
            Err(error) => {
                let away = rows.iter().cloned().map(Measured::without_times);
                (away.collect(), Ended::PeerGone(error.to_string()))
            }
        };
        let duration_ns = u64::try_from(clock::now().saturating_since(began).as_nanos()).unwrap_or(u64::MAX);
        let is_over = interrupt.is_set();
        // Of one that was left at once there is nothing to tell.
        let is_empty = is_over && measured.iter().all(|one| one.row.messages.or(one.row.bytes).unwrap_or(0) == 0);
        if !is_empty {
            let times: Vec<RowTimes<'_>> = measured.iter().map(times).collect();
            let document = IntervalDocument {
                format_version: FORMAT_VERSION,
                command: command.to_owned(),
                interval: number as u64,
                began_unix_ns,
                duration_ns,
                ended: if is_over { Ended::Interrupted } else { ended },
                lines_lost: exports.lines_lost(),
                results: measured.iter().map(|one| one.row.clone()).collect(),
            };
            has_failed |= !matches!(document.ended, Ended::Complete | Ended::Interrupted);
            exports.line(|| document.to_json());
            sums.add(&document, &times);
            exports.sums(sums.families(), Some(sums.span()));
            if !args.exports.take_stdout() {
                output::print(&document.to_log())?;
            }
        }
        let is_last = end.is_some_and(|end| clock::now() >= end || due >= end);
        if is_over || is_last {
            break;
        }
        if !exports.are_wanted() {
            exports.close();
            // Its business, as everywhere.
            return Ok(Code::Ok);
        }
        // One that failed ends early.
        wait_until(due, interrupt);
    }
    let is_whole = exports.close();
    // A run without an end of its own is complete when its user ends it, whoever was away meanwhile.
    Ok(match args.length {
        _ if !is_whole => Code::Failed,
        Some(_) if interrupt.is_set() => Code::Interrupted,
        Some(_) if has_failed => Code::Failed,
        _ => Code::Ok,
    })
}

/// Refuses a schedule on which no message is due in a row's part of an interval: it would be sent in each of them even
/// so, and thus more often.
pub(crate) fn refuse_slower(period: Duration, every: Duration, rows: usize) -> Result<(), Error> {
    let part = every / u32::try_from(rows.max(1)).unwrap_or(u32::MAX);
    if period <= part {
        return Ok(());
    }
    let text = format!(
        "a message every {period:?} is less than one in each row's part of an interval ({part:?}): lengthen --every"
    );
    Err(Error::Input(text))
}

/// Measures what stands for each row in turn, each interval beginning with another one. One that fails has the row
/// given, and the others go on.
///
/// # Errors
/// All failed: that of the first.
pub(crate) fn each_in_turn(
    number: usize,
    rows: &[IntervalRow],
    interrupt: &Interrupt,
    mut measure: impl FnMut(usize) -> taut_link::Result<(Measured, Ended)>,
) -> taut_link::Result<(Vec<Measured>, Ended)> {
    let mut measured: Vec<Measured> = rows.iter().cloned().map(Measured::without_times).collect();
    let (mut ended, mut failed) = (Ended::Complete, Vec::new());
    for at in turns(number, rows.len()) {
        if interrupt.is_set() {
            break;
        }
        match measure(at) {
            Ok((one, end)) => {
                measured[at] = one;
                ended = if end == Ended::Complete { ended } else { end };
            }
            Err(error) => {
                ended = Ended::PeerGone(error.to_string());
                failed.push((at, error));
            }
        }
    }
    failed.sort_by_key(|(at, _)| *at);
    match failed.into_iter().next() {
        Some((0, error))
            if measured.iter().all(|one| !one.row.complete && one.row.messages.or(one.row.bytes).unwrap_or(0) == 0) =>
        {
            Err(error)
        }
        _ => Ok((measured, ended)),
    }
}

/// The first time of the schedule that leaves half an interval from now.
pub(super) fn due(begin: Instant, every: Duration, now: Instant) -> Instant {
    let passed = now.saturating_since(begin) + every / 2;
    let number = passed.as_nanos().div_ceil(every.as_nanos().max(1)).max(1);
    begin + Duration::from_nanos(u64::try_from(number * every.as_nanos()).unwrap_or(u64::MAX))
}

fn wait_until(due: Instant, interrupt: &Interrupt) {
    const LOOK: Duration = Duration::from_millis(50);
    while !interrupt.is_set() {
        let left = due.saturating_since(clock::now());
        if left.is_zero() {
            break;
        }
        clock::sleep(left.min(LOOK));
    }
}

fn times(one: &Measured) -> RowTimes<'_> {
    RowTimes {
        round_trip: one.round_trips.as_ref(),
        response: one.responses.as_ref(),
        delivery: one.deliveries.as_ref(),
    }
}

/// Now, by the wall clock, in nanoseconds since 1970.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_end_on_the_schedule_and_have_at_least_half_their_length() {
        let begin = Instant::from_nanos(1_000);
        let every = Duration::from_secs(10);
        for (passed_ms, due_s) in [(0, 10), (4, 10), (5_000, 10), (5_001, 20), (10_003, 20), (24_000, 30), (26_000, 40)]
        {
            let due = due(begin, every, begin + Duration::from_millis(passed_ms));
            assert_eq!(due.saturating_since(begin), Duration::from_secs(due_s), "{passed_ms} ms");
        }
    }
}
