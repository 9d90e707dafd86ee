//! Requests: an aiocb and its buffer, kept where they are until the request is done.
#![expect(unsafe_code, reason = "the interface under test is that of C")]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{aiocb, c_int, sigevent, timespec};

use super::threads::pause;

/// A request that takes longer than this hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An asynchronous request. Dropped in flight it leaks, as the library may still use its memory.
pub(crate) struct Request {
    block: Box<UnsafeCell<aiocb>>,
    buffer: Box<[u8]>,
}

impl Request {
    /// An aiocb of zeros and a buffer that it points to.
    fn new(fd: RawFd, opcode: c_int, buffer: Box<[u8]>) -> Self {
        let mut request = Self { block: Box::new(UnsafeCell::new(zeroed())), buffer };
        let (address, length) = (request.buffer.as_mut_ptr(), request.buffer.len());
        let block = request.block_mut();
        block.aio_fildes = fd;
        block.aio_lio_opcode = opcode;
        block.aio_buf = address.cast();
        block.aio_nbytes = length;
        block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        request
    }

    /// Reads up to `length` bytes.
    pub(crate) fn read(fd: &impl AsRawFd, length: usize) -> Self {
        Self::new(fd.as_raw_fd(), libc::LIO_READ, vec![0; length].into())
    }

    /// Writes a copy of `data`.
    pub(crate) fn write(fd: &impl AsRawFd, data: &[u8]) -> Self {
        Self::new(fd.as_raw_fd(), libc::LIO_WRITE, data.into())
    }

    /// Writes `data` from a buffer that begins at a page, as O_DIRECT wants it.
    pub(crate) fn write_aligned(fd: &impl AsRawFd, data: &[u8]) -> Self {
        const PAGE: usize = 4096;
        let mut request = Self::new(fd.as_raw_fd(), libc::LIO_WRITE, vec![0; data.len() + PAGE].into());
        let start = request.buffer.as_ptr().align_offset(PAGE);
        request.buffer[start..start + data.len()].copy_from_slice(data);
        let address = request.buffer[start..].as_mut_ptr();
        request.block_mut().aio_buf = address.cast();
        request.block_mut().aio_nbytes = data.len();
        request
    }

    /// Does nothing, in a list.
    pub(crate) fn nop() -> Self {
        Self::new(-1, libc::LIO_NOP, Box::default())
    }

    /// A request for [`Request::fsync`] alone.
    pub(crate) fn sync(fd: &impl AsRawFd) -> Self {
        Self::new(fd.as_raw_fd(), libc::LIO_NOP, Box::default())
    }

    /// At this place of the file.
    pub(crate) fn at(mut self, offset: i64) -> Self {
        self.block_mut().aio_offset = offset;
        self
    }

    /// Notified in this way.
    pub(crate) fn notify(mut self, event: sigevent) -> Self {
        self.block_mut().aio_sigevent = event;
        self
    }

    /// Every field of the aiocb. Not while it is in flight.
    pub(crate) fn block_mut(&mut self) -> &mut aiocb {
        self.block.get_mut()
    }

    /// What C has.
    pub(crate) fn as_ptr(&self) -> *mut aiocb {
        self.block.get()
    }

    /// `aio_read` or `aio_write`, by its opcode; the error is `errno`.
    pub(crate) fn submit(&mut self) -> Result<(), i32> {
        let write = self.block_mut().aio_lio_opcode == libc::LIO_WRITE;
        // SAFETY: the aiocb and its buffer stay where they are until the request is done.
        check(unsafe { if write { libc::aio_write(self.as_ptr()) } else { libc::aio_read(self.as_ptr()) } })
    }

    /// Submits it, which must succeed.
    pub(crate) fn start(mut self) -> Self {
        self.submit().expect("the submission succeeds");
        self
    }

    /// `aio_read` or `aio_write` once more, whatever the request's state.
    pub(crate) fn submit_again(&self) -> Result<(), i32> {
        // SAFETY: as in `submit`; the library refuses what is in flight.
        let write = unsafe { (*self.as_ptr()).aio_lio_opcode } == libc::LIO_WRITE;
        // SAFETY: as above.
        check(unsafe { if write { libc::aio_write(self.as_ptr()) } else { libc::aio_read(self.as_ptr()) } })
    }

