//! Logs of QUIC (qlog) of each form, made here: what is read of them, and how damage ends the reading.

use std::io::{Cursor, Write};

use proptest::prelude::*;
use taut_capture::{Ending, Error, QlogCounts, Source};
use taut_event::{Closed, Direction, Event, Flow, FlowId, FlowKey, Quic, QuicMetric, Sink, VantageId, What};

#[derive(Default)]
struct Seen {
    flows: Vec<FlowKey>,
    events: Vec<(u64, u32, Direction, Quic, u64)>,
    closed: usize,
}

impl Sink for Seen {
    fn flow(&mut self, _: FlowId, flow: &Flow) {
        self.flows.push(flow.key);
    }

    fn event(&mut self, event: &Event) {
        let What::Quic(what) = event.what else { panic!("{event:?}") };
        self.events.push((event.at.as_nanos(), event.flow.0, event.direction, what, event.bytes.len()));
    }

    fn close(&mut self, _: FlowId, _: Closed) {
        self.closed += 1;
    }
}

fn read(file: &[u8]) -> Result<(Seen, QlogCounts, Ending), Error> {
    let Source::Qlog(log) = Source::new(Cursor::new(file))? else { panic!("it is a log of QUIC") };
    let mut seen = Seen::default();
    let (counts, ending) = log.read(VantageId(0), &mut seen, &mut || {})?;
    assert_eq!(seen.closed, seen.flows.len());
    Ok((seen, counts, ending))
}

fn refused(file: &str) -> String {
    read(file.as_bytes()).err().expect("it is refused").to_string()
}

/// A packet with ten bytes of stream 0, and its acknowledgement 2.5 ms later.
const SENT: &str = r#"{"time": 1700000000000.25, "name": "transport:packet_sent", "data": {"header": {"packet_type":
    "1RTT", "packet_number": 7}, "raw": {"length": 41}, "frames": [{"frame_type": "stream", "stream_id": 0, "length": 10},
    {"frame_type": "data_blocked", "limit": "10"}]}}"#;
const ACKED: &str = r#"{"time": 1700000000002.75, "name": "quic:packet_received", "data": {"header": {"packet_type":
    "1RTT", "packet_number": 3}, "frames": [{"frame_type": "ack", "acked_ranges": [[2], [5, 7]]},
    {"frame_type": "max_data", "maximum": 99}]}}"#;

fn object(events: &[&str]) -> String {
    let events = events.join(",\n");
    format!(
        "{{\"qlog_version\": \"0.3\", \"qlog_format\": \"JSON\", \"traces\": [{{\"events\": [{events}],\n \
         \"vantage_point\": {{\"type\": \"server\"}}, \"common_fields\": {{\"ODCID\": \"ab01\"}}}}]}}"
    )
}

fn sequence(events: &[&str]) -> String {
    let head = r#"{"file_schema": "urn:ietf:params:qlog:file:sequential", "trace": {"vantage_point": {"type": "server"},
        "common_fields": {"group_id": "ab01"}}}"#;
    [head].iter().chain(events).map(|text| format!("\x1e{text}\n")).collect()
}

#[test]
fn packets_acknowledgements_and_limits_are_the_same_in_each_form() {
    for file in [object(&[SENT, ACKED]), sequence(&[SENT, ACKED])] {
        let (seen, counts, ending) = read(file.as_bytes()).unwrap();
        assert_eq!((ending, counts.events, counts.packets, counts.bytes), (Ending::Complete, 2, 2, file.len() as u64));
        let FlowKey::Quic(key) = seen.flows[0] else { panic!("{:?}", seen.flows) };
        // In an object the name stands behind the events.
        let expected: &[u8] = if file.starts_with('{') { &[] } else { &[0xab, 1] };
        assert_eq!((seen.flows.len(), key.id.as_bytes()), (1, expected));
        let (own, other) = (Direction::Forward, Direction::Backward);
        let Quic::Packet(packet) = seen.events[0].3 else { panic!("{:?}", seen.events[0]) };
        assert_eq!((packet.number, packet.length, packet.is_application, packet.takes_turn), (7, 41, true, true));
        assert_eq!((seen.events[0].0, seen.events[0].2, seen.events[0].4), (0, own, 10));
        let has = |at, way, what| seen.events.contains(&(at, 0, way, what, 0));
        assert!(has(0, own, Quic::Blocked { stream: None, limit: 10 }), "{:#?}", seen.events);
        let later = 2_500_000;
        assert!(has(later, own, Quic::Acknowledged { from: 2, to: 2 }));
        assert!(has(later, own, Quic::Acknowledged { from: 5, to: 7 }));
        assert!(has(later, own, Quic::Allowed { stream: None, limit: 99 }));
        assert!(seen.events.iter().any(|event| event.3 == Quic::Role { is_client: false }));
        assert!(seen.events.iter().any(|event| event.2 == other), "{:#?}", seen.events);
    }
}

