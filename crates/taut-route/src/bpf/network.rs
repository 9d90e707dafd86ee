//! Programs on a network device: UDP datagrams in, the condition, UDP datagrams out.
//!
//! A program takes the datagrams of its source and leaves all else alone: other protocols, other addresses and ports,
//! fragments, IP options, and datagrams whose lengths contradict each other. What it takes never reaches a socket, as it
//! would not if a socket of ours read it.

use std::net::SocketAddrV4;

use super::frame::{
    BUCKETS, CHECKSUM, DEVICE, EVENT, FAILED, HEADERS, HISTOGRAM, LENGTH, LOG_LOST, MEMORY, NOW, OUTPUTS, PASSES,
    PAYLOAD, SENDER, SHORT,
};
use super::header::{self, HEADER_BYTES, IFINDEX, IP_SUM, PSEUDO_SUM, SINK_BYTES};
use super::instruction::R::{R0, R1, R2, R3, R4, R5, R10};
use super::instruction::{Alu, Assembler, Instruction, Jump, Label, R, Width};
use super::{frame, helper, record};
use crate::condition::Program;

/// Where in the kernel a program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hook {
    /// In the driver, or in its place: at most one sink, on the device that the datagram came from.
    Xdp,
    /// Traffic control, on the way in (tcx): any number of sinks on any devices.
    Tc,
}

/// A sink of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NetSink {
    /// Back to the sender, else what stands at the sink's place in the table.
    pub(super) reply: bool,
    /// The output that is sent as 8 bytes in network byte order; else the payload as it came.
    pub(super) output: Option<usize>,
}

/// What a program is made of besides its expressions.
pub(super) struct NetParts<'a> {
    pub(super) hook: Hook,
    pub(super) source: SocketAddrV4,
    pub(super) sinks: &'a [NetSink],
    pub(super) memory_fd: i32,
    pub(super) sinks_fd: i32,
    /// A ring buffer for the log, and the output that goes there.
    pub(super) log: Option<(i32, Option<usize>)>,
}

/// A record of the log: time, number and value of an event that passed.
pub(super) const LOG_BYTES: usize = 24;

impl Hook {
    /// Offset of `data` in the context; `data_end` follows it.
    const fn data(self) -> i16 {
        match self {
            // struct xdp_md.
            Self::Xdp => 0,
            // struct __sk_buff.
            Self::Tc => 76,
        }
    }

    /// Offset of the number of the device that the datagram came from.
    const fn device(self) -> i16 {
        match self {
            Self::Xdp => 12,
            Self::Tc => 40,
        }
    }

    /// `XDP_PASS`, `TCX_NEXT`.
    const fn pass(self) -> i64 {
        match self {
            Self::Xdp => 2,
            Self::Tc => -1,
        }
    }

    /// `XDP_DROP`, `TCX_DROP`.
    const fn drop(self) -> i64 {
        match self {
            Self::Xdp => 1,
            Self::Tc => 2,
        }
    }
}

const XDP_TX: i64 = 3;

/// A number as it stands in memory in network byte order.
const fn network(number: u16) -> i32 {
    u16::from_ne_bytes(number.to_be_bytes()) as i32
}

struct Ends {
    /// Not ours.
    pass: Label,
    short: Label,
    /// Taken, and nothing to send.
    drop: Label,
    /// Taken, and could not be sent.
    failed: Label,
}

/// The program.
pub(super) fn generate(program: &Program, parts: &NetParts<'_>) -> Vec<Instruction> {
    let a = &mut Assembler::default();
    let ends = Ends { pass: a.label(), short: a.label(), drop: a.label(), failed: a.label() };
    let hook = parts.hook;
    a.store(Width::B8, R10, frame::CONTEXT, R1);
    headers_in(a, hook, &ends, Some(parts.source));
    lengths(a, hook, program, &ends);
    if parts.sinks.iter().any(|sink| sink.reply) {
        save_sender(a);
    }
    a.call(helper::KTIME_GET_NS);
    a.mov(NOW, R0);
    a.map_value(MEMORY, parts.memory_fd);
    record::locked(a, program);
    a.load(Width::B8, R1, R10, PASSES);
    a.jump_if_imm(Jump::Equal, R1, 0, ends.drop);
    if let Some((ring, output)) = parts.log {
        log(a, ring, output);
    }
    match hook {
        Hook::Xdp => send_in_place(a, parts, &ends),
        Hook::Tc => send_all(a, parts, &ends),
    }
    for (label, counter) in [(ends.failed, FAILED), (ends.short, SHORT)] {
        // The verifier takes no instructions that nothing leads to.
        if !a.is_wanted(label) {
            continue;
        }
        a.place(label);
        a.map_value(MEMORY, parts.memory_fd);
        a.constant(R1, 1);
        a.atomic_add(MEMORY, counter as i16, R1);
        a.jump(ends.drop);
    }
    a.place(ends.drop);
    a.constant(R0, hook.drop());
    a.exit();
    a.place(ends.pass);
    a.constant(R0, hook.pass());
    a.exit();
    std::mem::take(a).finish()
}

