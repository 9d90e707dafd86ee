//! Routes: from a sensor to outputs by a condition.
//!
//! - [`condition`]: the language, its typed form and its interpreter.
//! - [`bpf`]: the same as a program in the kernel.

pub mod bpf;
pub mod condition;
mod net;
#[cfg(test)]
mod skip;