#[test]
fn losses_and_metrics_have_the_names_of_each_draft() {
    let told = |name: &str, data: &str| {
        let event = format!(r#"{{"time": 1, "name": "{name}", "data": {data}}}"#);
        let (seen, ..) = read(object(&[&event]).as_bytes()).unwrap();
        seen.events
            .into_iter()
            .map(|event| event.3)
            .filter(|what| !matches!(what, Quic::Role { .. } | Quic::Ended))
            .collect::<Vec<_>>()
    };
    let lost = Quic::Lost { number: 4, is_application: true };
    assert_eq!(told("recovery:packet_lost", r#"{"header": {"packet_type": "1RTT", "packet_number": 4}}"#), [lost]);
    assert_eq!(told("recovery:packet_lost", r#"{"type": "1RTT", "packet_number": 4}"#), [lost]);
    let probe = r#"{"header": {"packet_type": "1RTT", "packet_number": 4}, "is_mtu_probe_packet": true}"#;
    assert_eq!(told("quic:packet_lost", probe), []);
    let window = Quic::Metric(QuicMetric::Window, 12_000);
    assert_eq!(told("recovery:metrics_updated", r#"{"congestion_window": 12000}"#), [window]);
    assert_eq!(told("quic:recovery_metrics_updated", r#"{"cwnd": "12000"}"#), [window]);
    let rtt = Quic::Metric(QuicMetric::LatestRtt, 1_500_000);
    assert_eq!(told("recovery:metrics_updated", r#"{"latest_rtt": 1.5, "min_rtt": -1, "smoothed_rtt": null}"#), [rtt]);
    assert_eq!(
        told("recovery:loss_timer_updated", r#"{"event_type": "expired", "timer_type": "pto"}"#),
        [Quic::TimerExpired]
    );
    assert_eq!(told("recovery:loss_timer_updated", r#"{"event_type": "set", "timer_type": "pto"}"#), []);
    assert_eq!(told("http:frame_parsed", r#"{"stream_id": 0}"#), []);
}

#[test]
fn times_are_absolute_relative_or_differences() {
    let event =
        |time: &str| format!(r#"{{"time": {time}, "name": "recovery:metrics_updated", "data": {{"cwnd": 1}}}}"#);
    let events = [event("5"), event("7.5"), event("\"2\""), event("\"long\""), event("1e300")];
    let texts: Vec<&str> = events.iter().map(String::as_str).collect();
    let times = |file: &str| {
        let (seen, counts, _) = read(file.as_bytes()).unwrap();
        assert_eq!(counts.unreadable, 2);
        let is_metric = |what: &Quic| matches!(what, Quic::Metric(..));
        seen.events.iter().filter(|event| is_metric(&event.3)).map(|event| event.0).collect::<Vec<_>>()
    };
    let absolute = sequence(&texts);
    // The one at 2 ms is the first.
    assert_eq!(times(&absolute), [0, 3_000_000, 5_500_000]);
    let delta = absolute.replace("\"group_id\"", "\"time_format\": \"relative_to_previous_event\", \"group_id\"");
    assert_eq!(times(&delta), [0, 7_500_000, 9_500_000]);
    // Behind the events it comes too late.
    let late = object(&texts).replace("\"ODCID\"", "\"time_format\": \"delta\", \"ODCID\"");
    assert!(refused(&late).contains("times are differences"), "{}", refused(&late));
}

#[test]
fn connections_of_a_log_are_told_apart() {
    let of = |group: &str| SENT.replace("{\"time\"", &format!("{{\"group_id\": \"{group}\", \"time\""));
    let (first, second) = (of("01"), of("not hexadecimal, and longer than a connection ID"));
    let (seen, ..) = read(sequence(&[&first, &second, &first]).as_bytes()).unwrap();
    assert_eq!(seen.flows.len(), 2);
    let many: Vec<String> = (0..1100).map(|n| of(&format!("{n:04x}"))).collect();
    let texts: Vec<&str> = many.iter().map(String::as_str).collect();
    let (seen, counts, _) = read(sequence(&texts).as_bytes()).unwrap();
    assert_eq!((seen.flows.len(), counts.beyond), (1024, 76));
    // Two traces are two connections, even with one name.
    let two = object(&[SENT]).replace("\"traces\": [", &format!("\"traces\": [{{\"events\": [{SENT}]}},"));
    assert_eq!(read(two.as_bytes()).unwrap().0.flows.len(), 2);
}

#[test]
fn damage_ends_the_reading_and_what_is_no_such_log_is_refused() {
    let file = object(&[SENT, ACKED]);
    let at = file.find("quic:packet_received").unwrap();
    let (seen, counts, ending) = read(&file.as_bytes()[..at]).unwrap();
    assert_eq!((counts.events, seen.flows.len()), (1, 1));
    assert!(matches!(ending, Ending::Truncated { .. }), "{ending:?}");
    let (.., ending) = read(file.replace("\"quic:", "quic:").as_bytes()).unwrap();
    assert!(matches!(ending, Ending::Damaged { .. }), "{ending:?}");
    // Of a sequence one bad text is left out (RFC 7464, section 2.3).
    let (_, counts, ending) = read(sequence(&[SENT, "{broken", ACKED]).as_bytes()).unwrap();
    assert_eq!((counts.events, counts.damaged, ending), (2, 1, Ending::Complete));
    let sequence = sequence(&[SENT, ACKED]);
    let (_, counts, ending) = read(&sequence.as_bytes()[..sequence.len() - 9]).unwrap();
    assert_eq!(counts.events, 1);
    assert!(matches!(ending, Ending::Truncated { .. }), "{ending:?}");
    for version in ["\"0.2\"", "\"0.30\"", "\"draft-02\"", "3", "0.3", "null", "[\"0.3\"]", r#""\u001b[2J""#] {
        let told = refused(&file.replace("\"0.3\"", version));
        assert!(told.contains("another version than are read"), "{version}: {told}");
        assert!(!told.contains(char::is_control), "{told:?}");
    }
    assert!(refused(&file.replace("\"JSON\"", "\"CBOR\"")).contains("another format than are read: CBOR"));
    assert!(refused(&sequence.replace(":sequential", ":other")).contains("another schema"));
    let nameless = file.replace("\"qlog_version\": \"0.3\", ", "");
    assert!(refused(&nameless).contains("neither its version nor its schema"));
    assert!(read(file.replace("\"0.3\"", "\"0.4\"").as_bytes()).is_ok());
    assert!(refused("{\"traces\": []}").contains("no qlog"));
    assert!(matches!(Source::new(Cursor::new(&b"\x1e\x1e"[..])), Err(Error::Unknown { .. })));
}

/// A sequence without separators, which some write (NDJSON); also where only some texts have one.
#[test]
fn texts_on_lines_of_their_own_are_a_sequence_too() {
    let flat = |text: &str| text.replace('\n', " ");
    let head = r#"{"qlog_version": "0.3", "qlog_format": "NDJSON", "trace": {"common_fields": {"ODCID": "ab01"}}}"#;
    let lines = [head, &flat(SENT), &flat(ACKED)].join("\n");
    let (expected, counts, _) = read(sequence(&[SENT, ACKED]).as_bytes()).unwrap();
    let same = |file: &str| {
        let (seen, counts, ending) = read(file.as_bytes()).unwrap();
        assert_eq!((ending, counts.damaged, counts.bytes), (Ending::Complete, 0, file.len() as u64), "{file}");
        let told = |seen: Seen| seen.events.into_iter().filter(|event| !matches!(event.3, Quic::Role { .. }));
        assert!(told(seen).eq(told(read(sequence(&[SENT, ACKED]).as_bytes()).unwrap().0)), "{file}");
        assert_eq!(counts.events, 2);
    };
    assert_eq!((counts.events, expected.flows.len()), (2, 1));
    same(&lines);
    same(&format!("\u{feff}{lines}\n\n"));
    same(&lines.replace('\n', "\r\n"));
    same(&lines.replace('\n', "\n\x1e"));
    same(&format!("\x1e{lines}\n"));
    let (_, counts, _) = read(lines.replace("{\"time\"", "{broken\n{\"time\"").as_bytes()).unwrap();
    assert_eq!((counts.events, counts.damaged), (2, 2));
    let (_, counts, ending) = read(&lines.as_bytes()[..lines.len() - 9]).unwrap();
    assert_eq!(counts.events, 1);
    assert!(matches!(ending, Ending::Truncated { .. }), "{ending:?}");
    // What is behind a log with all its events in one object is not left out untold.
    let behind = format!("{} \n{}", object(&[SENT, ACKED]), flat(ACKED));
    let (_, counts, ending) = read(behind.as_bytes()).unwrap();
    assert_eq!(counts.events, 2);
    assert!(matches!(&ending, Ending::Damaged { why, .. } if why.contains("more stands behind")), "{ending:?}");
    assert_eq!(read(format!("{} \n", object(&[SENT])).as_bytes()).unwrap().2, Ending::Complete);
}

#[test]
fn events_near_their_places_are_put_in_order_and_others_are_refused() {
    let event =
        |time: usize| format!(r#"{{"time": {time}, "name": "recovery:metrics_updated", "data": {{"cwnd": {time}}}}}"#);
    let log = |times: &mut dyn Iterator<Item = usize>| {
        let events: Vec<String> = times.map(event).collect();
        sequence(&events.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let metrics = |file: &str| {
        let (seen, counts, _) = read(file.as_bytes()).unwrap();
        let metrics = seen.events.iter().filter_map(|event| match event.3 {
            Quic::Metric(QuicMetric::Window, value) => Some((event.0, value)),
            _ => None,
        });
        (metrics.collect::<Vec<_>>(), counts.reordered)
    };
    let (ordered, none) = metrics(&log(&mut (0..1000)));
    assert_eq!((ordered[999], none), ((999_000_000, 999), 0));
    assert_eq!(metrics(&log(&mut (0..1000).rev())), (ordered, 999));
    // By two connections in turn, each in its own order.
    let (two, late) =
        metrics(&log(&mut (0..6000).map(|n: usize| if n.is_multiple_of(2) { n } else { n.saturating_sub(500) })));
    assert!(two.is_sorted() && two.len() == 6000 && late > 2000, "{late}");
    let told = refused(&log(&mut (0..3000).rev()));
    assert!(told.contains("event 1026 is 1.000 ms earlier") && told.contains("sort its events"), "{told}");
    let told =
        refused(&object(&[&event(5); 1100].map(String::as_str).into_iter().chain([&*event(4)]).collect::<Vec<_>>()));
    assert!(told.contains("event 1101 is 1.000 ms earlier"), "{told}");
    // Each trace has its own order.
    let object =
        object(&[&event(7)]).replace("\"traces\": [", &format!("\"traces\": [{{\"events\": [{}]}},", event(9)));
    assert_eq!(metrics(&object).0, [(0, 9), (0, 7)]);
}

#[test]
fn an_event_without_end_takes_bounded_memory() {
    let long = format!(r#"{{"time": 1, "name": "x", "data": "{}"}}"#, "x".repeat(2 << 20));
    let (_, counts, ending) = read(sequence(&[SENT, &long, ACKED]).as_bytes()).unwrap();
    assert_eq!((counts.events, counts.damaged, ending), (2, 1, Ending::Complete));
    let (_, counts, ending) = read(object(&[SENT, &long, ACKED]).as_bytes()).unwrap();
    assert_eq!(counts.events, 1);
    assert!(matches!(&ending, Ending::Damaged { why, .. } if why.contains("longer than")), "{ending:?}");
    // Neither depth nor numbers do harm.
    let deep = object(&[&format!("{}{}", "[".repeat(5000), "]".repeat(5000))]);
    assert!(matches!(read(deep.as_bytes()).unwrap().2, Ending::Damaged { .. }));
}

#[test]
fn compression_is_seen_by_content() {
    let file = object(&[SENT, ACKED]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(file.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(read(&gzip).unwrap().1, read(file.as_bytes()).unwrap().1);
    let (.., ending) = read(&gzip[..gzip.len() - 20]).unwrap();
    assert!(matches!(ending, Ending::Truncated { .. }), "{ending:?}");
}

proptest! {
    /// Whatever of a log is cut off or overwritten, it is read to an end or refused.
    #[test]
    fn no_damage_stops_the_reading(
        is_object in any::<bool>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut file = if is_object { object(&[SENT, ACKED]) } else { sequence(&[SENT, ACKED]) }.into_bytes();
        let at = at.index(file.len());
        if cut { file.truncate(at) } else { file[at] = byte }
        if let Ok(Source::Qlog(log)) = Source::new(Cursor::new(file)) {
            let mut seen = Seen::default();
            if log.read(VantageId(0), &mut seen, &mut || {}).is_ok() {
                prop_assert_eq!(seen.closed, seen.flows.len());
            }
        }
    }
}
