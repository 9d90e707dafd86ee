//! The stress of `tests/stress.rs` as a program of its own, for long runs and for the sanitizers:
//! `cargo xtask stress aio`.
//!
//! Built as usual it uses the library that is preloaded. With `--cfg taut_linked` the library is
//! linked into it, so that a sanitizer sees both sides of the interface. Exit code 77: the engine
//! that `TAUTAIO_ENGINE` names can't be had here.

#[path = "../tests/model/mod.rs"]
mod model;

use std::process::ExitCode;
use std::time::Duration;

#[cfg(taut_linked)]
mod linked {
    #![expect(unsafe_code, reason = "C functions of the library that is linked in")]

    use super::model::ffi::{Aiocb, find_extensions};
    // For its exported names.
    use tautaio as _;

    unsafe extern "C" {
        fn aio_waitcomplete(request: *mut *mut Aiocb, timeout: *mut libc::timespec) -> isize;
        fn tautaio_completion_fd() -> std::ffi::c_int;
    }

    pub(crate) fn find() {
        find_extensions(Some((aio_waitcomplete, tautaio_completion_fd)));
    }
}

#[cfg(not(taut_linked))]
mod linked {
    pub(crate) fn find() {
        super::model::ffi::find_extensions(None);
    }
}

fn main() -> ExitCode {
    linked::find();
    if !model::ffi::has_extensions() {
        eprintln!("libtautaio is neither preloaded nor linked in");
        return ExitCode::FAILURE;
    }
    if model::ffi::completion_fd() < 0 {
        eprintln!("libtautaio does not start");
        return ExitCode::from(77);
    }
    model::run(&model::Config::from_environment(Duration::from_secs(10)));
    ExitCode::SUCCESS
}
