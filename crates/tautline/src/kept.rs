//! Events that detectors were given, on their way into the recording.

use taut_explain::nagle;
use taut_record::{MOST_EVENTS, Observed, ObservedRound};
use taut_time::{Timeline, What};

/// What goes into a recording of the events that detectors were given.
#[derive(Debug)]
pub(crate) struct Kept {
    room: usize,
    pub(crate) observed: Vec<Observed>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { room: MOST_EVENTS, observed: Vec::new() }
    }
}

impl Kept {
    /// Keeps what there is room for, whole rounds only: of a part of one a detector would say something else.
    pub(crate) fn keep(&mut self, row: usize, context: &nagle::Context, timelines: &[Timeline]) {
        if timelines.is_empty() {
            return;
        }
        let (mut rounds, mut dropped_rounds) = (Vec::new(), 0);
        for timeline in timelines {
            let count = timeline.of(|what| !matches!(what, What::OnAir { .. } | What::Idle { .. })).count();
            match self.room.checked_sub(count) {
                Some(room) => {
                    self.room = room;
                    rounds.push(ObservedRound::of(timeline));
                }
                None => dropped_rounds += 1,
            }
        }
        self.observed.push(Observed {
            row,
            on: context.on.clone(),
            nagle: context.nagle,
            min_rtt_ns: u64::try_from(context.min_rtt.as_nanos()).unwrap_or(u64::MAX),
            several_writes: context.several_writes,
            rounds,
            dropped_rounds,
        });
    }
}

#[cfg(test)]
mod tests {
    use taut_time::{ByteRange, Duration, Event, Framing, Host, Instant, Layer};

    use super::*;

    #[test]
    fn a_recording_keeps_whole_rounds_and_no_more_than_there_is_room_for() {
        let mut timeline = Timeline::new(Framing::Stream);
        for at in 0..10 {
            let (at, bytes) = (Instant::from_nanos(at), ByteRange::new(at, at + 1));
            for what in [What::Intended, What::OnAir { nanos: 1 }] {
                timeline.push(Event { at, host: Host::Local, layer: Layer::Application, what, bytes });
            }
        }
        let count = timeline.events().len() / 2;
        let mut kept = Kept { room: 2 * count + 1, observed: Vec::new() };
        let context =
            nagle::Context { on: "x".to_owned(), nagle: true, min_rtt: Duration::ZERO, several_writes: false };
        kept.keep(3, &context, &vec![timeline; 5]);
        let part = &kept.observed[0];
        assert_eq!((part.row, part.rounds.len(), part.dropped_rounds, kept.room), (3, 2, 3, 1));
        kept.keep(4, &context, &[]);
        assert_eq!(kept.observed.len(), 1);
    }
}
