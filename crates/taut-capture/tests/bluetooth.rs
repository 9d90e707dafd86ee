//! Logs of Bluetooth by hand, in all forms of btsnoop, and what becomes of them.

mod classic;

use proptest::prelude::*;
use taut_capture::{Counts, Ending, Flows, Reader};
use taut_event::{Channel, Closed, Direction, Event, Flow, FlowId, FlowKey, L2cap, Sink, Turn, VantageId, What};

/// A packet with its H4 indicator, and whether the host received it.
type Hci = (bool, Vec<u8>);

fn btsnoop(form: u32, packets: &[Hci]) -> Vec<u8> {
    let mut file = b"btsnoop\0\0\0\0\x01".to_vec();
    file.extend(form.to_be_bytes());
    for (n, (is_received, packet)) in packets.iter().enumerate() {
        let (flags, bytes) = match form {
            1001 => (u32::from(*is_received) | if packet[0] == 2 { 0 } else { 2 }, &packet[1..]),
            1002 => (u32::from(*is_received), &packet[..]),
            _ => {
                let opcode = match (packet[0], is_received) {
                    (0, _) => packet.get(1).map_or(0, |&code| code.into()),
                    (1, _) => 2,
                    (4, _) => 3,
                    (_, false) => 4,
                    (_, true) => 5,
                };
                (7 << 16 | opcode, &packet[1..])
            }
        };
        for word in [bytes.len() as u32, bytes.len() as u32, flags, 0] {
            file.extend(word.to_be_bytes());
        }
        file.extend((0x00dc_ddb3_0f2f_8000_u64 + 1_000_000 + n as u64 * 1000).to_be_bytes());
        file.extend(bytes);
    }
    file
}

fn event(code: u8, parameters: &[u8]) -> Hci {
    (true, [&[4, code, parameters.len() as u8], parameters].concat())
}

fn acl(is_received: bool, continues: bool, data: &[u8]) -> Hci {
    let flags = if continues { 0x10 } else { 0x20 * u8::from(is_received) };
    let length = (data.len() as u16).to_le_bytes();
    (is_received, [&[2, 0x40, flags, length[0], length[1]], data].concat())
}

/// A notification over the link of that handle.
fn notifies(handle: u8) -> Hci {
    let mut packet = acl(false, false, &pdu(4, &[0x1b, 3, 0, 9]));
    packet.1[1] = handle;
    packet
}

fn pdu(cid: u16, payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u16).to_le_bytes()[..], &cid.to_le_bytes(), payload].concat()
}

/// The link of handle 64, then a channel that the peer asks for, with an SDU of 8 bytes in two
/// PDUs, the first in two packets.
fn log() -> Vec<Hci> {
    let signal = |code: u8, words: &[u16]| {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        pdu(5, &[&[code, 1, words.len() as u8, 0], &words[..]].concat())
    };
    let first = pdu(0x50, &[8, 0, 1, 2, 3, 4]);
    vec![
        event(0x0e, &[1, 0x02, 0x20, 0, 251, 0, 2]),
        event(0x3e, &[1, 0, 0x40, 0, 1, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 42, 0, 0]),
        event(0x3e, &[0x0c, 0, 0x40, 0, 2, 2]),
        acl(true, false, &signal(0x14, &[0x80, 0x50, 512, 100, 2])),
        acl(false, false, &signal(0x15, &[0x60, 256, 90, 4, 0])),
        event(0x13, &[1, 0x40, 0, 1, 0]),
        acl(false, false, &first[..7]),
        acl(false, true, &first[7..]),
        event(0x13, &[1, 0x40, 0, 2, 0]),
        acl(false, false, &pdu(0x50, &[5, 6, 7, 8])),
        acl(true, false, &signal(0x16, &[0x50, 3])),
        acl(true, false, &pdu(4, &[0x1d, 3, 0, 9])),
        acl(false, false, &pdu(4, &[0x1e])),
        event(0x05, &[0, 0x40, 0, 0x13]),
    ]
}

