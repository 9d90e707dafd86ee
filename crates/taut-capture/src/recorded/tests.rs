use proptest::prelude::*;
use taut_event::{
    AckSentBy, Acl, Address, Call, Channel, ChannelEnd, ChannelKey, Closed, Coverage, Direction, Event, Flow, FlowId,
    FlowKey, Hci, Kind, L2cap, LinkKey, Listening, LocalKey, LocalKind, RadioLink, Recovery, Release, Sink,
    SocketState, Stamp, Task, TaskId, Timer, Turn, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use super::{RecordedEnd, Recorder};
use crate::{Ending, Error, Source};

#[derive(Clone, Debug, PartialEq)]
enum Told {
    Flow(FlowId, Flow),
    Event(Event),
    Close(FlowId, Closed),
}

#[derive(Default)]
struct Seen(Vec<Told>);

impl Sink for Seen {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        self.0.push(Told::Flow(id, *flow));
    }

    fn event(&mut self, event: &Event) {
        self.0.push(Told::Event(*event));
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.0.push(Told::Close(id, why));
    }
}

fn read(file: &[u8]) -> Result<(Vec<Told>, RecordedEnd), Error> {
    let Source::Recorded(recorded) = Source::new(file)? else { panic!("it is a recorded trace") };
    let mut seen = Seen::default();
    let end = recorded.read(&mut seen, || {})?;
    Ok((seen.0, end))
}

fn written(told: &[Told], limit: u64) -> Vec<u8> {
    let mut recorder = Recorder::new(Vec::new(), limit);
    recorder.facts("{\"traced\": \"first\"}");
    for one in told {
        match one {
            Told::Flow(id, flow) => recorder.flow(*id, flow),
            Told::Event(event) => recorder.event(event),
            Told::Close(id, why) => recorder.close(*id, *why),
        }
    }
    recorder.facts("{\"traced\": \"port 1\"}");
    recorder.name(77, "python3 (77)");
    recorder.finish(Instant::from_nanos(5_000)).unwrap()
}

const fn event(at: u64, flow: u32, what: What) -> Event {
    Event {
        at: Instant::from_nanos(at),
        seen_by: VantageId(0),
        flow: FlowId(flow),
        direction: Direction::Forward,
        layer: Layer::Socket,
        what,
        bytes: ByteRange { start: 0, end: 0 },
        who: Some(TaskId(77)),
        place: 0,
    }
}

fn tcp() -> FlowKey {
    let end = |text: &str, port| Address { ip: text.parse().unwrap(), port };
    FlowKey::Tcp(end("127.0.0.1", 1), end("::1", 2))
}

fn flow(key: FlowKey) -> Flow {
    Flow { key, from_start: false, coverage: Coverage::of(&[Kind::Writes, Kind::Releases]) }
}

fn story() -> Vec<Told> {
    let state = SocketState { unsent_bytes: 48, cork: Some(false), ..SocketState::default() };
    let pipe = FlowKey::Local(LocalKey { kind: LocalKind::Pipe, inode: 4711, ends: None });
    vec![
        Told::Flow(FlowId(0), flow(tcp())),
        Told::Event(Event { bytes: ByteRange::new(10, 20), ..event(1_000, 0, What::Reached(Stamp::WriteBegin)) }),
        Told::Event(event(1_000, 0, What::State(state))),
        Told::Flow(FlowId(1), flow(pipe)),
        // Records of two processors may come a little out of order.
        Told::Event(event(900, 1, What::Call(Call::End { number: 1, result: -11 }))),
        Told::Event(event(2_000, 0, What::State(SocketState { unread_bytes: 1, ..state }))),
        Told::Close(FlowId(0), Closed::Ended),
        Told::Flow(FlowId(0), flow(tcp())),
        Told::Event(event(3_000, 0, What::State(state))),
        Told::Event(event(3_000, 0, What::Task(Task::Ran { waited_ns: 70_000 }))),
    ]
}

