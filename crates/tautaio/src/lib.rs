//! `libtautaio.so`: the C interface of [`taut_aio`], to link with `-ltautaio` or to preload.
//!
//! Nothing is decided here: names are exported, arguments handed on. See tautaio(3).
#![expect(unsafe_code, reason = "exports C functions")]

pub mod aio;
pub mod close;
mod close_all;

/// The library's threads get no memory from malloc(3): a handler that waits for them may have interrupted it.
#[global_allocator]
static MEMORY: taut_aio::Memory = taut_aio::Memory;
