//! PDUs of Bluetooth LE behind the headers of sniffers, made here byte by byte: whose they are, and what is read of
//! them.

#[allow(dead_code, reason = "these tests use a part of it")]
mod packets;

use std::io::Cursor;

use packets::pcap;
use proptest::prelude::*;
use taut_capture::{Counts, Flows, Reader};
use taut_event::{Direction, Event, Flow, FlowId, FlowKey, Le, LeLink, LePdu, Sink, VantageId, What};

const AT: u64 = 1_700_000_000_000_000_000;
const LINK: u32 = 0x5065_4a3c;
const ADVERTISING: u32 = 0x8e89_bed6;
const INTERVAL: u64 = 30_000_000;
/// An empty PDU on LE 1M and the inter frame space.
const TURN: u64 = 230_000;

/// Keeps what it is told of links.
#[derive(Debug, Default)]
struct Kept {
    flows: Vec<FlowKey>,
    pdus: Vec<(Direction, LePdu, u64)>,
    link: LeLink,
}

impl Sink for Kept {
    fn flow(&mut self, _: FlowId, flow: &Flow) {
        self.flows.push(flow.key);
    }

    fn event(&mut self, event: &Event) {
        match event.what {
            What::Le(Le::Pdu(pdu)) => self.pdus.push((event.direction, pdu, event.bytes.len())),
            What::Le(Le::Link(link)) => self.link = link,
            _ => {}
        }
    }

    fn close(&mut self, _: FlowId, _: taut_event::Closed) {}
}

fn follow(link: u16, packets: &[(u64, Vec<u8>)]) -> (Kept, Counts) {
    let packets: Vec<_> = packets.iter().map(|(at, packet)| (AT + at, packet.clone())).collect();
    let mut reader = Reader::new(Cursor::new(pcap(false, true, link, &packets))).unwrap();
    let (mut flows, mut kept) = (Flows::new(4), Kept::default());
    while let Some(packet) = reader.next_packet().unwrap() {
        flows.packet(&packet, VantageId(0), &mut kept);
    }
    flows.finish(&mut kept);
    (kept, *flows.counts())
}

/// Access address, PDU and a CRC.
fn air(access_address: u32, pdu: &[u8]) -> Vec<u8> {
    [&access_address.to_le_bytes()[..], pdu, &[1, 2, 3]].concat()
}

/// Link type 256.
fn with_header(flags: u16, air: &[u8]) -> Vec<u8> {
    [&[5, 0, 0, 0][..], &[0; 4], &flags.to_le_bytes(), air].concat()
}

/// Link type 272, of version 3 or of the oldest form.
fn nordic(is_legacy: bool, flags: u8, counter: u16, air: &[u8]) -> Vec<u8> {
    let head: [u8; 8] = if is_legacy { [0xbe, 0xef, 6, 0, 0, 0, 0, 0] } else { [0, 0, 0, 3, 0, 0, 6, 10] };
    [&head[..], &[flags, 7, 60], &counter.to_le_bytes(), &[0; 4], air].concat()
}

/// LLID 2 or, without a payload, 1.
fn data(sn: bool, md: bool, payload: &[u8]) -> Vec<u8> {
    let llid = if payload.is_empty() { 1 } else { 2 };
    [&[llid | u8::from(sn) << 3 | u8::from(md) << 4, payload.len() as u8][..], payload].concat()
}

/// CONNECT_IND with the interval, and latency 4.
fn connect() -> Vec<u8> {
    let mut pdu = vec![5, 34];
    pdu.extend([1; 6]);
    pdu.extend([2; 6]);
    pdu.extend(LINK.to_le_bytes());
    pdu.extend([9, 9, 9, 2, 0, 0]);
    pdu.extend(24_u16.to_le_bytes());
    pdu.extend(4_u16.to_le_bytes());
    pdu.extend([100, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 7]);
    pdu
}

