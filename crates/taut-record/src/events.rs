//! The events that the detectors were given, so that a recording can be explained again.
//!
//! A round's events are one line of text, an event a word:
//!
//! ```text
//! i0171263,0,128 b08100 e06310 q10;128;1;10;65408;1448 s1-40
//! ```
//!
//! - What happened, as a letter: `i` intended, `b` write begun, `e` write ended, `q` send queue, `s`
//!   scheduled, `l` left, `a` acknowledged, `r` received, `f` received from a broker, `d` read. A capital: on the peer.
//! - The layer, as a digit: 0 application, 1 socket, 2 driver, 3 medium.
//! - Nanoseconds since the event before, or less than 0. The first event's time is 0.
//! - Unless they are those of the event before: the first byte, counted from the event before, and the number of bytes.
//! - Of a send queue: unsent bytes, segments in flight, congestion window in segments, room in the
//!   receive window in bytes or `-`, largest segment in bytes.

use std::fmt::{self, Write};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_time::{ByteRange, Event, Framing, Host, Instant, Layer, SendQueue, Timeline, What};

/// So many events a recording holds at most: about a megabyte.
pub const MOST_EVENTS: usize = 1 << 16;
/// No time or position is larger.
const LARGEST: u64 = i64::MAX as u64;

/// What a part of a run gave to the detectors that look at events.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Observed {
    /// Which of `results` it was, counted from 0; of a tuning run, the first row of the path.
    pub row: usize,
    /// What a finding in it is on.
    pub on: String,
    /// Whether the sending socket was free to hold small writes back.
    pub nagle: bool,
    /// Least round trip that the kernel saw on the link; 0: not known.
    pub min_rtt_ns: u64,
    /// Whether a message took more than one write.
    pub several_writes: bool,
    /// The events, round by round.
    pub rounds: Vec<ObservedRound>,
    /// Rounds whose events were left out for want of room: the findings are not only of those that are here.
    pub dropped_rounds: u64,
}

/// The events of one round.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ObservedRound {
    /// How the transport treats the edges of writes.
    pub framing: ObservedFraming,
    /// The events, a word each (docs/recording.md).
    pub events: String,
}

/// How a transport treats the edges of writes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservedFraming {
    /// Bytes in order, edges not kept.
    Stream,
    /// Each write travels by itself.
    Datagram,
}

/// A word that is no event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadEvent {
    /// Which one, counted from 1.
    pub number: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for BadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.number, self.why)
    }
}

impl ObservedRound {
    /// The events of a timeline, but for what was on a simulated radio: that run can be repeated.
    pub fn of(timeline: &Timeline) -> Self {
        let framing = match timeline.framing() {
            Framing::Stream => ObservedFraming::Stream,
            Framing::Datagram => ObservedFraming::Datagram,
        };
        let mut events = String::new();
        let mut before: Option<Event> = None;
        for event in timeline.events() {
            let Some((letter, layer)) = letter(event).zip(digit(event.layer)) else { continue };
            let last = before.unwrap_or_else(|| Event { bytes: ByteRange::default(), ..*event });
            let gap = if before.is_some() { " " } else { "" };
            let moved = event.bytes.start.wrapping_sub(last.bytes.start) as i64;
            // Writing to a string does not fail.
            let _ = write!(events, "{gap}{letter}{layer}{}", event.at.signed_since(last.at));
            if event.bytes != last.bytes {
                let _ = write!(events, ",{moved},{}", event.bytes.len());
            }
            if let What::SendQueue(queue) = event.what {
                let room = queue.window_room_bytes.map_or_else(|| "-".to_owned(), |room| room.to_string());
                let SendQueue { unsent_bytes, in_flight_segments, congestion_window_segments, mss_bytes, .. } = queue;
                let _ = write!(
                    events,
                    ";{unsent_bytes};{in_flight_segments};{congestion_window_segments};{room};{mss_bytes}"
                );
            }
            before = Some(*event);
        }
        Self { framing, events }
    }

    /// How many events there are.
    pub fn count(&self) -> usize {
        self.events.split_ascii_whitespace().count()
    }

