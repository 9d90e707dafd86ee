//! The functions of `<aio.h>` and `<tautaio.h>`. Offsets have 64 bits here: each `*64` name is the same function.

use std::ffi::{c_int, c_void};

use taut_aio::control_block::{ControlBlock, SigEvent};
use taut_aio::posix;

/// Exports functions of [`posix`] under their names and those for large files. A thread that is
/// cancelled in one of them leaves it by unwinding.
macro_rules! export {
    ($(fn $name:ident, $name64:ident ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: see [`posix::", stringify!($name), "`].")]
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { posix::$name($($argument),*) }
        }

        #[doc = concat!("`", stringify!($name64), "`: see [`posix::", stringify!($name), "`].")]
        ///
        /// # Safety
        /// As for that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name64($($argument: $kind),*) -> $result {
            // SAFETY: the caller's promise.
            unsafe { posix::$name($($argument),*) }
        }
    )*};
}

export! {
    fn aio_read, aio_read64(block: *mut ControlBlock) -> c_int;
    fn aio_write, aio_write64(block: *mut ControlBlock) -> c_int;
    fn aio_fsync, aio_fsync64(how: c_int, block: *mut ControlBlock) -> c_int;
    fn aio_error, aio_error64(block: *const ControlBlock) -> c_int;
    fn aio_return, aio_return64(block: *mut ControlBlock) -> isize;
    fn aio_cancel, aio_cancel64(fd: c_int, block: *mut ControlBlock) -> c_int;
    fn aio_suspend, aio_suspend64(
        list: *const *const ControlBlock,
        length: c_int,
        timeout: *const libc::timespec
    ) -> c_int;
    fn lio_listio, lio_listio64(
        mode: c_int,
        list: *const *mut ControlBlock,
        length: c_int,
        event: *const SigEvent
    ) -> c_int;
}

/// `aio_init`: see [`posix::aio_init`].
#[unsafe(no_mangle)]
pub extern "C" fn aio_init(_init: *const c_void) {
    posix::aio_init();
}

/// `aio_waitcomplete`: see [`posix::aio_waitcomplete`].
///
/// # Safety
/// As for that function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aio_waitcomplete(block: *mut *mut ControlBlock, timeout: *const libc::timespec) -> isize {
    // SAFETY: the caller's promise.
    unsafe { posix::aio_waitcomplete(block, timeout) }
}

/// `tautaio_completion_fd`: see [`posix::completion_fd`].
#[unsafe(no_mangle)]
pub extern "C" fn tautaio_completion_fd() -> c_int {
    posix::completion_fd()
}
