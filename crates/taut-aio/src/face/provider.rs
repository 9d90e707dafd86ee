//! Whose functions carry an operation out: ours or the C library's, for comparison.
#![expect(unsafe_code, reason = "the C library's aio functions")]

use std::ffi::c_int;
use std::io;

use crate::control_block::ControlBlock;
use crate::posix;
use crate::system;
use crate::worker::order::Kind;

/// Whose `<aio.h>`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Provider {
    /// This library.
    #[default]
    Taut,
    /// The C library: glibc's thread pool.
    System,
}

impl Provider {
    /// # Safety
    /// The block and its buffer stay until the operation is complete; a queue in its event has its count raised.
    pub(super) unsafe fn submit(self, block: *mut ControlBlock, kind: Kind) -> io::Result<()> {
        // SAFETY: the caller's promise; the layouts are the same.
        let result = unsafe {
            match (self, kind) {
                (Self::Taut, kind) => posix::submit_from_face(block, kind),
                (Self::System, Kind::Read) => checked(libc::aio_read(block.cast())),
                (Self::System, Kind::Write) => checked(libc::aio_write(block.cast())),
                (Self::System, Kind::Sync) => checked(libc::aio_fsync(libc::O_SYNC, block.cast())),
                (Self::System, Kind::DataSync) => checked(libc::aio_fsync(libc::O_DSYNC, block.cast())),
            }
        };
        result.map_err(io::Error::from_raw_os_error)
    }

    pub(super) fn error(self, block: &ControlBlock) -> c_int {
        // SAFETY: a reference is valid.
        unsafe {
            match self {
                Self::Taut => posix::aio_error(block),
                Self::System => libc::aio_error(std::ptr::from_ref(block).cast()),
            }
        }
    }

    /// # Safety
    /// The operation is complete.
    pub(super) unsafe fn collect(self, block: *mut ControlBlock) -> isize {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Taut => posix::aio_return(block),
                Self::System => libc::aio_return(block.cast()),
            }
        }
    }

    /// # Safety
    /// The block was submitted to this provider.
    pub(super) unsafe fn cancel(self, block: *mut ControlBlock) {
        // SAFETY: the caller's promise. What came of it is read from the block.
        unsafe {
            match self {
                Self::Taut => posix::aio_cancel((*block).fd, block),
                Self::System => libc::aio_cancel((*block).fd, block.cast()),
            }
        };
    }

    /// # Safety
    /// All blocks stay for the call.
    pub(super) unsafe fn suspend(
        self,
        list: &[*const ControlBlock],
        timeout: *const libc::timespec,
    ) -> Result<(), c_int> {
        let length = c_int::try_from(list.len()).map_err(|_| libc::EINVAL)?;
        // SAFETY: the caller's promise.
        checked(unsafe {
            match self {
                Self::Taut => posix::aio_suspend(list.as_ptr(), length, timeout),
                Self::System => libc::aio_suspend(list.as_ptr().cast(), length, timeout),
            }
        })
    }
}

fn checked(result: c_int) -> Result<(), c_int> {
    system::check(result as isize).map(|_| ())
}

/// `struct aioinit` of glibc's `<aio.h>`.
#[cfg(target_env = "gnu")]
#[repr(C)]
#[derive(Default)]
struct AioInit {
    threads: c_int,
    num: c_int,
    locks: c_int,
    usedba: c_int,
    debug: c_int,
    numusers: c_int,
    idle_time: c_int,
    reserved: c_int,
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn aio_init(init: *const AioInit);
}

/// Lets the C library's own AIO have this many threads (glibc's aio_init). Only before its first operation. Other C
/// libraries have no such pool: musl starts a thread for each operation.
#[cfg_attr(not(target_env = "gnu"), expect(unused_variables, reason = "there is no pool"))]
pub fn configure_system_pool(threads: usize) {
    #[cfg(target_env = "gnu")]
    {
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        let init = AioInit { threads, num: threads, idle_time: 1, ..AioInit::default() };
        // SAFETY: glibc copies what it needs.
        unsafe { aio_init(&raw const init) };
    }
}
