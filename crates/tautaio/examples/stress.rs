//! The stress of `tests/stress.rs` as a program of its own, for long runs and for the sanitizers: `cargo xtask stress`.
//!
//! Built as usual it uses whatever implementation of `<aio.h>` it is run with. With `--cfg taut_linked` the library is
//! linked into it, so that a sanitizer sees both sides of the interface.

#[path = "../tests/model/mod.rs"]
mod model;

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

fn main() {
    linked::find();
    model::run(&model::Config::from_environment(Duration::from_secs(10)));
}
