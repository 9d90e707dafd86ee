//! `libtautaio.so`: the C interface of [`taut_aio`], to link with `-ltautaio` or to preload.
//!
//! Nothing is decided here: names are exported, arguments handed on. See tautaio(3).
#![expect(unsafe_code, reason = "exports C functions")]

pub mod aio;
pub mod close;
mod close_all;