/// Loads `data` to `r2` and `data_end` to `r3` with the context in `r1`, and goes away unless it is a UDP datagram without
/// IP options; with a source, unless it is for that one.
fn headers_in(a: &mut Assembler, hook: Hook, ends: &Ends, source: Option<SocketAddrV4>) {
    a.load(Width::B4, R2, R1, hook.data());
    a.load(Width::B4, R3, R1, hook.data() + 4);
    beyond_end(a, HEADER_BYTES, ends.pass);
    a.load(Width::B2, R5, R2, 12);
    a.jump_if_imm(Jump::Unequal, R5, network(0x0800), ends.pass);
    a.load(Width::B1, R5, R2, 14);
    a.jump_if_imm(Jump::Unequal, R5, 0x45, ends.pass);
    // More fragments to come, or not the first one.
    a.load(Width::B2, R5, R2, 20);
    a.alu_imm(Alu::And, R5, network(0x3fff));
    a.jump_if_imm(Jump::Unequal, R5, 0, ends.pass);
    a.load(Width::B1, R5, R2, 23);
    a.jump_if_imm(Jump::Unequal, R5, 17, ends.pass);
    if let Some(source) = source {
        a.load(Width::B4, R5, R2, 30);
        a.constant(R4, u32::from_ne_bytes(source.ip().octets()).into());
        a.jump_if(Jump::Unequal, R5, R4, ends.pass);
        a.load(Width::B2, R5, R2, 36);
        a.jump_if_imm(Jump::Unequal, R5, network(source.port()), ends.pass);
    }
}

/// Goes there if less than that many bytes lie between `r2` and `r3`.
fn beyond_end(a: &mut Assembler, bytes: usize, to: Label) {
    a.mov(R4, R2);
    a.alu_imm(Alu::Add, R4, bytes as i32);
    a.jump_if(Jump::Greater, R4, R3, to);
}

/// Checks that the lengths agree and that all fields are there; then `PAYLOAD` and `LENGTH` are good.
fn lengths(a: &mut Assembler, hook: Hook, program: &Program, ends: &Ends) {
    let needed = HEADER_BYTES + program.payload_bytes;
    a.load(Width::B2, R5, R2, 16);
    a.byte_order(R5, 16, true);
    a.load(Width::B2, LENGTH, R2, 38);
    a.byte_order(LENGTH, 16, true);
    a.alu_imm(Alu::Sub, LENGTH, 8);
    // A UDP length below 8 wraps around.
    a.jump_if_imm(Jump::Greater, LENGTH, 0xffff, ends.pass);
    a.mov(R4, LENGTH);
    a.alu_imm(Alu::Add, R4, 28);
    a.jump_if(Jump::Unequal, R4, R5, ends.pass);
    a.alu_imm(Alu::Add, R5, 14);
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
            a.constant(R2, needed as i64);
            a.call(helper::SKB_PULL_DATA);
            reload(a, hook);
            beyond_end(a, needed, ends.pass);
            a.place(there);
        }
    }
    a.mov(PAYLOAD, R2);
    a.alu_imm(Alu::Add, PAYLOAD, HEADER_BYTES as i32);
}

fn reload(a: &mut Assembler, hook: Hook) {
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.load(Width::B4, R2, R1, hook.data());
    a.load(Width::B4, R3, R1, hook.data() + 4);
}

