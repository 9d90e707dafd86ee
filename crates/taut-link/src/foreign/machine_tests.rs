//! The peer in virtual time.

use std::net::{Ipv4Addr, SocketAddrV4};

use etherparse::{Ipv4Slice, TcpOptionElement, TcpSlice};
use proptest::prelude::*;
use taut_time::{ByteRange, Duration, Instant};

use super::*;

const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 9);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 40_000);
/// Data wraps around the end of the sequence numbers after 99 bytes.
const CLIENT_START: u32 = u32::MAX - 100;
/// Directly before the end of the sequence numbers.
const OWN_START: u32 = u32::MAX;
const DELAY: Duration = Duration::from_millis(56);

const SYN: Flags = Flags { syn: true, ack: false, fin: false, rst: false };
const ACK: Flags = Flags { syn: false, ack: true, fin: false, rst: false };
const FIN: Flags = Flags { syn: false, ack: true, fin: true, rst: false };
const RST: Flags = Flags { syn: false, ack: false, fin: false, rst: true };
const SYN_ACK: Flags = Flags { syn: true, ack: true, fin: false, rst: false };
const RST_ACK: Flags = Flags { syn: false, ack: true, fin: false, rst: true };

fn ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn peer(policy: AckTimer) -> ForeignPeer {
    ForeignPeer::new(Config { address: *LOCAL.ip(), port: LOCAL.port(), policy, initial_sequence: OWN_START })
}

/// The client's segment with the data from a position on.
fn data(flags: Flags, position: u32, payload: &[u8]) -> Vec<u8> {
    let sequence = CLIENT_START.wrapping_add(1).wrapping_add(position);
    client(flags, sequence, OWN_START.wrapping_add(1), payload)
}

fn client(flags: Flags, sequence: u32, acknowledgment: u32, payload: &[u8]) -> Vec<u8> {
    Segment { source: CLIENT, destination: LOCAL, sequence, acknowledgment, flags, payload }.to_packet().unwrap()
}

/// What the peer says at a time: flags, sequence number, acknowledgement number.
fn said(peer: &mut ForeignPeer, now: Instant) -> Vec<(Flags, u32, u32)> {
    std::iter::from_fn(|| peer.poll(now))
        .map(|packet| {
            let segment = Segment::parse(&packet).expect("the peer emits valid packets");
            assert!(segment.payload.is_empty());
            (segment.flags, segment.sequence, segment.acknowledgment)
        })
        .collect()
}

/// The acknowledgement of the data up to a position.
fn ack_of(position: u32) -> (Flags, u32, u32) {
    (ACK, OWN_START.wrapping_add(1), CLIENT_START.wrapping_add(1).wrapping_add(position))
}

fn connected(policy: AckTimer) -> ForeignPeer {
    let mut peer = peer(policy);
    peer.handle(ms(0), &client(SYN, CLIENT_START, 0, &[]));
    assert_eq!(said(&mut peer, ms(0)), [(SYN_ACK, OWN_START, CLIENT_START.wrapping_add(1))]);
    peer.handle(ms(0), &data(ACK, 0, &[]));
    assert_eq!((said(&mut peer, ms(0)), peer.deadline()), (vec![], None));
    peer
}

fn ranges(peer: &mut ForeignPeer) -> Vec<(u64, ByteRange)> {
    let arrivals = peer.take_arrivals(CLIENT.port());
    arrivals.iter().map(|arrival| (arrival.at.as_nanos() / 1_000_000, arrival.bytes)).collect()
}

#[test]
fn the_handshake_offers_an_mss_and_nothing_else() {
    let mut peer = peer(AckTimer::after(DELAY));
    peer.handle(ms(0), &client(SYN, CLIENT_START, 0, &[]));
    let packet = peer.poll(ms(0)).unwrap();
    let ip = Ipv4Slice::from_slice(&packet).unwrap();
    let tcp = TcpSlice::from_slice(ip.payload().payload).unwrap();
    let options: Vec<_> = tcp.options_iterator().map(Result::unwrap).collect();
    assert_eq!(options, [TcpOptionElement::MaximumSegmentSize(1460)]);
    assert_eq!(tcp.window_size(), 65_535);
}

