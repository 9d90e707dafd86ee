#![expect(unsafe_code, reason = "hands the addresses of its own operations out")]

use std::fmt;
use std::io;
use std::ops::{Deref, Index};
use std::time::Duration;

use super::operation::Operation;
use super::provider::Provider;
use crate::control_block::ControlBlock;

/// Operations to wait for together, as aio_suspend(3) does.
pub struct OperationList {
    operations: Vec<Operation>,
    /// Their addresses, which boxes keep.
    blocks: Vec<*const ControlBlock>,
}

// SAFETY: the addresses are those of its own operations, which may be sent.
unsafe impl Send for OperationList {}

impl OperationList {
    /// A list of operations, all of one provider.
    ///
    /// # Errors
    /// `InvalidInput`: of different providers.
    pub fn new(operations: Vec<Operation>) -> io::Result<Self> {
        let mut providers = operations.iter().map(Operation::provider);
        let first = providers.next();
        if providers.any(|provider| Some(provider) != first) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "operations of different providers"));
        }
        let blocks = operations.iter().map(Operation::block).collect();
        Ok(Self { operations, blocks })
    }

    /// Waits until one of them is complete; false when the time is over first. Those never begun count as complete.
    ///
    /// # Errors
    /// `EINTR`: a signal handler ran.
    pub fn suspend(&self, at_most: Option<Duration>) -> io::Result<bool> {
        let timeout = at_most.map(|time| libc::timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let provider = self.operations.first().map_or(Provider::Taut, Operation::provider);
        // SAFETY: the blocks are those of our operations.
        match unsafe { provider.suspend(&self.blocks, timeout) } {
            Ok(()) => Ok(true),
            Err(libc::EAGAIN) => Ok(false),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// One of them, to begin it or to take its result.
    ///
    /// # Panics
    /// When there is none of this index.
    pub fn get_mut(&mut self, index: usize) -> InPlace<'_> {
        InPlace(&mut self.operations[index])
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

impl Index<usize> for OperationList {
    type Output = Operation;

    fn index(&self, index: usize) -> &Operation {
        &self.operations[index]
    }
}

/// An operation that stays in its place: it can be begun and collected, and not be replaced by another or moved away.
///
/// ```
/// # use taut_aio::{InPlace, Operation};
/// fn begin(mut operation: InPlace<'_>) -> std::io::Result<()> {
///     operation.start_read(64, 0)
/// }
/// ```
///
/// A list has its operations' addresses, so this does not compile:
///
/// ```compile_fail,E0594
/// # use taut_aio::{Operation, OperationList};
/// fn replace(list: &mut OperationList, other: Operation) {
///     list[0] = other;
/// }
/// ```
///
/// Nor does this:
///
/// ```compile_fail,E0596
/// # use taut_aio::{Operation, OperationList};
/// fn swap(list: &mut OperationList, mut other: Operation) {
///     std::mem::swap(&mut *list.get_mut(0), &mut other);
/// }
/// ```
#[derive(Debug)]
pub struct InPlace<'a>(&'a mut Operation);

impl InPlace<'_> {
    /// As [`Operation::start_read`].
    ///
    /// # Errors
    /// As there.
    pub fn start_read(&mut self, length: usize, offset: i64) -> io::Result<()> {
        self.0.start_read(length, offset)
    }

    /// As [`Operation::start_write`].
    ///
    /// # Errors
    /// As there.
    pub fn start_write(&mut self, length: usize, offset: i64) -> io::Result<()> {
        self.0.start_write(length, offset)
    }

    /// As [`Operation::take_result`].
    pub fn take_result(&mut self) -> Option<io::Result<usize>> {
        self.0.take_result()
    }

    /// As [`Operation::buffer_mut`].
    pub fn buffer_mut(&mut self) -> Option<&mut [u8]> {
        self.0.buffer_mut()
    }
}

impl<'a> From<&'a mut Operation> for InPlace<'a> {
    fn from(operation: &'a mut Operation) -> Self {
        Self(operation)
    }
}

impl Deref for InPlace<'_> {
    type Target = Operation;

    fn deref(&self) -> &Operation {
        self.0
    }
}

impl fmt::Debug for OperationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationList").field("len", &self.len()).finish()
    }
}
