//! POSIX asynchronous I/O over io_uring: the interface of `<aio.h>` for sockets, pipes and files, with an epoll engine
//! where io_uring is refused.
//!
//! ```text
//!  any thread, any signal handler              the I/O thread
//!  interface::posix ── the aiocb ── inbox ──▶ worker ── descriptors, order ──▶ backend: uring, or epoll + pool
//!                                               │
//!  aio_error, aio_return ◀── the aiocb ◀────────┤ results first, then:
//!  aio_suspend ◀── announcement ◀───────────────┤
//!  aio_waitcomplete ◀── queue ◀─────────────────┤
//!  signals, threads ◀── notice ◀────────────────┘
//! ```
//!
//! [`posix`] has the C functions without their exported names: those are in the crate `tautaio`, so that
//! a Rust program can use this one without replacing its C library's. The safe face is [`Operation`].

// The model checker brings its own atomics, which have another layout than those in an aiocb: it
// sees these parts alone.
pub mod lockfree;
mod sync;

#[cfg(not(loom))]
mod backend;
#[cfg(not(loom))]
mod face;
#[cfg(not(loom))]
mod interface;
#[cfg(not(loom))]
mod service;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use face::{
    CompletionQueue, InPlace, Notify, Operation, OperationList, Provider, SignalWaiter, configure_system_pool,
};
#[cfg(not(loom))]
pub use interface::{control_block, posix};
#[cfg(not(loom))]
pub use system::arena::Memory;