#[derive(Default)]
struct Kept {
    flows: Vec<(FlowId, Flow)>,
    events: Vec<Event>,
    closed: Vec<Closed>,
}

impl Sink for Kept {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        self.flows.push((id, *flow));
    }

    fn event(&mut self, event: &Event) {
        assert!(self.flows.iter().any(|(id, _)| *id == event.flow));
        self.events.push(*event);
    }

    fn close(&mut self, _: FlowId, why: Closed) {
        self.closed.push(why);
    }
}

fn follow(file: &[u8]) -> (Kept, Counts, Ending) {
    let mut reader = Reader::new(file).unwrap();
    let (mut flows, mut kept) = (Flows::new(8), Kept::default());
    while let Some(packet) = reader.next_packet().unwrap() {
        flows.packet(&packet, VantageId(0), &mut kept);
    }
    flows.finish(&mut kept);
    (kept, *flows.counts(), reader.ending().clone())
}

#[test]
fn all_forms_tell_the_same() {
    for (form, adapter) in [(1001, 0), (1002, 0), (2001, 7)] {
        let (kept, counts, ending) = follow(&btsnoop(form, &log()));
        assert_eq!((ending, counts.packets, counts.hci, counts.malformed), (Ending::Complete, 14, 14, 0), "{form}");
        let kinds: Vec<_> = kept
            .flows
            .iter()
            .map(|(_, flow)| match flow.key {
                FlowKey::L2cap(key) => (key.adapter, key.handle, key.peer, key.channel),
                _ => panic!("{flow:?}"),
            })
            .collect();
        let peer = Some([1, 2, 3, 4, 5, 6]);
        assert_eq!(kinds, [(adapter, 64, peer, Channel::CreditBased(0x80)), (adapter, 64, peer, Channel::Att)]);
        assert_eq!(kept.closed, [Closed::Over, Closed::Over]);
        assert!(kept.events.windows(2).all(|two| two[0].place <= two[1].place));
    }
}

#[test]
fn a_channel_is_followed_from_its_opening() {
    let (kept, ..) = follow(&btsnoop(1002, &log()));
    let whats: Vec<_> = kept.events.iter().map(|event| (event.place, event.direction, event.what)).collect();
    let has = |place, direction, what| {
        assert!(whats.contains(&(place, direction, What::L2cap(what))), "{place} {what:?} in {whats:#?}");
    };
    has(4, Direction::Backward, L2cap::Asked);
    // What the peer asked with limits what goes to it.
    has(5, Direction::Forward, L2cap::Opened { mtu: [512, 256], mps: [100, 90], credits: [2, 4] });
    // Two buffers: full with the two packets of the first PDU.
    has(8, Direction::Forward, L2cap::Buffers { in_use: 2, of: 2 });
    has(9, Direction::Forward, L2cap::Completed { packets: 2 });
    has(11, Direction::Forward, L2cap::Credits { count: 3 });
    // The link's end closes both channels; without it the log's does.
    let ends = |events: &[Event]| {
        let is_end = |event: &&Event| event.what == What::L2cap(L2cap::Ended { tells_completions: true });
        events.iter().filter(is_end).map(|event| (event.place, event.at)).collect::<Vec<_>>()
    };
    let at = |place: u64| kept.events.iter().find(|event| event.place == place).unwrap().at;
    assert_eq!(ends(&kept.events), [(14, at(14)); 2]);
    let (open, ..) = follow(&btsnoop(1002, &log()[..13]));
    assert_eq!(ends(&open.events), [(13, at(13)); 2]);
    let packets: Vec<_> = kept
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::L2cap(L2cap::Packet(acl)) => Some((event.bytes.start, event.bytes.end, acl)),
            _ => None,
        })
        .collect();
    let bytes: Vec<_> = packets.iter().map(|(start, end, _)| (*start, *end)).collect();
    // The length of the SDU is no byte of the program.
    assert_eq!(bytes[..3], [(0, 1), (1, 4), (4, 8)]);
    assert_eq!(packets.iter().map(|(.., acl)| acl.ends_sdu).collect::<Vec<_>>()[..3], [false, false, true]);
    assert_eq!(packets.iter().map(|(.., acl)| acl.begins_pdu).collect::<Vec<_>>()[..3], [true, false, true]);
    assert_eq!(packets.iter().map(|(.., acl)| acl.turn).collect::<Vec<_>>()[3..], [Turn::Indicates, Turn::Confirms]);
}