#[test]
fn a_repeated_syn_is_answered_again() {
    let mut peer = peer(AckTimer::after(DELAY));
    for now in [ms(0), ms(1000)] {
        peer.handle(now, &client(SYN, CLIENT_START, 0, &[]));
        assert_eq!(said(&mut peer, now), [(SYN_ACK, OWN_START, CLIENT_START.wrapping_add(1))]);
    }
}

#[test]
fn a_syn_within_a_connection_is_challenged_and_a_rst_then_clears() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &client(SYN, 5, 0, &[]));
    assert_eq!(said(&mut peer, ms(1)), [ack_of(0)]);
    peer.handle(ms(2), &client(RST, CLIENT_START.wrapping_add(1), 0, &[]));
    peer.handle(ms(3), &client(SYN, 5, 0, &[]));
    assert_eq!(said(&mut peer, ms(3)), [(SYN_ACK, OWN_START.wrapping_add(SEQUENCE_STEP), 6)]);
}

#[test]
fn a_wrong_acknowledgement_of_the_syn_is_reset() {
    let mut peer = peer(AckTimer::after(DELAY));
    peer.handle(ms(0), &client(SYN, CLIENT_START, 0, &[]));
    said(&mut peer, ms(0));
    peer.handle(ms(1), &client(ACK, CLIENT_START.wrapping_add(1), 99, &[]));
    assert_eq!(said(&mut peer, ms(1)), [(RST, 99, 0)]);
}

#[test]
fn data_is_acknowledged_exactly_after_the_delay_of_its_first_segment() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(10), &data(ACK, 0, &[1; 128]));
    peer.handle(ms(30), &data(ACK, 128, &[1; 512]));
    assert_eq!(peer.deadline(), Some(ms(66)));
    assert_eq!(said(&mut peer, ms(66) - Duration::from_nanos(1)), []);
    assert_eq!(said(&mut peer, ms(66)), [ack_of(640)]);
    assert_eq!((peer.deadline(), said(&mut peer, ms(1000))), (None, vec![]));

    assert_eq!(ranges(&mut peer), [(10, ByteRange::new(0, 128)), (30, ByteRange::new(128, 640))]);
    assert_eq!(peer.take_acks(CLIENT.port()), [AckSent { client: CLIENT, at: ms(66), up_to: 640 }]);
    assert_eq!((ranges(&mut peer), peer.acks(CLIENT.port())), (vec![], vec![]));
}

#[test]
fn a_tick_rounds_the_delay_up() {
    let mut peer = connected(AckTimer::on_tick(DELAY, Duration::from_millis(10)));
    peer.handle(ms(12), &data(ACK, 0, &[1; 128]));
    assert_eq!(peer.deadline(), Some(ms(70)));
    assert_eq!(said(&mut peer, ms(70)), [ack_of(128)]);
}

#[test]
fn two_full_segments_are_acknowledged_at_once() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &data(ACK, 0, &[1; 1460]));
    assert_eq!(said(&mut peer, ms(1)), []);
    peer.handle(ms(2), &data(ACK, 1460, &[1; 1460]));
    assert_eq!((said(&mut peer, ms(2)), peer.deadline()), (vec![ack_of(2920)], None));
    peer.handle(ms(3), &data(ACK, 2920, &[1; 1460]));
    assert_eq!((said(&mut peer, ms(3)), peer.deadline()), (vec![], Some(ms(3) + DELAY)));
}

#[test]
fn repeated_data_is_acknowledged_at_once_and_does_not_arrive_again() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &data(ACK, 0, &[1; 128]));
    peer.handle(ms(2), &data(ACK, 0, &[1; 128]));
    assert_eq!(said(&mut peer, ms(2)), [ack_of(128)]);
    peer.handle(ms(3), &data(ACK, 64, &[1; 128]));
    assert_eq!((said(&mut peer, ms(3)), peer.deadline()), (vec![], Some(ms(3) + DELAY)));
    assert_eq!(ranges(&mut peer), [(1, ByteRange::new(0, 128)), (3, ByteRange::new(128, 192))]);
}

