//! From the typed form to instructions, without branches: the verifier's work grows with the length
//! of the program and not with its paths, and no condition is ever mispredicted.

use super::frame::{
    COUNT, EVENT, LAST, LAST_PASSED, LENGTH, MEMORY, NOW, OUTPUTS, PASSED, PASSES, PAYLOAD, SLOTS, WAITING,
};
use crate::condition::{Binary, Expression, Fact, Field, Filter, Program, Slot, Unary};
use taut_bpf::instruction::R::{R0, R1, R2, R3, R4, R5, R10};
use taut_bpf::instruction::{Alu, Assembler, R, Width};

/// Evaluates all expressions and brings the memory up to date, like [`Program::handle`] for an
/// event that is long enough. Needs the four registers of `frame` and leaves `PASSES`, `OUTPUTS`
/// and `EVENT` on the stack. Calls nothing, so that it may stand under the lock.
pub(super) fn body(a: &mut Assembler, program: &Program) {
    a.load(Width::B8, R0, MEMORY, COUNT as i16);
    a.alu_imm(Alu::Add, R0, 1);
    a.store(Width::B8, MEMORY, COUNT as i16, R0);
    a.store(Width::B8, R10, EVENT, R0);
    let mut g = Generator { a };
    g.value(&program.when, 0);
    g.a.store(Width::B8, R10, PASSES, R0);
    for (index, output) in program.outputs.iter().enumerate() {
        g.value(output, 0);
        g.a.store(Width::B8, R10, OUTPUTS + 8 * index as i16, R0);
    }
    a.load(Width::B8, R0, R10, PASSES);
    a.load(Width::B8, R1, MEMORY, PASSED as i16);
    a.alu(Alu::Add, R1, R0);
    a.store(Width::B8, MEMORY, PASSED as i16, R1);
    if !program.remembers() {
        return;
    }
    a.store(Width::B8, MEMORY, LAST as i16, NOW);
    a.negate(R0);
    a.load(Width::B8, R1, MEMORY, LAST_PASSED as i16);
    a.mov(R2, NOW);
    select(a, R2, R0, R1);
    a.store(Width::B8, MEMORY, LAST_PASSED as i16, R2);
}

/// `yes` becomes `mask & yes | !mask & no`.
fn select(a: &mut Assembler, yes: R, mask: R, no: R) {
    a.alu(Alu::Xor, yes, no);
    a.alu(Alu::And, yes, mask);
    a.alu(Alu::Xor, yes, no);
}

/// All ones where there was anything but zero.
fn mask_of_nonzero(a: &mut Assembler, value: R, scratch: R) {
    a.mov(scratch, value);
    a.negate(scratch);
    a.alu(Alu::Or, value, scratch);
    a.alu_imm(Alu::ShiftRightSigned, value, 63);
}

/// 1 where there was anything but zero, else 0. A bit of the mask would do as well; but newer
/// verifiers follow a mask of a sign, `&` or `|` a constant, in two ways (`maybe_fork_scalars`,
/// kernel/bpf/verifier.c), so four of them in sixteen.
fn is_nonzero(a: &mut Assembler, value: R, scratch: R) {
    a.mov(scratch, value);
    a.negate(scratch);
    a.alu(Alu::Or, value, scratch);
    a.alu_imm(Alu::ShiftRight, value, 63);
}

/// 1 in `dst` if `x < y`, signed, else 0 (the sign of the difference, corrected for overflow).
fn less(a: &mut Assembler, dst: R, x: R, y: R, [s, t]: [R; 2]) {
    a.mov(dst, x);
    a.alu(Alu::Sub, dst, y);
    a.mov(s, x);
    a.alu(Alu::Xor, s, y);
    a.mov(t, dst);
    a.alu(Alu::Xor, t, x);
    a.alu(Alu::And, s, t);
    a.alu(Alu::Xor, dst, s);
    a.alu_imm(Alu::ShiftRight, dst, 63);
}

/// `x` less its sign, which goes to `sign` as a mask.
fn absolute(a: &mut Assembler, x: R, sign: R) {
    a.mov(sign, x);
    a.alu_imm(Alu::ShiftRightSigned, sign, 63);
    a.alu(Alu::Xor, x, sign);
    a.alu(Alu::Sub, x, sign);
}

/// Puts the sign of the mask on `x`.
fn signed(a: &mut Assembler, x: R, sign: R) {
    a.alu(Alu::Xor, x, sign);
    a.alu(Alu::Sub, x, sign);
}

/// `r0 = r0 / r1`, rounded towards zero.
fn divide(a: &mut Assembler) {
    absolute(a, R0, R2);
    absolute(a, R1, R3);
    a.alu(Alu::Div, R0, R1);
    a.alu(Alu::Xor, R2, R3);
    signed(a, R0, R2);
}

