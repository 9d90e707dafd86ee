//! Datagrams of UDP, made here byte by byte: whose flow they are, and what is read of them.

#[allow(dead_code, reason = "these tests use a part of it")]
mod packets;

use std::net::Ipv4Addr;

use packets::udp::{dns, quic, udp, udp6};
use packets::{Tcp, ethernet, followed, ipv4};
use proptest::prelude::*;
use taut_capture::Counts;
use taut_event::{Closed, Content, Datagram, Direction, Event, Flow, FlowId, FlowKey, Sink, What};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Keeps what it is told of datagrams.
#[derive(Default)]
struct Kept {
    flows: Vec<(FlowId, FlowKey)>,
    events: Vec<(FlowId, Direction, Datagram, u64)>,
    closed: Vec<Closed>,
}

impl Sink for Kept {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        self.flows.push((id, flow.key));
    }

    fn event(&mut self, event: &Event) {
        if let What::Datagram(datagram) = event.what {
            self.events.push((event.flow, event.direction, datagram, event.bytes.len()));
        }
    }

    fn close(&mut self, _: FlowId, why: Closed) {
        self.closed.push(why);
    }
}

fn follow(link: u16, packets: &[Vec<u8>], capacity: usize) -> (Kept, Counts) {
    followed(link, packets, capacity)
}

#[test]
fn both_directions_are_one_flow_beside_those_of_tcp() {
    let there = udp((CLIENT, 4000), (SERVER, 5000), b"hello");
    let back = udp((SERVER, 5000), (CLIENT, 4000), b"");
    let tcp = ipv4(&Tcp::default(), 0);
    let (kept, counts) = follow(1, &[there, back, tcp].map(|packet| ethernet(&[0x8100], &packet)), 10);
    assert_eq!((counts.udp, counts.tcp, counts.flows, counts.not_tcp), (2, 1, 2, 0));
    let [(flow, FlowKey::Udp(from, to)), (tcp, FlowKey::Tcp(..))] = kept.flows[..] else { panic!("{:?}", kept.flows) };
    assert!(flow != tcp && (from.port, to.port) == (4000, 5000));
    let [there, back] = kept.events[..] else { panic!("{:?}", kept.events) };
    assert_eq!((there.1, there.3, back.1, back.3), (Direction::Forward, 5, Direction::Backward, 0));
    assert_eq!((there.2.first, there.2.content, back.2.hash), (Some(b'h'), Content::Other, None));
    assert_eq!(kept.closed.len(), 2);
    assert_eq!(follow(101, &[udp6(1, 2, b"x")], 10).1.udp, 1);
}

#[test]
fn what_an_address_and_port_sends_to_itself_is_counted_alone() {
    let itself = udp((CLIENT, 4000), (CLIENT, 4000), b"hello");
    let (kept, counts) = follow(101, &[itself, udp((CLIENT, 4000), (CLIENT, 5000), b"x")], 10);
    assert_eq!((counts.to_itself, counts.udp, kept.events.len()), (1, 1, 1));
}

#[test]
fn equal_payloads_are_told_where_they_were_kept_whole() {
    let send = |payload: &[u8]| udp((CLIENT, 4000), (SERVER, 5000), payload);
    let mut cut = send(&[7; 100]);
    cut.truncate(60);
    // The file says how long the packet was kept, and the headers how long it was.
    let (kept, counts) = follow(101, &[send(b"one"), send(b"two"), send(b"one"), cut.clone()], 10);
    let hashes: Vec<_> = kept.events.iter().map(|event| event.2.hash).collect();
    assert!(hashes[0] == hashes[2] && hashes[0] != hashes[1] && hashes[0].is_some(), "{hashes:?}");
    assert_eq!((hashes[3], kept.events[3].3), (None, 100));
    cut.truncate(25);
    assert_eq!((counts.cut, follow(101, &[cut], 10).1.cut), (0, 1));
}

#[test]
fn fragments_are_told_and_their_rest_is_counted() {
    let mut first = udp((CLIENT, 4000), (SERVER, 5000), &[1; 100]);
    // The datagram goes on in another fragment; its header has the whole length.
    first[6] = 0x20;
    first[24..26].copy_from_slice(&3000_u16.to_be_bytes());
    let mut second = udp((CLIENT, 4000), (SERVER, 5000), &[1; 100]);
    second[6..8].copy_from_slice(&[0, 14]);
    let (kept, counts) = follow(101, &[first, second], 10);
    assert_eq!((kept.events.len(), counts.fragments), (1, 1));
    assert!(kept.events[0].2.is_fragmented && kept.events[0].3 == 2992, "{:?}", kept.events);
    let mut wrong = udp((CLIENT, 1), (SERVER, 2), b"");
    wrong[24..26].copy_from_slice(&7_u16.to_be_bytes());
    assert_eq!(follow(101, &[wrong], 10).1.malformed, 1);
}