#[test]
fn without_a_word_on_the_sender_turns_tell_it() {
    let mut packets = vec![(0, air(ADVERTISING, &connect()))];
    for event in 1..6 {
        packets.push((event * INTERVAL, air(LINK, &data(event % 2 == 0, false, b"abc"))));
        packets.push((event * INTERVAL + TURN + 24_000, air(LINK, &data(false, false, b""))));
    }
    let (kept, counts) = follow(251, &packets);
    let FlowKey::Le(key) = kept.flows[0] else { panic!("{:?}", kept.flows) };
    assert_eq!((key.access_address, key.ends, kept.flows.len()), (LINK, Some([[1; 6], [2; 6]]), 1));
    assert_eq!((kept.link.interval_ns, kept.link.latency, kept.link.is_told), (INTERVAL, Some(4), true));
    assert!(!kept.link.tells_direction && !kept.link.tells_crc && !kept.link.tells_phy);
    assert_eq!((counts.air, counts.air_other), (11, 1));
    for (index, (direction, pdu, bytes)) in kept.pdus.iter().enumerate() {
        let is_central = index % 2 == 0;
        assert_eq!(*direction == Direction::Forward, is_central);
        assert_eq!((pdu.begins_event, *bytes, pdu.is_after_hole), (is_central, if is_central { 3 } else { 0 }, false));
    }
}

#[test]
fn a_header_tells_sender_phy_and_crc() {
    let flags = |way: u16, is_right: bool, phy: u16| 1 | way << 7 | 0x400 | u16::from(is_right) << 11 | phy << 14;
    let first = data(true, true, b"abc");
    let coded = [&LINK.to_le_bytes()[..], &[1], &first].concat();
    let (kept, counts) = follow(
        256,
        &[
            (0, with_header(flags(2, true, 1), &air(LINK, &first))),
            (200_000, with_header(flags(3, false, 1), &air(LINK, &data(true, false, b"xy")))),
            (INTERVAL, with_header(flags(2, true, 2), &coded)),
            (INTERVAL + 1, with_header(flags(2, false, 0), &air(0x7777_0001, &first))),
            (INTERVAL + 2, with_header(flags(4, true, 0), &air(LINK, &first))),
        ],
    );
    assert_eq!((kept.flows.len(), kept.pdus.len(), counts.air_stray, counts.air_other), (1, 3, 1, 1));
    let (_, pdu, _) = kept.pdus[0];
    assert_eq!((pdu.phy, pdu.air_ns, pdu.header.unwrap().md, pdu.header.unwrap().sn), (2, 56_000, true, true));
    assert_eq!((kept.pdus[1].0, kept.pdus[1].1.header), (Direction::Backward, None));
    // 500 kbit/s: 376 us of preamble, access address and coding indicator, eight bytes, and three bits at the end.
    assert_eq!((kept.pdus[2].1.phy, kept.pdus[2].1.air_ns), (3, (376 + 8 * 16 + 6) * 1000));
    assert!(kept.link.tells_direction && kept.link.tells_crc && kept.link.tells_phy);
}

#[test]
fn nordics_sniffer_counts_events_and_marks_what_is_encrypted() {
    for is_legacy in [false, true] {
        let packet = |flags, counter, pdu: &[u8]| nordic(is_legacy, flags, counter, &air(LINK, pdu));
        let (kept, _) = follow(
            272,
            &[
                (0, packet(0b011, 7, &data(true, false, b"abcdefgh"))),
                (300_000, packet(0b001, 7, &data(true, false, b""))),
                (3 * INTERVAL, packet(0b111, 10, &data(false, false, b"abcdefgh"))),
            ],
        );
        let told: Vec<_> =
            kept.pdus.iter().map(|(way, pdu, bytes)| (*way, pdu.begins_event, pdu.unseen_events, *bytes)).collect();
        let (there, back) = (Direction::Forward, Direction::Backward);
        assert_eq!(told, [(there, true, 0, 8), (back, false, 0, 0), (there, true, 2, 4)]);
        assert!(kept.link.is_encrypted);
    }
}

#[test]
fn what_the_link_layer_agrees_on_is_read_while_it_is_in_clear() {
    let length =
        |opcode: u8, octets: u8| [&[3_u8 | 1 << 3, 9, opcode][..], &[octets, 0, 0, 8, octets, 0, 0, 8]].concat();
    let mut packets = vec![
        (0, air(ADVERTISING, &connect())),
        (INTERVAL, air(LINK, &length(0x14, 251))),
        (INTERVAL + 302_000, air(LINK, &length(0x15, 100))),
    ];
    let (kept, _) = follow(251, &packets);
    assert_eq!(kept.link.length, Some([100, 100]));
    // LL_START_ENC_REQ of the peripheral, and what looks as LL_TERMINATE_IND behind it.
    packets.push((2 * INTERVAL, air(LINK, &data(false, false, b""))));
    packets.push((2 * INTERVAL + TURN, air(LINK, &[3, 1, 5])));
    packets.push((3 * INTERVAL, air(LINK, &[3 | 1 << 3, 2, 2, 0x13])));
    let (kept, _) = follow(251, &packets);
    assert!(kept.link.is_encrypted && !kept.link.is_over);
}

