#![expect(unsafe_code, reason = "lends its own memory to the library")]

use std::alloc::{self, Layout};
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::provider::Provider;
use super::queue::CompletionQueue;
use crate::control_block::{ControlBlock, SigEvent};
use crate::worker::notice::NOTIFY_QUEUE;
use crate::worker::order::Kind;

/// How an operation tells that it is complete.
#[derive(Clone, Debug, Default)]
pub enum Notify {
    /// Not at all: it is asked, or waited for in a list.
    #[default]
    Silent,
    /// By queueing this signal to the process, with the token as its value.
    Signal(c_int),
    /// By its token in a queue. Not with [`Provider::System`].
    Queue(CompletionQueue),
}

/// An asynchronous read or write that owns its buffer, over and over again.
///
/// While it is in flight the buffer is lent to the kernel and can't be had. Dropping it stops it first.
pub struct Operation {
    provider: Provider,
    /// Keeps the descriptor open while it is in flight.
    _fd: Arc<OwnedFd>,
    notify: Notify,
    token: usize,
    lent: Lent,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Idle,
    Submitted,
}

// SAFETY: the block and the buffer are only reached through `&mut self` or, in flight, by the library, whose accesses
// are ordered by the block's atomics.
unsafe impl Send for Operation {}

/// The control block and, right behind it, the buffer: what the library has the addresses of while it is in flight. In one
/// piece on cache lines of its own, since with thousands of operations each further line and page is a miss.
struct Lent {
    block: NonNull<ControlBlock>,
    bytes: usize,
}

impl Lent {
    fn new(block: ControlBlock, bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size, that of the block at least.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        let Some(place) = NonNull::new(memory.cast::<ControlBlock>()) else { alloc::handle_alloc_error(layout) };
        // SAFETY: the memory is new, large enough and aligned.
        unsafe { place.write(block) };
        Self { block: place, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        let size = size_of::<ControlBlock>().checked_add(bytes);
        let layout = size.and_then(|size| Layout::from_size_align(size, 64).ok());
        layout.expect("a buffer fits into the address space")
    }

    fn buffer(&self) -> *mut u8 {
        // SAFETY: within the allocation, or one past its end.
        unsafe { self.block.add(1).cast().as_ptr() }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: made in `new` with this layout, and not in flight any more.
        unsafe { alloc::dealloc(self.block.as_ptr().cast(), Self::layout(self.bytes)) };
    }
}

impl Operation {
    /// An operation on this descriptor with a buffer of this many bytes. The token says which it was, wherever it is
    /// told.
    ///
    /// # Panics
    /// When the buffer exceeds the address space.
    pub fn new(provider: Provider, fd: Arc<OwnedFd>, buffer_bytes: usize, token: usize, notify: Notify) -> Self {
        let lent = Lent::new(ControlBlock::new(fd.as_raw_fd(), SigEvent::NONE), buffer_bytes);
        Self { provider, _fd: fd, notify, token, lent, state: State::Idle }
    }

    /// Begins to read up to `length` bytes, at this offset where there are offsets.
    ///
    /// # Errors
    /// `EINVAL`: in flight already, or longer than the buffer. `EAGAIN`: the system is out of resources.
    pub fn start_read(&mut self, length: usize, offset: i64) -> io::Result<()> {
        self.start(Kind::Read, length, offset)
    }

    /// Begins to write the first `length` bytes of the buffer, at this offset where there are offsets.
    ///
    /// # Errors
    /// As for [`Self::start_read`].
    pub fn start_write(&mut self, length: usize, offset: i64) -> io::Result<()> {
        self.start(Kind::Write, length, offset)
    }

    /// Begins to bring what was written before onto the disk; with `data_only`, no more of the file's attributes than
    /// is needed to read it again.
    ///
    /// # Errors
    /// As for [`Self::start_read`].
    pub fn start_sync(&mut self, data_only: bool) -> io::Result<()> {
        self.start(if data_only { Kind::DataSync } else { Kind::Sync }, 0, 0)
    }

