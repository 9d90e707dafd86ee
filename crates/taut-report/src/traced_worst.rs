//! What a live trace tells over all directions: for which threads data waited, and the longest single waits.

use taut_explain::join::HostClock;
use taut_explain::trace::{HeldByPrograms, Traced, TracedWait};

use crate::explained_file::{holder, holder_alone};
use crate::lines::wrap;
use crate::units;

/// Columns of the names of threads.
const NAMES: usize = 46;

/// Rows below a heading, of which the first column is a name.
pub(crate) struct Rows<const N: usize> {
    pub(crate) heading: &'static str,
    pub(crate) columns: [&'static str; N],
    pub(crate) rows: Vec<[String; N]>,
}

/// The threads for which data waited, worst first; no rows where nothing is laid to programs.
pub(crate) fn threads(result: &Traced) -> Rows<4> {
    let threads = &result.threads;
    let row = |name: String, held: &HeldByPrograms| {
        let times = [held.data_waited_ns(), held.processor_ns, held.sending_program_ns].map(units::time);
        let [waited, processor, not_written] = times;
        [name, waited, processor, not_written]
    };
    let known = threads.worst.iter().map(|one| row(whose(one.thread, one.program.as_deref()), &one.held));
    let others = format!("{} other{}", units::count(threads.others), if threads.others == 1 { "" } else { "s" });
    let rest = [(others, &threads.of_others), ("no thread known".to_owned(), &threads.no_thread)];
    let rest = rest.into_iter().filter(|(_, held)| held.held_ns > 0).map(|(name, held)| row(name, held));
    Rows {
        heading: "Threads, by how long data waited for them",
        columns: ["thread", "data waited", "of it no processor", "not written"],
        rows: known.chain(rest).collect(),
    }
}

/// The longest single waits, longest first; with their time of day, where that is known.
pub(crate) fn waits(result: &Traced, clock: Option<HostClock>) -> Rows<6> {
    let row = |wait: &TracedWait| {
        [
            units::time(wait.held_ns),
            moment(result.start_ns.zip(clock), wait.begin_ns),
            format!("{} ({})", holder_alone(&wait.holder), wait.side),
            direction(wait),
            wait.bytes.map_or_else(|| "not known".to_owned(), bytes),
            wait.thread.map_or_else(|| "not known".to_owned(), |thread| whose(thread, wait.program.as_deref())),
        ]
    };
    Rows {
        heading: "Longest waits",
        columns: ["lasted", "from", "held by", "direction", "bytes", "thread"],
        rows: result.waits.iter().map(row).collect(),
    }
}

/// Both in lines of text, each after an empty line.
pub(crate) fn lines(result: &Traced, clock: Option<HostClock>) -> Vec<String> {
    let mut lines = Vec::new();
    let threads = threads(result);
    if !threads.rows.is_empty() {
        let columns = threads.columns;
        let line = |[name, waited, processor, not_written]: [&str; 4]| {
            format!("  {name:<NAMES$} {waited:>11} {processor:>18} {not_written:>11}")
        };
        lines.extend([String::new(), format!("{}:", threads.heading), line(columns)]);
        lines.extend(threads.rows.iter().map(|row| line(row.each_ref().map(String::as_str))));
    }
    if !result.waits.is_empty() {
        let is_set = clock.is_some_and(|clock| clock.was_set_by() != 0);
        let untold = if is_set { "; the time of day was set meanwhile, so it is not told" } else { "" };
        lines.extend([String::new(), format!("Longest waits, from the begin of each{untold}:")]);
    }
    for wait in &result.waits {
        let bytes = wait.bytes.map_or_else(String::new, |range| format!(", {}", bytes(range)));
        let thread =
            wait.thread.map_or_else(String::new, |thread| format!("; {}", whose(thread, wait.program.as_deref())));
        let text = format!(
            "{} at {}: {}; {}{bytes}{thread}.",
            units::time(wait.held_ns),
            moment(result.start_ns.zip(clock), wait.begin_ns),
            holder(&wait.holder),
            direction(wait)
        );
        let mut told = wrap("    ", &text);
        if let Some(first) = told.first_mut() {
            first.replace_range(..2, "");
        }
        lines.extend(told);
    }
    lines
}

/// `python3 (4711), thread 4713`; a program's first thread has its number.
fn whose(thread: u32, program: Option<&str>) -> String {
    match program {
        Some(program) if program.ends_with(&format!("({thread})")) => program.to_owned(),
        Some(program) => format!("{program}, thread {thread}"),
        None => format!("thread {thread}"),
    }
}

fn direction(wait: &TracedWait) -> String {
    let verb = if wait.is_outgoing { "sent" } else { "received" };
    format!("{verb} {} > {}", wait.from, wait.to)
}

/// `bytes 16 to 63`
fn bytes([from, to]: [u64; 2]) -> String {
    match to.checked_sub(1).filter(|last| *last > from) {
        Some(last) => format!("bytes {} to {}", units::count(from), units::count(last)),
        None => format!("byte {}", units::count(from)),
    }
}

/// `1.234567 s (2026-08-22 14:03:11.234567 UTC)`, since the trace's first event; the time of day where that is known.
/// If that was set meanwhile, or the host slept, nobody knows when.
fn moment(start: Option<(u64, HostClock)>, begin_ns: u64) -> String {
    let micros = begin_ns / 1000;
    let since = format!("{}.{:06} s", units::count(micros / 1_000_000), micros % 1_000_000);
    let unix_ns = start
        .filter(|(_, clock)| clock.was_set_by() == 0)
        .and_then(|(start, clock)| start.checked_add(begin_ns)?.checked_add_signed(clock.begin.time_of_day_ahead_ns));
    unix_ns.map_or_else(|| since.clone(), |ns| format!("{since} ({})", units::moment(ns)))
}

#[cfg(test)]
mod tests {
    use taut_explain::join::ClockReading;

    use super::*;

    #[test]
    fn a_time_of_day_that_was_set_meanwhile_is_not_told() {
        let told = |set_by: i64| {
            let read = |at_ns, ahead| ClockReading { at_ns, time_of_day_ahead_ns: ahead, uncertainty_ns: 10 };
            let ahead = 1_000_000_000_000_000_000;
            let clock = HostClock { begin: read(0, ahead), end: read(9_000_000, ahead + set_by) };
            moment(Some((5000, clock)), 2_500_000)
        };
        assert_eq!(told(20), "0.002500 s (2001-09-09 01:46:40.002505 UTC)");
        assert_eq!(told(3_600_000_000_000), "0.002500 s");
    }

    #[test]
    fn threads_and_bytes_are_named_as_a_log_has_them() {
        assert_eq!(whose(7, Some("x (7)")), "x (7)");
        assert_eq!((whose(8, Some("x (7)")), whose(8, None)), ("x (7), thread 8".to_owned(), "thread 8".to_owned()));
        assert_eq!((bytes([16, 64]), bytes([16, 17])), ("bytes 16 to 63".to_owned(), "byte 16".to_owned()));
        assert_eq!(bytes([0, 0]), "byte 0");
    }
}
