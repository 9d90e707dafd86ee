//! The condition language: small, total, typed.
//!
//! Numbers are 64-bit two's complement and wrap; times are numbers of nanoseconds (`5ms`). Conditions are a
//! type of their own. From loose to tight: `c ? a : b`, `||`, `&&`, comparisons (which do not chain), `|`,
//! `^`, `&`, shifts, `+ -`, `* / %`, and `- ~ !` before an operand. What each operator and function does is
//! said at [`Binary`], [`Unary`], [`Fact`] and [`Filter`], which are also their names in the typed form.
//!
//! An event shorter than any field that a route mentions is counted as short and not evaluated. All
//! else is evaluated at every event, with nothing skipped: there are no side effects but the
//! filters' memory, and every operator has a result for all operands.

mod error;
mod expression;
mod field;
mod layout;
mod names;
mod parse;
mod program;
mod token;

pub use error::SyntaxError;
pub use expression::{Binary, Expression, Fact, Filter, Slot, Type, Unary};
pub use field::{Field, Form, LONGEST_PAYLOAD};
pub use layout::Layout;
pub use parse::{MOST_PARTS, MOST_SLOTS};
pub use program::{MOST_OUTPUTS, Memory, Program, ProgramError, Verdict};

#[cfg(test)]
mod tests;
