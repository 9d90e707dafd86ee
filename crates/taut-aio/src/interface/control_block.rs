//! `struct aiocb` of glibc's `<aio.h>`, with our use of the words that it keeps for its implementation.
#![expect(unsafe_code, reason = "memory that the application owns")]

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

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
/// The application owns the first part and must leave all of it alone while the operation is in flight. The words of the
/// second part are glibc's private ones.
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
    /// Length of the list, in its first entry.
    pub(crate) list_length: u32,
    /// `EINPROGRESS`, then 0 or an errno. The last word that the library touches.
    error: AtomicI32,
    /// Count or -1.
    result: AtomicIsize,
    /// `aio_offset`.
    pub offset: i64,
    /// Tells that the block is in flight in this process, not a copy and not forgotten memory.
    token: AtomicU64,
    /// The operation in the I/O thread's table.
    pub(crate) handle: AtomicU64,
    /// Position among the completed requests.
    position: AtomicU64,
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

/// The event of a whole list, which travels in the private words of the list's first entry until the I/O thread has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListEvent(pub(crate) SigEvent);

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
            list_length: 0,
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

    /// Marks the block as in flight.
    ///
    /// # Safety
    /// The caller submits the block: nobody else touches it.
    pub(crate) unsafe fn begin(block: *mut Self, task: u32, epoch: u32) {
        // SAFETY: the caller's promise.
        let block = unsafe { &mut *block };
        block.task = task;
        block.list_length = 0;
        block.token.store(block.token_of(epoch), Ordering::Relaxed);
        block.handle.store(u64::MAX, Ordering::Relaxed);
        block.position.store(0, Ordering::Relaxed);
        block.error.store(libc::EINPROGRESS, Ordering::Relaxed);
    }

    /// What the submitting thread's try came to, on its way to the I/O thread: bytes moved and an errno or 0.
    pub(crate) fn carry_try(&self, moved: u32, errno: c_int) {
        self.handle.store(u64::from(errno as u32) << 32 | u64::from(moved), Ordering::Relaxed);
    }

    /// Takes it out again.
    pub(crate) fn carried_try(&self) -> (u32, c_int) {
        let word = self.handle.load(Ordering::Relaxed);
        (word as u32, (word >> 32) as c_int)
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

    /// Puts the event of a list into its first entry.
    ///
    /// # Safety
    /// As for `begin`, which came before.
    pub(crate) unsafe fn carry_list(block: *mut Self, length: u32, ListEvent(event): ListEvent) {
        // SAFETY: the caller's promise.
        let block = unsafe { &mut *block };
        block.list_length = length;
        block.result.store(event.value as isize, Ordering::Relaxed);
        block.handle.store(event.function as u64, Ordering::Relaxed);
        block.position.store(event.attributes as u64, Ordering::Relaxed);
        block.reserved = u64::from(event.signal as u32) << 32 | u64::from(event.notify as u32);
    }

    /// Takes it out again.
    pub(crate) fn carried_list(&self) -> (u32, SigEvent) {
        let event = SigEvent {
            value: self.result.load(Ordering::Relaxed) as usize,
            signal: (self.reserved >> 32) as c_int,
            notify: self.reserved as c_int,
            function: self.handle.load(Ordering::Relaxed) as usize,
            attributes: self.position.load(Ordering::Relaxed) as usize,
            reserved: [0; 32],
        };
        self.position.store(0, Ordering::Relaxed);
        (self.list_length, event)
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
