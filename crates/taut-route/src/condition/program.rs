//! A route's expressions together, and the interpreter: the meaning that every other back end has to match.

use super::expression::{Binary, Expression, Fact, Filter, Slot, Type, Unary};
use super::parse::Parser;
use super::{Layout, SyntaxError};

/// Most outputs with an expression of their own.
pub const MOST_OUTPUTS: usize = 8;

/// The condition of a route and what it sends, over one memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Whether an event passes.
    pub when: Expression,
    /// What is sent when it does.
    pub outputs: Vec<Expression>,
    /// Bytes that a payload needs for all fields. A shorter event is counted and otherwise ignored.
    pub payload_bytes: usize,
    /// Words of memory of the filters.
    pub slots: Slot,
}

/// Which text of a program was wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProgramError {
    /// The condition.
    #[error("when: {0}")]
    When(SyntaxError),
    /// An output, by its index.
    #[error("send of sink {}: {error}", index + 1)]
    Output {
        /// Its index.
        index: usize,
        /// What was wrong.
        error: SyntaxError,
    },
    /// More outputs than a program has room for.
    #[error("{0} sinks with an expression of their own; at most {MOST_OUTPUTS}")]
    TooManyOutputs(usize),
}

/// The memory of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Events so far that were long enough.
    pub count: i64,
    /// Events that passed.
    pub passed: i64,
    /// Events too short for the fields.
    pub short: i64,
    last_ns: i64,
    passed_ns: i64,
    slots: Vec<i64>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Too short for the fields: nothing was evaluated or remembered.
    Short,
    /// The condition was false.
    Dropped,
    /// The condition was true.
    Passed,
}

impl Program {
    /// Parses a condition and the expressions of outputs, over fields of that layout.
    ///
    /// # Errors
    /// Names the text, the column and what was expected there.
    pub fn parse(when: &str, outputs: &[&str], layout: &Layout) -> Result<Self, ProgramError> {
        if outputs.len() > MOST_OUTPUTS {
            return Err(ProgramError::TooManyOutputs(outputs.len()));
        }
        let mut parser = Parser::new(layout);
        let when = parser.parse(when, Type::Condition).map_err(ProgramError::When)?;
        let outputs = outputs.iter().enumerate().map(|(index, text)| {
            parser.parse(text, Type::Number).map_err(|error| ProgramError::Output { index, error })
        });
        let outputs: Vec<Expression> = outputs.collect::<Result<_, _>>()?;
        let payload_bytes = outputs.iter().chain([&when]).map(Expression::payload_bytes).max().unwrap_or(0);
        Ok(Self { when, outputs, payload_bytes, slots: parser.slots })
    }

    /// Whether what it gives depends on other events or on times, and not on the event's bytes alone.
    pub fn remembers(&self) -> bool {
        self.outputs.iter().chain([&self.when]).any(Expression::remembers)
    }

    /// Memory as it is before the first event.
    pub fn memory(&self) -> Memory {
        Memory { count: 0, passed: 0, short: 0, last_ns: 0, passed_ns: 0, slots: vec![0; self.slots.into()] }
    }

    /// Takes an event at a time (`CLOCK_MONOTONIC`, ns). `outputs` holds what is to be sent
    /// afterwards, also when nothing passed; it is left alone when the event is too short.
    #[inline]
    pub fn handle(&self, memory: &mut Memory, now_ns: i64, payload: &[u8], outputs: &mut Vec<i64>) -> Verdict {
        if payload.len() < self.payload_bytes {
            memory.short += 1;
            return Verdict::Short;
        }
        memory.count += 1;
        let mut event = Event { memory, now_ns, payload };
        let passes = event.value(&self.when) != 0;
        outputs.clear();
        outputs.extend(self.outputs.iter().map(|output| event.value(output)));
        memory.last_ns = now_ns;
        if passes {
            memory.passed += 1;
            memory.passed_ns = now_ns;
            Verdict::Passed
        } else {
            Verdict::Dropped
        }
    }
}

struct Event<'a> {
    memory: &'a mut Memory,
    now_ns: i64,
    payload: &'a [u8],
}

