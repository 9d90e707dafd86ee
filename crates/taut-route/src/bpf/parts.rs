//! What the parts of a network program share.

use std::net::SocketAddr;

use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R10};
use taut_bpf::instruction::{Alu, Assembler, Label, R};

use super::frame::{BUCKETS, HISTOGRAM, MEMORY, NOW};

/// Where in the kernel a program runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hook {
    /// In the driver, or in its place: at most one sink, on the device that the datagram came from.
    Xdp,
    /// Traffic control, on the way in (tcx): any number of sinks on any devices.
    Tc,
}

impl Hook {
    /// Offset of `data` in the context; `data_end` follows it.
    pub(super) const fn data(self) -> i16 {
        match self {
            // struct xdp_md.
            Self::Xdp => 0,
            // struct __sk_buff.
            Self::Tc => 76,
        }
    }

    /// Offset of the number of the device that the datagram came from.
    pub(super) const fn device(self) -> i16 {
        match self {
            Self::Xdp => 12,
            Self::Tc => 40,
        }
    }

    /// `XDP_PASS`, `TCX_NEXT`.
    pub(super) const fn pass(self) -> i64 {
        match self {
            Self::Xdp => 2,
            Self::Tc => -1,
        }
    }

    /// `XDP_DROP`, `TCX_DROP`.
    pub(super) const fn drop(self) -> i64 {
        match self {
            Self::Xdp => 1,
            Self::Tc => 2,
        }
    }
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
    /// Its version of IP is also that of the sinks.
    pub(super) source: SocketAddr,
    pub(super) sinks: &'a [NetSink],
    pub(super) memory_fd: i32,
    /// The host's own addresses on the device, and how sinks are reached (`header.rs`).
    pub(super) sinks_fd: i32,
    /// Most replies a second.
    pub(super) replies: u32,
    /// A ring buffer for the log, and the output that goes there.
    pub(super) log: Option<(i32, Option<usize>)>,
}

/// A record of the log: time, number and value of an event that passed.
pub(super) const LOG_BYTES: usize = 24;

/// Where a program ends.
pub(super) struct Ends {
    /// Not ours.
    pub(super) pass: Label,
    pub(super) short: Label,
    /// Taken, and nothing to send.
    pub(super) drop: Label,
    /// Taken, and could not be sent.
    pub(super) failed: Label,
}

pub(super) fn stack_address(a: &mut Assembler, dst: R, at: i16) {
    a.mov(dst, R10);
    a.alu_imm(Alu::Add, dst, at.into());
}

pub(super) fn count(a: &mut Assembler, counter: usize) {
    a.constant(R1, 1);
    a.atomic_add(MEMORY, counter as i16, R1);
}

/// Counts the time since the event in the histogram.
pub(super) fn time_taken(a: &mut Assembler) {
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