/// Keeps both Ethernet addresses (12 bytes), the IP address (4) and the port (2) of the sender for a reply.
fn save_sender(a: &mut Assembler) {
    for at in (0..12).step_by(2) {
        a.load(Width::B2, R4, R2, at);
        a.store(Width::B2, R10, SENDER + at, R4);
    }
    a.load(Width::B4, R4, R2, 26);
    a.store(Width::B4, R10, SENDER + 12, R4);
    a.load(Width::B2, R4, R2, 34);
    a.store(Width::B2, R10, SENDER + 16, R4);
}

fn log(a: &mut Assembler, ring: i32, output: Option<usize>) {
    let stored = a.label();
    a.store(Width::B8, R10, HEADERS, NOW);
    a.load(Width::B8, R1, R10, EVENT);
    a.store(Width::B8, R10, HEADERS + 8, R1);
    match output {
        Some(output) => a.load(Width::B8, R1, R10, OUTPUTS + 8 * output as i16),
        None => a.constant(R1, 0),
    }
    a.store(Width::B8, R10, HEADERS + 16, R1);
    a.map(R1, ring);
    stack_address(a, R2, HEADERS);
    a.constant(R3, LOG_BYTES as i64);
    a.constant(R4, 0);
    a.call(helper::RINGBUF_OUTPUT);
    a.jump_if_imm(Jump::Equal, R0, 0, stored);
    count(a, LOG_LOST);
    a.place(stored);
}

fn stack_address(a: &mut Assembler, dst: R, at: i16) {
    a.mov(dst, R10);
    a.alu_imm(Alu::Add, dst, at.into());
}

fn count(a: &mut Assembler, counter: usize) {
    a.constant(R1, 1);
    a.atomic_add(MEMORY, counter as i16, R1);
}

/// Puts the headers for a sink at `HEADERS`, the number of its device at `DEVICE` (0 when it is not known), and what stands
/// for the checksum of UDP at `CHECKSUM`.
fn headers_out(a: &mut Assembler, parts: &NetParts<'_>, index: usize) {
    let sink = parts.sinks[index];
    if sink.reply {
        let template = header::headers(None, parts.source, None);
        let mut padded = [0; 48];
        padded[..HEADER_BYTES].copy_from_slice(&template);
        for (at, word) in padded.chunks_exact(8).enumerate() {
            a.constant(R1, i64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| word[byte])));
            a.store(Width::B8, R10, HEADERS + 8 * at as i16, R1);
        }
        for at in (0..6).step_by(2) {
            a.load(Width::B2, R1, R10, SENDER + 6 + at);
            a.store(Width::B2, R10, HEADERS + at, R1);
            a.load(Width::B2, R1, R10, SENDER + at);
            a.store(Width::B2, R10, HEADERS + 6 + at, R1);
        }
        a.load(Width::B2, R1, R10, SENDER + 16);
        a.store(Width::B2, R10, HEADERS + 36, R1);
        // The address in two words that are aligned on the stack.
        a.load(Width::B4, R5, R10, SENDER + 12);
        a.mov(R1, R5);
        a.alu_imm(Alu::ShiftRight, R1, 16);
        a.alu_imm(Alu::And, R5, 0xffff);
        let (first, second) = if cfg!(target_endian = "little") { (R5, R1) } else { (R1, R5) };
        a.store(Width::B2, R10, HEADERS + 30, first);
        a.store(Width::B2, R10, HEADERS + 32, second);
        a.alu(Alu::Add, R5, R1);
        a.constant(R3, header::ip_sum(&template).into());
        a.alu(Alu::Add, R3, R5);
        a.constant(R4, header::pseudo_sum(&template).into());
        a.alu(Alu::Add, R4, R5);
        a.load(Width::B8, R1, R10, frame::CONTEXT);
        a.load(Width::B4, R1, R1, parts.hook.device());
    } else {
        let entry = (index * SINK_BYTES) as i16;
        a.map_value(R2, parts.sinks_fd);
        for at in (0..48).step_by(8) {
            a.load(Width::B8, R1, R2, entry + at);
            a.store(Width::B8, R10, HEADERS + at, R1);
        }
        a.load(Width::B4, R3, R2, entry + IP_SUM as i16);
        a.load(Width::B4, R4, R2, entry + PSEUDO_SUM as i16);
        a.load(Width::B4, R1, R2, entry + IFINDEX as i16);
    }
    a.store(Width::B8, R10, DEVICE, R1);
    let payload = |a: &mut Assembler, dst: R| match sink.output {
        Some(_) => a.constant(dst, 8),
        None => a.mov(dst, LENGTH),
    };
    // Lengths, each added to its sum: IP with its header, UDP with its own.
    for (headers, at, sum) in [(28, 16, R3), (8, 38, R4)] {
        payload(a, R1);
        a.alu_imm(Alu::Add, R1, headers);
        a.byte_order(R1, 16, true);
        a.store(Width::B2, R10, HEADERS + at, R1);
        a.alu(Alu::Add, sum, R1);
        for _ in 0..2 {
            a.mov(R1, sum);
            a.alu_imm(Alu::ShiftRight, R1, 16);
            a.alu_imm(Alu::And, sum, 0xffff);
            a.alu(Alu::Add, sum, R1);
        }
    }
    a.alu_imm(Alu::Xor, R3, 0xffff);
    a.store(Width::B2, R10, HEADERS + 24, R3);
    a.store(Width::B8, R10, CHECKSUM, R4);
}