impl Event<'_> {
    fn value(&mut self, expression: &Expression) -> i64 {
        match expression {
            Expression::Constant(value) => *value,
            // Long enough: that was checked for all fields at once.
            Expression::Field(field) => field.read(self.payload).unwrap_or(0),
            Expression::Fact(fact) => self.fact(*fact),
            Expression::Unary(which, a) => {
                let a = self.value(a);
                match which {
                    Unary::Negate => a.wrapping_neg(),
                    Unary::Invert => !a,
                    Unary::Not => a ^ 1,
                    Unary::Absolute => a.wrapping_abs(),
                }
            }
            Expression::Binary(which, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                binary(*which, a, b)
            }
            Expression::Select(condition, a, b) => {
                let (condition, a, b) = (self.value(condition), self.value(a), self.value(b));
                if condition != 0 { a } else { b }
            }
            Expression::Filter(filter, slot, of) => {
                let of = self.value(of);
                self.filter(*filter, usize::from(*slot), of)
            }
        }
    }

    fn fact(&self, fact: Fact) -> i64 {
        let memory = &*self.memory;
        match fact {
            Fact::Length => self.payload.len() as i64,
            Fact::Count => memory.count,
            Fact::Passed => memory.passed,
            Fact::SinceLast if memory.count == 1 => i64::MAX,
            Fact::SinceLast => self.now_ns.wrapping_sub(memory.last_ns),
            Fact::SincePassed if memory.passed == 0 => i64::MAX,
            Fact::SincePassed => self.now_ns.wrapping_sub(memory.passed_ns),
        }
    }

    fn filter(&mut self, filter: Filter, at: usize, x: i64) -> i64 {
        let first = self.memory.count == 1;
        let (count, now) = (self.memory.count, self.now_ns);
        let slots = &mut self.memory.slots[at..at + usize::from(filter.slots())];
        let before = slots[0];
        match filter {
            Filter::Previous | Filter::Delta | Filter::Changed | Filter::Rise | Filter::Fall => {
                slots[0] = x;
                match filter {
                    Filter::Previous => before,
                    Filter::Delta => x.wrapping_sub(before),
                    Filter::Changed => (first || x != before).into(),
                    Filter::Rise => x & (before ^ 1),
                    _ => (x ^ 1) & before,
                }
            }
            Filter::Total => {
                slots[0] = before.wrapping_add(x);
                slots[0]
            }
            Filter::Hysteresis { low, high } => {
                slots[0] = i64::from(x >= high || (before != 0 && x > low));
                slots[0]
            }
            Filter::Debounce { ns } => {
                let since = if slots[1] == 0 { now.wrapping_add(1) } else { slots[1] };
                let differs = x != before;
                let follows = differs && now.wrapping_add(1).wrapping_sub(since) >= ns;
                slots[1] = if differs && !follows { since } else { 0 };
                slots[0] = if follows { x } else { before };
                slots[0]
            }
            Filter::Limit { step_ns, ahead_ns } => {
                let arrival = before.max(now);
                let allowed = x != 0 && arrival.wrapping_sub(now) <= ahead_ns;
                slots[0] = if allowed { arrival.wrapping_add(step_ns) } else { arrival };
                allowed.into()
            }
            Filter::Average { window } => {
                let (ring, window) = (i64::from(window.next_power_of_two()), i64::from(window));
                // Slots that no event has reached are zero, so what leaves the window needs no question.
                let place = |event: i64| 1 + (event & (ring - 1)) as usize;
                let leaving = slots[place(count.wrapping_sub(window))];
                slots[place(count)] = x;
                slots[0] = before.wrapping_add(x).wrapping_sub(leaving);
                binary(Binary::Divide, slots[0], count.min(window))
            }
            Filter::Smooth { shift } => {
                let mean = before >> shift;
                slots[0] = if first { x.wrapping_shl(shift.into()) } else { before.wrapping_add(x.wrapping_sub(mean)) };
                slots[0] >> shift
            }
            Filter::Median => {
                let (last, before_last) = if first { (x, x) } else { (slots[0], slots[1]) };
                (slots[0], slots[1]) = (x, last);
                x.min(last).max(x.max(last).min(before_last))
            }
        }
    }
}

pub(crate) const fn binary(which: Binary, a: i64, b: i64) -> i64 {
    match which {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Divide => {
            if b == 0 {
                0
            } else {
                a.wrapping_div(b)
            }
        }
        Binary::Remainder => {
            if b == 0 {
                a
            } else {
                a.wrapping_rem(b)
            }
        }
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => a.wrapping_shl((b & 63) as u32),
        Binary::ShiftRight => a.wrapping_shr((b & 63) as u32),
        Binary::Equal => (a == b) as i64,
        Binary::Unequal => (a != b) as i64,
        Binary::Less => (a < b) as i64,
        Binary::LessOrEqual => (a <= b) as i64,
        Binary::Minimum => {
            if b < a {
                b
            } else {
                a
            }
        }
        Binary::Maximum => {
            if a < b {
                b
            } else {
                a
            }
        }
    }
}
