//! From a frame to the datagram of a source: what is not ours is left alone.

use std::net::SocketAddr;

use super::frame::{self, LENGTH, PAYLOAD, PAYLOAD_SUM, SENDER};
use super::header::{self, Ip};
use super::parts::{Ends, Hook};
use crate::condition::Program;
use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R4, R5, R10};
use taut_bpf::instruction::{Alu, Assembler, Jump, Label, Width};

/// In `SENDER`: room for both Ethernet addresses, of which the second is kept, the IP address, the
/// port, and the hops left.
pub(super) const SENDER_IP: i16 = SENDER + 12;
pub(super) const SENDER_PORT: i16 = SENDER + 28;
pub(super) const SENDER_HOPS: i16 = SENDER + 30;

/// A number as it stands in memory in network byte order.
const fn network(number: u16) -> i32 {
    u16::from_ne_bytes(number.to_be_bytes()) as i32
}

/// Loads `data` to `r2` and `data_end` to `r3` with the context in `r1`.
pub(super) fn load_frame(a: &mut Assembler, hook: Hook) {
    a.load(Width::B4, R2, R1, hook.data());
    a.load(Width::B4, R3, R1, hook.data() + 4);
}

/// The same with the context where the program keeps it.
pub(super) fn reload(a: &mut Assembler, hook: Hook) {
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    load_frame(a, hook);
}

/// Goes there if less than that many bytes lie between `r2` and `r3`.
pub(super) fn beyond_end(a: &mut Assembler, bytes: usize, to: Label) {
    a.mov(R4, R2);
    a.alu_imm(Alu::Add, R4, bytes as i32);
    a.jump_if(Jump::Greater, R4, R3, to);
}

/// Goes to `other` unless the frame at `r2` is of that version of IP, and to `pass` unless it is a
/// whole UDP datagram without IP options, extension headers or (IPv6) a checksum that was left out.
pub(super) fn is_udp(a: &mut Assembler, ip: Ip, other: Label, pass: Label) {
    beyond_end(a, ip.header_bytes(), other);
    a.load(Width::B2, R5, R2, 12);
    a.jump_if_imm(Jump::Unequal, R5, network(ip.ethertype()), other);
    a.load(Width::B1, R5, R2, 14);
    match ip {
        Ip::V4 => {
            a.jump_if_imm(Jump::Unequal, R5, 0x45, pass);
            // More fragments to come, or not the first one.
            a.load(Width::B2, R5, R2, 20);
            a.alu_imm(Alu::And, R5, network(0x3fff));
            a.jump_if_imm(Jump::Unequal, R5, 0, pass);
            a.load(Width::B1, R5, R2, 23);
        }
        Ip::V6 => {
            a.alu_imm(Alu::And, R5, 0xf0);
            a.jump_if_imm(Jump::Unequal, R5, 0x60, pass);
            a.load(Width::B2, R5, R2, 60);
            a.jump_if_imm(Jump::Equal, R5, 0, pass);
            // Of a fragment, it is that of the extension header.
            a.load(Width::B1, R5, R2, 20);
        }
    }
    a.jump_if_imm(Jump::Unequal, R5, 17, pass);
}

/// Goes away unless the datagram at `r2` is for the source.
pub(super) fn is_for(a: &mut Assembler, source: SocketAddr, pass: Label) {
    let ip = Ip::of(source);
    let mut at = ip.target_at() as i16;
    for part in header::octets(source.ip()).chunks(8) {
        if let Ok(word) = <[u8; 8]>::try_from(part) {
            a.load(Width::B8, R5, R2, at);
            a.constant(R4, i64::from_ne_bytes(word));
        } else {
            a.load(Width::B4, R5, R2, at);
            a.constant(R4, u32::from_ne_bytes([0, 1, 2, 3].map(|byte| part[byte])).into());
        }
        a.jump_if(Jump::Unequal, R5, R4, pass);
        at += part.len() as i16;
    }
    a.load(Width::B2, R5, R2, ip.udp() as i16 + 2);
    a.jump_if_imm(Jump::Unequal, R5, network(source.port()), pass);
}

/// Checks that the lengths agree and that so much is there; then `LENGTH` is good.
pub(super) fn lengths(a: &mut Assembler, hook: Hook, ip: Ip, ends: &Ends) {
    let (length, more) = ip.length();
    load_length(a, ip, ends);
    a.load(Width::B2, R5, R2, length as i16);
    a.byte_order(R5, 16, true);
    a.mov(R4, LENGTH);
    a.alu_imm(Alu::Add, R4, more as i32);
    a.jump_if(Jump::Unequal, R4, R5, ends.pass);
    a.alu_imm(Alu::Add, R5, ip.before_length() as i32);
    match hook {
        Hook::Xdp => {
            a.mov(R4, R3);
            a.alu(Alu::Sub, R4, R2);
        }
        Hook::Tc => {
            a.load(Width::B8, R1, R10, frame::CONTEXT);
            a.load(Width::B4, R4, R1, 0);
        }
    }
    a.jump_if(Jump::Greater, R5, R4, ends.pass);
}

fn load_length(a: &mut Assembler, ip: Ip, ends: &Ends) {
    a.load(Width::B2, LENGTH, R2, ip.udp() as i16 + 4);
    a.byte_order(LENGTH, 16, true);
    a.alu_imm(Alu::Sub, LENGTH, 8);
    // A UDP length below 8 wraps around.
    a.jump_if_imm(Jump::Greater, LENGTH, 0xffff, ends.pass);
}

