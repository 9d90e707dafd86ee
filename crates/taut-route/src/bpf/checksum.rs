//! Checksums of what is sent.
//!
//! That of UDP may be left out over IPv4 (RFC 768), and is. Over IPv6 it has to be there (RFC 8200, section 8.1).
//! A buffer of the kernel may have one that a device is to complete (`CHECKSUM_PARTIAL`, linux/skbuff.h), of which
//! a program knows nothing: traffic control has helpers that do; a frame of XDP is summed up from its bytes.

use super::frame::{self, CHECKSUM, HEADERS, LENGTH, MEMORY, NOW, OUTPUTS, PAYLOAD, PAYLOAD_SUM, SENT_SUM};
use super::header::Ip;
use super::parts::Hook;
use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R4, R5, R10};
use taut_bpf::instruction::{Alu, Assembler, Jump, Label, R, Width};

/// Longest payload whose bytes a program sums up: of one that has a checksum which nobody has
/// looked at yet, and of one that XDP sends on as it came over IPv6.
pub(crate) const LONGEST_SUMMED: usize = 2047;
/// Most that the helper sums up at a time (`MAX_BPF_STACK`, net/core/filter.c).
const CHUNK: i32 = 512;
/// `BPF_F_MARK_MANGLED_0`, `BPF_F_RECOMPUTE_CSUM` (linux/bpf.h).
const MANGLED_0: i64 = 0x20;
pub(super) const RECOMPUTE: i64 = 1;

/// Adds the halves of a sum of 16-bit words until it has 16 bits; from up to 32.
pub(super) fn fold(a: &mut Assembler, sum: R, scratch: R) {
    for _ in 0..2 {
        a.mov(scratch, sum);
        a.alu_imm(Alu::ShiftRight, scratch, 16);
        a.alu_imm(Alu::And, sum, 0xffff);
        a.alu(Alu::Add, sum, scratch);
    }
}

/// Adds the number that is sent as the payload to the sum in `sum`, which then has up to 34 bits.
fn add_output(a: &mut Assembler, output: usize, sum: R, [x, y]: [R; 2]) {
    a.load(Width::B8, x, R10, OUTPUTS + 8 * output as i16);
    a.byte_order(x, 64, true);
    a.mov(y, x);
    a.alu_imm(Alu::ShiftRight, y, 32);
    a.alu_imm(Alu::ShiftLeft, x, 32);
    a.alu_imm(Alu::ShiftRight, x, 32);
    a.alu(Alu::Add, sum, x);
    a.alu(Alu::Add, sum, y);
}

/// XDP over IPv6: the checksum of what will be sent, to `CHECKSUM`; the payload is still where it was.
pub(super) fn sum_up(a: &mut Assembler, output: Option<usize>, memory_fd: i32, failed: Label) {
    if let Some(output) = output {
        a.load(Width::B8, R3, R10, SENT_SUM);
        add_output(a, output, R3, [R1, R2]);
    } else {
        // Registers that calls leave alone, for a while.
        a.store(Width::B8, R10, CHECKSUM, NOW);
        a.load(Width::B8, SUM, R10, SENT_SUM);
        a.load(Width::B8, END, R10, frame::CONTEXT);
        a.load(Width::B4, END, END, Hook::Xdp.data() + 4);
        a.jump_if_imm(Jump::Greater, LENGTH, LONGEST_SUMMED as i32, failed);
        sum_payload(a, failed);
        a.mov(R3, SUM);
        a.load(Width::B8, NOW, R10, CHECKSUM);
        a.map_value(MEMORY, memory_fd);
    }
    fold(a, R3, R1);
    fold(a, R3, R1);
    a.alu_imm(Alu::Xor, R3, 0xffff);
    // Zero would say that there is none; its other form is the same number.
    let is_good = a.label();
    a.jump_if_imm(Jump::Unequal, R3, 0, is_good);
    a.constant(R3, 0xffff);
    a.place(is_good);
    a.store(Width::B8, R10, CHECKSUM, R3);
}

/// The sum of a payload so far, and where the frame ends.
pub(super) const SUM: R = MEMORY;
pub(super) const END: R = NOW;

