#![expect(unsafe_code, reason = "lends its count to operations")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::lockfree::announcement::Wait;
use crate::service::queue::Queue;
use crate::system::Deadline;

/// Tokens of completed operations, in the order of their completion.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    queue: Arc<Queue>,
}

impl CompletionQueue {
    /// Room for this many that are complete and not taken; more have to wait until there is room.
    pub fn new(capacity: usize) -> Self {
        Self { queue: Arc::new(Queue::new(capacity.clamp(1, 1 << 24))) }
    }

    /// Waits for the next completion and gives its token; `None` when the time is over first.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran.
    pub fn wait(&self, at_most: Option<Duration>) -> io::Result<Option<usize>> {
        let deadline = at_most.map_or(Deadline::NEVER, Deadline::after);
        match self.queue.wait(deadline) {
            Ok(completed) => Ok(Some(completed.request)),
            Err(Wait::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
            Err(_) => Ok(None),
        }
    }

    /// A count for the library, as an address.
    pub(super) fn lend(&self) -> usize {
        Arc::into_raw(Arc::clone(&self.queue)) as usize
    }

    /// # Safety
    /// The address came from [`Self::lend`] and was not used.
    pub(super) unsafe fn take_back(address: usize) {
        // SAFETY: the caller's promise.
        drop(unsafe { Arc::from_raw(address as *const Queue) });
    }
}