#[test]
fn a_latency_holds_from_the_instant_of_its_update_on() {
    // LL_CONNECTION_UPDATE_IND in the first event: the interval as it is, latency 9, from event 7 on.
    let update = [3, 12, 0, 1, 0, 0, 24, 0, 9, 0, 100, 0, 7, 0];
    let mut packets = vec![(0, air(ADVERTISING, &connect())), (INTERVAL, air(LINK, &update))];
    for event in 1..8 {
        let (kept, _) = follow(251, &packets);
        assert_eq!((kept.link.interval_ns, kept.link.latency), (INTERVAL, Some(4)), "{event}");
        packets.push(((event + 1) * INTERVAL, air(LINK, &data(event % 2 == 1, false, b""))));
    }
    let (kept, _) = follow(251, &packets);
    assert_eq!((kept.link.interval_ns, kept.link.latency), (INTERVAL, Some(9)));
}

#[test]
fn a_latency_is_not_known_behind_what_may_be_an_update_that_cannot_be_read() {
    let flags = |way: u16, is_right: bool| 1 | way << 7 | 0x400 | u16::from(is_right) << 11;
    let packet = |way, is_right, pdu: &[u8]| with_header(flags(way, is_right), &air(LINK, pdu));
    // With the MIC, LL_CONNECTION_UPDATE_IND has 16 bytes.
    for (way, length, is_encrypted, is_right, known) in [
        (2, 16, true, true, None),
        (2, 16, true, false, None),
        (2, 12, false, false, None),
        (3, 16, true, true, Some(4)),
        (2, 12, true, true, Some(4)),
        (2, 13, true, true, Some(4)),
        (2, 13, true, false, Some(4)),
        (2, 16, false, false, Some(4)),
    ] {
        let control = [vec![3, length], vec![7; length.into()]].concat();
        let sent = |side| if side == way { control.clone() } else { data(false, false, b"") };
        // LL_START_ENC_REQ, or LL_PING_REQ.
        let opcode = if is_encrypted { 5 } else { 0x12 };
        let packets = [
            (0, with_header(flags(0, true), &air(ADVERTISING, &connect()))),
            (INTERVAL, packet(2, true, &data(false, false, b""))),
            (INTERVAL + TURN, packet(3, true, &[3, 1, opcode])),
            (2 * INTERVAL, packet(2, true, &data(true, false, b""))),
            (2 * INTERVAL + TURN, packet(3, true, &data(true, false, b""))),
            (3 * INTERVAL, packet(2, is_right, &sent(2))),
            (3 * INTERVAL + TURN + 8000 * (sent(2).len() as u64 - 2), packet(3, is_right, &sent(3))),
        ];
        let (kept, _) = follow(256, &packets);
        let case = (way, length, is_encrypted, is_right);
        assert_eq!((kept.link.latency, kept.link.is_encrypted), (known, is_encrypted), "{case:?}");
    }
}

/// A PDU of the central is acknowledged, and the next one has the same number: another one was missed, or it was sent
/// again.
#[test]
fn a_latency_is_not_known_where_a_pdu_of_the_central_was_missed_by_its_number() {
    let latency = |next: &[u8], answer: u8, sn: bool| {
        let flags = |way: u16| 1 | way << 7 | 0xc00;
        let mut packets = vec![(0, with_header(flags(0), &air(ADVERTISING, &connect())))];
        let mut event = |at: u64, central: Vec<u8>| {
            packets.push((at, with_header(flags(2), &air(LINK, &central))));
            let answer = [1 | answer << 2, 0];
            let turn = TURN + 8_000 * (central.len() as u64 - 2);
            packets.push((at + turn, with_header(flags(3), &air(LINK, &answer))));
        };
        event(INTERVAL, data(false, false, &[7]));
        event(2 * INTERVAL, data(sn, false, next));
        follow(256, &packets).0.link.latency
    };
    // Another payload, or none, with the same number.
    assert_eq!((latency(&[8], 1, false), latency(&[], 1, false)), (None, None));
    // The same again; one that was not acknowledged; the next number.
    assert_eq!([latency(&[7], 1, false), latency(&[8], 0, false), latency(&[8], 1, true)], [Some(4); 3]);
}