    /// `aio_fsync`.
    pub(crate) fn fsync(&mut self, operation: c_int) -> Result<(), i32> {
        // SAFETY: as in `submit`.
        check(unsafe { libc::aio_fsync(operation, self.as_ptr()) })
    }

    /// `aio_error`.
    pub(crate) fn error(&self) -> i32 {
        // SAFETY: the aiocb is alive.
        unsafe { libc::aio_error(self.as_ptr()) }
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.error() == libc::EINPROGRESS
    }

    /// `aio_return`; the error is `errno`.
    pub(crate) fn aio_return(&self) -> Result<usize, i32> {
        set_errno(0);
        // SAFETY: the aiocb is alive.
        let result = unsafe { libc::aio_return(self.as_ptr()) };
        usize::try_from(result).map_err(|_| errno())
    }

    /// The result of a request that is done: what `aio_return` gives, or the error `aio_error` gives.
    pub(crate) fn result(&self) -> Result<usize, i32> {
        match self.error() {
            0 => {
                // SAFETY: the aiocb is alive.
                let result = unsafe { libc::aio_return(self.as_ptr()) };
                Ok(usize::try_from(result).expect("aio_error gives 0"))
            }
            libc::EINPROGRESS => panic!("still in flight"),
            error => {
                // SAFETY: the aiocb is alive.
                assert_eq!(unsafe { libc::aio_return(self.as_ptr()) }, -1, "aio_error gives {error}");
                Err(error)
            }
        }
    }

    /// Waits until it is done by looking at `aio_error` alone.
    pub(crate) fn wait(&self) -> Result<usize, i32> {
        let deadline = Instant::now() + PATIENCE;
        let mut looks = 0;
        while self.in_flight() {
            assert!(Instant::now() < deadline, "a request is still in flight after {PATIENCE:?}");
            looks += 1;
            if looks > 100 {
                pause(Duration::from_micros(200));
            } else {
                std::thread::yield_now();
            }
        }
        self.result()
    }

    /// `aio_cancel` of this request alone; the error is `errno`.
    pub(crate) fn cancel(&self) -> Result<c_int, i32> {
        // SAFETY: the aiocb is alive.
        let fd = unsafe { (*self.as_ptr()).aio_fildes };
        self.cancel_on(&fd)
    }

    /// `aio_cancel` with any descriptor.
    pub(crate) fn cancel_on(&self, fd: &impl AsRawFd) -> Result<c_int, i32> {
        // SAFETY: the aiocb is alive.
        answer(unsafe { libc::aio_cancel(fd.as_raw_fd(), self.as_ptr()) })
    }

    /// Fills the whole aiocb, private words and all, with a byte.
    pub(crate) fn overwrite(&mut self, byte: u8) {
        assert!(!self.in_flight());
        self.overwrite_in_flight(byte);
    }

    /// The same although the library may be at it. The buffer leaks, as the library may still use it.
    pub(crate) fn overwrite_in_flight(&mut self, byte: u8) {
        std::mem::forget(std::mem::take(&mut self.buffer));
        // SAFETY: numbers and pointers may have any bytes.
        unsafe { self.as_ptr().write_bytes(byte, 1) };
    }

    /// Fills the words that a program can't name, which lie between and after those it can.
    pub(crate) fn fill_private(&mut self, byte: u8) {
        const NAMED_END: usize = std::mem::offset_of!(aiocb, aio_sigevent) + size_of::<sigevent>();
        const OFFSET: usize = std::mem::offset_of!(aiocb, aio_offset);
        const OFFSET_END: usize = OFFSET + size_of::<libc::off_t>();
        let bytes = self.as_ptr().cast::<u8>();
        // SAFETY: numbers and pointers may have any bytes, and these lie within the structure.
        unsafe {
            bytes.add(NAMED_END).write_bytes(byte, OFFSET - NAMED_END);
            bytes.add(OFFSET_END).write_bytes(byte, size_of::<aiocb>() - OFFSET_END);
        }
    }