/// 0 in `dst` if this is the first event.
fn others_before(a: &mut Assembler, dst: R) {
    a.load(Width::B8, dst, MEMORY, COUNT as i16);
    a.alu_imm(Alu::Xor, dst, 1);
}

/// All ones in `dst` unless this is the first event.
fn mask_of_later(a: &mut Assembler, dst: R, scratch: R) {
    others_before(a, dst);
    mask_of_nonzero(a, dst, scratch);
}

fn word(slot: Slot) -> i16 {
    SLOTS as i16 + 8 * slot.cast_signed()
}

fn waiting(depth: i16) -> i16 {
    WAITING - 8 * (depth + 1)
}

struct Generator<'a> {
    a: &'a mut Assembler,
}

impl Generator<'_> {
    /// The value goes to `r0`; `depth` values wait on the stack already.
    fn value(&mut self, expression: &Expression, depth: i16) {
        match expression {
            Expression::Constant(value) => self.a.constant(R0, *value),
            Expression::Field(field) => self.field(*field),
            Expression::Fact(fact) => self.fact(*fact),
            Expression::Unary(which, x) => {
                self.value(x, depth);
                match which {
                    Unary::Negate => self.a.negate(R0),
                    Unary::Invert => self.a.alu_imm(Alu::Xor, R0, -1),
                    Unary::Not => self.a.alu_imm(Alu::Xor, R0, 1),
                    Unary::Absolute => absolute(self.a, R0, R1),
                }
            }
            Expression::Binary(which, x, y) => {
                self.value(x, depth);
                if let Expression::Constant(value) = **y {
                    // The constant on the left where that is the same, for the reason that `is_nonzero` has.
                    if matches!(which, Binary::And | Binary::Or) {
                        self.a.mov(R1, R0);
                        self.a.constant(R0, value);
                    } else {
                        self.a.constant(R1, value);
                    }
                } else {
                    self.a.store(Width::B8, R10, waiting(depth), R0);
                    self.value(y, depth + 1);
                    self.a.mov(R1, R0);
                    self.a.load(Width::B8, R0, R10, waiting(depth));
                }
                self.binary(*which);
            }
            Expression::Select(condition, yes, no) => {
                self.value(condition, depth);
                self.a.store(Width::B8, R10, waiting(depth), R0);
                self.value(yes, depth + 1);
                self.a.store(Width::B8, R10, waiting(depth + 1), R0);
                self.value(no, depth + 2);
                self.a.mov(R2, R0);
                self.a.load(Width::B8, R0, R10, waiting(depth + 1));
                self.a.load(Width::B8, R1, R10, waiting(depth));
                self.a.negate(R1);
                select(self.a, R0, R1, R2);
            }
            Expression::Filter(filter, slot, x) => {
                self.value(x, depth);
                self.filter(*filter, *slot, depth);
            }
        }
    }

    fn field(&mut self, field: Field) {
        let a = &mut *self.a;
        let (width, bits) = match field.form.size {
            1 => (Width::B1, 8),
            2 => (Width::B2, 16),
            4 => (Width::B4, 32),
            _ => (Width::B8, 64),
        };
        a.load(width, R0, PAYLOAD, field.offset.cast_signed());
        if bits > 8 {
            a.byte_order(R0, bits, field.form.big_endian);
        }
        if field.form.signed && bits < 64 {
            a.alu_imm(Alu::ShiftLeft, R0, 64 - bits);
            a.alu_imm(Alu::ShiftRightSigned, R0, 64 - bits);
        }
    }

    fn fact(&mut self, fact: Fact) {
        let a = &mut *self.a;
        match fact {
            Fact::Length => a.mov(R0, LENGTH),
            Fact::Count => a.load(Width::B8, R0, MEMORY, COUNT as i16),
            Fact::Passed => a.load(Width::B8, R0, MEMORY, PASSED as i16),
            Fact::SinceLast | Fact::SincePassed => {
                if fact == Fact::SinceLast {
                    mask_of_later(a, R2, R1);
                } else {
                    a.load(Width::B8, R2, MEMORY, PASSED as i16);
                    mask_of_nonzero(a, R2, R1);
                }
                let time = if fact == Fact::SinceLast { LAST } else { LAST_PASSED };
                a.mov(R0, NOW);
                a.load(Width::B8, R1, MEMORY, time as i16);
                a.alu(Alu::Sub, R0, R1);
                a.constant(R1, i64::MAX);
                select(a, R0, R2, R1);
            }
        }
    }

    /// `r0 = r0 op r1`.
    fn binary(&mut self, which: Binary) {
        let a = &mut *self.a;
        let arithmetic = match which {
            Binary::Add => Alu::Add,
            Binary::Subtract => Alu::Sub,
            Binary::Multiply => Alu::Mul,
            Binary::And => Alu::And,
            Binary::Or => Alu::Or,
            Binary::Xor => Alu::Xor,
            Binary::ShiftLeft => {
                a.alu_imm(Alu::And, R1, 63);
                Alu::ShiftLeft
            }
            Binary::ShiftRight => {
                a.alu_imm(Alu::And, R1, 63);
                Alu::ShiftRightSigned
            }
            Binary::Divide => return divide(a),
            Binary::Remainder => {
                absolute(a, R0, R2);
                absolute(a, R1, R3);
                a.alu(Alu::Mod, R0, R1);
                return signed(a, R0, R2);
            }
            Binary::Equal | Binary::Unequal => {
                a.alu(Alu::Xor, R0, R1);
                is_nonzero(a, R0, R1);
                if which == Binary::Equal {
                    a.alu_imm(Alu::Xor, R0, 1);
                }
                return;
            }
            Binary::Less => {
                less(a, R2, R0, R1, [R3, R4]);
                return a.mov(R0, R2);
            }
            Binary::LessOrEqual => {
                less(a, R2, R1, R0, [R3, R4]);
                a.alu_imm(Alu::Xor, R2, 1);
                return a.mov(R0, R2);
            }
            Binary::Minimum | Binary::Maximum => {
                let (x, y) = if which == Binary::Minimum { (R0, R1) } else { (R1, R0) };
                less(a, R2, x, y, [R3, R4]);
                a.negate(R2);
                return select(a, R0, R2, R1);
            }
        };
        a.alu(arithmetic, R0, R1);
    }

    /// The operand is in `r0`, and the result goes there.
    fn filter(&mut self, filter: Filter, slot: Slot, depth: i16) {
        let a = &mut *self.a;
        let at = word(slot);
        match filter {
            Filter::Previous | Filter::Delta | Filter::Changed | Filter::Rise | Filter::Fall => {
                a.load(Width::B8, R1, MEMORY, at);
                a.store(Width::B8, MEMORY, at, R0);
                match filter {
                    Filter::Previous => a.mov(R0, R1),
                    Filter::Delta => a.alu(Alu::Sub, R0, R1),
                    Filter::Changed => {
                        a.alu(Alu::Xor, R0, R1);
                        is_nonzero(a, R0, R1);
                        others_before(a, R1);
                        is_nonzero(a, R1, R2);
                        a.alu_imm(Alu::Xor, R1, 1);
                        a.alu(Alu::Or, R0, R1);
                    }
                    Filter::Rise => {
                        a.alu_imm(Alu::Xor, R1, 1);
                        a.alu(Alu::And, R0, R1);
                    }
                    _ => {
                        a.alu_imm(Alu::Xor, R0, 1);
                        a.alu(Alu::And, R0, R1);
                    }
                }
            }
            Filter::Total => {
                a.load(Width::B8, R1, MEMORY, at);
                a.alu(Alu::Add, R0, R1);
                a.store(Width::B8, MEMORY, at, R0);
            }
            Filter::Hysteresis { low, high } => {
                a.constant(R1, high);
                less(a, R5, R0, R1, [R3, R4]);
                a.alu_imm(Alu::Xor, R5, 1);
                a.constant(R1, low);
                less(a, R2, R1, R0, [R3, R4]);
                a.load(Width::B8, R0, MEMORY, at);
                a.alu(Alu::And, R0, R2);
                a.alu(Alu::Or, R0, R5);
                a.store(Width::B8, MEMORY, at, R0);
            }
            Filter::Debounce { ns } => debounce(a, at, ns, depth),
            Filter::Limit { step_ns, ahead_ns } => {
                a.store(Width::B8, R10, waiting(depth), R0);
                // The arrival is the later one of now and what is stored.
                a.load(Width::B8, R1, MEMORY, at);
                less(a, R2, R1, NOW, [R3, R4]);
                a.negate(R2);
                a.mov(R5, NOW);
                select(a, R5, R2, R1);
                a.mov(R1, R5);
                a.alu(Alu::Sub, R1, NOW);
                a.constant(R2, ahead_ns);
                less(a, R0, R2, R1, [R3, R4]);
                a.alu_imm(Alu::Xor, R0, 1);
                a.load(Width::B8, R1, R10, waiting(depth));
                a.alu(Alu::And, R0, R1);
                a.mov(R1, R0);
                a.negate(R1);
                a.constant(R2, step_ns);
                a.alu(Alu::And, R2, R1);
                a.alu(Alu::Add, R5, R2);
                a.store(Width::B8, MEMORY, at, R5);
            }
            Filter::Average { window } => average(a, at, window),
            Filter::Smooth { shift } => {
                let shift = i32::from(shift);
                a.load(Width::B8, R3, MEMORY, at);
                a.mov(R1, R3);
                a.alu_imm(Alu::ShiftRightSigned, R1, shift);
                a.alu(Alu::Add, R3, R0);
                a.alu(Alu::Sub, R3, R1);
                a.alu_imm(Alu::ShiftLeft, R0, shift);
                mask_of_later(a, R1, R2);
                select(a, R3, R1, R0);
                a.store(Width::B8, MEMORY, at, R3);
                a.mov(R0, R3);
                a.alu_imm(Alu::ShiftRightSigned, R0, shift);
            }
            Filter::Median => median(a, at),
        }
    }
}

