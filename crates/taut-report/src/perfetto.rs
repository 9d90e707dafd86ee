//! Timelines for the Perfetto trace viewer, as Chrome's JSON trace format.
//!
//! Messages overlap, so they are asynchronous events, one group for each message: an outer slice
//! from the intended time to the last thing known of the message, slices for the stages in it, and
//! an instant for the acknowledgement. Each flow is shown as a process of its own; where a flow
//! tells of its air, that is shown beside its messages as tracks of plain slices. Times are in
//! microseconds from the first event, as the format wants it, with the nanoseconds behind the point.

use serde_json::{Value, json};
use taut_time::{Event, Host, Instant, MessageTimes, Timeline, What};

use crate::stages;

/// The timelines, each with the name of its flow, as one JSON trace. All share one clock.
pub fn render(timelines: &[(String, &Timeline)]) -> String {
    let flows: Vec<(&String, Vec<MessageTimes>)> =
        timelines.iter().map(|(name, timeline)| (name, timeline.messages())).collect();
    let first = flows.iter().flat_map(|(_, messages)| messages).map(|message| message.intended).min();
    let origin = first.unwrap_or_default();
    let mut names = Vec::new();
    let mut events: Vec<(i64, Value)> = Vec::new();
    for (i, (name, messages)) in flows.iter().enumerate() {
        let flow = Flow { name, process: i + 1 };
        names.push(json!({"ph": "M", "name": "process_name", "pid": flow.process, "args": {"name": name}}));
        for (number, message) in messages.iter().enumerate() {
            flow.message(number + 1, message, origin, &mut events);
        }
        let slices: Vec<(Track, i64, Value)> =
            timelines[i].1.events().iter().filter_map(|event| flow.slice(event, origin)).collect();
        for track in [Track::Sender, Track::Receiver, Track::Idle] {
            if slices.iter().any(|(of, ..)| *of == track) {
                let args = json!({"name": track.name()});
                names.push(
                    json!({"ph": "M", "name": "thread_name", "pid": flow.process, "tid": track.thread(), "args": args}),
                );
            }
        }
        events.extend(slices.into_iter().map(|(_, at, slice)| (at, slice)));
    }
    // Stable: events of one message at the same time stay in the order that nests them.
    events.sort_by_key(|&(at, _)| at);
    trace(names.into_iter().chain(events.into_iter().map(|(_, event)| event)))
}

/// The trace of these events, one a line.
pub(crate) fn trace(events: impl Iterator<Item = Value>) -> String {
    let lines: Vec<String> = events.map(|event| event.to_string()).collect();
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

struct Flow<'a> {
    name: &'a str,
    process: usize,
}

/// What happens on the air of a flow, side by side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Track {
    Sender,
    Receiver,
    Idle,
}

impl Track {
    const fn name(self) -> &'static str {
        match self {
            Self::Sender => "air: data",
            Self::Receiver => "air: everything else",
            Self::Idle => "air idle, held by",
        }
    }

    /// Far from the processes' own threads.
    const fn thread(self) -> usize {
        1_000_001 + self as usize
    }
}

