//! Datagrams of UDP, and what is in them.

use std::net::Ipv4Addr;

/// Over IPv4.
pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + length).to_be_bytes());
    bytes.extend([0, 9, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(from.0.octets());
    bytes.extend(to.0.octets());
    bytes.extend(header(from.1, to.1, length));
    bytes.extend(payload);
    bytes
}

/// Over IPv6.
pub(crate) fn udp6(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([17, 64]);
    bytes.extend([0xfd; 31]);
    bytes.push(1);
    bytes.extend(header(from, to, length));
    bytes.extend(payload);
    bytes
}

fn header(from: u16, to: u16, length: u16) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes(), length.to_be_bytes(), [0; 2]].concat()
}

/// A question of DNS, or its answer (without records, which nobody looks at).
pub(crate) fn dns(id: u16, is_answer: bool, name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(if is_answer { [0x81, 0x80] } else { [1, 0] });
    bytes.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// A packet of QUIC with a long header.
pub(crate) fn quic(version: u32, destination: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc3];
    bytes.extend(version.to_be_bytes());
    bytes.push(destination.len() as u8);
    bytes.extend(destination);
    bytes.extend([2, 7, 7]);
    bytes.resize(1200, 0);
    bytes
}