    /// Copies another aiocb, private words and all.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        // SAFETY: both are alive and not the same.
        unsafe { self.as_ptr().copy_from_nonoverlapping(other.as_ptr(), 1) };
    }

    /// Whether all is as [`Request::overwrite`] left it.
    pub(crate) fn is_overwritten_with(&self, byte: u8) -> bool {
        let bytes = self.as_ptr().cast::<u8>();
        // SAFETY: every byte of it was written, padding too.
        (0..size_of::<aiocb>()).all(|at| unsafe { bytes.add(at).read() } == byte)
    }

    /// What was read, or is to be written. Not while it is in flight.
    pub(crate) fn data(&self) -> &[u8] {
        assert!(!self.in_flight());
        &self.buffer
    }

    /// As [`Request::data`], to change it.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        assert!(!self.in_flight());
        &mut self.buffer
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.in_flight() {
            std::mem::forget(std::mem::replace(&mut self.block, Box::new(UnsafeCell::new(zeroed()))));
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}

// SAFETY: POSIX lets any thread submit, ask and wait; nothing but the interface touches the aiocb.
unsafe impl Send for Request {}

// SAFETY: as above.
unsafe impl Sync for Request {}

/// An aiocb as `memset` leaves it.
pub(crate) fn zeroed() -> aiocb {
    // SAFETY: all-zero is a value of the structure.
    unsafe { std::mem::zeroed() }
}

/// A sigevent of zeros with this kind of notification.
pub(crate) fn event(notify: c_int) -> sigevent {
    // SAFETY: all-zero is a value of the structure.
    let mut event: sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = notify;
    event
}

/// A signal that carries a value.
pub(crate) fn by_signal(signal: c_int, value: usize) -> sigevent {
    let mut event = event(libc::SIGEV_SIGNAL);
    event.sigev_signo = signal;
    event.sigev_value.sival_ptr = ptr::without_provenance_mut(value);
    event
}

/// A signal to one thread.
pub(crate) fn by_signal_to(thread: libc::pid_t, signal: c_int, value: usize) -> sigevent {
    let mut event = by_signal(signal, value);
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_notify_thread_id = thread;
    event
}

/// A function in a thread, with attributes or without.
pub(crate) fn by_thread(
    function: extern "C" fn(libc::sigval),
    value: usize,
    attributes: *const libc::pthread_attr_t,
) -> sigevent {
    /// The fields of glibc's structure that crate libc does not name.
    #[repr(C)]
    struct OfThread {
        value: libc::sigval,
        signal: c_int,
        notify: c_int,
        function: extern "C" fn(libc::sigval),
        attributes: *const libc::pthread_attr_t,
    }
    let mut event = event(libc::SIGEV_THREAD);
    let of_thread = OfThread {
        value: libc::sigval { sival_ptr: ptr::without_provenance_mut(value) },
        signal: 0,
        notify: libc::SIGEV_THREAD,
        function,
        attributes,
    };
    const { assert!(size_of::<OfThread>() <= size_of::<sigevent>()) };
    // SAFETY: struct sigevent is larger and aligned alike, and this is its layout in glibc's <bits/types/sigevent_t.h>.
    unsafe { (&raw mut event).cast::<OfThread>().write(of_thread) };
    event
}

/// `aio_cancel` of everything on a descriptor; the error is `errno`.
pub(crate) fn cancel_all(fd: &impl AsRawFd) -> Result<c_int, i32> {
    // SAFETY: no aiocb is given.
    answer(unsafe { libc::aio_cancel(fd.as_raw_fd(), ptr::null_mut()) })
}

/// `aio_suspend`; the error is `errno`.
pub(crate) fn suspend(list: &[Option<&Request>], timeout: Option<Duration>) -> Result<(), i32> {
    let list: Vec<_> = list.iter().map(|request| request.map_or(ptr::null(), |it| it.as_ptr().cast_const())).collect();
    let timeout = timeout.map(timespec_of);
    suspend_raw(list.as_ptr(), c_int::try_from(list.len()).unwrap(), timeout.as_ref())
}

/// `aio_suspend` of one request, which does nothing else: for signal handlers.
pub(crate) fn suspend_one(request: &Request, timeout: Duration) -> Result<(), i32> {
    suspend_raw(&request.as_ptr().cast_const(), 1, Some(&timespec_of(timeout)))
}