    /// The events as a timeline.
    ///
    /// # Errors
    ///
    /// The first word that is no event, or whose time or position can't be.
    pub fn timeline(&self) -> Result<Timeline, BadEvent> {
        let mut timeline = Timeline::new(match self.framing {
            ObservedFraming::Stream => Framing::Stream,
            ObservedFraming::Datagram => Framing::Datagram,
        });
        let (mut at, mut bytes) = (Instant::default(), ByteRange::default());
        // The first event's time is 0, and others may have been before it.
        let origin = self.origin();
        for (index, word) in self.events.split_ascii_whitespace().enumerate() {
            let bad = |why| BadEvent { number: index + 1, why };
            if index >= MOST_EVENTS {
                return Err(bad("there are too many"));
            }
            if index == 0 {
                at = Instant::from_nanos(origin);
            }
            let event = read(word, at, bytes).map_err(bad)?;
            (at, bytes) = (event.at, event.bytes);
            timeline.push(event);
        }
        Ok(timeline)
    }

    /// What the first event's time must be for none to be before 0.
    fn origin(&self) -> u64 {
        let (mut at, mut least) = (0_i64, 0_i64);
        for word in self.events.split_ascii_whitespace() {
            at = at.saturating_add(word.get(2..).and_then(step).unwrap_or(0));
            least = least.min(at);
        }
        least.unsigned_abs().min(LARGEST)
    }
}

/// The nanoseconds at the beginning of a word's fields.
fn step(fields: &str) -> Option<i64> {
    fields.split([',', ';']).next()?.parse().ok()
}

fn letter(event: &Event) -> Option<char> {
    let letter = match event.what {
        What::Intended => 'i',
        What::WriteBegin => 'b',
        What::WriteEnd => 'e',
        What::SendQueue(_) => 'q',
        What::Scheduled => 's',
        What::Left => 'l',
        What::Acked => 'a',
        What::Received => 'r',
        What::Forwarded => 'f',
        What::Read => 'd',
        _ => return None,
    };
    Some(if event.host == Host::Peer { letter.to_ascii_uppercase() } else { letter })
}

const fn digit(layer: Layer) -> Option<u8> {
    match layer {
        Layer::Application => Some(0),
        Layer::Socket => Some(1),
        Layer::Driver => Some(2),
        Layer::Medium => Some(3),
        _ => None,
    }
}

fn read(word: &str, last: Instant, before: ByteRange) -> Result<Event, &'static str> {
    const NOT_A_NUMBER: &str = "a field is no number, or is missing";
    let mut marks = word.chars();
    let (letter, layer) = marks.next().zip(marks.next()).ok_or("it is too short")?;
    let (fields, queue) = match marks.as_str().split_once(';') {
        Some((fields, queue)) => (fields, Some(queue)),
        None => (marks.as_str(), None),
    };
    let host = if letter.is_ascii_uppercase() { Host::Peer } else { Host::Local };
    let what = match (letter.to_ascii_lowercase(), queue) {
        ('i', None) => What::Intended,
        ('b', None) => What::WriteBegin,
        ('e', None) => What::WriteEnd,
        ('q', Some(queue)) => What::SendQueue(send_queue(queue).ok_or("its send queue is not five numbers")?),
        ('s', None) => What::Scheduled,
        ('l', None) => What::Left,
        ('a', None) => What::Acked,
        ('r', None) => What::Received,
        ('f', None) => What::Forwarded,
        ('d', None) => What::Read,
        _ => return Err("its letter is not known, or does not fit its fields"),
    };
    let layer = match layer {
        '0' => Layer::Application,
        '1' => Layer::Socket,
        '2' => Layer::Driver,
        '3' => Layer::Medium,
        _ => return Err("its layer is not known"),
    };
    let mut fields = fields.split(',');
    let step = fields.next().and_then(step).ok_or(NOT_A_NUMBER)?;
    let at = last.as_nanos().checked_add_signed(step).filter(|&at| at <= LARGEST).ok_or("its time can't be")?;
    let bytes = match (fields.next(), fields.next(), fields.next()) {
        (None, ..) => before,
        (Some(moved), Some(length), None) => {
            let (moved, length): (i64, u64) = moved.parse().ok().zip(length.parse().ok()).ok_or(NOT_A_NUMBER)?;
            let start = before.start.checked_add_signed(moved);
            let range = start.and_then(|start| Some(ByteRange::new(start, start.checked_add(length)?)));
            range.filter(|range| range.end <= LARGEST).ok_or("its bytes can't be")?
        }
        _ => return Err(NOT_A_NUMBER),
    };
    Ok(Event { at: Instant::from_nanos(at), host, layer, what, bytes })
}

