//! Files and packets, byte by byte.

#[allow(dead_code, reason = "some tests use a part of it")]
pub(crate) mod files;
#[allow(dead_code, reason = "some tests use a part of it")]
pub(crate) mod udp;

use std::io::Cursor;

use taut_capture::{Counts, Flows, Reader};
use taut_event::{Sink, VantageId};

/// When the first packet of a file was captured, in ns since 1970-01-01 UTC.
pub(crate) const AT: u64 = 1_700_000_000_123_456_789;

/// What a sink is told of a file of these packets, one each microsecond.
#[allow(dead_code, reason = "some tests use a part of it")]
pub(crate) fn followed<S: Sink + Default>(link: u16, packets: &[Vec<u8>], capacity: usize) -> (S, Counts) {
    let packets: Vec<_> =
        packets.iter().enumerate().map(|(i, packet)| (AT + i as u64 * 1000, packet.clone())).collect();
    let file = pcap(false, true, link, &packets);
    let mut reader = Reader::new(Cursor::new(file)).unwrap();
    let (mut flows, mut sink) = (Flows::new(capacity), S::default());
    while let Some(packet) = reader.next_packet().unwrap() {
        flows.packet(&packet, VantageId(0), &mut sink);
    }
    flows.finish(&mut sink);
    (sink, *flows.counts())
}

#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self { from: 1, to: 2, seq: 1, ack: 1, flags: 16, window: 1000, options: Vec::new() }
    }
}

impl Tcp {
    /// A multiple of four bytes.
    #[allow(dead_code, reason = "some tests use a part of it")]
    pub(crate) fn options(&self, options: &[u8]) -> Self {
        Self { options: options.to_vec(), ..self.clone() }
    }

    fn bytes(&self, payload: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.from.to_be_bytes());
        bytes.extend(self.to.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.push((((20 + self.options.len()) / 4) << 4) as u8);
        bytes.push(self.flags);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&self.options);
        bytes.resize(bytes.len() + payload, 0);
        bytes
    }
}

/// The address says the port, so that both directions have the same two ends.
pub(crate) fn ipv4(tcp: &Tcp, payload: usize) -> Vec<u8> {
    let segment = tcp.bytes(payload);
    let mut bytes = vec![0x45, 0];
    bytes.extend(((20 + segment.len()) as u16).to_be_bytes());
    bytes.extend([0, 9, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend([10, 0, tcp.from.to_be_bytes()[0], tcp.from.to_be_bytes()[1]]);
    bytes.extend([10, 0, tcp.to.to_be_bytes()[0], tcp.to.to_be_bytes()[1]]);
    bytes.extend(segment);
    bytes
}

/// With extension headers of eight bytes each.
pub(crate) fn ipv6(extensions: &[u8], tcp: &Tcp, payload: usize) -> Vec<u8> {
    let segment = tcp.bytes(payload);
    let next: Vec<u8> = extensions.iter().copied().chain([6]).collect();
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(((8 * extensions.len() + segment.len()) as u16).to_be_bytes());
    bytes.extend([next[0], 64]);
    bytes.extend([0xfd; 31]);
    bytes.push(1);
    for &next in &next[1..] {
        bytes.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    bytes.extend(segment);
    bytes
}

#[allow(dead_code, reason = "some tests use a part of it")]
pub(crate) fn fragment(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[6..8].copy_from_slice(&[0, 10]);
    packet
}

pub(crate) fn ethernet(tags: &[u16], packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    for tag in tags {
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0, 5]);
    }
    bytes.extend([8, 0]);
    bytes.extend(packet);
    bytes
}

fn word(is_big: bool, value: u32) -> [u8; 4] {
    if is_big { value.to_be_bytes() } else { value.to_le_bytes() }
}

fn half(is_big: bool, value: u16) -> [u8; 2] {
    if is_big { value.to_be_bytes() } else { value.to_le_bytes() }
}

pub(crate) fn pcap(is_big: bool, is_nano: bool, link: u16, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(word(is_big, if is_nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    file.extend(half(is_big, 2));
    file.extend(half(is_big, 4));
    file.extend([0; 8]);
    file.extend(word(is_big, 262_144));
    file.extend(word(is_big, link.into()));
    for (at, bytes) in packets {
        let unit = if is_nano { 1 } else { 1000 };
        file.extend(word(is_big, (at / 1_000_000_000) as u32));
        file.extend(word(is_big, (at % 1_000_000_000 / unit) as u32));
        file.extend(word(is_big, bytes.len() as u32));
        file.extend(word(is_big, bytes.len() as u32));
        file.extend(bytes);
    }
    file
}

/// Link type, unit of time (`if_tsresol`), and offset in seconds.
#[allow(dead_code, reason = "some tests use a part of it")]
pub(crate) type Interface = (u16, Option<u8>, u64);

#[allow(dead_code, reason = "some tests use a part of it")]
pub(crate) fn pcapng(is_big: bool, interfaces: &[Interface], packets: &[(u32, u64, &[u8])]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = word(is_big, body.len() as u32 + 12);
        [&word(is_big, kind)[..], &length, &body, &length].concat()
    };
    let mut section = word(is_big, 0x1a2b_3c4d).to_vec();
    section.extend(half(is_big, 1));
    section.extend(half(is_big, 0));
    section.extend([0xff; 8]);
    let mut file = block(0x0a0d_0d0a, &section);
    for (link, unit, offset) in interfaces {
        let mut body = half(is_big, *link).to_vec();
        body.extend([0; 6]);
        if let Some(unit) = unit {
            body.extend(half(is_big, 9));
            body.extend(half(is_big, 1));
            body.extend([*unit, 0, 0, 0]);
        }
        if *offset > 0 {
            body.extend(half(is_big, 14));
            body.extend(half(is_big, 8));
            body.extend(if is_big { offset.to_be_bytes() } else { offset.to_le_bytes() });
        }
        file.extend(block(1, &body));
    }
    for (interface, at, bytes) in packets {
        let count = match interfaces.get(*interface as usize).and_then(|interface| interface.1) {
            Some(9) => *at,
            Some(unit) if unit & 0x80 != 0 => ((u128::from(*at) << (unit & 0x7f)) / 1_000_000_000) as u64,
            _ => at / 1000,
        };
        let mut body = word(is_big, *interface).to_vec();
        body.extend(word(is_big, (count >> 32) as u32));
        body.extend(word(is_big, count as u32));
        body.extend(word(is_big, bytes.len() as u32));
        body.extend(word(is_big, bytes.len() as u32));
        body.extend(*bytes);
        file.extend(block(6, &body));
    }
    file
}