/// `aio_suspend` as it is.
pub(crate) fn suspend_raw(list: *const *const aiocb, length: c_int, timeout: Option<&timespec>) -> Result<(), i32> {
    let timeout = timeout.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the tests give a list of that many live aiocbs, or a length the call must refuse before it looks.
    check(unsafe { libc::aio_suspend(list, length, timeout) })
}

/// Waits until all are done, and that nobody needs to look more than [`PATIENCE`] for.
pub(crate) fn wait_all<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Vec<Result<usize, i32>> {
    requests.into_iter().map(Request::wait).collect()
}

/// `lio_listio`; the error is `errno`.
pub(crate) fn listio(mode: c_int, list: &[Option<&Request>], event: Option<sigevent>) -> Result<(), i32> {
    let list: Vec<_> = list.iter().map(|request| request.map_or(ptr::null_mut(), Request::as_ptr)).collect();
    listio_raw(mode, list.as_ptr(), c_int::try_from(list.len()).unwrap(), event)
}

/// `lio_listio` as it is.
pub(crate) fn listio_raw(
    mode: c_int,
    list: *const *mut aiocb,
    length: c_int,
    mut event: Option<sigevent>,
) -> Result<(), i32> {
    let event = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: as in `suspend_raw`; the sigevent is only read during the call.
    check(unsafe { libc::lio_listio(mode, list, length, event) })
}

/// `lio_listio` of one request, with a sigevent that the caller has.
pub(crate) fn listio_with(mode: c_int, request: &Request, event: &mut sigevent) -> Result<(), i32> {
    let list = [request.as_ptr()];
    // SAFETY: as in `listio_raw`.
    check(unsafe { libc::lio_listio(mode, list.as_ptr(), 1, event) })
}

/// `aio_waitcomplete` of libtautaio: the request and its result, or the errno with which there was none.
pub(crate) fn waitcomplete(timeout: Option<timespec>) -> Result<(*mut aiocb, Result<usize, i32>), i32> {
    type WaitComplete = unsafe extern "C" fn(*mut *mut aiocb, *mut timespec) -> libc::ssize_t;
    let function = symbol(c"aio_waitcomplete");
    // SAFETY: this is its type.
    let function: WaitComplete = unsafe { std::mem::transmute(function) };
    let mut timeout = timeout;
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let mut block = ptr::dangling_mut();
    // SAFETY: both pointers are to locals or null.
    let result = unsafe { function(&raw mut block, timeout) };
    let errno = errno();
    if block.is_null() {
        assert_eq!(result, -1, "without a request there is no result");
        return Err(errno);
    }
    assert_ne!(block, ptr::dangling_mut(), "*iocbp is set in any case");
    Ok((block, usize::try_from(result).map_err(|_| errno)))
}

/// `tautaio_completion_fd` of libtautaio.
pub(crate) fn completion_fd() -> RawFd {
    let function = symbol(c"tautaio_completion_fd");
    // SAFETY: this is its type.
    let function: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(function) };
    // SAFETY: it takes nothing.
    unsafe { function() }
}

/// A function of libtautaio that the C library doesn't have.
pub(crate) fn symbol(name: &CStr) -> *mut libc::c_void {
    // SAFETY: looks a name up.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is not there");
    address
}

pub(crate) fn timespec_of(duration: Duration) -> timespec {
    timespec { tv_sec: duration.as_secs().try_into().unwrap(), tv_nsec: duration.subsec_nanos().into() }
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Lets the next look at `errno` tell whether a call has set it.
pub(crate) fn set_errno(value: i32) {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = value };
}

fn check(result: c_int) -> Result<(), i32> {
    answer(result).map(|zero| assert_eq!(zero, 0))
}

fn answer(result: c_int) -> Result<c_int, i32> {
    if result == -1 { Err(errno()) } else { Ok(result) }
}

/// `aio_init`, with a number of threads.
pub(crate) fn init(threads: c_int) {
    /// glibc's `struct aioinit`.
    #[repr(C)]
    struct AioInit {
        threads: c_int,
        requests: c_int,
        unused: [c_int; 6],
    }
    unsafe extern "C" {
        fn aio_init(init: *const AioInit);
    }
    let init = AioInit { threads, requests: 64, unused: [0; 6] };
    // SAFETY: it is only read.
    unsafe { aio_init(&raw const init) };
}
