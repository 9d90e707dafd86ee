//! The C interface, declared here and not taken from the library, as a program would have it from its own headers.
#![expect(unsafe_code, reason = "C functions")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

/// `struct sigevent` of glibc on 64-bit machines.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sigevent {
    pub(crate) value: u64,
    pub(crate) signal: c_int,
    pub(crate) notify: c_int,
    /// The function of SIGEV_THREAD; the thread of SIGEV_THREAD_ID in its low half.
    pub(crate) function: usize,
    pub(crate) attributes: usize,
    rest: [u64; 4],
}

/// `struct aiocb` of glibc on 64-bit machines.
#[repr(C)]
pub(crate) struct Aiocb {
    pub(crate) fd: c_int,
    pub(crate) opcode: c_int,
    pub(crate) priority: c_int,
    pub(crate) buffer: *mut c_void,
    pub(crate) length: usize,
    pub(crate) event: Sigevent,
    private: [u64; 4],
    pub(crate) offset: i64,
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<Aiocb>() == size_of::<libc::aiocb>() && size_of::<Sigevent>() == 64);
const _: () = assert!(std::mem::offset_of!(Aiocb, offset) == 128);

impl Sigevent {
    pub(crate) const fn new(notify: c_int, signal: c_int, value: u64) -> Self {
        Self { value, signal, notify, function: 0, attributes: 0, rest: [0; 4] }
    }
}

impl Aiocb {
    pub(crate) const fn empty() -> Self {
        Self {
            fd: 0,
            opcode: 0,
            priority: 0,
            buffer: ptr::null_mut(),
            length: 0,
            event: Sigevent::new(libc::SIGEV_NONE, 0, 0),
            private: [0; 4],
            offset: 0,
            reserved: [0; 4],
        }
    }
}

