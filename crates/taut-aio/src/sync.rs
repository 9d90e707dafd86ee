//! The atomics of the lock-free parts; under `--cfg loom` those of the model checker.

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