#[test]
fn data_after_a_gap_is_dropped_with_an_acknowledgement_at_once() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &data(ACK, 128, &[1; 128]));
    assert_eq!((said(&mut peer, ms(1)), ranges(&mut peer)), (vec![ack_of(0)], vec![]));
    peer.handle(ms(2), &data(ACK, 0, &[1; 256]));
    assert_eq!(ranges(&mut peer), [(2, ByteRange::new(0, 256))]);
}

#[test]
fn a_keep_alive_probe_is_answered() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &client(ACK, CLIENT_START, OWN_START.wrapping_add(1), &[]));
    assert_eq!(said(&mut peer, ms(1)), [ack_of(0)]);
}

#[test]
fn a_fin_closes_both_halves() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &data(FIN, 0, &[1; 128]));
    let (_, own, expected) = ack_of(129);
    assert_eq!(said(&mut peer, ms(1)), [(FIN, own, expected)]);
    // Lost: the client repeats its FIN.
    peer.handle(ms(201), &data(FIN, 0, &[1; 128]));
    assert_eq!(said(&mut peer, ms(201)), [(FIN, own, expected)]);
    assert_eq!(peer.take_acks(CLIENT.port()).last().unwrap().up_to, 128, "a FIN is not a byte");

    peer.handle(ms(202), &client(ACK, expected, own.wrapping_add(1), &[]));
    assert_eq!(said(&mut peer, ms(202)), []);
    peer.handle(ms(203), &client(ACK, expected, own.wrapping_add(1), &[]));
    assert_eq!(said(&mut peer, ms(203)), [(RST, own.wrapping_add(1), 0)], "the connection is gone");
}

#[test]
fn a_fin_after_all_data_is_taken() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &data(ACK, 0, &[1; 128]));
    peer.handle(ms(2), &data(FIN, 128, &[]));
    let (_, own, expected) = ack_of(129);
    assert_eq!((said(&mut peer, ms(2)), peer.deadline()), (vec![(FIN, own, expected)], None));
}

#[test]
fn a_rst_clears_only_inside_the_window() {
    let mut peer = connected(AckTimer::after(DELAY));
    peer.handle(ms(1), &data(ACK, 0, &[1; 128]));
    peer.handle(ms(2), &data(RST, 127, &[]));
    assert_eq!(peer.deadline(), Some(ms(1) + DELAY));
    peer.handle(ms(3), &data(RST, 128, &[]));
    assert_eq!((peer.deadline(), said(&mut peer, ms(100))), (None, vec![]));
    assert_eq!(ranges(&mut peer).len(), 1, "the record survives the connection");
}

#[test]
fn a_segment_to_a_closed_port_is_reset() {
    let mut peer = peer(AckTimer::after(DELAY));
    let closed = SocketAddrV4::new(*LOCAL.ip(), 10);
    let syn = Segment {
        source: CLIENT,
        destination: closed,
        sequence: CLIENT_START,
        acknowledgment: 0,
        flags: SYN,
        payload: &[],
    };
    peer.handle(ms(0), &syn.to_packet().unwrap());
    assert_eq!(said(&mut peer, ms(0)), [(RST_ACK, 0, CLIENT_START.wrapping_add(1))]);
    peer.handle(ms(0), &Segment { flags: RST, ..syn }.to_packet().unwrap());
    assert_eq!(said(&mut peer, ms(0)), [], "never a RST for a RST");
}

#[test]
fn connections_are_apart_and_the_oldest_goes_when_there_are_too_many() {
    let mut peer = connected(AckTimer::after(DELAY));
    for port in 1..=64 {
        let source = SocketAddrV4::new(*CLIENT.ip(), port);
        let (sequence, acknowledgment) = (u32::from(port), 0);
        let syn = Segment { source, destination: LOCAL, sequence, acknowledgment, flags: SYN, payload: &[] };
        peer.handle(ms(1), &syn.to_packet().unwrap());
        let answer = said(&mut peer, ms(1));
        let own = answer[0].1.wrapping_add(1);
        let first = Segment { sequence: sequence + 1, acknowledgment: own, flags: ACK, payload: b"x", ..syn };
        peer.handle(ms(2), &first.to_packet().unwrap());
        assert_eq!(peer.take_arrivals(port).len(), 1);
    }
    peer.handle(ms(3), &data(ACK, 0, &[1; 128]));
    assert_eq!(said(&mut peer, ms(3)), [(RST, OWN_START.wrapping_add(1), 0)], "the first connection is gone");
    assert_eq!(said(&mut peer, ms(1000)).len(), 64);
}