/// The datagram's own frame is rewritten and goes back out of its device. No checksum of UDP: over IPv4 it may be left
/// out (RFC 768), and what lies in a frame here has no half-done one.
fn send_in_place(a: &mut Assembler, parts: &NetParts<'_>, ends: &Ends) {
    let Some(&sink) = parts.sinks.first() else {
        time_taken(a);
        return a.jump(ends.drop);
    };
    headers_out(a, parts, 0);
    if !sink.reply {
        a.load(Width::B8, R1, R10, DEVICE);
        a.load(Width::B8, R2, R10, frame::CONTEXT);
        a.load(Width::B4, R2, R2, parts.hook.device());
        a.jump_if(Jump::Unequal, R1, R2, ends.failed);
    }
    reload(a, parts.hook);
    if sink.output.is_some() {
        a.alu(Alu::Sub, R3, R2);
        a.constant(R2, HEADER_BYTES as i64 + 8);
        a.alu(Alu::Sub, R2, R3);
        a.call(helper::XDP_ADJUST_TAIL);
        a.jump_if_imm(Jump::Unequal, R0, 0, ends.failed);
        reload(a, parts.hook);
    }
    beyond_end(a, HEADER_BYTES + if sink.output.is_some() { 8 } else { 0 }, ends.failed);
    for at in (0..40).step_by(8) {
        a.load(Width::B8, R1, R10, HEADERS + at);
        a.store(Width::B8, R2, at, R1);
    }
    a.constant(R1, 0);
    a.store(Width::B2, R2, 40, R1);
    if let Some(output) = sink.output {
        a.load(Width::B8, R1, R10, OUTPUTS + 8 * output as i16);
        a.byte_order(R1, 64, true);
        a.store(Width::B8, R2, HEADER_BYTES as i16, R1);
    }
    time_taken(a);
    a.constant(R0, XDP_TX);
    a.exit();
}

