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
use crate::worker::notice::{NOTIFY_NOBODY, NOTIFY_QUEUE};
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
    inner: NonNull<Inner>,
}

/// All of an operation but its buffer, which follows right behind: in one piece, in its place for
/// good, on cache lines of its own. With thousands of operations each further line and page is a miss.
#[repr(C, align(64))]
struct Inner {
    /// What the library has the address of; its last words share a line with the state.
    block: ControlBlock,
    state: State,
    provider: Provider,
    token: usize,
    bytes: usize,
    notify: Notify,
    /// Keeps the descriptor open while it is in flight.
    fd: Arc<OwnedFd>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Idle,
    Submitted,
}

// SAFETY: what it points to is its own. In flight the library reaches the block and the buffer too,
// and its accesses are ordered by the block's atomics.
unsafe impl Send for Operation {}
// SAFETY: through a shared reference the block's atomics are read, and the buffer when nobody writes to it.
unsafe impl Sync for Operation {}

/// Where an operation with a buffer of this many bytes lives, and where the buffer begins.
fn layout(bytes: usize) -> (Layout, usize) {
    let buffer = Layout::array::<u8>(bytes).expect("a buffer fits into the address space");
    Layout::new::<Inner>().extend(buffer).expect("a buffer fits into the address space")
}

impl Operation {
    /// An operation on this descriptor with a buffer of this many bytes. The token says which it was, wherever it is
    /// told.
    ///
    /// # Panics
    /// When the buffer exceeds the address space.
    pub fn new(provider: Provider, fd: Arc<OwnedFd>, buffer_bytes: usize, token: usize, notify: Notify) -> Self {
        let block = ControlBlock::new(fd.as_raw_fd(), SigEvent::NONE);
        let (layout, _) = layout(buffer_bytes);
        // SAFETY: the layout has a size. The memory is new, large enough and aligned when it is written to.
        let inner = unsafe {
            let memory = alloc::alloc_zeroed(layout);
            let Some(inner) = NonNull::new(memory.cast::<Inner>()) else { alloc::handle_alloc_error(layout) };
            inner.write(Inner { block, state: State::Idle, provider, token, bytes: buffer_bytes, notify, fd });
            inner
        };
        Self { inner }
    }

    /// The block; shared with the library in flight, so no reference to all of `Inner` may be unique.
    const fn block_pointer(&self) -> *mut ControlBlock {
        // SAFETY: within the allocation.
        unsafe { &raw mut (*self.inner.as_ptr()).block }
    }

    fn buffer_pointer(&self) -> *mut u8 {
        let (_, offset) = layout(self.bytes());
        // SAFETY: within the allocation, or one past its end.
        unsafe { self.inner.as_ptr().cast::<u8>().add(offset) }
    }

    const fn bytes(&self) -> usize {
        // SAFETY: written by `new` alone.
        unsafe { (*self.inner.as_ptr()).bytes }
    }

    const fn state(&self) -> State {
        // SAFETY: written through `&mut self` alone.
        unsafe { (*self.inner.as_ptr()).state }
    }

    fn set_state(&mut self, state: State) {
        // SAFETY: `&mut self`; the library does not know this word.
        unsafe { (*self.inner.as_ptr()).state = state };
    }

    const fn notify(&self) -> &Notify {
        // SAFETY: written by `new` alone.
        unsafe { &(*self.inner.as_ptr()).notify }
    }

