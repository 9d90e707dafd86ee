//! A message's way, cut into the stages in which it waited. Text, charts and traces all draw these parts.

use taut_explain::Stage;
use taut_record::MessageExcerpt;
use taut_time::{Instant, MessageTimes};

/// Time of a message in one stage, in nanoseconds on the caller's clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    pub(crate) stage: Stage,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Parts from the intended time to the last known stage, without gap or overlap. What lies between two known times goes
/// to the stage at whose end the second was taken, as in [`taut_explain::ledger`].
pub(crate) fn parts(intended: i64, ends: [Option<i64>; 7]) -> Vec<Part> {
    let mut start = intended;
    Stage::ALL
        .into_iter()
        .zip(ends)
        .filter_map(|(stage, end)| {
            let end = end?.max(start);
            let part = Part { stage, start, end };
            start = end;
            Some(part)
        })
        .collect()
}

pub(crate) fn parts_of_excerpt(message: &MessageExcerpt) -> Vec<Part> {
    let m = message;
    parts(m.intended, [m.write_begin, m.write_end, m.scheduled, m.left, m.received, m.forwarded, m.read])
}

/// Times in nanoseconds since `origin`.
pub(crate) fn parts_of_times(message: &MessageTimes, origin: Instant) -> Vec<Part> {
    let since = |at: Instant| at.signed_since(origin);
    parts(since(message.intended), Stage::ALL.map(|stage| stage.end(message).map(since)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_explain::ledger;

    use super::*;

    proptest! {
        #[test]
        fn parts_join_and_agree_with_the_ledger(
            intended in 0..1000u64,
            times in proptest::collection::vec(proptest::option::of(0..2000u64), 7),
        ) {
            let at = |i: usize| times[i].map(Instant::from_nanos);
            let message = MessageTimes {
                intended: Instant::from_nanos(intended),
                write_begin: at(0), write_end: at(1), scheduled: at(2), left: at(3), received: at(4), forwarded: at(5),
                read: at(6), ..MessageTimes::default()
            };
            let parts = parts_of_times(&message, Instant::from_nanos(0));
            let mut start = intended as i64;
            for part in &parts {
                prop_assert_eq!(part.start, start);
                prop_assert!(part.end >= part.start);
                start = part.end;
            }
            for (stage, sum) in ledger([message]) {
                let part = parts.iter().find(|part| part.stage == stage).map_or(0, |part| part.end - part.start);
                prop_assert_eq!(part as u128, sum.as_nanos());
            }
        }
    }
}
