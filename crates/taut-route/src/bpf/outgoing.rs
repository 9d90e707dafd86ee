//! Sending: the datagram's own frame rewritten in place, or clones of it.

use super::checksum::{self, RECOMPUTE, fold};
use super::frame::{
    self, CHECKSUM, DEVICE, FAILED, HEADERS, LENGTH, MEMORY, NOW, OUTPUTS, REPLIES, REPLY_SECOND, SENDER, SENT_SUM,
};
use super::header::{
    self, FIRST_SUM, HEADER_ROOM, IFINDEX, Ip, OWN_BROADCAST, OWN_BYTES, OWN_ETHERNET, PSEUDO_SUM, SINK_BYTES,
};
use super::incoming::{SENDER_HOPS, SENDER_IP, SENDER_PORT, beyond_end, reload};
use super::parts::{Ends, NetParts, count, stack_address, time_taken};
use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R4, R5, R10};
use taut_bpf::instruction::{Alu, Assembler, Jump, Label, R, Width};

/// Ports below are of services, some of which answer to whatever they get (RFC 6335, section 6).
pub(crate) const FIRST_PORT: u16 = 1024;

const XDP_TX: i64 = 3;
/// Where a number stands behind the headers on the stack.
const NUMBER: i16 = HEADERS + HEADER_ROOM as i16;

/// Puts the headers for a sink at `HEADERS`, the number of its device at `DEVICE` (0 when it is not known),
/// the sum of the pseudo header of UDP at `CHECKSUM`, and over IPv6 that of all but the payload at `SENT_SUM`.
fn headers_out(a: &mut Assembler, parts: &NetParts<'_>, index: usize, failed: Label) {
    let (sink, ip) = (parts.sinks[index], Ip::of(parts.source));
    if sink.reply {
        may_reply(a, parts, ip, failed);
        headers_of_reply(a, parts, ip);
    } else {
        let entry = (OWN_BYTES + index * SINK_BYTES) as i16;
        a.map_value(R2, parts.sinks_fd);
        for at in (0..ip.header_bytes().next_multiple_of(8) as i16).step_by(8) {
            a.load(Width::B8, R1, R2, entry + at);
            a.store(Width::B8, R10, HEADERS + at, R1);
        }
        a.load(Width::B4, R3, R2, entry + FIRST_SUM as i16);
        a.load(Width::B4, R4, R2, entry + PSEUDO_SUM as i16);
        a.load(Width::B4, R1, R2, entry + IFINDEX as i16);
    }
    a.store(Width::B8, R10, DEVICE, R1);
    // One host less than came, so that what goes in circles comes to an end.
    a.load(Width::B2, R1, R10, SENDER_HOPS);
    a.alu_imm(Alu::Sub, R1, 1);
    a.store(Width::B1, R10, HEADERS + ip.hops_at() as i16, R1);
    if ip == Ip::V4 {
        if cfg!(target_endian = "big") {
            a.alu_imm(Alu::ShiftLeft, R1, 8);
        }
        a.alu(Alu::Add, R3, R1);
    }
    let length = |a: &mut Assembler, more: usize| {
        match sink.output {
            Some(_) => a.constant(R1, 8),
            None => a.mov(R1, LENGTH),
        }
        a.alu_imm(Alu::Add, R1, more as i32);
        a.byte_order(R1, 16, true);
    };
    let (at, more) = ip.length();
    length(a, more);
    a.store(Width::B2, R10, HEADERS + at as i16, R1);
    a.alu(Alu::Add, R3, R1);
    length(a, 8);
    a.store(Width::B2, R10, HEADERS + ip.udp() as i16 + 4, R1);
    a.alu(Alu::Add, R4, R1);
    fold(a, R4, R1);
    a.store(Width::B8, R10, CHECKSUM, R4);
    match ip {
        Ip::V4 => {
            fold(a, R3, R1);
            a.alu_imm(Alu::Xor, R3, 0xffff);
            a.store(Width::B2, R10, HEADERS + 24, R3);
        }
        Ip::V6 => {
            // The ports and the length, which is the same in both headers; and the pseudo header.
            a.alu(Alu::Add, R3, R4);
            a.store(Width::B8, R10, SENT_SUM, R3);
        }
    }
}

/// Goes away if what follows from the datagram could not pass even one host.
pub(super) fn has_hops_left(a: &mut Assembler, none: Label) {
    a.load(Width::B2, R1, R10, SENDER_HOPS);
    a.jump_if_imm(Jump::Less, R1, 2, none);
}