/// Adds a payload of at most [`LONGEST_SUMMED`] bytes to `SUM`, in pieces by the bits of its length, each looked at by
/// the verifier once: neither a piece's place nor what is known of the payload depends on which ones were there before.
pub(super) fn sum_payload(a: &mut Assembler, failed: Label) {
    for bytes in (0..11).rev().map(|bit| 1 << bit) {
        let next = a.label();
        a.mov(R1, LENGTH);
        a.alu_imm(Alu::And, R1, bytes);
        a.jump_if_imm(Jump::Equal, R1, 0, next);
        for at in (0..bytes).step_by(CHUNK as usize) {
            let piece = bytes.min(CHUNK);
            piece_of_payload(a, 2 * bytes, at, piece, failed);
            match piece {
                1 => {
                    a.load(Width::B1, R1, R3, 0);
                    if cfg!(target_endian = "big") {
                        a.alu_imm(Alu::ShiftLeft, R1, 8);
                    }
                    a.alu(Alu::Add, SUM, R1);
                }
                2 => {
                    a.load(Width::B2, R1, R3, 0);
                    a.alu(Alu::Add, SUM, R1);
                }
                _ => {
                    // Of the sum that it goes on from, the helper takes 32 bits, and gives no more.
                    a.constant(R1, 0);
                    a.constant(R2, 0);
                    a.constant(R4, piece.into());
                    a.mov(R5, SUM);
                    a.call(helper::CSUM_DIFF);
                    a.mov(SUM, R0);
                }
            }
        }
        a.place(next);
    }
}

/// The address of `bytes` of the payload to `r3`: `at` behind as many as the bits of the length from `unit` on say.
fn piece_of_payload(a: &mut Assembler, unit: i32, at: i32, bytes: i32, failed: Label) {
    a.mov(R2, LENGTH);
    if unit > LONGEST_SUMMED as i32 {
        // Zero, which the verifier is not to know: it would conclude that so much of the payload is
        // there, and go through all that follows with and without that.
        a.alu(Alu::Xor, R2, LENGTH);
        // Older ones know nothing at all of it then.
        a.alu_imm(Alu::And, R2, LONGEST_SUMMED as i32);
    } else {
        a.alu_imm(Alu::And, R2, LONGEST_SUMMED as i32 & !(unit - 1));
    }
    a.mov(R3, PAYLOAD);
    a.alu(Alu::Add, R3, R2);
    if at > 0 {
        a.alu_imm(Alu::Add, R3, at);
    }
    a.mov(R4, R3);
    a.alu_imm(Alu::Add, R4, bytes);
    a.jump_if(Jump::Greater, R4, END, failed);
}

/// Traffic control: completes the checksum of a buffer whose field holds the sum of the pseudo
/// header, which is what one needs whose checksum the device is to complete: the helper leaves such
/// a one alone. In any other it takes off what it is told: over IPv4 the same sum, which leaves
/// zero, no checksum; over IPv6 that and the sum of the whole, whose complement is left.
pub(super) fn complete(a: &mut Assembler, ip: Ip, output: Option<usize>) {
    a.load(Width::B8, R4, R10, CHECKSUM);
    if ip == Ip::V6 {
        a.load(Width::B8, R1, R10, SENT_SUM);
        a.alu(Alu::Add, R4, R1);
        match output {
            Some(output) => add_output(a, output, R4, [R1, R2]),
            None => {
                a.load(Width::B8, R1, R10, PAYLOAD_SUM);
                a.alu(Alu::Add, R4, R1);
            }
        }
        fold(a, R4, R1);
        fold(a, R4, R1);
        a.store(Width::B8, R10, SENT_SUM, R4);
    }
    a.load(Width::B8, R1, R10, frame::CONTEXT);
    a.constant(R2, ip.udp() as i64 + 6);
    a.constant(R3, 0);
    a.constant(R5, if ip == Ip::V6 { MANGLED_0 } else { 0 });
    a.call(helper::L4_CSUM_REPLACE);
    if ip == Ip::V6 {
        // A buffer with the sum of all its bytes (`CHECKSUM_COMPLETE`) is to know of it too.
        a.load(Width::B8, R1, R10, frame::CONTEXT);
        a.load(Width::B8, R2, R10, SENT_SUM);
        a.alu_imm(Alu::Xor, R2, 0xffff);
        a.call(helper::CSUM_UPDATE);
    }
}

/// The field's place on the stack.
pub(super) const fn field(ip: Ip) -> i16 {
    HEADERS + ip.udp() as i16 + 6
}
