//! The C library's ways to close a descriptor, so that its operations end first and the peer sees the end.
//!
//! Otherwise a pending read would hold the connection open (io_uring keeps the file). And a program that closes every
//! descriptor it does not know must not close ours.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use taut_aio::posix;

use crate::close_all::close_listed;

/// The C library's `close`, which is a cancellation point unlike the bare system call.
static NEXT_CLOSE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Found when the library is loaded: dlsym(3) takes locks, and `close` must be async-signal-safe.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn find_next() {
        const CLOSE: &CStr = c"close";
        // SAFETY: a valid name; the pointer is only used as the function that it names.
        NEXT_CLOSE.store(unsafe { libc::dlsym(libc::RTLD_NEXT, CLOSE.as_ptr()) }, Ordering::Relaxed);
    }
    find_next
};

fn result(value: libc::c_long) -> c_int {
    value as c_int
}

fn refuse(errno: c_int) -> c_int {
    // SAFETY: the C library gives a valid address for each thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// close(2), after the descriptor's operations.
///
/// # Safety
/// As for close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if posix::is_own_descriptor(fd) {
        return refuse(libc::EBADF);
    }
    posix::before_close(fd);
    let next = NEXT_CLOSE.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; the pointer is that of the C library's `close`.
    unsafe {
        if next.is_null() {
            return result(libc::syscall(libc::SYS_close, fd));
        }
        mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(next)(fd)
    }
}

/// dup2(2), after the operations of the descriptor that it closes.
///
/// # Safety
/// As for dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old == new {
        // SAFETY: no memory is passed. dup2 only checks it then.
        return if unsafe { libc::fcntl(old, libc::F_GETFD) } == -1 { refuse(libc::EBADF) } else { new };
    }
    // SAFETY: the caller's promise.
    unsafe { dup3(old, new, 0) }
}

/// dup3(2), after the operations of the descriptor that it closes.
///
/// # Safety
/// As for dup3(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if posix::is_own_descriptor(new) {
        return refuse(libc::EBUSY);
    }
    // Where it fails it must have done nothing.
    let is_valid = flags & !libc::O_CLOEXEC == 0;
    // SAFETY: no memory is passed.
    if is_valid && old != new && unsafe { libc::fcntl(old, libc::F_GETFD) } != -1 {
        posix::before_close(new);
    }
    // SAFETY: the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) })
}

/// close_range(2), after the descriptors' operations and around the library's own.
///
/// # Safety
/// As for close_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let refused = || {
        // SAFETY: no memory is passed. Beyond all descriptors: nothing is closed.
        unsafe { libc::syscall(libc::SYS_close_range, c_uint::MAX, c_uint::MAX, flags) == -1 }
    };
    if first > last || flags as c_uint & libc::CLOSE_RANGE_CLOEXEC != 0 {
        // SAFETY: the caller's promise. Nothing is closed.
        return result(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) });
    }
    // Where it fails it must have done nothing.
    if refused() {
        return -1;
    }
    posix::before_close_range(first, last);
    let mut from = first;
    for fd in posix::own_descriptors(first).take_while(|&fd| fd <= last) {
        if from < fd {
            // SAFETY: the caller's promise.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, flags) };
            if closed == -1 {
                return -1;
            }
        }
        from = fd + 1;
    }
    if from > last {
        return 0;
    }
    // SAFETY: the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_close_range, from, last, flags) })
}

/// closefrom(3). As the GNU C library's it ends the process rather than leave a descriptor open
/// that its caller believes closed.
///
/// # Safety
/// As for closefrom(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    // SAFETY: the caller's promise.
    if unsafe { close_range(first, c_uint::MAX, 0) } == 0 || close_listed(first) {
        return;
    }
    const MESSAGE: &[u8] = b"tautaio: closefrom can't tell which descriptors are open; the process is ended\n";
    // SAFETY: a string.
    unsafe { libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
    std::process::abort();
}
