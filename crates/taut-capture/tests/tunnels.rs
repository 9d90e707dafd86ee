//! Tunnels without encryption: what they carry is followed as if it had come alone.

use proptest::prelude::*;
use taut_capture::Counts;
use taut_event::{Closed, Event, Flow, FlowId, Sink};

mod packets;

use packets::{Tcp, ethernet, followed, ipv4, ipv6};

/// What was told, without the frames' own numbers.
#[derive(Debug, Default, PartialEq)]
struct Told(Vec<Flow>, Vec<Event>);

impl Sink for Told {
    fn flow(&mut self, _: FlowId, flow: &Flow) {
        self.0.push(*flow);
    }

    fn event(&mut self, event: &Event) {
        self.1.push(*event);
    }

    fn close(&mut self, _: FlowId, _: Closed) {}
}

/// An IPv4 header in front of what another protocol carries.
fn ip(protocol: u8, carried: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(((20 + carried.len()) as u16).to_be_bytes());
    packet.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend(carried);
    packet
}

fn ip6(next: u8, carried: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((carried.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([0xfd; 32]);
    packet.extend(carried);
    packet
}

fn udp(port: u16, carried: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xc0, 1];
    datagram.extend(port.to_be_bytes());
    datagram.extend(((8 + carried.len()) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(carried);
    ip(17, &datagram)
}

fn with(header: &[u8], carried: &[u8]) -> Vec<u8> {
    [header, carried].concat()
}

const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

/// The same IP packet in each tunnel, from its outer IP header on.
fn tunnels(inner: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let frame = ethernet(&[], inner);
    let is_6 = inner[0] >> 4 == 6;
    let kind: [u8; 2] = if is_6 { [0x86, 0xdd] } else { [8, 0] };
    let protocol = if is_6 { 41 } else { 4 };
    let frame = if is_6 { with(&[frame[..12].to_vec(), kind.to_vec()].concat(), inner) } else { frame };
    let gre = |flags: u8, kind: [u8; 2], rest: usize| [vec![flags, 0], kind.to_vec(), vec![0x77; rest]].concat();
    let gtp = |flags: u8, more: &[u8], length: usize| {
        let length = (length + more.len()) as u16;
        [&[flags, 0xff][..], &length.to_be_bytes(), &[0, 0, 0, 9], more].concat()
    };
    vec![
        ("IP in IP", ip(protocol, inner)),
        ("IP in IPv6, with an option for the destination", {
            let option = [protocol, 0, 4, 1, 4, 1, 1, 0];
            ip6(60, &with(&option, inner))
        }),
        ("GRE", ip(47, &with(&gre(0, kind, 0), inner))),
        ("GRE with sum, key and number", ip(47, &with(&gre(0xb0, kind, 12), inner))),
        ("GRE of Ethernet over IPv6", ip6(47, &with(&gre(0x20, [0x65, 0x58], 4), &frame))),
        ("ERSPAN I", ip(47, &with(&gre(0, [0x88, 0xbe], 0), &frame))),
        ("ERSPAN II", ip(47, &with(&gre(0x10, [0x88, 0xbe], 4 + 8), &frame))),
        ("ERSPAN III", ip(47, &with(&[gre(0x10, [0x22, 0xeb], 4 + 11), vec![0]].concat(), &frame))),
        ("ERSPAN III, longer", ip(47, &with(&[gre(0x10, [0x22, 0xeb], 4 + 11), vec![1; 9]].concat(), &frame))),
        ("VXLAN", udp(4789, &with(&VXLAN, &frame))),
        ("VXLAN of an older Linux", udp(8472, &with(&VXLAN, &frame))),
        ("VXLAN with a group", udp(4789, &with(&[0x88, 0, 1, 2, 0, 0, 42, 0], &frame))),
        ("Geneve", udp(6081, &with(&[1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4], &frame))),
        ("Geneve of IP", udp(6081, &with(&[0, 0, kind[0], kind[1], 0, 0, 42, 0], inner))),
        ("GTP", udp(2152, &with(&gtp(0x30, &[], inner.len()), inner))),
        ("GTP with a number", udp(2152, &with(&gtp(0x32, &[0, 1, 0, 0], inner.len()), inner))),
        ("GTP with an extension", udp(2152, &with(&gtp(0x34, &[0, 0, 0, 0x85, 1, 0, 9, 0], inner.len()), inner))),
        ("VXLAN in GRE", ip(47, &with(&gre(0, [8, 0], 0), &udp(4789, &with(&VXLAN, &frame))))),
    ]
}

fn told(link: u16, packets: &[Vec<u8>]) -> (Told, Counts) {
    followed(link, packets, 10)
}

#[test]
fn what_is_in_a_tunnel_is_told_as_if_it_had_come_alone() {
    let open = Tcp { flags: 2, ..Tcp::default() };
    let data = Tcp { seq: 2, ..Tcp::default() };
    let conversations: [fn(&Tcp, usize) -> Vec<u8>; 2] = [ipv4, |tcp, payload| ipv6(&[], tcp, payload)];
    for packet in conversations {
        let plain = [packet(&open, 0), packet(&data, 700)];
        let (expected, _) = told(101, &plain);
        assert_eq!((expected.0.len(), expected.1.len(), expected.1[1].bytes.len()), (1, 2, 700));
        let each = plain.map(|packet| tunnels(&packet));
        for ((name, opening), (_, segment)) in each[0].iter().zip(&each[1]) {
            // A frame is padded at its end, which is no payload. Of what follows IPv4 the version is not asked for.
            let padded = with(&ethernet(&[], opening), &[0; 9]);
            for (link, packets) in
                [(101, [opening.clone(), segment.clone()]), (1, [padded, ethernet(&[0x8100], segment)])]
            {
                let (events, counts) = told(link, &packets);
                assert_eq!(events, expected, "{name}, link type {link}");
                assert_eq!((counts.tunnelled, counts.tcp, counts.udp, counts.not_tcp), (2, 2, 0, 0), "{name}");
            }
        }
    }
}

fn vxlan(inner: &[u8]) -> Vec<u8> {
    udp(4789, &with(&VXLAN, &ethernet(&[], inner)))
}

/// On all interfaces of a host with tunnels a packet is captured before it is put into one and after, or after it has
/// come in one and before. Segments are cut and put together in between.
#[test]
fn what_is_captured_within_a_tunnel_and_without_it_is_told_once() {
    let sent = |seq: u32, payload: usize| ipv4(&Tcp { from: 1, to: 2, seq, ack: 500, ..Tcp::default() }, payload);
    let answered = |seq: u32, ack: u32, payload: usize, flags: u8| {
        ipv4(&Tcp { from: 2, to: 1, seq, ack, flags, ..Tcp::default() }, payload)
    };
    let opening = ipv4(&Tcp { from: 1, to: 2, seq: 99, ack: 0, flags: 2, ..Tcp::default() }, 0);
    // It sends as it is, and gets in the tunnel first.
    let packets = [
        (true, opening.clone()),
        (false, vxlan(&opening)),
        (true, vxlan(&answered(499, 100, 0, 18))),
        (false, answered(499, 100, 0, 18)),
        (true, sent(100, 3000)),
        (false, vxlan(&sent(100, 1400))),
        (false, vxlan(&sent(1500, 1400))),
        (false, vxlan(&sent(2900, 200))),
        (true, vxlan(&answered(500, 3100, 700, 16))),
        (true, vxlan(&answered(1200, 3100, 700, 16))),
        (false, answered(500, 3100, 1400, 16)),
        // It is sent again, and that is captured twice, too.
        (true, sent(1500, 1400)),
        (false, vxlan(&sent(1500, 1400))),
        (true, vxlan(&answered(1900, 3100, 0, 17))),
        (false, answered(1900, 3100, 0, 17)),
    ];
    let all: Vec<_> = packets.iter().map(|(_, packet)| packet.clone()).collect();
    let (events, counts) = told(101, &all);
    let frames: Vec<u64> = events.1.iter().map(|event| event.place).collect();
    let first = packets.iter().zip(1..).filter(|((is_first, _), _)| *is_first).map(|(_, frame)| frame);
    assert_eq!(frames, first.collect::<Vec<u64>>());
    assert_eq!((counts.tunnel_copies, counts.tcp, events.0.len()), (8, 15, 1));
}

/// As behind a balancer: requests come in a tunnel, answers go without one, and either may change.
#[test]
fn each_direction_may_come_in_a_tunnel_and_what_is_new_is_told() {
    let asks = |seq: u32| ipv4(&Tcp { from: 1, to: 2, seq, ack: 1, ..Tcp::default() }, 100);
    let answers = |seq: u32, ack: u32| ipv4(&Tcp { from: 2, to: 1, seq, ack, ..Tcp::default() }, 100);
    let packets = [
        ip(4, &asks(1)),
        answers(1, 101),
        ip(4, &asks(101)),
        asks(201),
        answers(101, 301),
        ip(4, &answers(201, 301)),
        // Nothing new but what is acknowledged.
        answers(201, 401),
    ];
    let (events, counts) = told(101, &packets);
    assert_eq!((events.1.len(), counts.tunnel_copies), (packets.len(), 0));
}

#[test]
fn labels_of_mpls_are_skipped() {
    let plain = ipv4(&Tcp::default(), 100);
    let labelled = |labels: &[[u8; 4]]| {
        let mut frame = vec![2; 12];
        frame.extend([0x88, 0x47]);
        labels.iter().for_each(|label| frame.extend(label));
        with(&frame, &plain)
    };
    let expected = told(101, std::slice::from_ref(&plain)).0;
    assert_eq!(told(1, &[labelled(&[[0, 1, 1, 64]])]).0, expected);
    assert_eq!(told(1, &[labelled(&[[0, 1, 0, 64], [0, 2, 0, 64], [0, 3, 1, 64]])]).0, expected);
    // No label is the last.
    assert_eq!(told(1, &[labelled(&[[0, 1, 0, 64]; 9])]).1.tcp, 0);
}

#[test]
fn a_port_alone_makes_no_tunnel() {
    let frame = ethernet(&[], &ipv4(&Tcp::default(), 100));
    for (port, header) in [
        (4790, &VXLAN[..]),
        (4789, &[0, 0, 0, 0, 0, 0, 42, 0]),
        (4789, &[8, 0, 0x81, 0x80, 0, 0, 42, 0]),
        (4789, &[8, 0, 0, 0, 0, 0, 42, 1]),
        (6081, &[0x40, 0, 0x65, 0x58, 0, 0, 42, 0]),
        (6081, &[0, 0, 0x65, 0x59, 0, 0, 42, 0]),
        (2152, &[0x30, 0xff, 0, 1, 0, 0, 0, 9]),
        (2152, &[0x30, 1, 0, 114, 0, 0, 0, 9]),
    ] {
        let (events, counts) = told(101, &[udp(port, &with(header, &frame))]);
        assert_eq!((counts.udp, counts.tcp, counts.tunnelled, events.1.len()), (1, 0, 0, 1), "{port} {header:?}");
    }
    // GRE with routing, that of PPTP, and one that carries what is not read.
    for header in [[0x40, 0, 8, 0], [0, 1, 0x88, 0x0b], [0, 0, 0x88, 0x0b]] {
        let (_, counts) = told(101, &[ip(47, &with(&header, &ipv4(&Tcp::default(), 100)))]);
        assert_eq!((counts.not_tcp, counts.tcp), (1, 0), "{header:?}");
    }
}

#[test]
fn tunnels_in_tunnels_end() {
    let mut packet = ipv4(&Tcp::default(), 10);
    for depth in 1..=8 {
        packet = ip(4, &packet);
        let (_, counts) = told(101, std::slice::from_ref(&packet));
        assert_eq!(counts.tcp, u64::from(depth <= 4), "{depth}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_tunnel_panic(
        tunnel in 0..18_usize,
        cut in 0..300_usize,
        changes in proptest::collection::vec((0..200_usize, any::<u8>()), 0..8),
    ) {
        let (_, mut packet) = tunnels(&ipv4(&Tcp::default(), 100)).swap_remove(tunnel);
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(cut);
        let (_, counts) = told(101, &[packet]);
        prop_assert_eq!(counts.packets, 1);
    }
}