fn debounce(a: &mut Assembler, at: i16, ns: i64, depth: i16) {
    let [since, differs] = [waiting(depth), waiting(depth + 1)];
    a.load(Width::B8, R1, MEMORY, at);
    a.alu(Alu::Xor, R0, R1);
    a.store(Width::B8, R10, differs, R0);
    // Since when: what is stored, or now. One more, so that zero means that nothing is stored.
    a.load(Width::B8, R1, MEMORY, at + 8);
    a.mov(R2, R1);
    mask_of_nonzero(a, R2, R3);
    a.mov(R5, NOW);
    a.alu_imm(Alu::Add, R5, 1);
    select(a, R1, R2, R5);
    a.store(Width::B8, R10, since, R1);
    a.alu(Alu::Sub, R5, R1);
    a.constant(R1, ns);
    less(a, R0, R5, R1, [R3, R4]);
    a.alu_imm(Alu::Xor, R0, 1);
    a.load(Width::B8, R1, R10, differs);
    a.alu(Alu::And, R0, R1);
    // r0 follows, r1 differs: what has not followed yet keeps its time.
    a.alu(Alu::Xor, R1, R0);
    a.negate(R1);
    a.load(Width::B8, R2, R10, since);
    a.alu(Alu::And, R1, R2);
    a.store(Width::B8, MEMORY, at + 8, R1);
    // It differed, so following is turning over.
    a.load(Width::B8, R1, MEMORY, at);
    a.alu(Alu::Xor, R0, R1);
    a.store(Width::B8, MEMORY, at, R0);
}

