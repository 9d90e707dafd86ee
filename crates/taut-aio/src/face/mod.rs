//! The safe face: operations that own their buffer and hold their descriptor.

mod list;
mod operation;
mod provider;
mod queue;
mod signal;

pub use list::{InPlace, OperationList};
pub use operation::{Notify, Operation};
pub use provider::{Provider, configure_system_pool};
pub use queue::CompletionQueue;
pub use signal::SignalWaiter;