/// Goes to `failed` where a reply could begin a loop, by a rule that holds in user space too
/// (`run/loops.rs`): from a port that answers by itself, our own one included; to all hosts, to
/// none, or to ourselves; and beyond the number of replies a second.
fn may_reply(a: &mut Assembler, parts: &NetParts<'_>, ip: Ip, failed: Label) {
    a.load(Width::B2, R1, R10, SENDER_PORT);
    a.byte_order(R1, 16, true);
    a.jump_if_imm(Jump::Less, R1, FIRST_PORT.into(), failed);
    a.jump_if_imm(Jump::Equal, R1, parts.source.port().into(), failed);
    match ip {
        Ip::V4 => {
            a.map_value(R2, parts.sinks_fd);
            // By two bytes, which is how the address is aligned here.
            let differs = a.label();
            for at in [0, 2] {
                a.load(Width::B2, R1, R10, SENDER_IP + at);
                a.load(Width::B2, R3, R2, OWN_BROADCAST as i16 + at);
                a.jump_if(Jump::Unequal, R1, R3, differs);
            }
            a.jump(failed);
            a.place(differs);
        }
        Ip::V6 => {
            let own = header::octets(parts.source.ip());
            // Of IPv4 within IPv6 no socket of IPv6 alone sends.
            let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            for address in [own.as_slice(), &[0; 16], &mapped] {
                // On loopback everybody has our own address.
                if address == own && parts.source.ip().is_loopback() {
                    continue;
                }
                let differs = a.label();
                for (at, word) in address.chunks(2).enumerate() {
                    a.load(Width::B2, R1, R10, SENDER_IP + 2 * at as i16);
                    a.jump_if_imm(Jump::Unequal, R1, u16::from_ne_bytes([word[0], word[1]]).into(), differs);
                }
                a.jump(failed);
                a.place(differs);
            }
        }
    }
    // Two processors at the turn of a second may let a few more through.
    let same = a.label();
    a.mov(R1, NOW);
    a.alu_imm(Alu::Div, R1, 1_000_000_000);
    a.load(Width::B8, R2, MEMORY, REPLY_SECOND as i16);
    a.jump_if(Jump::Equal, R1, R2, same);
    a.store(Width::B8, MEMORY, REPLY_SECOND as i16, R1);
    a.constant(R1, 0);
    a.store(Width::B8, MEMORY, REPLIES as i16, R1);
    a.place(same);
    a.load(Width::B8, R2, MEMORY, REPLIES as i16);
    a.constant(R1, parts.replies.into());
    a.jump_if(Jump::Less, R1, R2, failed);
    a.jump_if(Jump::Equal, R1, R2, failed);
    count(a, REPLIES);
}

/// Those of a reply; the sums in `r3` and `r4`, the number of the device in `r1`.
fn headers_of_reply(a: &mut Assembler, parts: &NetParts<'_>, ip: Ip) {
    let template = header::headers(None, parts.source, None);
    for (at, word) in template.chunks_exact(8).enumerate().take(ip.header_bytes().div_ceil(8)) {
        a.constant(R1, i64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| word[byte])));
        a.store(Width::B8, R10, HEADERS + 8 * at as i16, R1);
    }
    for at in (0..6).step_by(2) {
        a.load(Width::B2, R1, R10, SENDER + 6 + at);
        a.store(Width::B2, R10, HEADERS + at, R1);
    }
    a.map_value(R2, parts.sinks_fd);
    for at in (0..6).step_by(2) {
        a.load(Width::B2, R1, R2, OWN_ETHERNET as i16 + at);
        a.store(Width::B2, R10, HEADERS + 6 + at, R1);
    }
    // By two bytes, which is how the address is aligned here.
    a.constant(R5, 0);
    for at in (0..ip.address_bytes() as i16).step_by(2) {
        a.load(Width::B2, R1, R10, SENDER_IP + at);
        a.store(Width::B2, R10, HEADERS + ip.target_at() as i16 + at, R1);
        a.alu(Alu::Add, R5, R1);
    }
    a.load(Width::B2, R1, R10, SENDER_PORT);
    a.store(Width::B2, R10, HEADERS + ip.udp() as i16 + 2, R1);
    a.constant(R3, header::first_sum(ip, &template).into());
    a.alu(Alu::Add, R3, if ip == Ip::V4 { R5 } else { R1 });
    a.constant(R4, header::pseudo_sum(ip, &template).into());
    a.alu(Alu::Add, R4, R5);
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.load(Width::B4, R1, R1, parts.hook.device());
}