/// The sniffer gets the second of three empty PDUs with a wrong CRC: whether the third has the number of the first.
#[test]
fn a_wrong_crc_hides_no_other_pdu_of_the_central() {
    let flags = |way: u16, is_right: bool| 1 | way << 7 | 0x400 | u16::from(is_right) << 11;
    let mut packets = vec![(0, with_header(flags(0, true), &air(ADVERTISING, &connect())))];
    for (event, sn) in [(1, false), (2, true), (3, false)] {
        let central = air(LINK, &data(sn, false, b""));
        packets.push((event * INTERVAL, with_header(flags(2, event != 2), &central)));
        let answer = air(LINK, &[1 | u8::from(!sn) << 2, 0]);
        packets.push((event * INTERVAL + TURN, with_header(flags(3, true), &answer)));
    }
    assert_eq!(follow(256, &packets).0.link.latency, Some(4));
}

/// An empty PDU of the central that was acknowledged is followed by one with the same number: it is sent again, if
/// nothing can have been between the two.
#[test]
fn an_empty_pdu_that_is_sent_again_hides_no_other() {
    let latency = |more: [bool; 2], again: u64| {
        let flags = |way: u16| 1 | way << 7 | 0xc00;
        let answer = [1 | 1 << 2 | u8::from(more[1]) << 4, 0];
        let packets = [
            (0, with_header(flags(0), &air(ADVERTISING, &connect()))),
            (INTERVAL, with_header(flags(2), &air(LINK, &data(false, more[0], b"")))),
            (INTERVAL + TURN, with_header(flags(3), &air(LINK, &answer))),
            (again, with_header(flags(2), &air(LINK, &data(false, false, b"")))),
        ];
        follow(256, &packets).0.link.latency
    };
    // After the inter frame space, or at the next anchor when both had told of no more data.
    assert_eq!(latency([true, true], INTERVAL + 2 * TURN), Some(4));
    assert_eq!(latency([false, false], 2 * INTERVAL), Some(4));
    // The event may have gone on, or this one have begun before.
    assert_eq!((latency([true, false], 2 * INTERVAL), latency([false, true], 2 * INTERVAL)), (None, None));
    assert_eq!(latency([false, false], 2 * INTERVAL + 2 * TURN), None);
}

/// The length of a PDU whose CRC is wrong may be wrong itself: when it was answered tells that. And where the begin of
/// encryption was not seen, an update has a MIC.
#[test]
fn what_may_have_been_an_update_is_one_by_its_time_or_its_mic() {
    let flags = |way: u16, is_right: bool| 1 | way << 7 | 0x400 | u16::from(is_right) << 11;
    let packet = |way, is_right, pdu: &[u8]| with_header(flags(way, is_right), &air(LINK, pdu));
    let latency = |said: u8, really: u64, is_right: bool, opcode: u8| {
        let control = [vec![3, said], vec![opcode; said.into()]].concat();
        let packets = [
            (0, with_header(flags(0, true), &air(ADVERTISING, &connect()))),
            (INTERVAL, packet(2, true, &data(false, false, b""))),
            (INTERVAL + TURN, packet(3, true, &data(false, false, b""))),
            (2 * INTERVAL, packet(2, is_right, &control)),
            (2 * INTERVAL + TURN + 8000 * really, packet(3, true, &data(true, false, b""))),
        ];
        follow(256, &packets).0.link.latency
    };
    // Of 12 bytes, as its answer tells, or of as many as it says.
    assert_eq!((latency(44, 12, false, 7), latency(44, 44, false, 7)), (None, Some(4)));
    assert_eq!((latency(5, 12, false, 7), latency(5, 5, false, 7)), (None, Some(4)));
    // No opcode that is known, and LL_FEATURE_REQ.
    assert_eq!((latency(16, 16, true, 0x77), latency(16, 16, true, 0x08)), (None, Some(4)));
    assert_eq!(latency(15, 15, true, 0x77), Some(4));
}

proptest! {
    /// Whatever stands behind the header of a sniffer is read to its end.
    #[test]
    fn any_bytes_are_read(
        link in prop::sample::select(vec![251_u16, 256, 272]),
        frames in prop::collection::vec((0..100_000_000_u64, prop::collection::vec(any::<u8>(), 0..60)), 0..30)
    ) {
        let mut at = 0;
        let frames: Vec<_> = frames.into_iter().map(|(gap, bytes)| { at += gap; (at, bytes) }).collect();
        let (_, counts) = follow(link, &frames);
        prop_assert_eq!(counts.packets, frames.len() as u64);
    }
}
