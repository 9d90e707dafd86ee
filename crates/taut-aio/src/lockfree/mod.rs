//! What threads share without locks; model-checked with loom (tests/loom.rs).

pub mod announcement;
pub mod completions;
pub mod in_flight;
pub mod inbox;
pub mod kept;
pub mod windows;
