//! Programs of eBPF, made and loaded without compiler, loader library or object files.
//!
//! - [`Assembler`]: instructions with labels; [`helper`]: the functions of the kernel that they call.
//! - [`sys`]: bpf(2) as it is: maps, programs, links. [`load`] loads a program and says why the kernel did not take it.
//! - [`Btf`]: the types of the running kernel: where the members of its structures are.
//! - [`Ring`]: the records that programs write. [`Flags`]: bytes that both sides set.

mod btf;
mod flags;
pub mod helper;
pub mod instruction;
mod program;
mod ring;
#[cfg(test)]
mod skip;
pub mod sys;

pub use btf::{Btf, BtfError, Field};
pub use flags::Flags;
pub use instruction::{Assembler, Instruction};
pub use program::{BpfError, load, verified};
pub use ring::Ring;