fn any_state() -> impl Strategy<Value = SocketState> {
    let recovery = prop_oneof![Just(Recovery::None), Just(Recovery::Repeating), Just(Recovery::AfterTimeout)];
    (
        any::<[u32; 10]>(),
        any::<[Option<bool>; 3]>(),
        any::<[bool; 3]>(),
        any::<[u8; 2]>(),
        recovery,
        any::<Option<u32>>(),
    )
        .prop_map(|(words, options, flags, bytes, recovery, send_window_bytes)| SocketState {
            unsent_bytes: words[0],
            in_flight_bytes: words[1],
            unread_bytes: words[2],
            in_flight_segments: words[3],
            congestion_window_segments: words[4],
            slow_start_threshold_segments: words[5],
            send_window_bytes,
            mss_bytes: words[6],
            is_opening: flags[0],
            is_ended: flags[2],
            recovery,
            timeouts: bytes[0],
            window_probes: bytes[1],
            small_in_flight: options[0],
            pacing_wait_ns: words[7],
            device_bytes: words[8],
            send_buffer_full: flags[1],
            no_delay: options[1],
            cork: options[2],
            duplicates: words[9],
        })
}

fn any_end() -> impl Strategy<Value = ChannelEnd> {
    (any::<Option<u16>>(), any::<[u16; 2]>(), any::<[[u8; 6]; 2]>(), any::<[u16; 2]>(), any::<bool>()).prop_map(
        |(adapter, [handle, number], [own, peer], cids, is_nonblocking)| ChannelEnd {
            adapter,
            handle,
            own,
            peer,
            number,
            cids,
            is_nonblocking,
        },
    )
}

fn any_of_channel() -> impl Strategy<Value = L2cap> {
    let turn = prop::sample::select(vec![Turn::Free, Turn::Asks, Turn::Answers, Turn::NotKnown]);
    prop_oneof![
        prop::sample::select(vec![L2cap::Asked, L2cap::NotCounted, L2cap::Lost, L2cap::Classic]),
        any::<[[u16; 2]; 3]>().prop_map(|[mtu, mps, credits]| L2cap::Opened { mtu, mps, credits }),
        (any::<(u16, bool, bool)>(), turn).prop_map(|((length, begins_pdu, ends_sdu), turn)| {
            L2cap::Packet(Acl { length, begins_pdu, ends_sdu, turn })
        }),
        any::<u16>().prop_map(|packets| L2cap::Completed { packets }),
        any::<u16>().prop_map(|count| L2cap::Credits { count }),
        any::<bool>().prop_map(|is_stopped| L2cap::Stopped { is_stopped }),
        any::<bool>().prop_map(|tells_completions| L2cap::Ended { tells_completions }),
        any::<(u16, u32)>().prop_map(|(sequence, timestamp)| L2cap::Media { sequence, timestamp }),
        any::<u32>().prop_map(|hz| L2cap::Stream { hz }),
        any::<(u16, u16)>().prop_map(|(in_use, of)| L2cap::Buffers { in_use, of }),
        any::<(bool, bool)>().prop_map(|(of_link, of_any)| L2cap::Hidden { of_link, of_any }),
        (any::<u16>(), any::<u16>(), any::<Option<bool>>(), any::<[u8; 2]>(), any::<[u16; 2]>(), any::<[bool; 2]>())
            .prop_map(|(interval, latency, is_central, phy, length, [is_encrypted, from_start])| {
                let interval_ns = u64::from(interval) * 1_250_000;
                let sniff_ns = 0;
                L2cap::Link(RadioLink {
                    interval_ns,
                    latency,
                    is_central,
                    phy,
                    length,
                    is_encrypted,
                    from_start,
                    sniff_ns,
                })
            }),
    ]
}

