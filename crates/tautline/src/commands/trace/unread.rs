//! What waited in a program's sockets when the trace began, of which no event tells.

use taut_report::units;
use taut_source::trace::{Tracer, WaitedBefore};

use crate::output;

/// So many are told.
const TOLD: usize = 4;
/// A program that reads sooner than after so long was about to.
const LEAST_MS: u128 = 10;

/// What is said of them, the longest first.
pub(super) fn remarks(tracer: &Tracer) -> Vec<String> {
    let mut waited = tracer.waited_before();
    waited.retain(|one| one.until_call.is_none_or(|time| time.as_millis() >= LEAST_MS));
    waited.sort_by_key(|one| std::cmp::Reverse(one.until_call.map_or(u128::MAX, |time| time.as_nanos())));
    let more = waited.len().saturating_sub(TOLD);
    let mut remarks: Vec<String> = waited.iter().take(TOLD).map(told).collect();
    if more > 0 {
        remarks.push(format!("So it is with {more} more sockets."));
    }
    remarks
}

fn told(one: &WaitedBefore) -> String {
    let WaitedBefore { socket, process, program, bytes, until_call } = one;
    let program = output::printable(program);
    let what = format!("In {socket} of {program} ({process}) {bytes} B or more waited when the trace began");
    match until_call {
        None => format!(
            "{what}, and something waits there still: no call on it was seen, so it is in no breakdown. Read it, or \
             close it."
        ),
        Some(time) => format!(
            "{what}. The first call on it came {} later; that time is in no breakdown.",
            units::time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        ),
    }
}
