//! What the stack would refuse is left to it: a program runs before the stack has looked, and takes
//! no more than a socket would get.
//!
//! The checks are those of `ip_rcv_core` and `ip_route_input_slow` (net/ipv4), `ip6_rcv_core`
//! (net/ipv6) and `udp_rcv`. What they say of a frame is said here of the same bytes, and what is
//! not acceptable goes on to them, who refuse and count it.

use super::checksum::{self, LONGEST_SUMMED, SUM, fold};
use super::frame::{self, HEADERS, LENGTH, PAYLOAD};
use super::header::{self, Ip, OWN_ETHERNET};
use super::incoming::{beyond_end, reload};
use super::parts::{Ends, Hook, NetParts, stack_address};
use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R4, R5, R10};
use taut_bpf::instruction::{Alu, Assembler, Jump, Label, Width};

/// `BPF_CSUM_LEVEL_QUERY` (linux/bpf.h), and the highest level that there is.
const QUERY: i64 = 0;
const HIGHEST_LEVEL: i32 = 3;

/// Goes away unless the frame at `r2` was for this device, or for all or many of the cable
/// (`eth_type_trans`, net/ethernet/eth.c).
pub(super) fn is_to_this_device(a: &mut Assembler, sinks_fd: i32, pass: Label) {
    let good = a.label();
    a.load(Width::B1, R5, R2, 0);
    a.alu_imm(Alu::And, R5, 1);
    a.jump_if_imm(Jump::Unequal, R5, 0, good);
    a.map_value(R4, sinks_fd);
    for at in (0..6).step_by(2) {
        a.load(Width::B2, R5, R2, at);
        a.load(Width::B2, R1, R4, OWN_ETHERNET as i16 + at);
        a.jump_if(Jump::Unequal, R5, R1, pass);
    }
    a.place(good);
}

/// Goes away if nobody may have the sender's address on this device ("martians").
pub(super) fn has_a_sender(a: &mut Assembler, parts: &NetParts<'_>, pass: Label) {
    let ip = Ip::of(parts.source);
    let at = ip.sender_at() as i16;
    let is_loopback = parts.source.ip().is_loopback();
    a.load(Width::B1, R5, R2, at);
    match ip {
        Ip::V4 => {
            // This host, many hosts.
            if !is_loopback {
                a.jump_if_imm(Jump::Equal, R5, 127, pass);
            }
            a.alu_imm(Alu::And, R5, 0xf0);
            a.jump_if_imm(Jump::Equal, R5, 0xe0, pass);
            // None, all hosts, and the route's own address.
            a.load(Width::B4, R5, R2, at);
            a.jump_if_imm(Jump::Equal, R5, 0, pass);
            a.constant(R4, u32::MAX.into());
            a.jump_if(Jump::Equal, R5, R4, pass);
            if !is_loopback {
                a.constant(R4, i64::from(header::word(parts.source.ip(), 0)));
                a.jump_if(Jump::Equal, R5, R4, pass);
            }
        }
        Ip::V6 => {
            a.jump_if_imm(Jump::Equal, R5, 0xff, pass);
            if !is_loopback {
                // This host.
                let good = a.label();
                for (word, this) in [0, 0, 0, i32::from_ne_bytes([0, 0, 0, 1])].into_iter().enumerate() {
                    a.load(Width::B4, R5, R2, at + 4 * word as i16);
                    a.jump_if_imm(Jump::Unequal, R5, this, good);
                }
                a.jump(pass);
                a.place(good);
            }
        }
    }
}

/// Goes away if the checksum of the IPv4 header at `r2` is wrong. IPv6 has none.
pub(super) fn header_is_whole(a: &mut Assembler, ip: Ip, pass: Label) {
    if ip == Ip::V6 {
        return;
    }
    a.constant(R4, 0);
    add_words(a, 14..34);
    fold(a, R4, R5);
    a.jump_if_imm(Jump::Unequal, R4, 0xffff, pass);
}

/// Adds 16-bit words of the frame at `r2` to `r4`.
fn add_words(a: &mut Assembler, places: std::ops::Range<usize>) {
    for at in places.step_by(2) {
        a.load(Width::B2, R5, R2, at as i16);
        a.alu(Alu::Add, R4, R5);
    }
}