impl Flow<'_> {
    /// Something that lasted on the air.
    fn slice(&self, event: &Event, origin: Instant) -> Option<(Track, i64, Value)> {
        let (track, name, nanos, args) = match event.what {
            What::OnAir { nanos } if event.host == Host::Local => {
                let bytes = json!({"first_byte": event.bytes.start, "bytes": event.bytes.len()});
                (Track::Sender, "data", nanos, bytes)
            }
            What::OnAir { nanos } => (Track::Receiver, "PDU", nanos, Value::Null),
            What::Idle { nanos, holder } => (Track::Idle, holder, nanos, Value::Null),
            _ => return None,
        };
        let at = event.at.signed_since(origin);
        let mut slice = json!({
            "ph": "X", "cat": "air", "name": name, "pid": self.process, "tid": track.thread(),
            "ts": at as f64 / 1000.0, "dur": nanos as f64 / 1000.0,
        });
        if !args.is_null() {
            slice["args"] = args;
        }
        Some((track, at, slice))
    }

    /// The events of one message, in an order in which no time falls and every slice ends within the one around it.
    fn message(&self, number: usize, message: &MessageTimes, origin: Instant, events: &mut Vec<(i64, Value)>) {
        let event = |phase: &str, name: &str, at: i64, args: Value| {
            let mut event = json!({
                "ph": phase, "cat": self.name, "name": name, "pid": self.process, "tid": self.process,
                "id": format!("{}.{number}", self.process), "ts": at as f64 / 1000.0,
            });
            if !args.is_null() {
                event["args"] = args;
            }
            (at, event)
        };
        let start = message.intended.signed_since(origin);
        let parts = stages::parts_of_times(message, origin);
        let acked = message.acked.map(|acked| acked.signed_since(origin).max(start));
        let end = parts.last().map_or(start, |part| part.end).max(acked.unwrap_or(start));
        let outer = format!("message {number}");
        let bytes = json!({"first_byte": message.bytes.start, "bytes": message.bytes.len()});

        events.push(event("b", &outer, start, bytes));
        for part in &parts {
            events.push(event("b", part.stage.name(), part.start, Value::Null));
            events.push(event("e", part.stage.name(), part.end, Value::Null));
        }
        // An instant opens nothing, so it may stand at the end: the sort puts it in its place.
        events.extend(acked.map(|acked| event("n", "acknowledged", acked, Value::Null)));
        events.push(event("e", &outer, end, Value::Null));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use taut_time::{ByteRange, Event, Framing, Host, Layer, What};

    use super::*;

    type Stages = [Option<u64>; 7];

    fn timeline(messages: &[(u64, Stages)]) -> Timeline {
        let mut timeline = Timeline::new(Framing::Datagram);
        for (i, &(intended, stages)) in messages.iter().enumerate() {
            let bytes = ByteRange::new(64 * i as u64, 64 * (i as u64 + 1));
            let mut push = |what, at| {
                let at = Instant::from_nanos(at);
                timeline.push(Event { at, host: Host::Local, layer: Layer::Socket, what, bytes });
            };
            push(What::Intended, intended);
            let whats = [
                What::WriteBegin,
                What::WriteEnd,
                What::Scheduled,
                What::Left,
                What::Received,
                What::Read,
                What::Acked,
            ];
            for (what, at) in whats.into_iter().zip(stages) {
                at.into_iter().for_each(|at| push(what, at));
            }
        }
        timeline
    }

    /// Checks what a viewer relies on; gives the number of events.
    fn check(trace: &str) -> usize {
        let trace: Value = serde_json::from_str(trace).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let mut open: HashMap<String, Vec<&str>> = HashMap::new();
        let mut last = 0.0;
        for event in events.iter().filter(|event| event["ph"] != "M") {
            let at = event["ts"].as_f64().unwrap();
            assert!(at >= last, "time falls at {event}");
            last = at;
            if event["ph"] == "X" {
                assert!(event["dur"].as_f64().unwrap() >= 0.0);
                continue;
            }
            let group = open.entry(format!("{} {} {}", event["pid"], event["cat"], event["id"])).or_default();
            match event["ph"].as_str().unwrap() {
                "b" => group.push(event["name"].as_str().unwrap()),
                "e" => assert_eq!(group.pop(), event["name"].as_str(), "{event}"),
                "n" => assert!(!group.is_empty(), "{event} outside its message"),
                other => panic!("{other}"),
            }
        }
        assert!(open.values().all(Vec::is_empty));
        events.len()
    }

    #[test]
    fn slices_have_the_times_of_their_stages_to_the_nanosecond() {
        let stages = [1_054, 1_060, 41_060, 41_061, 41_161, 41_999, 50_000].map(Some);
        let timeline = timeline(&[(1_000, stages)]);
        let trace = render(&[("pace \"tcp\"".to_owned(), &timeline)]);
        assert_eq!(check(&trace), 1 + 2 * 7 + 1);
        let trace: Value = serde_json::from_str(&trace).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events[0]["args"]["name"], "pace \"tcp\"");
        let of = |phase: &str, name: &str| {
            events.iter().find(|event| event["ph"] == phase && event["name"] == name).unwrap()["ts"].as_f64().unwrap()
        };
        assert_eq!((of("b", "message 1"), of("e", "message 1")), (0.0, 49.0));
        assert_eq!((of("b", "socket"), of("e", "socket")), (0.06, 40.06));
        assert_eq!((of("b", "peer program"), of("e", "peer program")), (40.161, 40.999));
        assert_eq!(of("n", "acknowledged"), 49.0);
    }

    #[test]
    fn no_timelines_are_still_a_trace() {
        assert_eq!(check(&render(&[])), 0);
    }

    #[test]
    fn what_was_on_the_air_stands_beside_the_messages() {
        let mut timeline = timeline(&[(1_000, [Some(1_000), Some(1_000), None, Some(9_000), None, None, None])]);
        let mut push = |at, host, what| {
            let bytes = ByteRange::new(0, 64);
            timeline.push(Event { at: Instant::from_nanos(at), host, layer: Layer::Medium, what, bytes });
        };
        push(2_000, Host::Local, What::OnAir { nanos: 2_088 });
        push(5_000, Host::Peer, What::OnAir { nanos: 80 });
        push(6_000, Host::Local, What::Idle { nanos: 500, holder: "no_credit" });
        let trace = render(&[("air".to_owned(), &timeline)]);
        check(&trace);
        let trace: Value = serde_json::from_str(&trace).unwrap();
        let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
        let slices: Vec<_> = slices
            .map(|s| (s["name"].as_str().unwrap(), s["ts"].as_f64().unwrap(), s["dur"].as_f64().unwrap()))
            .collect();
        assert_eq!(slices, [("data", 1.0, 2.088), ("PDU", 4.0, 0.08), ("no_credit", 5.0, 0.5)]);
    }

    proptest! {
        #[test]
        fn any_messages_nest(
            one in proptest::collection::vec((0..5_000u64, any_stages()), 0..20),
            other in proptest::collection::vec((0..5_000u64, any_stages()), 0..20),
        ) {
            let (one, other) = (timeline(&one), timeline(&other));
            check(&render(&[("one".to_owned(), &one), ("other".to_owned(), &other)]));
        }
    }

    fn any_stages() -> impl Strategy<Value = Stages> {
        proptest::array::uniform7(proptest::option::of(0..10_000u64))
    }
}