    fn start(&mut self, kind: Kind, length: usize, offset: i64) -> io::Result<()> {
        if self.state == State::Submitted || length > self.lent.bytes {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let event = self.event()?;
        let buffer = self.lent.buffer();
        // SAFETY: it is not in flight, so it is ours alone.
        let block = unsafe { self.lent.block.as_mut() };
        block.buffer = buffer.cast();
        block.length = length;
        block.offset = offset;
        block.event = event;
        // SAFETY: the block stays in its place, and `Drop` waits for the end of the operation.
        let result = unsafe { self.provider.submit(self.lent.block.as_ptr(), kind) };
        match result {
            Ok(()) => self.state = State::Submitted,
            Err(_) => self.take_back(event),
        }
        result
    }

    fn event(&self) -> io::Result<SigEvent> {
        let value = self.token;
        Ok(match &self.notify {
            Notify::Silent => SigEvent { value, ..SigEvent::NONE },
            &Notify::Signal(signal) => SigEvent { value, signal, notify: libc::SIGEV_SIGNAL, ..SigEvent::NONE },
            Notify::Queue(_) if self.provider == Provider::System => {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            Notify::Queue(queue) => SigEvent { value, notify: NOTIFY_QUEUE, function: queue.lend(), ..SigEvent::NONE },
        })
    }

    fn take_back(&self, event: SigEvent) {
        if event.notify == NOTIFY_QUEUE {
            // SAFETY: lent above, and the library did not take it.
            unsafe { CompletionQueue::take_back(event.function) };
        }
    }

    /// Whether it is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.state == State::Submitted && self.error() == libc::EINPROGRESS
    }

    fn error(&self) -> c_int {
        // SAFETY: only its atomic words change behind our back.
        self.provider.error(unsafe { self.lent.block.as_ref() })
    }

    /// What it came to: the bytes moved, once. `None` when it is in flight, was never begun, or was asked before.
    pub fn take_result(&mut self) -> Option<io::Result<usize>> {
        if self.state == State::Idle {
            return None;
        }
        let error = self.error();
        if error == libc::EINPROGRESS {
            return None;
        }
        self.state = State::Idle;
        // SAFETY: it is complete.
        let result = unsafe { self.provider.collect(self.lent.block.as_ptr()) };
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(error)))
    }

    /// The buffer, unless it is lent.
    pub fn buffer(&self) -> Option<&[u8]> {
        if self.is_in_flight() {
            return None;
        }
        // SAFETY: it has this many bytes, zeroed at first, and nobody writes to them.
        Some(unsafe { std::slice::from_raw_parts(self.lent.buffer(), self.lent.bytes) })
    }

    /// The buffer, unless it is lent.
    pub fn buffer_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_in_flight() {
            return None;
        }
        // SAFETY: as above, and `&mut self`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.lent.buffer(), self.lent.bytes) })
    }

    /// What it was made with.
    pub const fn token(&self) -> usize {
        self.token
    }

    /// Tries to stop it, and waits until the library no longer needs its memory.
    pub fn stop(&mut self) {
        while self.is_in_flight() {
            let block = self.lent.block.as_ptr();
            // SAFETY: it was submitted to this provider; it stays until we return.
            unsafe {
                self.provider.cancel(block);
                // Not cancelable: it ends by itself. EINTR and the like go round again.
                let _ = self.provider.suspend(&[block.cast_const()], std::ptr::null());
            }
        }
    }

    pub(super) fn block(&self) -> *const ControlBlock {
        self.lent.block.as_ptr()
    }

    pub(super) const fn provider(&self) -> Provider {
        self.provider
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.stop();
        if self.state == State::Submitted {
            // Collects it, so that nobody else does later.
            let _ = self.take_result();
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("provider", &self.provider)
            .field("token", &self.token)
            .field("bytes", &self.lent.bytes)
            .field("in_flight", &self.is_in_flight())
            .finish_non_exhaustive()
    }
}
