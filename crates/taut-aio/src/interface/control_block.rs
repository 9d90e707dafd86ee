//! `struct aiocb` of glibc's `<aio.h>`, with our use of the words that it keeps for its implementation.
#![expect(unsafe_code, reason = "memory that the application owns")]

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

use crate::service::target::Target;
use crate::sync::atomic::{AtomicI32, AtomicIsize, AtomicU64, AtomicUsize, Ordering};

/// `struct sigevent`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SigEvent {
    /// `sigev_value`: handed to the handler or function.
    pub value: usize,
    /// `sigev_signo`.
    pub signal: c_int,
    /// `sigev_notify`.
    pub notify: c_int,
    /// `sigev_notify_function`; its first four bytes are the thread of `SIGEV_THREAD_ID`.
    pub function: usize,
    /// `sigev_notify_attributes`.
    pub attributes: usize,
    pub(crate) reserved: [u8; 32],
}

/// `struct aiocb` and, since offsets have 64 bits here, `struct aiocb64`.
///
/// The application owns the first part and must leave all of it alone while the operation is in
/// flight. The words of the second part are glibc's private ones.
#[repr(C)]
#[derive(Debug)]
pub struct ControlBlock {
    /// `aio_fildes`.
    pub fd: c_int,
    /// `aio_lio_opcode`.
    pub opcode: c_int,
    /// `aio_reqprio`.
    pub priority: c_int,
    /// `aio_buf`.
    pub buffer: *mut c_void,
    /// `aio_nbytes`.
    pub length: usize,
    /// `aio_sigevent`.
    pub event: SigEvent,

    /// To the letter below in the inbox.
    pub(crate) link: AtomicUsize,
    /// What to do, and whether it belongs to a list; for the I/O thread.
    pub(crate) task: u32,
    /// The list that it belongs to, if it does.
    pub(crate) list: u32,
    /// `EINPROGRESS`, then 0 or an errno. The last word that the library touches.
    error: AtomicI32,
    /// Count or -1.
    result: AtomicIsize,
    /// `aio_offset`.
    pub offset: i64,
    /// Tells that the block is in flight in this process, not a copy and not forgotten memory.
    token: AtomicU64,
    /// The file's identity, until the I/O thread has the operation in its table; then its place there.
    pub(crate) handle: AtomicU64,
    /// Position among the completed requests.
    position: AtomicU64,
    /// The descriptor that holds the file until the I/O thread has the operation, and the file's kind.
    reserved: u64,
}

const _: () = {
    assert!(size_of::<ControlBlock>() == size_of::<libc::aiocb>());
    assert!(size_of::<SigEvent>() == size_of::<libc::sigevent>());
    assert!(offset_of!(ControlBlock, fd) == offset_of!(libc::aiocb, aio_fildes));
    assert!(offset_of!(ControlBlock, opcode) == offset_of!(libc::aiocb, aio_lio_opcode));
    assert!(offset_of!(ControlBlock, priority) == offset_of!(libc::aiocb, aio_reqprio));
    assert!(offset_of!(ControlBlock, buffer) == offset_of!(libc::aiocb, aio_buf));
    assert!(offset_of!(ControlBlock, length) == offset_of!(libc::aiocb, aio_nbytes));
    assert!(offset_of!(ControlBlock, event) == offset_of!(libc::aiocb, aio_sigevent));
    assert!(offset_of!(ControlBlock, offset) == offset_of!(libc::aiocb, aio_offset));
    assert!(offset_of!(SigEvent, signal) == offset_of!(libc::sigevent, sigev_signo));
    assert!(offset_of!(SigEvent, notify) == offset_of!(libc::sigevent, sigev_notify));
    assert!(offset_of!(SigEvent, function) == offset_of!(libc::sigevent, sigev_notify_thread_id));
    // As glibc has them (bits/types/struct aiocb in aio.h, LP64): what an old program checks by hand still fits.
    assert!(offset_of!(ControlBlock, link) == 96);
    assert!(offset_of!(ControlBlock, error) == 112);
    assert!(offset_of!(ControlBlock, result) == 120);
    assert!(offset_of!(ControlBlock, token) == 136);
};

impl SigEvent {
    /// No notification.
    pub const NONE: Self =
        Self { value: 0, signal: 0, notify: libc::SIGEV_NONE, function: 0, attributes: 0, reserved: [0; 32] };
}

impl ControlBlock {
    /// A block as a program that zeroes its memory makes it.
    pub fn new(fd: c_int, event: SigEvent) -> Self {
        Self {
            fd,
            opcode: 0,
            priority: 0,
            buffer: ptr::null_mut(),
            length: 0,
            event,
            link: AtomicUsize::new(0),
            task: 0,
            list: 0,
            error: AtomicI32::new(0),
            result: AtomicIsize::new(0),
            offset: 0,
            token: AtomicU64::new(0),
            handle: AtomicU64::new(0),
            position: AtomicU64::new(0),
            reserved: 0,
        }
    }

    /// As aio_error(3) gives it.
    pub(crate) fn error(&self) -> c_int {
        self.error.load(Ordering::Acquire)
    }

    /// As aio_return(3) gives it.
    pub(crate) fn result(&self) -> isize {
        self.result.load(Ordering::Relaxed)
    }

    /// Where it stands among the completed requests.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Whether it was submitted in this epoch and not completed since.
    pub(crate) fn is_in_flight(&self, epoch: u32) -> bool {
        self.error() == libc::EINPROGRESS && self.is_ours(epoch)
    }

    /// Whether it was submitted in this epoch, and at this address.
    pub(crate) fn is_ours(&self, epoch: u32) -> bool {
        self.token.load(Ordering::Relaxed) == self.token_of(epoch)
    }

    fn token_of(&self, epoch: u32) -> u64 {
        (ptr::from_ref(self) as u64).rotate_left(20) ^ 0x7461_7574_6169_6f21 ^ u64::from(epoch)
    }

    /// Marks the block as in flight, on the file that its descriptor means now.
    ///
    /// # Safety
    /// The caller submits the block: nobody else touches it.
    pub(crate) unsafe fn begin(block: *mut Self, task: u32, file: Target, epoch: u32) {
        // SAFETY: the caller's promise. Field by field: who looks at it meanwhile looks at its atomics.
        unsafe {
            (*block).task = task;
            (*block).reserved = file.own_word();
            (*block).handle.store(file.identity, Ordering::Relaxed);
            (*block).token.store((*block).token_of(epoch), Ordering::Relaxed);
            (*block).position.store(0, Ordering::Relaxed);
            (*block).error.store(libc::EINPROGRESS, Ordering::Relaxed);
        }
    }

    /// The file that it is about, on its way to the I/O thread.
    pub(crate) fn target(&self) -> Target {
        Target::read(self.handle.load(Ordering::Relaxed), self.reserved)
    }

    /// Lets the operation fail before it begins; one that is in flight is left alone.
    ///
    /// # Safety
    /// The caller submits the block: nobody else touches it.
    pub(crate) unsafe fn refuse(block: *mut Self, error: c_int, epoch: u32) {
        // SAFETY: the caller's promise.
        let block = unsafe { &*block };
        if !block.is_in_flight(epoch) {
            block.complete(-(error as isize), 0);
        }
    }

    /// Completes the operation with a count or a negative errno. The block is the application's again before this
    /// returns: it must not be touched any more.
    pub(crate) fn complete(&self, result: isize, position: u64) {
        self.result.store(result.max(-1), Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
        let error = if result < 0 { -result as c_int } else { 0 };
        self.error.store(error, Ordering::Release);
    }
}