fn any_channel() -> impl Strategy<Value = FlowKey> {
    let kinds = any::<u16>().prop_flat_map(|number| {
        prop::sample::select(vec![
            Channel::Att,
            Channel::CreditBased(number),
            Channel::Dynamic(number),
            Channel::Basic(number),
            Channel::Unopened(number),
            Channel::Rfcomm(number as u8),
            Channel::Media(number),
        ])
    });
    (any::<(u16, u16)>(), any::<Option<[u8; 6]>>(), kinds)
        .prop_map(|((adapter, handle), peer, channel)| FlowKey::L2cap(ChannelKey { adapter, handle, peer, channel }))
}

fn any_what() -> impl Strategy<Value = What> {
    let stamp = prop::sample::select(super::line::STAMPS.map(|(_, stamp)| stamp).to_vec());
    let release = prop_oneof![
        Just(Release::Call),
        Just(Release::Acknowledgement(AckSentBy::Program)),
        Just(Release::Timer(Timer::Pacing)),
        Just(Release::Unknown),
    ];
    prop_oneof![
        stamp.prop_map(What::Reached),
        any_state().prop_map(What::State),
        release.prop_map(What::Released),
        any::<u16>().prop_map(|number| What::Call(Call::Begin { number })),
        any::<(u16, i32)>().prop_map(|(number, result)| What::Call(Call::End { number, result })),
        any::<u64>().prop_map(|waited_ns| What::Task(Task::Ran { waited_ns })),
        any::<u64>().prop_map(|waited_ns| What::Task(Task::Polled { waited_ns })),
        any::<u64>().prop_map(|waited_ns| What::Task(Task::TimedOut { waited_ns })),
        any_end().prop_map(What::IsEnd),
        any_of_channel().prop_map(What::L2cap),
        Just(What::Task(Task::Slept)),
        Just(What::Task(Task::Woken)),
        Just(What::Gap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_as_it_was(
        events in prop::collection::vec(
            (0..1_u64 << 50, 0..4_u32, any_what(), 0..1_u64 << 40, 0..5000_u64, any::<Option<u32>>(), any::<bool>()),
            0..60,
        ),
        channel in any_channel(),
    ) {
        let ends = if let FlowKey::Tcp(own, peer) = tcp() { Some((own, peer)) } else { None };
        let local = |kind, ends| FlowKey::Local(LocalKey { kind, inode: 3, ends });
        let keys = [tcp(), local(LocalKind::Udp, ends), local(LocalKind::L2cap, None), channel];
        let flows = keys.into_iter().zip(0..).map(|(key, id)| Told::Flow(FlowId(id), flow(key)));
        let mut told: Vec<Told> = flows.collect();
        for (at, id, what, start, length, who, is_back) in events {
            let is_stamp = matches!(what, What::Reached(_) | What::L2cap(L2cap::Packet(_)));
            let layer = if matches!(what, What::L2cap(_)) { Layer::Driver } else { Layer::Socket };
            let bytes = if is_stamp { ByteRange::new(start, start + length) } else { ByteRange::default() };
            let direction = if is_back { Direction::Backward } else { Direction::Forward };
            told.push(Told::Event(Event { bytes, direction, layer, who: who.map(TaskId), ..event(at, id, what) }));
        }
        let (read, end) = read(&written(&told, u64::MAX)).unwrap();
        prop_assert_eq!(read, told);
        prop_assert_eq!(end.ending, Ending::Complete);
    }

    #[test]
    fn no_lines_make_the_reader_panic(
        lines in prop::collection::vec("[fzmpx.bcCwktgqosrdhnWAM][<>]?( (-|[0-9]{1,20}|-[0-9]{1,19}|tcp|pipe|channel|acl|link|[0-9a-f]{12}|1:1|[0-9;-]{0,40}|\"\u{1b}\"))*|.*", 0..20),
    ) {
        let file = format!("taut-events 1\nf 0 1ff - tcp 1.1.1.1:1 1.1.1.1:2\n{}", lines.join("\n"));
        let (told, end) = read(file.as_bytes()).unwrap();
        prop_assert!(told.len() as u64 <= file.lines().count() as u64 && end.bytes <= file.len() as u64);
    }
}

#[test]
fn links_and_listeners_are_told_as_they_were_and_links_with_their_lines() {
    let key = |peer, is_central| FlowKey::Link(LinkKey { adapter: 1, handle: 64, peer, is_central });
    let one = |number, what| Event { layer: Layer::Driver, ..event(number, 0, What::Hci(what)) };
    let told = [
        Told::Flow(FlowId(0), flow(key(Some([1, 2, 3, 4, 5, 0xff]), Some(false)))),
        Told::Event(one(1, Hci::Part { begins: true, length: 27, pdu: 65_539, sum: u64::MAX })),
        Told::Event(one(2, Hci::Part { begins: false, length: 5, pdu: 0, sum: 0 })),
        Told::Event(one(3, Hci::Completed { packets: 2 })),
        Told::Event(one(4, Hci::Lost)),
        Told::Flow(FlowId(1), flow(key(None, None))),
        Told::Flow(FlowId(2), flow(tcp())),
        Told::Event(event(5, 2, What::Listens(Listening { waiting: 2, backlog: 1 }))),
        Told::Event(event(6, 2, What::Awaits)),
        Told::Event(event(7, 2, What::Accepted)),
        Told::Event(event(8, 2, What::IsPath)),
        Told::Event(event(9, 2, What::State(SocketState { is_ended: true, ..SocketState::default() }))),
    ];
    let file = written(&told, u64::MAX);
    let (read, _) = read(&file).unwrap();
    let text = String::from_utf8(file).unwrap();
    let line = |place: u64| text.lines().nth(place as usize - 1).unwrap();
    assert_eq!(read.len(), told.len());
    for (read, told) in read.iter().zip(&told) {
        match (read, told) {
            (Told::Event(read), Told::Event(told)) => {
                assert_eq!(Event { place: 0, ..*read }, *told);
                let is_link = matches!(read.what, What::Hci(_));
                assert!(read.place == 0 && !is_link || line(read.place).starts_with("y> 0"), "{read:?}");
            }
            _ => assert_eq!(read, told),
        }
    }
}

#[test]
fn the_end_has_what_was_said_last_and_the_names() {
    let (told, end) = read(&written(&story(), u64::MAX)).unwrap();
    assert_eq!(told, story());
    assert_eq!((end.at, end.events, end.is_full), (Some(Instant::from_nanos(5_000)), 6, false));
    assert_eq!(end.facts.as_deref(), Some("{\"traced\": \"port 1\"}"));
    assert_eq!(end.programs.get(&77).map(String::as_str), Some("python3 (77)"));
}

/// Version 3 has two numbers fewer of a state.
#[test]
fn a_file_of_an_earlier_version_is_read() {
    let state = "q> 0 5 - 16;8;0;1;10;2147483647;65536;32768;0;0;0;0;0;0;0;0;0";
    let file = format!("taut-events 3\nf 0 1ff - tcp 1.1.1.1:1 1.1.1.1:2\n{state}\n. 9\n");
    let (told, end) = read(file.as_bytes()).unwrap();
    assert_eq!((end.at, end.ending), (Some(Instant::from_nanos(9)), Ending::Complete));
    let Told::Event(Event { what: What::State(state), .. }) = told[1] else { panic!("{told:?}") };
    assert_eq!((state.unsent_bytes, state.in_flight_bytes, state.is_ended, state.device_bytes), (16, 8, false, 0));
}

#[test]
fn a_file_cut_anywhere_gives_what_stood_before_the_cut() {
    let file = written(&story(), u64::MAX);
    let mark = "taut-events 5\n".len();
    for cut in mark..file.len() {
        let (told, end) = read(&file[..cut]).unwrap();
        assert_eq!(told, story()[..told.len()]);
        let is_whole = file[cut - 1] == b'\n';
        let at = file[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) as u64;
        assert_eq!((end.at, end.bytes), (None, at), "{cut}");
        assert_eq!(end.ending, Ending::Truncated { at }, "{cut} {is_whole}");
    }
}

#[test]
fn a_file_without_room_says_so_and_keeps_its_end() {
    let (told, end) = read(&written(&story(), 120)).unwrap();
    assert!(!told.is_empty() && told.len() < story().len(), "{told:?}");
    assert_eq!(told, story()[..told.len()]);
    assert!(end.is_full && end.at.is_some() && end.facts.is_some() && end.ending == Ending::Complete, "{end:?}");
}

#[test]
fn what_can_not_be_is_named_with_its_place() {
    let why = |lines: &str| {
        let (_, end) = read(format!("taut-events 1\nf 0 1ff - tcp 1.1.1.1:1 1.1.1.1:2\n{lines}\n").as_bytes()).unwrap();
        match end.ending {
            Ending::Damaged { at, why } => (at, why),
            ending => panic!("{lines}: {ending:?}"),
        }
    };
    assert_eq!(why("f 0 1 - pipe 1").1, "a flow has a number that is too large, or that an open one has");
    assert_eq!(why("f 65536 1 - pipe 1").1, "a flow has a number that is too large, or that an open one has");
    assert_eq!(why("f 1 80000 - pipe 1").1, "a flow has no coverage that is known");
    assert_eq!(why("f 1 1 - quic 1").1, "a flow has no kind that is known");
    assert_eq!(why("g> 1 0 -"), (48, "an event is of a flow that is not open".to_owned()));
    assert_eq!(why("g> 0 -1 -").1, "an event's time can't be");
    assert_eq!(why("g> 0 9223372036854775807 -\ng> 0 1 -").1, "an event's time can't be");
    assert_eq!(why("b> 0 0 - 1 9999999999").1, "an event's bytes can't be");
    assert_eq!(why("q> 0 0 - 4294967296").1, "a socket's state can't be");
    assert_eq!(why("q> 0 0 - ;;;;;;;;2").1, "a socket's state can't be");
    assert_eq!(why("q> 0 0 - 1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1").1, "a socket's state can't be");
    assert_eq!(why("g> 0 0 - 5").1, "a line has more than it should");
    assert_eq!(why("f 1 1 - channel 0 64 0102030405 credit 1").1, "a channel has a name that can't be");
    assert_eq!(why("f 1 1 - channel 0 64 +12345678901 credit 1").1, "a channel has a name that can't be");
    assert_eq!(why("h> 0 0 - acl 251 1 2 0 0 247").1, "an event of a channel can't be");
    assert_eq!(why("h> 0 0 - acl 251 1 1 0 0 65536").1, "an event of a channel can't be");
    assert_eq!(why("n> 0 0 - 0 64 010203040506 010203040506 1 64 64").1, "the channel of a socket can't be");
    assert_eq!(why("hello").1, "a line begins with a word that is not known");
    assert_eq!(why("z 1 ended").1, "a flow that is not open ends");
    assert_eq!(why(&"m".repeat(1 << 20)).1, "a line is longer than 1 MiB");
    assert_eq!(why(". 9223372036854775808").1, "the time of the end can't be");
    // The same file twice.
    assert_eq!(why(". 9\ntaut-events 1").1, "the trace has ended, and more comes behind it");
    assert!(read(b"taut-events 6\n").is_err_and(|error| error.to_string().contains("another version of taut")));
}

#[test]
fn a_name_does_not_control_the_terminal() {
    let (_, end) = read("taut-events 1\np 7 \"a\\u001b[2J\u{202e}b\"\n. 1\n".as_bytes()).unwrap();
    assert_eq!(end.programs[&7], "a\\u{1b}[2J\\u{202e}b");
}