    /// Turns it to another descriptor, so that a few operations serve many.
    ///
    /// # Errors
    /// `EINVAL`: it was begun, and its result was not taken yet.
    pub fn turn_to(&mut self, fd: Arc<OwnedFd>) -> io::Result<()> {
        if self.state() == State::Submitted {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: it is not in flight, so it is ours alone.
        unsafe {
            (*self.block_pointer()).fd = fd.as_raw_fd();
            (*self.inner.as_ptr()).fd = fd;
        }
        Ok(())
    }

    /// What it reads from or writes to.
    pub const fn fd(&self) -> &Arc<OwnedFd> {
        // SAFETY: written through `&mut self` alone.
        unsafe { &(*self.inner.as_ptr()).fd }
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
        if self.state() == State::Submitted || length > self.bytes() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let event = self.event()?;
        let buffer = self.buffer_pointer();
        // SAFETY: it is not in flight, so it is ours alone.
        let block = unsafe { &mut *self.block_pointer() };
        block.buffer = buffer.cast();
        block.length = length;
        block.offset = offset;
        block.event = event;
        // SAFETY: the block stays in its place, and `Drop` waits for the end of the operation.
        let result = unsafe { self.provider().submit(self.block_pointer(), kind) };
        match result {
            Ok(()) => self.set_state(State::Submitted),
            Err(_) => self.take_back(event),
        }
        result
    }

    fn event(&self) -> io::Result<SigEvent> {
        let value = self.token();
        Ok(match self.notify() {
            Notify::Silent if self.provider() == Provider::System => SigEvent { value, ..SigEvent::NONE },
            // Not for aio_waitcomplete: whoever calls that knows nothing of us.
            Notify::Silent => SigEvent { value, notify: NOTIFY_NOBODY, ..SigEvent::NONE },
            &Notify::Signal(signal) => SigEvent { value, signal, notify: libc::SIGEV_SIGNAL, ..SigEvent::NONE },
            Notify::Queue(_) if self.provider() == Provider::System => {
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
        self.state() == State::Submitted && self.error() == libc::EINPROGRESS
    }

    fn error(&self) -> c_int {
        // SAFETY: only its atomic words change behind our back.
        self.provider().error(unsafe { &*self.block_pointer() })
    }

    /// What it came to: the bytes moved, once. `None` when it is in flight, was never begun, or was asked before.
    pub fn take_result(&mut self) -> Option<io::Result<usize>> {
        if self.state() == State::Idle {
            return None;
        }
        let error = self.error();
        if error == libc::EINPROGRESS {
            return None;
        }
        self.set_state(State::Idle);
        // SAFETY: it is complete.
        let result = unsafe { self.provider().collect(self.block_pointer()) };
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(error)))
    }

    /// The buffer, unless it is lent.
    pub fn buffer(&self) -> Option<&[u8]> {
        if self.is_in_flight() {
            return None;
        }
        // SAFETY: it has this many bytes, zeroed at first, and nobody writes to them.
        Some(unsafe { std::slice::from_raw_parts(self.buffer_pointer(), self.bytes()) })
    }

    /// The buffer, unless it is lent.
    pub fn buffer_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_in_flight() {
            return None;
        }
        // SAFETY: as above, and `&mut self`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.buffer_pointer(), self.bytes()) })
    }

    /// What it was made with.
    pub const fn token(&self) -> usize {
        // SAFETY: written by `new` alone.
        unsafe { (*self.inner.as_ptr()).token }
    }

    /// Tries to stop it, and waits until the library no longer needs its memory.
    pub fn stop(&mut self) {
        while self.is_in_flight() {
            let block = self.block_pointer();
            // SAFETY: it was submitted to this provider; it stays until we return.
            unsafe {
                self.provider().cancel(block);
                // Not cancelable: it ends by itself. EINTR and the like go round again.
                let _ = self.provider().suspend(&[block.cast_const()], std::ptr::null());
            }
        }
    }

    pub(super) fn block(&self) -> *const ControlBlock {
        self.block_pointer()
    }

    pub(super) const fn provider(&self) -> Provider {
        // SAFETY: written by `new` alone.
        unsafe { (*self.inner.as_ptr()).provider }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.stop();
        if self.state() == State::Submitted {
            // Collects it, so that nobody else does later.
            let _ = self.take_result();
        }
        let (layout, _) = layout(self.bytes());
        // SAFETY: made in `new` with this layout, and not in flight any more.
        unsafe {
            self.inner.drop_in_place();
            alloc::dealloc(self.inner.as_ptr().cast(), layout);
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("provider", &self.provider())
            .field("token", &self.token())
            .field("bytes", &self.bytes())
            .field("in_flight", &self.is_in_flight())
            .finish_non_exhaustive()
    }
}
