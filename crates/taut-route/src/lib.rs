//! Routes: from a sensor to outputs by a condition.
//!
//! - [`condition`]: the language, its typed form and its interpreter.
//! - [`bpf`]: the same as a program in the kernel.
//! - [`module`]: routes in the kernel module.
//! - [`route`]: declarations, and where they can run.
//! - [`run`]: routes at work.
//! - [`control`]: asking the processes that hold them.
//! - [`mod@bench`]: from edge to edge, path by path, over UDP and on GPIO lines.

pub mod bench;
pub mod bpf;
pub mod condition;
pub mod control;
pub mod module;
mod net;
pub mod route;
pub mod run;
#[cfg(test)]
mod skip;