fn signal(code: u8, identifier: u8, words: &[u16]) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    pdu(5, &[&[code, identifier, words.len() as u8, 0], &words[..]].concat())
}

#[test]
fn an_identifier_is_of_the_channel_that_was_asked_for_last() {
    let link = event(0x3e, &[1, 0, 0x40, 0, 1, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 42, 0, 0]);
    let asks = |identifier| acl(false, false, &signal(0x14, identifier, &[0x80, 0x50, 512, 100, 2]));
    let (kept, ..) = follow(&btsnoop(
        1002,
        &[
            link.clone(),
            asks(1),
            asks(2),
            acl(true, false, &signal(0x15, 2, &[0x60, 256, 90, 4, 0])),
            acl(true, false, &pdu(0x50, &[1, 0, 9])),
        ],
    ));
    // The first one was never answered.
    assert_eq!((kept.flows.len(), kept.closed[0]), (2, Closed::Replaced));
    let data = kept.events.iter().find(|event| matches!(event.what, What::L2cap(L2cap::Packet(_)))).unwrap();
    let opened = kept.events.iter().find(|event| matches!(event.what, What::L2cap(L2cap::Opened { .. }))).unwrap();
    assert_eq!((data.flow, data.direction), (opened.flow, Direction::Backward));
    // A request that is not understood opens nothing.
    let (kept, ..) = follow(&btsnoop(1002, &[link, asks(1), acl(true, false, &signal(0x01, 1, &[0]))]));
    assert_eq!(kept.closed, [Closed::Over]);
}

/// Three channels of enhanced ATT asked for at once, of which the second is refused; a request on the third.
#[test]
fn channels_that_are_opened_together_are_followed_from_their_opening() {
    let (kept, counts, _) = follow(&btsnoop(
        1002,
        &[
            event(0x3e, &[1, 0, 0x40, 0, 1, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 42, 0, 0]),
            acl(false, false, &signal(0x17, 3, &[0x27, 512, 247, 10, 0x40, 0x41, 0x42])),
            acl(true, false, &signal(0x18, 3, &[256, 90, 30, 0, 0x50, 0, 0x52])),
            acl(false, false, &pdu(0x52, &[5, 0, 0x12, 5, 0])),
            acl(false, false, &pdu(0x52, &[0x12, 0])),
            acl(true, false, &pdu(0x42, &[1, 0, 0x13])),
            acl(true, false, &signal(0x16, 4, &[0x52, 1])),
        ],
    ));
    assert_eq!((kept.flows.len(), kept.closed[0], counts.hci_other), (3, Closed::Over, 0));
    let third = kept.flows[2].0;
    let of = |flow: FlowId| kept.events.iter().filter(move |event| event.flow == flow);
    let opened = What::L2cap(L2cap::Opened { mtu: [256, 512], mps: [90, 247], credits: [30, 10] });
    assert!(of(third).any(|event| event.what == opened), "{:#?}", kept.events);
    assert!(of(third).any(|event| event.what == What::L2cap(L2cap::Credits { count: 1 })));
    assert!(of(kept.flows[0].0).any(|event| event.what == opened));
    assert!(!of(kept.flows[1].0).any(|event| event.what == opened));
    // The rest of an SDU has no opcode.
    let turns: Vec<_> = of(third)
        .filter_map(|event| match event.what {
            What::L2cap(L2cap::Packet(acl)) => Some(acl.turn),
            _ => None,
        })
        .collect();
    assert_eq!(turns, [Turn::Asks, Turn::Free, Turn::Answers]);
}

