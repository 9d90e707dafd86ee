//! The servers of a crowd: each is a process of its own, the crowd host, that drives its links with one engine.

pub(crate) mod control;
mod engine;
mod host;
mod kind;
pub(crate) mod process;

pub use host::{HostOrder, run};
pub use kind::CrowdEngine;
pub use process::{HostFailure, HostProcess, HostProgram};