unsafe extern "C" {
    pub(crate) fn aio_read(request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_read64(request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_write(request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_write64(request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_fsync(operation: c_int, request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_fsync64(operation: c_int, request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_error(request: *const Aiocb) -> c_int;
    pub(crate) fn aio_error64(request: *const Aiocb) -> c_int;
    pub(crate) fn aio_return(request: *mut Aiocb) -> isize;
    pub(crate) fn aio_return64(request: *mut Aiocb) -> isize;
    pub(crate) fn aio_cancel(fd: c_int, request: *mut Aiocb) -> c_int;
    pub(crate) fn aio_cancel64(fd: c_int, request: *mut Aiocb) -> c_int;
    fn aio_suspend64(list: *const *const Aiocb, entries: c_int, timeout: *const libc::timespec) -> c_int;
    fn lio_listio(mode: c_int, list: *const *mut Aiocb, entries: c_int, event: *mut Sigevent) -> c_int;
    fn lio_listio64(mode: c_int, list: *const *mut Aiocb, entries: c_int, event: *mut Sigevent) -> c_int;
}

unsafe extern "C-unwind" {
    // A thread cancelled in it leaves it by unwinding.
    pub(crate) fn aio_suspend(list: *const *const Aiocb, entries: c_int, timeout: *const libc::timespec) -> c_int;
}

/// `ssize_t aio_waitcomplete(struct aiocb **, struct timespec *)`
pub(crate) type WaitComplete = unsafe extern "C" fn(*mut *mut Aiocb, *mut libc::timespec) -> isize;
/// `int tautaio_completion_fd(void)`
pub(crate) type CompletionFd = unsafe extern "C" fn() -> c_int;

static WAIT_COMPLETE: AtomicUsize = AtomicUsize::new(0);
static COMPLETION_FD: AtomicUsize = AtomicUsize::new(0);

/// Where the extensions are: functions of a library that is linked in, else those of a library that was preloaded.
pub(crate) fn find_extensions(linked: Option<(WaitComplete, CompletionFd)>) {
    let (wait, fd) = match linked {
        Some((wait, fd)) => (wait as usize, fd as usize),
        // SAFETY: looks names up.
        None => unsafe {
            (
                libc::dlsym(libc::RTLD_DEFAULT, c"aio_waitcomplete".as_ptr()) as usize,
                libc::dlsym(libc::RTLD_DEFAULT, c"tautaio_completion_fd".as_ptr()) as usize,
            )
        },
    };
    WAIT_COMPLETE.store(wait, Ordering::Relaxed);
    COMPLETION_FD.store(fd, Ordering::Relaxed);
}

/// Whether they were found, and with them libtautaio.
pub(crate) fn has_extensions() -> bool {
    WAIT_COMPLETE.load(Ordering::Relaxed) != 0 && COMPLETION_FD.load(Ordering::Relaxed) != 0
}

/// Either the plain name or the one that ends in 64; they are the same function to a 64-bit program.
pub(crate) fn cancel(fd: c_int, request: *mut Aiocb, wide: bool) -> c_int {
    // SAFETY: null or a request that its owner keeps.
    unsafe { if wide { aio_cancel64(fd, request) } else { aio_cancel(fd, request) } }
}

/// `aio_read` of a request whose owner keeps it and its buffer until it is complete.
pub(crate) fn read(request: &mut Aiocb) {
    // SAFETY: it and its buffer stay.
    assert_eq!(unsafe { aio_read(request) }, 0, "aio_read: errno {}", errno());
}

/// `aio_write` of such a one.
pub(crate) fn write(request: &mut Aiocb) {
    // SAFETY: it and its buffer stay.
    assert_eq!(unsafe { aio_write(request) }, 0, "aio_write: errno {}", errno());
}

/// `aio_return`.
pub(crate) fn result(request: &mut Aiocb) -> isize {
    // SAFETY: it is there.
    unsafe { aio_return(request) }
}

/// `sigev_value` of a request that `aio_waitcomplete` gave.
pub(crate) fn value_of(request: *mut Aiocb) -> u64 {
    // SAFETY: whoever submitted it keeps it until it was given.
    unsafe { (*request).event.value }
}

/// `aio_error`.
pub(crate) fn status(request: &Aiocb) -> c_int {
    // SAFETY: it is there.
    unsafe { aio_error(request) }
}

/// The result, or errno.
pub(crate) fn suspend(list: &[*const Aiocb], timeout: Option<Duration>, wide: bool) -> Result<(), c_int> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let entries = c_int::try_from(list.len()).expect("short lists");
    // SAFETY: null or requests that their owners keep; the list lives through the call.
    let result = unsafe {
        if wide { aio_suspend64(list.as_ptr(), entries, timeout) } else { aio_suspend(list.as_ptr(), entries, timeout) }
    };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// The result, or errno.
pub(crate) fn listio(mode: c_int, list: &[*mut Aiocb], event: Option<&mut Sigevent>, wide: bool) -> Result<(), c_int> {
    let event = event.map_or(ptr::null_mut(), ptr::from_mut);
    let entries = c_int::try_from(list.len()).expect("short lists");
    // SAFETY: null or requests that their owners keep until they are done.
    let result = unsafe {
        if wide {
            lio_listio64(mode, list.as_ptr(), entries, event)
        } else {
            lio_listio(mode, list.as_ptr(), entries, event)
        }
    };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// What `aio_waitcomplete` gave: the request (null for none), its result and errno.
pub(crate) fn wait_complete(timeout: Option<Duration>) -> (*mut Aiocb, isize, c_int) {
    let address = WAIT_COMPLETE.load(Ordering::Relaxed);
    assert!(address != 0, "no aio_waitcomplete");
    // SAFETY: the address is that of a function of this type.
    let function: WaitComplete = unsafe { std::mem::transmute(address) };
    let mut timeout = timeout.map(timespec);
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let request = AtomicPtr::new(ptr::without_provenance_mut(1));
    // SAFETY: both places live through the call.
    let result = unsafe { function(request.as_ptr(), timeout) };
    (request.into_inner(), result, if result < 0 { errno() } else { 0 })
}

/// The descriptor that becomes readable when requests have completed.
pub(crate) fn completion_fd() -> c_int {
    let address = COMPLETION_FD.load(Ordering::Relaxed);
    assert!(address != 0, "no tautaio_completion_fd");
    // SAFETY: the address is that of a function of this type.
    let function: CompletionFd = unsafe { std::mem::transmute(address) };
    // SAFETY: takes nothing.
    unsafe { function() }
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).expect("short times"),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
