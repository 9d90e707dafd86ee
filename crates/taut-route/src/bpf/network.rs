//! Programs on a network device: UDP datagrams in, the condition, UDP datagrams out.
//!
//! A program takes the datagrams of its source and leaves all else alone: other protocols, other
//! addresses and ports, fragments, IP options and extension headers, datagrams whose lengths
//! contradict each other, and what the stack would refuse. What it takes never reaches a socket, as
//! it would not if a socket of ours read it; nor does it reach the rules of a packet filter.

use super::frame::{EVENT, FAILED, HEADERS, LOG_LOST, MEMORY, NOW, OUTPUTS, PASSES, SHORT};
use super::header::Ip;
use super::parts::{Ends, Hook, LOG_BYTES, NetParts, stack_address};
use super::{acceptable, frame, incoming, outgoing, record};
use crate::condition::Program;
use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R4, R10};
use taut_bpf::instruction::{Alu, Assembler, Instruction, Jump, Width};

/// The program.
pub(super) fn generate(program: &Program, parts: &NetParts<'_>) -> Vec<Instruction> {
    let a = &mut Assembler::default();
    let ends = Ends { pass: a.label(), short: a.label(), drop: a.label(), failed: a.label() };
    let hook = parts.hook;
    let ip = Ip::of(parts.source);
    a.store(Width::B8, R10, frame::CONTEXT, R1);
    incoming::load_frame(a, hook);
    incoming::is_udp(a, ip, ends.pass, ends.pass);
    incoming::is_for(a, parts.source, ends.pass);
    incoming::lengths(a, hook, ip, &ends);
    acceptable::is_to_this_device(a, parts.sinks_fd, ends.pass);
    acceptable::has_a_sender(a, parts, ends.pass);
    acceptable::header_is_whole(a, ip, ends.pass);
    acceptable::datagram_is_whole(a, parts, &ends);
    incoming::payload(a, hook, ip, program, &ends);
    incoming::save_hops(a, ip);
    if parts.sinks.iter().any(|sink| sink.reply) {
        incoming::save_sender(a, ip);
    }
    if ip == Ip::V6 && hook == Hook::Tc && parts.sinks.iter().any(|sink| sink.output.is_none()) {
        incoming::save_payload_sum(a);
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
    let no_hops = a.label();
    if !parts.sinks.is_empty() {
        outgoing::has_hops_left(a, no_hops);
    }
    match hook {
        Hook::Xdp => outgoing::send_in_place(a, parts, &ends),
        Hook::Tc => outgoing::send_all(a, parts, &ends),
    }
    let all = parts.sinks.len() as i64;
    for (label, counter, by) in [(no_hops, FAILED, all), (ends.failed, FAILED, 1), (ends.short, SHORT, 1)] {
        // The verifier takes no instructions that nothing leads to.
        if !a.is_wanted(label) {
            continue;
        }
        a.place(label);
        a.map_value(MEMORY, parts.memory_fd);
        a.constant(R1, by);
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

fn log(a: &mut Assembler, ring: i32, output: Option<usize>) {
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
    // An error is negative. Without a branch, after which the verifier would go through the rest twice.
    a.mov(R1, R0);
    a.alu_imm(Alu::ShiftRight, R1, 63);
    a.atomic_add(MEMORY, LOG_LOST as i16, R1);
}

/// The program in front of several routes on one device: from the address and port of a datagram to the route's
/// program, by a hash table and a tail call, so that a route costs the same however many others there are.
pub(super) fn dispatcher(hook: Hook, table_fd: i32, programs_fd: i32) -> Vec<Instruction> {
    let a = &mut Assembler::default();
    let pass = a.label();
    let (six, look_up) = (a.label(), a.label());
    a.store(Width::B8, R10, frame::CONTEXT, R1);
    incoming::load_frame(a, hook);
    incoming::is_udp(a, Ip::V4, six, pass);
    incoming::store_key(a, Ip::V4, HEADERS);
    a.jump(look_up);
    a.place(six);
    incoming::is_udp(a, Ip::V6, pass, pass);
    incoming::store_key(a, Ip::V6, HEADERS);
    a.place(look_up);
    a.map(R1, table_fd);
    stack_address(a, R2, HEADERS);
    a.call(helper::MAP_LOOKUP_ELEM);
    a.jump_if_imm(Jump::Equal, R0, 0, pass);
    a.load(Width::B4, R3, R0, 0);
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.map(R2, programs_fd);
    a.call(helper::TAIL_CALL);
    a.place(pass);
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