#[test]
fn a_link_from_before_the_log_may_turn_out_to_be_of_br_edr() {
    let is_told = |packets: &[Hci]| {
        let (kept, counts, _) = follow(&btsnoop(1002, packets));
        (kept.events.iter().any(|event| event.what == What::L2cap(L2cap::Classic)), counts.classic)
    };
    let buffers = event(0x0e, &[1, 0x02, 0x20, 0, 251, 0, 2]);
    let data = |length: usize| acl(false, false, &pdu(0x41, &vec![7; length]));
    assert_eq!(is_told(&[buffers.clone(), data(200), data(200)]), (false, 0));
    assert_eq!(is_told(&[buffers.clone(), data(200), data(600), data(200)]), (true, 0));
    // What has no connection is counted.
    let connectionless = acl(false, false, &pdu(2, &[1, 0, 9]));
    assert_eq!(is_told(&[data(600), acl(false, false, &pdu(1, &[10, 1, 2, 0, 2, 0])), connectionless]), (true, 1));
    // One of LE whose begin was seen is one.
    let link = event(0x3e, &[1, 0, 0x40, 0, 1, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 42, 0, 0]);
    assert_eq!(is_told(&[buffers, link, data(600)]), (false, 0));
}

/// Whether the controller's two buffers count as full after three packets, two of them before `between`.
fn fills_up(form: u32, between: &[Hci]) -> bool {
    let mut packets = vec![event(0x0e, &[1, 0x02, 0x20, 0, 251, 0, 2])];
    packets.extend([notifies(64), notifies(64)]);
    packets.extend_from_slice(between);
    packets.push(notifies(65));
    let (kept, ..) = follow(&btsnoop(form, &packets));
    let mut told = kept.events.iter().rev().filter_map(|event| match event.what {
        What::L2cap(L2cap::Buffers { in_use, of }) => Some(in_use >= of),
        _ => None,
    });
    told.next().unwrap()
}

#[test]
fn a_controller_that_begins_anew_has_no_packets() {
    assert!(fills_up(1002, &[]));
    // A command that failed; the one that is meant; Hardware Error.
    assert!(fills_up(1002, &[event(0x0e, &[1, 0x03, 0x0c, 1])]));
    assert!(!fills_up(1002, &[event(0x0e, &[1, 0x03, 0x0c, 0])]));
    assert!(!fills_up(1002, &[event(0x10, &[0])]));
    // New, Delete, Open and Close Index, and a note.
    for opcode in [0, 1, 8, 9] {
        assert!(!fills_up(2001, &[(false, vec![0, opcode])]), "{opcode}");
    }
    assert!(fills_up(2001, &[(false, vec![0, 12])]));
}

#[test]
fn links_that_are_forgotten_free_the_controller() {
    // One packet on each of 63 more links, of which the last one takes the first one's place.
    let others: Vec<Hci> = (100..163).map(notifies).collect();
    let all = |packets: u8, others: &[Hci]| {
        let mut log = vec![event(0x0e, &[1, 0x02, 0x20, 0, 251, 0, packets])];
        log.extend([notifies(64), notifies(64)]);
        log.extend_from_slice(others);
        log.push(notifies(65));
        let (kept, ..) = follow(&btsnoop(1002, &log));
        kept.events.iter().any(|event| matches!(event.what, What::L2cap(L2cap::Buffers { in_use, of }) if in_use >= of))
    };
    assert!(all(65, &others), "65 packets before the last");
    assert!(!all(66, &others), "two of 66 have gone with their link");
}