/// Checks that all fields are there, of a datagram whose lengths agree; then `PAYLOAD` and `LENGTH` are good.
/// Nothing else is known of them, whatever was found out before: the verifier looks at what follows once.
pub(super) fn payload(a: &mut Assembler, hook: Hook, ip: Ip, program: &Program, ends: &Ends) {
    let needed = ip.header_bytes() + program.payload_bytes;
    reload(a, hook);
    beyond_end(a, ip.header_bytes(), ends.pass);
    load_length(a, ip, ends);
    if program.payload_bytes > 0 {
        a.jump_if_imm(Jump::Less, LENGTH, program.payload_bytes as i32, ends.short);
    }
    match hook {
        Hook::Xdp => beyond_end(a, needed, ends.pass),
        Hook::Tc => {
            // What of the datagram is not in the buffer's linear part is brought there.
            let (pull, there) = (a.label(), a.label());
            beyond_end(a, needed, pull);
            a.jump(there);
            a.place(pull);
            a.load(Width::B8, R1, R10, frame::CONTEXT);
            a.constant(R2, needed as i64);
            a.call(helper::SKB_PULL_DATA);
            reload(a, hook);
            beyond_end(a, needed, ends.pass);
            a.place(there);
        }
    }
    a.mov(PAYLOAD, R2);
    a.alu_imm(Alu::Add, PAYLOAD, ip.header_bytes() as i32);
}

/// Keeps how many hosts the datagram may still pass.
pub(super) fn save_hops(a: &mut Assembler, ip: Ip) {
    a.load(Width::B1, R4, R2, ip.hops_at() as i16);
    a.store(Width::B2, R10, SENDER_HOPS, R4);
}

/// Keeps what a reply needs of the sender.
pub(super) fn save_sender(a: &mut Assembler, ip: Ip) {
    for at in (6..12).step_by(2) {
        a.load(Width::B2, R4, R2, at);
        a.store(Width::B2, R10, SENDER + at, R4);
    }
    for at in (0..ip.address_bytes() as i16).step_by(4) {
        a.load(Width::B4, R4, R2, ip.sender_at() as i16 + at);
        a.store(Width::B4, R10, SENDER_IP + at, R4);
    }
    a.load(Width::B2, R4, R2, ip.udp() as i16);
    a.store(Width::B2, R10, SENDER_PORT, R4);
}

/// Keeps the sum of the payload of a datagram over IPv6, as its checksum has it: what is left of that without
/// addresses, ports and length (RFC 1624). Of a buffer whose checksum is not completed yet it is none, and not needed.
pub(super) fn save_payload_sum(a: &mut Assembler) {
    a.constant(R4, i64::from(header::sum(&[0, 17])));
    // The length is there twice.
    a.load(Width::B2, R5, R2, 58);
    a.alu(Alu::Add, R4, R5);
    for at in (22..60).step_by(2) {
        a.load(Width::B2, R5, R2, at);
        a.alu(Alu::Add, R4, R5);
    }
    // The complement is the negative, in 32 bits as in 16.
    a.constant(R5, u32::MAX.into());
    a.alu(Alu::Xor, R4, R5);
    a.load(Width::B2, R5, R2, 60);
    a.alu_imm(Alu::Xor, R5, 0xffff);
    a.alu(Alu::Add, R4, R5);
    a.store(Width::B8, R10, PAYLOAD_SUM, R4);
}

/// The key of a datagram in the dispatcher's table, to the stack: see [`key`].
pub(super) fn store_key(a: &mut Assembler, ip: Ip, to: i16) {
    let address = ip.target_at() as i16;
    match ip {
        Ip::V4 => {
            a.load(Width::B4, R4, R2, address);
            a.store(Width::B8, R10, to, R4);
            a.constant(R4, 0);
            a.store(Width::B8, R10, to + 8, R4);
        }
        Ip::V6 => {
            for at in [0, 8] {
                a.load(Width::B8, R4, R2, address + at);
                a.store(Width::B8, R10, to + at, R4);
            }
        }
    }
    a.load(Width::B2, R4, R2, ip.udp() as i16 + 2);
    a.store(Width::B4, R10, to + 16, R4);
    a.constant(R0, version(ip).into());
    a.store(Width::B4, R10, to + 20, R0);
}

const fn version(ip: Ip) -> i32 {
    match ip {
        Ip::V4 => 4,
        Ip::V6 => 6,
    }
}

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 24;

/// The key of a source in the dispatcher's table: address, port as it stands in memory, version.
pub(super) fn key(source: SocketAddr) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    match header::octets(source.ip()).as_slice() {
        // Loaded as a number of 32 bits and stored as one of 64.
        four if four.len() == 4 => {
            let word = u64::from(u32::from_ne_bytes([0, 1, 2, 3].map(|byte| four[byte])));
            key[..8].copy_from_slice(&word.to_ne_bytes());
        }
        six => key[..16].copy_from_slice(six),
    }
    let port = u32::from(u16::from_ne_bytes(source.port().to_be_bytes()));
    key[16..20].copy_from_slice(&port.to_ne_bytes());
    key[20..].copy_from_slice(&version(Ip::of(source)).to_ne_bytes());
    key
}