/// The datagram's own frame is rewritten and goes back out of its device.
pub(super) fn send_in_place(a: &mut Assembler, parts: &NetParts<'_>, ends: &Ends) {
    let Some(&sink) = parts.sinks.first() else {
        time_taken(a);
        return a.jump(ends.drop);
    };
    let ip = Ip::of(parts.source);
    let header_bytes = ip.header_bytes();
    headers_out(a, parts, 0, ends.failed);
    if !sink.reply {
        a.load(Width::B8, R1, R10, DEVICE);
        a.load(Width::B8, R2, R10, frame::CONTEXT);
        a.load(Width::B4, R2, R2, parts.hook.device());
        a.jump_if(Jump::Unequal, R1, R2, ends.failed);
    }
    match ip {
        Ip::V4 => {
            a.constant(R1, 0);
            a.store(Width::B8, R10, CHECKSUM, R1);
        }
        Ip::V6 => checksum::sum_up(a, sink.output, parts.memory_fd, ends.failed),
    }
    reload(a, parts.hook);
    if sink.output.is_some() {
        a.alu(Alu::Sub, R3, R2);
        a.constant(R2, header_bytes as i64 + 8);
        a.alu(Alu::Sub, R2, R3);
        a.call(helper::XDP_ADJUST_TAIL);
        a.jump_if_imm(Jump::Unequal, R0, 0, ends.failed);
        reload(a, parts.hook);
    }
    beyond_end(a, header_bytes + if sink.output.is_some() { 8 } else { 0 }, ends.failed);
    a.load(Width::B8, R1, R10, CHECKSUM);
    a.store(Width::B2, R10, checksum::field(ip), R1);
    copy_headers(a, R2, header_bytes as i16);
    if let Some(output) = sink.output {
        a.load(Width::B8, R1, R10, OUTPUTS + 8 * output as i16);
        a.byte_order(R1, 64, true);
        a.store(Width::B8, R2, header_bytes as i16, R1);
    }
    time_taken(a);
    a.constant(R0, XDP_TX);
    a.exit();
}

/// From the stack to `to`, in words as far as there are whole ones.
fn copy_headers(a: &mut Assembler, to: R, bytes: i16) {
    let mut at = 0;
    for (width, step) in [(Width::B8, 8), (Width::B4, 4), (Width::B2, 2)] {
        while at + step <= bytes {
            a.load(width, R1, R10, HEADERS + at);
            a.store(width, to, at, R1);
            at += step;
        }
    }
}

/// Each sink gets a clone, the last one the datagram itself. Those that get the payload as it came
/// are first, since numbers overwrite it.
pub(super) fn send_all(a: &mut Assembler, parts: &NetParts<'_>, ends: &Ends) {
    let ip = Ip::of(parts.source);
    let header_bytes = ip.header_bytes();
    let mut order: Vec<usize> = (0..parts.sinks.len()).collect();
    order.sort_by_key(|&index| parts.sinks[index].output.is_some());
    let mut is_short = false;
    for (place, &index) in order.iter().enumerate() {
        let (next, failed) = (a.label(), a.label());
        let output = parts.sinks[index].output;
        if output.is_some() && !is_short {
            is_short = true;
            a.load(Width::B8, R1, R10, frame::CONTEXT);
            a.constant(R2, header_bytes as i64 + 8);
            a.constant(R3, 0);
            a.call(helper::SKB_CHANGE_TAIL);
            a.jump_if_imm(Jump::Unequal, R0, 0, ends.failed);
        }
        headers_out(a, parts, index, failed);
        a.load(Width::B8, R1, R10, DEVICE);
        a.jump_if_imm(Jump::Equal, R1, 0, failed);
        a.load(Width::B8, R1, R10, CHECKSUM);
        a.store(Width::B2, R10, checksum::field(ip), R1);
        // Over IPv6 a sum of the buffer's bytes, if the device made one, has to stay true; the
        // Ethernet header is not in it.
        let flags = if ip == Ip::V6 { RECOMPUTE } else { 0 };
        if let Some(output) = output {
            a.load(Width::B8, R1, R10, OUTPUTS + 8 * output as i16);
            a.byte_order(R1, 64, true);
            a.store(Width::B8, R10, NUMBER, R1);
            store_bytes(a, header_bytes, NUMBER, 8, flags, failed);
        }
        match ip {
            Ip::V4 => store_bytes(a, 0, HEADERS, header_bytes, 0, failed),
            Ip::V6 => {
                store_bytes(a, 0, HEADERS, 14, 0, failed);
                store_bytes(a, 14, HEADERS + 14, header_bytes - 14, flags, failed);
            }
        }
        checksum::complete(a, ip, output);
        a.load(Width::B8, R2, R10, DEVICE);
        if place + 1 == order.len() {
            time_taken(a);
            a.load(Width::B8, R1, R10, DEVICE);
            a.constant(R2, 0);
            a.call(helper::REDIRECT);
            a.exit();
            a.place(failed);
            a.jump(ends.failed);
        } else {
            a.load(Width::B8, R1, R10, frame::CONTEXT);
            a.constant(R3, 0);
            a.call(helper::CLONE_REDIRECT);
            a.jump_if_imm(Jump::Equal, R0, 0, next);
            a.place(failed);
            count(a, FAILED);
            a.place(next);
        }
    }
    if order.is_empty() {
        time_taken(a);
        a.jump(ends.drop);
    }
}

fn store_bytes(a: &mut Assembler, to: usize, from: i16, bytes: usize, flags: i64, failed: Label) {
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.constant(R2, to as i64);
    stack_address(a, R3, from);
    a.constant(R4, bytes as i64);
    a.constant(R5, flags);
    a.call(helper::SKB_STORE_BYTES);
    a.jump_if_imm(Jump::Unequal, R0, 0, failed);
}