fn average(a: &mut Assembler, at: i16, window: u16) {
    let (last, window) = (i32::from(window.next_power_of_two()) - 1, i32::from(window));
    let address = |a: &mut Assembler, event: R| {
        a.alu_imm(Alu::And, event, last);
        a.alu_imm(Alu::ShiftLeft, event, 3);
        a.alu(Alu::Add, event, MEMORY);
    };
    a.load(Width::B8, R1, MEMORY, COUNT as i16);
    a.mov(R2, R1);
    a.alu_imm(Alu::Sub, R2, window);
    address(a, R2);
    a.load(Width::B8, R3, R2, at + 8);
    a.mov(R4, R1);
    address(a, R4);
    a.store(Width::B8, R4, at + 8, R0);
    a.load(Width::B8, R5, MEMORY, at);
    a.alu(Alu::Add, R5, R0);
    a.alu(Alu::Sub, R5, R3);
    a.store(Width::B8, MEMORY, at, R5);
    // Events in the window: the count, until it is full.
    a.constant(R0, window.into());
    less(a, R2, R1, R0, [R3, R4]);
    a.negate(R2);
    select(a, R1, R2, R0);
    a.mov(R0, R5);
    divide(a);
}

fn median(a: &mut Assembler, at: i16) {
    mask_of_later(a, R5, R4);
    a.load(Width::B8, R1, MEMORY, at);
    select(a, R1, R5, R0);
    a.load(Width::B8, R2, MEMORY, at + 8);
    select(a, R2, R5, R0);
    a.store(Width::B8, MEMORY, at, R0);
    a.store(Width::B8, MEMORY, at + 8, R1);
    // The smaller of r0 and r1 to r5, the larger one to r0.
    less(a, R3, R0, R1, [R4, R5]);
    a.negate(R3);
    a.mov(R5, R0);
    select(a, R5, R3, R1);
    a.alu(Alu::Xor, R0, R1);
    a.alu(Alu::Xor, R0, R5);
    // Of that and r2 the smaller one, and of the result and r5 the larger one.
    less(a, R3, R0, R2, [R1, R4]);
    a.negate(R3);
    select(a, R0, R3, R2);
    less(a, R3, R5, R0, [R1, R4]);
    a.negate(R3);
    select(a, R0, R3, R5);
}
