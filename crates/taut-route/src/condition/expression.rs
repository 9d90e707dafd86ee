//! The typed form that all back ends run.

use super::field::Field;

/// What an expression is worth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Type {
    /// A whole number, 64-bit two's complement; times are in nanoseconds.
    Number,
    /// True or false, kept as 1 or 0.
    Condition,
}

/// An expression with its types checked. Every part is evaluated at every event, whatever the others give:
/// no operator skips one, so that filters see all events and the generated program needs no branches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expression {
    /// A constant.
    Constant(i64),
    /// A number in the event's bytes.
    Field(Field),
    /// What is known of the event besides its bytes.
    Fact(Fact),
    /// An operator with one operand.
    Unary(Unary, Box<Self>),
    /// An operator with two operands.
    Binary(Binary, Box<Self>, Box<Self>),
    /// The second where the first is true, else the third.
    Select(Box<Self>, Box<Self>, Box<Self>),
    /// A function that remembers. Its memory begins at that slot of the state.
    Filter(Filter, Slot, Box<Self>),
}

/// Index of a 64-bit word of a route's memory. Memory begins as zeroes.
pub type Slot = u16;

/// What is known of an event besides its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fact {
    /// Bytes of the payload.
    Length,
    /// Events so far, this one included.
    Count,
    /// Events that passed before this one.
    Passed,
    /// Time since the event before, in ns; `i64::MAX` at the first one.
    SinceLast,
    /// Time since the last event that passed, in ns; `i64::MAX` before there was one.
    SincePassed,
}

/// Operators with one operand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unary {
    /// Two's complement; that of the least number is itself.
    Negate,
    /// All bits inverted.
    Invert,
    /// True becomes false.
    Not,
    /// The number without its sign; that of the least number is itself.
    Absolute,
}

/// Operators with two operands. Arithmetic wraps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient, rounded towards zero; by zero it is 0.
    Divide,
    /// What the quotient leaves, with the sign of the first operand; by zero it is the first operand.
    Remainder,
    /// Bits set in both; of conditions, whether both hold.
    And,
    /// Bits set in either; of conditions, whether either holds.
    Or,
    /// Bits set in one only.
    Xor,
    /// Shifted to the left by the lowest 6 bits of the second.
    ShiftLeft,
    /// Shifted to the right by the lowest 6 bits of the second, the sign coming in.
    ShiftRight,
    /// Equal.
    Equal,
    /// Not equal.
    Unequal,
    /// Less.
    Less,
    /// Less or equal.
    LessOrEqual,
    /// The smaller one.
    Minimum,
    /// The larger one.
    Maximum,
}

/// Functions that remember earlier events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Filter {
    /// The operand at the event before; 0 (false) at the first. 1 slot.
    Previous,
    /// The operand less what it was at the event before (0 at the first). 1 slot.
    Delta,
    /// Whether the operand differs from what it was at the event before; true at the first. 1 slot.
    Changed,
    /// Whether the operand became true. 1 slot.
    Rise,
    /// Whether the operand became false. 1 slot.
    Fall,
    /// Sum of the operand over all events. 1 slot.
    Total,
    /// Becomes true when the operand reaches `high`, false when it falls to `low`. 1 slot.
    Hysteresis {
        /// At or below it: false.
        low: i64,
        /// At or above it: true.
        high: i64,
    },
    /// Follows the operand once that has differed for so long, as seen at events. 2 slots: result;
    /// since when it differs, plus one.
    Debounce {
        /// The time.
        ns: i64,
    },
    /// Lets the operand be true at most so often (generic cell rate algorithm). 1 slot: theoretical arrival time.
    Limit {
        /// Time that one of them takes up.
        step_ns: i64,
        /// How much of that may be taken up ahead.
        ahead_ns: i64,
    },
    /// Mean over the last `window` events, rounded towards zero; over fewer at the beginning. 1
    /// slot for the sum, and a ring of the window rounded up to a power of two.
    Average {
        /// Number of events.
        window: u16,
    },
    /// Exponential mean: moves by a share of 1 / 2^shift towards the operand, and begins with it. 1
    /// slot: mean × 2^shift.
    Smooth {
        /// The exponent, 1 to 16.
        shift: u8,
    },
    /// Median of the operand and those of the two events before; begins as if they had been the same. 2 slots.
    Median,
}

impl Filter {
    /// Slots of memory that it needs.
    pub const fn slots(self) -> u16 {
        match self {
            Self::Previous
            | Self::Delta
            | Self::Changed
            | Self::Rise
            | Self::Fall
            | Self::Total
            | Self::Hysteresis { .. }
            | Self::Limit { .. }
            | Self::Smooth { .. } => 1,
            Self::Debounce { .. } | Self::Median => 2,
            Self::Average { window } => 1 + window.next_power_of_two(),
        }
    }
}

impl Expression {
    /// Bytes that the payload must have at least.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Constant(_) | Self::Fact(_) => 0,
            Self::Field(field) => field.end(),
            Self::Unary(_, a) | Self::Filter(_, _, a) => a.payload_bytes(),
            Self::Binary(_, a, b) => a.payload_bytes().max(b.payload_bytes()),
            Self::Select(a, b, c) => a.payload_bytes().max(b.payload_bytes()).max(c.payload_bytes()),
        }
    }

    /// Whether it depends on other events or on times.
    pub fn remembers(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Field(_) | Self::Fact(Fact::Length) => false,
            Self::Fact(_) | Self::Filter(..) => true,
            Self::Unary(_, a) => a.remembers(),
            Self::Binary(_, a, b) => a.remembers() || b.remembers(),
            Self::Select(a, b, c) => a.remembers() || b.remembers() || c.remembers(),
        }
    }

    /// Number of its parts, itself included.
    pub fn parts(&self) -> usize {
        match self {
            Self::Constant(_) | Self::Fact(_) | Self::Field(_) => 1,
            Self::Unary(_, a) | Self::Filter(_, _, a) => 1 + a.parts(),
            Self::Binary(_, a, b) => 1 + a.parts() + b.parts(),
            Self::Select(a, b, c) => 1 + a.parts() + b.parts() + c.parts(),
        }
    }
}