/// Goes away if the checksum of UDP is wrong; the lengths agree, `LENGTH` is good, and the frame is
/// at `r2`. Only the context's place and the stack's lower part are as before then.
///
/// A buffer of the kernel may have one that a device is to complete (`CHECKSUM_PARTIAL`): its field
/// has the sum of the pseudo header. Traffic control finds out whether it is such a one. XDP can't,
/// and takes what looks like it: of damaged frames one in 65,536.
pub(super) fn datagram_is_whole(a: &mut Assembler, parts: &NetParts<'_>, ends: &Ends) {
    let (hook, ip) = (parts.hook, Ip::of(parts.source));
    let (udp, good) = (ip.udp(), a.label());
    let field = udp + 6;
    a.load(Width::B2, R5, R2, field as i16);
    if ip == Ip::V4 {
        // There is none.
        a.jump_if_imm(Jump::Equal, R5, 0, good);
    }
    a.constant(R4, header::sum(&[0, 17]).into());
    add_words(a, ip.sender_at()..udp);
    add_words(a, udp + 4..udp + 6);
    a.mov(SUM, R4);
    fold(a, R4, R5);
    a.load(Width::B2, R5, R2, field as i16);
    let looks_complete = a.label();
    match hook {
        Hook::Xdp => a.jump_if(Jump::Equal, R4, R5, good),
        Hook::Tc => {
            a.jump_if(Jump::Unequal, R4, R5, looks_complete);
            a.store(Width::B8, R10, HEADERS, R5);
            is_to_be_completed(a, hook, field, good, ends);
            a.place(looks_complete);
            // The device has looked at it.
            a.load(Width::B8, R1, R10, frame::CONTEXT);
            a.constant(R2, QUERY);
            a.call(helper::CSUM_LEVEL);
            a.jump_if_imm(Jump::Less, R0, HIGHEST_LEVEL + 1, good);
        }
    }
    // A payload that is too long to be summed up here is lost.
    a.jump_if_imm(Jump::Greater, LENGTH, LONGEST_SUMMED as i32, ends.failed);
    reload(a, hook);
    if hook == Hook::Tc {
        let (pull, there) = (a.label(), a.label());
        a.mov(R4, R2);
        a.alu_imm(Alu::Add, R4, ip.header_bytes() as i32);
        a.alu(Alu::Add, R4, LENGTH);
        a.jump_if(Jump::Greater, R4, R3, pull);
        a.jump(there);
        a.place(pull);
        a.load(Width::B8, R1, R10, frame::CONTEXT);
        a.mov(R2, LENGTH);
        a.alu_imm(Alu::Add, R2, ip.header_bytes() as i32);
        a.call(helper::SKB_PULL_DATA);
        a.place(there);
        // The same for both ways here, so that the verifier goes on with one of them.
        reload(a, hook);
    }
    beyond_end(a, ip.header_bytes(), ends.pass);
    a.mov(R4, SUM);
    add_words(a, udp..udp + 8);
    a.mov(SUM, R4);
    a.mov(PAYLOAD, R2);
    a.alu_imm(Alu::Add, PAYLOAD, ip.header_bytes() as i32);
    a.mov(checksum::END, R3);
    // Known already. Where the verifier keeps a state to compare others with depends on the jumps
    // before: so it goes through fewer of the pieces of the sum twice.
    a.jump_if_imm(Jump::Greater, LENGTH, LONGEST_SUMMED as i32, ends.pass);
    checksum::sum_payload(a, ends.pass);
    a.mov(R1, SUM);
    fold(a, R1, R2);
    fold(a, R1, R2);
    a.jump_if_imm(Jump::Unequal, R1, 0xffff, ends.pass);
    a.place(good);
}

/// Goes to `good` if the device is to complete the checksum whose field is at `HEADERS` too: the
/// helper leaves such a one alone. Any other is put back.
fn is_to_be_completed(a: &mut Assembler, hook: Hook, field: usize, good: Label, ends: &Ends) {
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.constant(R2, field as i64);
    a.constant(R3, 0);
    a.constant(R4, 1);
    a.constant(R5, 0);
    a.call(helper::L4_CSUM_REPLACE);
    reload(a, hook);
    beyond_end(a, field + 2, ends.pass);
    a.load(Width::B2, R5, R2, field as i16);
    a.load(Width::B8, R4, R10, HEADERS);
    a.jump_if(Jump::Equal, R4, R5, good);
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.constant(R2, field as i64);
    stack_address(a, R3, HEADERS);
    a.constant(R4, 2);
    a.constant(R5, 0);
    a.call(helper::SKB_STORE_BYTES);
}
