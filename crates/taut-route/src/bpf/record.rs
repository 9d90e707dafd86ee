//! Programs over an event record: the form in which something other than a network device hands over events.

use super::frame::{LENGTH, MEMORY, NOW, OUTPUTS, PASSES, PAYLOAD, SHORT};
use super::generate;
use crate::condition::{MOST_OUTPUTS, Program};
use taut_bpf::helper;
use taut_bpf::instruction::R::{R0, R1, R2, R3, R10};
use taut_bpf::instruction::{Alu, Assembler, Instruction, Jump, Width};

/// Bytes before the payload: time of the event in ns (host's byte order), and room for eight outputs.
pub const RECORD_HEADER: usize = 8 + 8 * MOST_OUTPUTS;
/// What the program returns for an event that is too short, does not pass, and passes.
pub const RESULTS: [u32; 3] = [0, 1, 2];

/// What a record program runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordTarget {
    /// The kernel, as a program of type XDP over the record; the memory is the value of this map.
    Kernel {
        /// The map's file descriptor.
        memory_fd: i32,
    },
    /// The same where events are handed over one after another, so that the memory needs no lock.
    InTurn {
        /// The map's file descriptor.
        memory_fd: i32,
    },
    /// A virtual machine in user space that is called with the addresses of the record's beginning and end.
    Machine {
        /// Where the memory is.
        memory: u64,
    },
}

/// A program that takes a record, evaluates, writes the outputs back and tells the verdict.
pub fn generate(program: &Program, target: RecordTarget) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let short = a.label();
    match target {
        RecordTarget::Kernel { memory_fd } | RecordTarget::InTurn { memory_fd } => {
            // struct xdp_md (linux/bpf.h): data, data_end.
            a.load(Width::B4, R2, R1, 0);
            a.load(Width::B4, R3, R1, 4);
            a.map_value(MEMORY, memory_fd);
        }
        RecordTarget::Machine { memory } => {
            a.load(Width::B8, R2, R1, 0);
            a.load(Width::B8, R3, R1, 8);
            a.constant(MEMORY, memory.cast_signed());
        }
    }
    a.mov(PAYLOAD, R2);
    a.alu_imm(Alu::Add, PAYLOAD, (RECORD_HEADER + program.payload_bytes) as i32);
    a.jump_if(Jump::Greater, PAYLOAD, R3, short);
    a.mov(PAYLOAD, R2);
    a.alu_imm(Alu::Add, PAYLOAD, RECORD_HEADER as i32);
    a.mov(LENGTH, R3);
    a.alu(Alu::Sub, LENGTH, PAYLOAD);
    a.load(Width::B8, NOW, R2, 0);
    match target {
        RecordTarget::InTurn { .. } => generate::body(&mut a, program),
        RecordTarget::Kernel { .. } | RecordTarget::Machine { .. } => locked(&mut a, program),
    }
    for index in 0..program.outputs.len() as i16 {
        a.load(Width::B8, R1, R10, OUTPUTS + 8 * index);
        a.store(Width::B8, PAYLOAD, 8 * index - 8 * MOST_OUTPUTS as i16, R1);
    }
    a.load(Width::B8, R0, R10, PASSES);
    a.alu_imm(Alu::Add, R0, 1);
    a.exit();
    a.place(short);
    a.constant(R1, 1);
    match target {
        RecordTarget::Kernel { .. } | RecordTarget::InTurn { .. } => a.atomic_add(MEMORY, SHORT as i16, R1),
        RecordTarget::Machine { .. } => {
            a.load(Width::B8, R2, MEMORY, SHORT as i16);
            a.alu(Alu::Add, R2, R1);
            a.store(Width::B8, MEMORY, SHORT as i16, R2);
        }
    }
    a.constant(R0, 0);
    a.exit();
    a.finish()
}

/// The expressions under the lock of the memory: events on several processors at once are taken one after another.
pub(super) fn locked(a: &mut Assembler, program: &Program) {
    a.mov(R1, MEMORY);
    a.call(helper::SPIN_LOCK);
    generate::body(a, program);
    a.mov(R1, MEMORY);
    a.call(helper::SPIN_UNLOCK);
}