/// Each sink gets a clone, the last one the datagram itself. Those that get the payload as it came are first, since numbers
/// overwrite it.
fn send_all(a: &mut Assembler, parts: &NetParts<'_>, ends: &Ends) {
    let mut order: Vec<usize> = (0..parts.sinks.len()).collect();
    order.sort_by_key(|&index| parts.sinks[index].output.is_some());
    let mut is_short = false;
    for (place, &index) in order.iter().enumerate() {
        let (next, failed) = (a.label(), a.label());
        let output = parts.sinks[index].output;
        if output.is_some() && !is_short {
            is_short = true;
            a.load(Width::B8, R1, R10, frame::CONTEXT);
            a.constant(R2, HEADER_BYTES as i64 + 8);
            a.constant(R3, 0);
            a.call(helper::SKB_CHANGE_TAIL);
            a.jump_if_imm(Jump::Unequal, R0, 0, ends.failed);
        }
        headers_out(a, parts, index);
        a.load(Width::B8, R1, R10, DEVICE);
        a.jump_if_imm(Jump::Equal, R1, 0, failed);
        a.load(Width::B8, R1, R10, CHECKSUM);
        a.store(Width::B2, R10, HEADERS + 40, R1);
        if let Some(output) = output {
            a.load(Width::B8, R1, R10, OUTPUTS + 8 * output as i16);
            a.byte_order(R1, 64, true);
            a.store(Width::B8, R10, HEADERS + 48, R1);
            store_bytes(a, HEADER_BYTES, HEADERS + 48, 8, failed);
        }
        store_bytes(a, 0, HEADERS, HEADER_BYTES, failed);
        checksum(a);
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

fn store_bytes(a: &mut Assembler, to: usize, from: i16, bytes: usize, failed: Label) {
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.constant(R2, to as i64);
    stack_address(a, R3, from);
    a.constant(R4, bytes as i64);
    a.constant(R5, 0);
    a.call(helper::SKB_STORE_BYTES);
    a.jump_if_imm(Jump::Unequal, R0, 0, failed);
}

/// The checksum of UDP. The field holds the sum of the pseudo header, which is what a buffer needs whose checksum the device
/// is to complete (`CHECKSUM_PARTIAL`, linux/skbuff.h): the helper leaves such a one alone. In any other it takes the
/// sum off again, which leaves zero: no checksum (RFC 768).
fn checksum(a: &mut Assembler) {
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.constant(R2, 40);
    a.constant(R3, 0);
    a.load(Width::B8, R4, R10, CHECKSUM);
    a.constant(R5, 0);
    a.call(helper::L4_CSUM_REPLACE);
}

/// Counts the time since the event in the histogram.
fn time_taken(a: &mut Assembler) {
    a.call(helper::KTIME_GET_NS);
    a.alu(Alu::Sub, R0, NOW);
    // The position of the highest bit set, by halves; no time takes 2^32 ns here.
    a.constant(R1, 0);
    for bits in [16, 8, 4, 2, 1] {
        a.mov(R2, R0);
        a.alu_imm(Alu::ShiftRight, R2, bits);
        a.mov(R3, R2);
        a.negate(R3);
        a.alu(Alu::Or, R2, R3);
        a.alu_imm(Alu::ShiftRight, R2, 63);
        a.alu_imm(Alu::Mul, R2, bits);
        a.alu(Alu::ShiftRight, R0, R2);
        a.alu(Alu::Add, R1, R2);
    }
    a.alu_imm(Alu::And, R1, BUCKETS as i32 - 1);
    a.alu_imm(Alu::ShiftLeft, R1, 3);
    a.alu(Alu::Add, R1, MEMORY);
    a.constant(R2, 1);
    a.atomic_add(R1, HISTOGRAM as i16, R2);
}

/// The program in front of several routes on one device: from the address and port of a datagram to the route's program, by
/// a hash table and a tail call, so that a route costs the same however many others there are.
pub(super) fn dispatcher(hook: Hook, table_fd: i32, programs_fd: i32) -> Vec<Instruction> {
    let a = &mut Assembler::default();
    let ends = Ends { pass: a.label(), short: a.label(), drop: a.label(), failed: a.label() };
    a.store(Width::B8, R10, frame::CONTEXT, R1);
    headers_in(a, hook, &ends, None);
    // The key: address and port as they came, and zeroes.
    a.load(Width::B4, R4, R2, 30);
    a.store(Width::B4, R10, HEADERS, R4);
    a.load(Width::B2, R4, R2, 36);
    a.store(Width::B4, R10, HEADERS + 4, R4);
    a.map(R1, table_fd);
    stack_address(a, R2, HEADERS);
    a.call(helper::MAP_LOOKUP_ELEM);
    a.jump_if_imm(Jump::Equal, R0, 0, ends.pass);
    a.load(Width::B4, R3, R0, 0);
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.map(R2, programs_fd);
    a.call(helper::TAIL_CALL);
    for label in [ends.pass, ends.short, ends.drop, ends.failed] {
        a.place(label);
    }
    a.constant(R0, hook.pass());
    a.exit();
    std::mem::take(a).finish()
}

/// A program of XDP that takes nothing.
pub(super) fn leave_alone() -> Vec<Instruction> {
    let mut a = Assembler::default();
    a.constant(R0, Hook::Xdp.pass());
    a.exit();
    a.finish()
}

/// The key of a source in the dispatcher's table.
pub(super) fn key(source: SocketAddrV4) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&source.ip().octets());
    let port = u32::from(u16::from_ne_bytes(source.port().to_be_bytes()));
    key[4..].copy_from_slice(&port.to_ne_bytes());
    key
}
