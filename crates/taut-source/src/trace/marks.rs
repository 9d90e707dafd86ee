//! Marks: how a program tells with one load that nobody who is traced is at hand.
//!
//! A mark is never taken back. A wrong one costs a look-up, a missing one would cost an event.

use taut_bpf::instruction::{Alu, Jump, R, Width};

use super::writer::Writer;

use R::{R0, R1, R2, R7, R8};

/// How many marks there are. A mark says that something with its index is traced, or was: who has none is let go after
/// one load, and who has one is looked up. Indexes are the lowest bits of the number of a process or thread, of the
/// address of a socket, and of a port pair; two that share one cost each other a look-up.
pub(super) const MARKS: usize = 1 << 16;
/// Sockets stand at addresses that are multiples of this power of two.
const SOCKET_SHIFT: i32 = 6;

/// The index of a port pair's mark.
pub(super) const fn mark_of_pair(pair: u64) -> u32 {
    (pair >> 16 ^ pair) as u32
}

impl Writer<'_> {
    /// Ends here: a jump to the end of a long program would cost those that are not traced another line of the cache.
    fn leave(&mut self) {
        self.a.constant(R0, 0);
        self.a.exit();
    }

    /// Goes on only if the register has a value.
    pub(super) fn leave_if_zero(&mut self, register: R) {
        let on = self.a.label();
        self.a.jump_if_imm(Jump::Unequal, register, 0, on);
        self.leave();
        self.a.place(on);
    }

    /// R1 is the mark whose index is in R1.
    pub(super) fn load_mark(&mut self) {
        self.a.alu_imm(Alu::And, R1, MARKS as i32 - 1);
        self.a.map_value(R2, self.plan.maps.marks);
        self.a.alu(Alu::Add, R2, R1);
        self.a.load(Width::B1, R1, R2, 0);
    }

    /// Ends unless the mark of the index in R1 is set.
    pub(super) fn only_marked(&mut self) {
        self.load_mark();
        self.leave_if_zero(R1);
    }

    /// R1 is the index of the mark of the socket in R7.
    pub(super) fn index_of_socket(&mut self) {
        // Its lower half, since the verifier lets nobody shift an address.
        self.a.mov_low(R1, R7);
        self.a.alu_imm(Alu::ShiftRight, R1, SOCKET_SHIFT);
    }

    /// Ends unless the mark of the socket in R7 is set.
    pub(super) fn only_marked_sockets(&mut self) {
        self.index_of_socket();
        self.only_marked();
    }

    /// Sets the mark of the index in R1.
    pub(super) fn mark(&mut self) {
        self.a.alu_imm(Alu::And, R1, MARKS as i32 - 1);
        self.a.map_value(R2, self.plan.maps.marks);
        self.a.alu(Alu::Add, R2, R1);
        self.a.constant(R1, 1);
        self.a.store(Width::B1, R2, 0, R1);
    }

    /// Sets the mark of the socket in R7.
    pub(super) fn mark_socket(&mut self) {
        self.index_of_socket();
        self.mark();
    }

    /// Sets the mark of the number in a register: of a process, or of a thread.
    pub(super) fn mark_number(&mut self, number: R) {
        self.a.mov(R1, number);
        self.mark();
    }

    /// R1 is the index of the mark of the port pair in R8.
    pub(super) fn index_of_pair(&mut self) {
        self.a.mov(R1, R8);
        self.a.alu_imm(Alu::ShiftRight, R1, 16);
        self.a.alu(Alu::Xor, R1, R8);
    }

    /// Sets the mark of the port pair in R8.
    pub(super) fn mark_pair(&mut self) {
        self.index_of_pair();
        self.mark();
    }
}