/// From any port to any server, and whatever the case of the name.
#[test]
fn what_a_host_asks_servers_of_dns_is_one_flow() {
    let other = Ipv4Addr::new(8, 8, 8, 8);
    let packets = [
        udp((CLIENT, 4000), (SERVER, 53), &dns(7, false, "Example.COM", 1)),
        udp((CLIENT, 4001), (other, 53), &dns(7, false, "example.com", 1)),
        udp((other, 53), (CLIENT, 4001), &dns(7, true, "example.com", 1)),
        udp((CLIENT, 4001), (other, 53), &dns(8, false, "example.org", 28)),
        // Somebody else's.
        udp((SERVER, 4001), (other, 53), &dns(8, false, "example.org", 28)),
        // No message of DNS.
        udp((CLIENT, 4001), (other, 53), b"hello"),
    ];
    let (kept, counts) = follow(101, &packets, 10);
    assert_eq!((counts.udp, counts.flows), (6, 3));
    assert_eq!([kept.flows[0].1, kept.flows[1].1], [FlowKey::Dns(CLIENT.into()), FlowKey::Dns(SERVER.into())]);
    let dns: Vec<_> = kept
        .events
        .iter()
        .filter_map(|event| match event.2.content {
            Content::Dns(dns) => Some((event.0, event.1, dns)),
            _ => None,
        })
        .collect();
    assert_eq!(dns.len(), 5);
    assert!(dns[..4].iter().all(|of| of.0 == dns[0].0) && dns[4].0 != dns[0].0);
    assert_eq!((dns[0].2.name, dns[0].2.kind, dns[0].2.id), (dns[1].2.name, 1, 7));
    assert_eq!((dns[2].1, dns[2].2.is_answer, dns[2].2.port), (Direction::Backward, true, 4001));
    assert_eq!((dns[2].2.server.ip, dns[2].2.name), (other.into(), dns[1].2.name));
    assert!(dns[3].2.name != dns[0].2.name && dns[3].2.kind == 28);
    // A name that was not kept whole is not known.
    let mut cut = packets[0].clone();
    cut.truncate(45);
    let (kept, _) = follow(101, &[cut], 10);
    assert!(matches!(kept.events[0].2.content, Content::Dns(dns) if dns.name == 0 && dns.id == 7), "{:?}", kept.events);
}

#[test]
fn quic_is_known_by_its_long_header() {
    let content =
        |payload: &[u8]| follow(101, &[udp((CLIENT, 4000), (SERVER, 443), payload)], 10).0.events[0].2.content;
    for version in [1, 0x6b33_43cf, 0xff00_001d, 0x1a2a_3a4a] {
        let Content::Quic(long) = content(&quic(version, b"abcdefgh")) else { panic!("{version:x}") };
        assert_eq!((long.version, long.destination.as_bytes()), (version, &b"abcdefgh"[..]));
    }
    for other in [quic(5, b"abc"), quic(1, &[1; 21]), quic(1, b"a")[..8].to_vec(), vec![0x40; 1200]] {
        assert_eq!(content(&other), Content::Other);
    }
}

#[test]
fn of_too_many_flows_the_silent_ones_are_closed() {
    let send = |port| udp((CLIENT, port), (SERVER, 9), b"x");
    let packets: Vec<_> = (1000..1100).flat_map(|port| [send(port), send(7)]).collect();
    let (kept, counts) = follow(101, &packets, 8);
    assert_eq!((counts.flows, counts.evicted), (101, 93));
    let busy = kept.flows.iter().filter(|(_, key)| matches!(key, FlowKey::Udp(from, _) if from.port == 7));
    assert_eq!((busy.count(), kept.closed.len()), (1, 101));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever stands behind the header of IP: no panic, and no flow that is not closed.
    #[test]
    fn any_datagrams_are_followed(
        packets in prop::collection::vec(
            (0..4_usize, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)), 1..12,
        ),
        kept_bytes in 0..1300_usize,
    ) {
        let file: Vec<_> = packets
            .into_iter()
            .map(|(which, places)| {
                let mut packet = match which {
                    0 => udp((CLIENT, 4000), (SERVER, 53), &dns(7, false, "example.com", 1)),
                    1 => udp((SERVER, 53), (CLIENT, 4000), &dns(7, true, "example.com", 1)),
                    2 => udp((CLIENT, 4000), (SERVER, 443), &quic(1, b"abcdefgh")),
                    _ => udp6(4000, 53, &dns(1, false, "a", 1)),
                };
                for (place, byte) in places {
                    // The headers are what matters most.
                    let length = packet.len().min(80);
                    *place.get_mut(&mut packet[..length]) = byte;
                }
                packet.truncate(kept_bytes);
                packet
            })
            .collect();
        let (kept, counts) = follow(101, &file, 2);
        prop_assert_eq!(kept.flows.len(), kept.closed.len());
        prop_assert_eq!(counts.udp, kept.events.len() as u64);
    }
}