#[test]
fn what_nobody_polls_is_bounded() {
    let mut peer = connected(AckTimer::after(DELAY));
    for _ in 0..10_000 {
        peer.handle(ms(1), &data(ACK, 128, b"gap"));
    }
    assert_eq!(peer.deadline(), Some(ms(1)));
    assert_eq!(said(&mut peer, ms(1)).len(), MAX_WAITING);
}

/// A packet that is hostile but valid: near the connection's numbers, so that it gets past the first checks.
fn near_valid() -> impl Strategy<Value = Vec<u8>> {
    let flags = any::<[bool; 4]>().prop_map(|[syn, ack, fin, rst]| Flags { syn, ack, fin, rst });
    let port = prop_oneof![8 => Just(LOCAL.port()), 1 => any::<u16>()];
    let near = || prop_oneof![8 => -200..200_i32, 1 => any::<i32>()];
    let source = 40_000..40_003_u16;
    (flags, source, port, near(), near(), prop::collection::vec(any::<u8>(), 0..1500)).prop_map(
        |(flags, source, port, ahead, beyond, payload)| {
            let segment = Segment {
                source: SocketAddrV4::new(*CLIENT.ip(), source),
                destination: SocketAddrV4::new(*LOCAL.ip(), port),
                sequence: CLIENT_START.wrapping_add_signed(ahead),
                acknowledgment: OWN_START.wrapping_add_signed(beyond),
                flags,
                payload: &payload,
            };
            segment.to_packet().unwrap()
        },
    )
}

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (near_valid(), any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>()).prop_map(
        |(mut packet, place, value, length)| {
            let place = place.index(packet.len());
            packet[place] = value;
            packet.truncate(1 + length.index(packet.len()));
            packet
        },
    )
}

proptest! {
    #[test]
    fn no_packets_make_it_panic_or_talk_without_end(
        packets in prop::collection::vec(
            prop_oneof![4 => near_valid(), 1 => damaged(), 1 => prop::collection::vec(any::<u8>(), 0..100)],
            0..60,
        ),
        polls in any::<u64>(),
    ) {
        let mut peer = connected(AckTimer::after(DELAY));
        for (index, packet) in packets.iter().enumerate() {
            let now = ms(7 * index as u64);
            peer.handle(now, packet);
            if polls >> (index % 64) & 1 == 1 {
                prop_assert!(said(&mut peer, now).len() <= MAX_WAITING + MAX_CONNECTIONS);
                prop_assert!(peer.deadline().is_none_or(|deadline| deadline > now));
            }
        }
        let after_all = ms(1_000_000);
        prop_assert!(said(&mut peer, after_all).len() <= MAX_WAITING + MAX_CONNECTIONS);
        prop_assert_eq!(peer.deadline(), None);
        // Each byte of each connection arrives once: ranges follow each other, or start over with a new connection.
        for port in 40_000..40_003 {
            let mut end = 0;
            for arrival in peer.take_arrivals(port) {
                prop_assert!(arrival.bytes.start == end || arrival.bytes.start == 0);
                prop_assert!(!arrival.bytes.is_empty());
                end = arrival.bytes.end;
            }
        }
    }

    #[test]
    fn a_stream_in_any_pieces_arrives_whole(pieces in prop::collection::vec(1..1460_usize, 1..40), gap in 0..80_u64) {
        let mut peer = connected(AckTimer::after(DELAY));
        let mut position = 0;
        for (index, &piece) in pieces.iter().enumerate() {
            let now = ms(gap * index as u64);
            said(&mut peer, now);
            peer.handle(now, &data(ACK, position, &vec![0; piece]));
            position += piece as u32;
        }
        said(&mut peer, ms(1_000_000));
        prop_assert_eq!(peer.take_arrivals(CLIENT.port()).len(), pieces.len());
        prop_assert_eq!(peer.take_acks(CLIENT.port()).last().unwrap().up_to, u64::from(position));
    }
}