fn send_queue(fields: &str) -> Option<SendQueue> {
    let mut fields = fields.split(';');
    let mut field = || fields.next();
    let queue = SendQueue {
        unsent_bytes: field()?.parse().ok()?,
        in_flight_segments: field()?.parse().ok()?,
        congestion_window_segments: field()?.parse().ok()?,
        window_room_bytes: match field()? {
            "-" => None,
            room => Some(room.parse().ok()?),
        },
        mss_bytes: field()?.parse().ok()?,
    };
    fields.next().is_none().then_some(queue)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_event() -> impl Strategy<Value = Event> {
        let queue = (any::<[u32; 4]>(), any::<Option<u32>>()).prop_map(|(fields, window_room_bytes)| SendQueue {
            unsent_bytes: fields[0],
            in_flight_segments: fields[1],
            congestion_window_segments: fields[2],
            window_room_bytes,
            mss_bytes: fields[3],
        });
        let what = prop_oneof![
            Just(What::Intended),
            Just(What::WriteBegin),
            Just(What::WriteEnd),
            queue.prop_map(What::SendQueue),
            Just(What::Scheduled),
            Just(What::Left),
            Just(What::Acked),
            Just(What::Received),
            Just(What::Forwarded),
            Just(What::Read),
            (0..9_u64).prop_map(|nanos| What::OnAir { nanos }),
        ];
        let layer =
            prop_oneof![Just(Layer::Application), Just(Layer::Socket), Just(Layer::Driver), Just(Layer::Medium)];
        let bytes = (0..1_u64 << 40, 0..5000_u64).prop_map(|(start, length)| ByteRange::new(start, start + length));
        let host = prop_oneof![Just(Host::Local), Just(Host::Peer)];
        (1 << 30..1_u64 << 50, host, layer, what, bytes).prop_map(|(at, host, layer, what, bytes)| Event {
            at: Instant::from_nanos(at),
            host,
            layer,
            what,
            bytes,
        })
    }

    proptest! {
        #[test]
        fn events_come_back_as_they_were_but_for_the_origin_of_their_times(
            events in prop::collection::vec(any_event(), 0..40),
            is_stream: bool,
        ) {
            let framing = if is_stream { Framing::Stream } else { Framing::Datagram };
            let mut timeline = Timeline::new(framing);
            timeline.extend(events.iter().copied());
            let kept: Vec<Event> =
                events.into_iter().filter(|event| !matches!(event.what, What::OnAir { .. })).collect();
            let round = ObservedRound::of(&timeline);
            prop_assert_eq!(round.count(), kept.len());
            let back = round.timeline().unwrap();
            prop_assert_eq!(back.framing(), framing);
            let origin = |events: &[Event]| events.iter().map(|event| event.at).min();
            let since_first = |events: &[Event]| -> Vec<Event> {
                let first = origin(events).unwrap_or_default().as_nanos();
                let moved = |at: Instant| Instant::from_nanos(at.as_nanos() - first);
                events.iter().map(|event| Event { at: moved(event.at), ..*event }).collect()
            };
            prop_assert_eq!(since_first(back.events()), since_first(&kept));
        }

        #[test]
        fn no_words_make_the_reader_panic(
            words in prop::collection::vec("[ibesqlardIBQ][0-4]-?[0-9]{0,20}(,-?[0-9]{0,20}){0,3}(;[-0-9]{0,11}){0,6}|.", 0..30),
        ) {
            let events = words.join(" ");
            let _ = ObservedRound { framing: ObservedFraming::Stream, events }.timeline();
        }
    }

    #[test]
    fn a_word_that_is_no_event_is_named() {
        let bad = |events: &str| {
            let round = ObservedRound { framing: ObservedFraming::Stream, events: events.to_owned() };
            round.timeline().unwrap_err().to_string()
        };
        assert_eq!(bad("i00,0,128 x05"), "event 2: its letter is not known, or does not fit its fields");
        assert_eq!(bad("i00,0,128 b"), "event 2: it is too short");
        assert_eq!(bad("b0"), "event 1: a field is no number, or is missing");
        assert_eq!(bad("b00,5"), "event 1: a field is no number, or is missing");
        assert_eq!(bad("b70"), "event 1: its layer is not known");
        assert_eq!(bad("b00,-1,5"), "event 1: its bytes can't be");
        assert_eq!(bad("b00,1,18446744073709551615"), "event 1: its bytes can't be");
        assert_eq!(bad("b09223372036854775807 b01"), "event 2: its time can't be");
        assert_eq!(bad("q00,0,1;1;2;3"), "event 1: its send queue is not five numbers");
        assert_eq!(bad("q00,0,1"), "event 1: its letter is not known, or does not fit its fields");
    }
}
