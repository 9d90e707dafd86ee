//! Memory of the kernel read by a load instead of a call (Linux 6.2 and later).
//!
//! `bpf_rdonly_cast` (kernel/bpf/helpers.c) gives any address a type, and becomes a move of a register. The verifier
//! then takes a load from there, which gives 0 where there is no memory, as `bpf_probe_read_kernel` does. That helper
//! costs more than all that a program makes of what it reads.

use taut_bpf::instruction::{Alu, Assembler, R, Width};
use taut_bpf::sys::{ProgramKind, Purpose};
use taut_bpf::{Btf, load};

use R::{R0, R1, R2};

#[derive(Clone, Copy, Debug)]
pub(super) struct Cast {
    function: u32,
    /// A structure that begins with a number of 64 bits: a load of any width is one of a number, whatever is there.
    words: u32,
}

impl Cast {
    /// `None` where the kernel has no such function, or takes no program with it (as without its compiler of BPF).
    pub(super) fn of(btf: &Btf) -> Option<Self> {
        let function = btf.function_id("bpf_rdonly_cast")?;
        Some(Self { function, words: btf.structure_id("timespec64")? }).filter(Self::is_taken)
    }

    fn is_taken(&self) -> bool {
        let mut a = Assembler::default();
        a.constant(R1, 0);
        self.read(&mut a, Width::B8, R0, R1, 8);
        a.exit();
        load(ProgramKind::RawTracepoint, &a.finish(), Purpose::default(), "taut_cast").is_ok()
    }

    /// Loads into a register what is at the offset from the base; R0 to R5 are lost.
    pub(super) fn read(self, a: &mut Assembler, width: Width, dst: R, base: R, offset: u32) {
        a.mov(R1, base);
        a.alu_imm(Alu::Add, R1, offset as i32);
        self.make(a, self.words);
        a.load(width, dst, R0, 0);
    }

    /// R0 is the structure of this type in `base`, whose members can be loaded; R1 to R5 are lost.
    pub(super) fn structure(self, a: &mut Assembler, base: R, structure: u32) {
        a.mov(R1, base);
        self.make(a, structure);
    }

    /// R0 is what R1 is, as one of this type.
    fn make(self, a: &mut Assembler, structure: u32) {
        a.constant(R2, structure.into());
        a.call_function(self.function);
    }
}