/// The field with what was lost is at byte 12 of a record's header.
#[test]
fn a_monitor_counts_what_was_lost_anew_in_each_record() {
    for (form, wanted) in [(1002, [0, 1, 1, 1]), (2001, [0, 1, 2, 3])] {
        let packets = [notifies(0x40), notifies(0x40), notifies(0x40), notifies(0x40)];
        let mut file = btsnoop(form, &packets);
        let whole = (file.len() - 16) / packets.len();
        for record in 1..packets.len() {
            file[16 + record * whole + 15] = 1;
        }
        let mut reader = Reader::new(&file[..]).unwrap();
        let mut lost = Vec::new();
        while let Some(packet) = reader.next_packet().unwrap() {
            lost.push(packet.lost);
        }
        assert_eq!((&lost[..], reader.lost_by_capture()), (&wanted[..], wanted[3]), "{form}");
    }
}

#[test]
fn a_log_that_is_cut_off_says_where() {
    let file = btsnoop(1002, &log());
    let (.., ending) = follow(&file[..file.len() - 1]);
    assert!(matches!(ending, Ending::Truncated { .. }), "{ending:?}");
}

/// The log with all packets of data cut to what `kept` says of their lengths.
fn cut_to(kept: impl Fn(usize) -> usize) -> Vec<u8> {
    let file = btsnoop(1002, &log());
    let (mut cut, mut rest) = (file[..16].to_vec(), &file[16..]);
    while let Some(header) = rest.get(..24) {
        let length = u32::from_be_bytes(header[4..8].try_into().unwrap()) as usize;
        let kept = if rest[24] == 2 { kept(length).min(length) } else { length };
        cut.extend(&header[..4]);
        cut.extend((kept as u32).to_be_bytes());
        cut.extend(&header[8..]);
        cut.extend(&rest[24..24 + kept]);
        rest = &rest[24 + length..];
    }
    cut
}

#[test]
fn signalling_that_was_not_kept_whole_says_nothing() {
    let (kept, counts, ending) = follow(&cut_to(|length| length - 1));
    // The last packet has one byte but for its headers, and so no opcode.
    assert_eq!((ending, counts.hci_cut, counts.l2cap), (Ending::Complete, 3, 5));
    let channels: Vec<_> = kept.flows.iter().map(|(_, flow)| flow.from_start).collect();
    // The channel's opening was not seen, so its credits are not known.
    assert_eq!(channels, [false, true]);
}

#[test]
fn what_was_not_kept_is_not_zero() {
    // With the header of L2CAP, and nothing of what it carries.
    let (kept, counts, _) = follow(&cut_to(|_| 9));
    let turns: Vec<_> = kept
        .events
        .iter()
        .filter_map(|event| match event.what {
            What::L2cap(L2cap::Packet(acl)) => Some(acl.turn),
            _ => None,
        })
        .collect();
    assert_eq!(turns[3..], [Turn::NotKnown; 2]);
    assert_eq!((counts.hci_cut, counts.malformed), (3, 0));
    // Without it nobody knows the channel, but the controller has the packets.
    for length in [4, 5, 8] {
        let (kept, counts, _) = follow(&cut_to(|_| length));
        assert_eq!((kept.flows.len(), counts.hci_cut, counts.malformed), (0, 8, 0), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the bytes of a log are: no panic, and no event of a flow that is not open.
    #[test]
    fn any_packets_are_followed_to_an_end(
        form in prop::sample::select(vec![1001_u32, 1002, 2001]),
        places in prop::collection::vec((0..2500_usize, any::<u8>()), 0..12),
        order in prop::collection::vec(0..50_usize, 0..90),
        is_classic in any::<bool>(),
        garbage in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..40)), 0..6),
    ) {
        let all = if is_classic { classic::log() } else { log() };
        let mut packets = if is_classic { all.clone() } else { Vec::new() };
        packets.extend(order.iter().map(|&n| all[n % all.len()].clone()));
        packets.extend(garbage);
        let mut file = btsnoop(form, &packets);
        for (place, byte) in places {
            if let Some(there) = file[16..].get_mut(place) {
                *there = byte;
            }
        }
        follow(&file);
    }
}
