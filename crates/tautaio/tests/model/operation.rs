//! One request from its submission to the release of its memory, checked at every step.
#![expect(unsafe_code, reason = "C functions on the request's memory")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::ffi::{self, Aiocb, Sigevent};
use super::ledger::{self, Notify, Ticket};
use super::memory::{Block, Buffer};
use super::random;
use super::round::{Context, Reap};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

/// `aio_error` and `aio_return` of a request that is complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) error: c_int,
    pub(crate) value: isize,
}

/// What `aio_cancel` said of one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cancelled {
    Yes,
    No,
    Done,
}

/// A request that is or will be in flight.
pub(crate) struct Operation {
    /// Gone when finished.
    block: Option<Block>,
    buffer: Option<Buffer>,
    pub(crate) kind: Kind,
    pub(crate) fd: c_int,
    pub(crate) length: usize,
    pub(crate) offset: i64,
    /// Whether `aio_cancel` or a close was called for it.
    cancel_tried: bool,
    /// The last of these was refused: it goes on.
    refused: bool,
    ticket: Ticket,
    notify: Notify,
    /// Its own address, for the notification's look at it.
    watched: Option<Box<[*const Aiocb; 1]>>,
    list: Option<Arc<ListTicket>>,
    submitted: bool,
    outcome: Option<Outcome>,
}

// SAFETY: the pointer in it is only the address of its own block.
unsafe impl Send for Operation {}

/// What is left of a request once its memory is released.
pub(crate) struct Finished {
    pub(crate) kind: Kind,
    pub(crate) length: usize,
    pub(crate) offset: i64,
    pub(crate) cancel_tried: bool,
    pub(crate) outcome: Outcome,
    pub(crate) buffer: Buffer,
}

/// The notification of a whole list; the memory of its requests stays until it came.
pub(crate) struct ListTicket {
    pub(crate) ticket: Ticket,
    /// What the notification looks at.
    _watched: Vec<*const Aiocb>,
}

// SAFETY: the pointers are addresses that only the notification follows, while the requests stay.
unsafe impl Send for ListTicket {}
// SAFETY: as above.
unsafe impl Sync for ListTicket {}

impl ListTicket {
    pub(crate) fn new(ticket: Ticket, watched: Vec<*const Aiocb>) -> Self {
        ticket.watch(&watched);
        Self { ticket, _watched: watched }
    }
}

impl Drop for ListTicket {
    fn drop(&mut self) {
        self.ticket.done(true);
    }
}

impl Operation {
    pub(crate) fn read(context: &mut Context<'_>, fd: c_int, length: usize, offset: i64, aligned: bool) -> Self {
        Self::new(context, Kind::Read, fd, Buffer::new(length, aligned), offset)
    }

    /// Writes bytes that no other request has.
    pub(crate) fn write(context: &mut Context<'_>, fd: c_int, length: usize, offset: i64, aligned: bool) -> Self {
        let mut buffer = Buffer::new(length, aligned);
        random::fill(buffer.bytes_mut(), context.random.next());
        Self::new(context, Kind::Write, fd, buffer, offset)
    }

    pub(crate) fn sync(context: &mut Context<'_>, fd: c_int) -> Self {
        Self::new(context, Kind::Sync, fd, Buffer::new(0, false), 0)
    }

    fn new(context: &mut Context<'_>, kind: Kind, fd: c_int, buffer: Buffer, offset: i64) -> Self {
        let notify = context.notify();
        let ticket = ledger::issue(notify);
        let mut block = Block::new(&mut context.random);
        if context.random.percent(30) {
            *block.get_mut() = Aiocb::empty();
        }
        let watched = (notify != Notify::Nothing && context.random.percent(30)).then(|| {
            let watched = Box::new([block.pointer().cast_const()]);
            ticket.watch(&*watched);
            watched
        });
        let length = buffer.len();
        let request = block.get_mut();
        request.fd = fd;
        request.opcode = if kind == Kind::Read { libc::LIO_READ } else { libc::LIO_WRITE };
        request.priority = if context.random.percent(5) { context.random.between(1, 20) as c_int } else { 0 };
        request.buffer = buffer.pointer().cast::<c_void>();
        request.length = length;
        request.event = ticket.event(notify);
        request.offset = offset;
        Self {
            block: Some(block),
            buffer: Some(buffer),
            kind,
            fd,
            length,
            offset,
            cancel_tried: false,
            refused: false,
            ticket,
            notify,
            watched,
            list: None,
            submitted: false,
            outcome: None,
        }
    }

    /// Its address, for lists.
    pub(crate) fn pointer(&self) -> *mut Aiocb {
        self.block.as_ref().map_or(std::ptr::null_mut(), Block::pointer)
    }

    pub(crate) fn submit(&mut self, context: &mut Context<'_>) {
        let (request, wide) = (self.pointer(), context.random.percent(50));
        self.is_submitted(context);
        // SAFETY: the request and its buffer stay until it is complete.
        let result = unsafe {
            match (self.kind, wide) {
                (Kind::Read, false) => ffi::aio_read(request),
                (Kind::Read, true) => ffi::aio_read64(request),
                (Kind::Write, false) => ffi::aio_write(request),
                (Kind::Write, true) => ffi::aio_write64(request),
                (Kind::Sync, _) => {
                    let how = *context.random.pick(&[libc::O_SYNC, libc::O_DSYNC]);
                    if wide { ffi::aio_fsync64(how, request) } else { ffi::aio_fsync(how, request) }
                }
            }
        };
        assert_eq!(result, 0, "submission of {self:?}: errno {}", ffi::errno());
    }

    /// It is about to be submitted, alone or in a list.
    pub(crate) fn is_submitted(&mut self, context: &Context<'_>) {
        self.submitted = true;
        context.submitted.fetch_add(1, Ordering::Relaxed);
    }

    /// It was submitted in a list that notifies.
    pub(crate) fn belongs_to(&mut self, list: &Arc<ListTicket>) {
        self.list = Some(Arc::clone(list));
    }

    fn error(&self, wide: bool) -> c_int {
        // SAFETY: the request is there as long as `self`.
        unsafe { if wide { ffi::aio_error64(self.pointer()) } else { ffi::aio_error(self.pointer()) } }
    }

    fn result(&self, wide: bool) -> isize {
        // SAFETY: as above.
        unsafe { if wide { ffi::aio_return64(self.pointer()) } else { ffi::aio_return(self.pointer()) } }
    }

    /// Whether the library says that it is complete. It never goes back on that.
    pub(crate) fn is_complete(&self) -> bool {
        let error = self.error(false);
        if let Some(outcome) = self.outcome {
            assert_eq!(error, outcome.error, "the final status of {self:?} changed");
        }
        error != libc::EINPROGRESS
    }

    /// What `aio_error` says of one that is complete.
    pub(crate) fn status(&self) -> c_int {
        self.error(true)
    }

    /// Whether it is complete, taken and notified as far as that is waited for, so that its memory may go.
    pub(crate) fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        let wide = context.random.percent(50);
        if let Some(outcome) = self.outcome {
            if context.random.percent(10) {
                let again = Outcome { error: self.error(wide), value: self.result(wide) };
                assert_eq!(again, outcome, "the final status of {self:?} changed");
            }
        } else {
            let error = self.error(wide);
            if error == libc::EINPROGRESS {
                context.is_waiting_for(self);
                return false;
            }
            let value = match context.reap {
                Reap::Return | Reap::Mixed => {
                    let value = self.result(wide);
                    self.ticket.returned();
                    value
                }
                Reap::Wait => {
                    let Some((value, given)) = self.ticket.given() else {
                        context.is_waiting_for(self);
                        return false;
                    };
                    assert_eq!(given, error, "aio_waitcomplete and aio_error of {self:?}");
                    value
                }
            };
            let valid = if error == 0 { value >= 0 && value.unsigned_abs() <= self.length } else { value == -1 };
            assert!(valid && (0..4096).contains(&error), "{self:?}: error {error}, value {value}");
            assert!(!self.refused || error != libc::ECANCELED, "AIO_NOTCANCELED was said of {self:?}");
            self.outcome = Some(Outcome { error, value });
            context.completed.fetch_add(1, Ordering::Relaxed);
        }
        let notified = self.watched.is_none() || self.ticket.is_notified();
        if !notified {
            context.is_waiting_for(self);
        }
        notified
    }

    /// Releases the request's memory. Only for one that is ready.
    pub(crate) fn finish(mut self, context: &mut Context<'_>) -> Finished {
        let outcome = self.outcome.expect("ready");
        let block = self.block.take().expect("not finished before");
        let block = if context.reap == Reap::Mixed {
            context.kept.push((block, self.ticket));
            None
        } else {
            self.ticket.done(true);
            Some(block)
        };
        if let Some(list) = self.list.take() {
            context.watched.push((list, block));
        }
        Finished {
            kind: self.kind,
            length: self.length,
            offset: self.offset,
            cancel_tried: self.cancel_tried,
            outcome,
            buffer: self.buffer.take().expect("not finished before"),
        }
    }

    /// It is about to be cancelled or its descriptor to be closed.
    pub(crate) fn may_end(&mut self) {
        (self.cancel_tried, self.refused) = (true, false);
    }

    /// Whether it may be cancelled by now.
    pub(crate) fn is_cancel_tried(&self) -> bool {
        self.cancel_tried
    }

    /// `aio_cancel` of this one, with what must hold afterwards.
    pub(crate) fn cancel(&mut self, context: &mut Context<'_>) -> Cancelled {
        self.may_end();
        let before = self.is_complete();
        let answer = ffi::cancel(self.fd, self.pointer(), context.random.percent(50));
        match answer {
            libc::AIO_CANCELED => {
                assert!(!before, "AIO_CANCELED for {self:?}, which was complete");
                assert_eq!(self.error(false), libc::ECANCELED, "status of {self:?} after AIO_CANCELED");
                Cancelled::Yes
            }
            libc::AIO_ALLDONE => {
                assert!(self.is_complete(), "AIO_ALLDONE for {self:?}, which isn't complete");
                Cancelled::Done
            }
            libc::AIO_NOTCANCELED => {
                assert!(!before, "AIO_NOTCANCELED for {self:?}, which was complete");
                assert_ne!(self.error(false), libc::ECANCELED, "status of {self:?} after AIO_NOTCANCELED");
                self.refused = true;
                Cancelled::No
            }
            other => panic!("aio_cancel of {self:?} = {other}, errno {}", ffi::errno()),
        }
    }

    /// Calls that must be refused while it is in flight, and change nothing.
    pub(crate) fn misuse(&mut self, context: &mut Context<'_>) {
        // What is complete may be submitted again, so only one that surely isn't is good for this.
        assert!(!self.cancel_tried, "only for one that stays in flight");
        let wide = context.random.percent(50);
        // SAFETY: the request is there as long as `self`; all of these are refused.
        unsafe {
            match context.random.below(3) {
                0 => {
                    let submit = if wide { ffi::aio_read64 } else { ffi::aio_read };
                    assert_eq!(submit(self.pointer()), -1, "submitted again in flight: {self:?}");
                }
                1 => assert_eq!(ffi::aio_return(self.pointer()), -1, "aio_return in flight: {self:?}"),
                _ => {
                    assert_eq!(ffi::cancel(self.fd ^ 1, self.pointer(), wide), -1, "aio_cancel with another descriptor")
                }
            }
        }
        let errno = ffi::errno();
        // The other number need not be open.
        assert!(errno == libc::EINVAL || errno == libc::EBADF, "errno {errno}");
        assert_eq!(self.error(wide), libc::EINPROGRESS, "after misuse: {self:?}");
    }
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, fd, length, offset, notify, cancel_tried, outcome, .. } = self;
        write!(formatter, "{kind:?} of {length} bytes at {offset} on descriptor {fd} ({notify:?}")?;
        if *cancel_tried {
            write!(formatter, ", cancel tried")?;
        }
        if let Some(Outcome { error, value }) = outcome {
            write!(formatter, ", error {error}, value {value}")?;
        } else if self.submitted && self.block.is_some() {
            write!(formatter, ", aio_error {}", self.error(false))?;
        }
        write!(formatter, ")")
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.block.is_some() {
            assert!(!self.submitted, "dropped in flight: {self:?}");
            self.ticket.done(false);
        }
    }
}

/// The event of a list, with its entry.
pub(crate) fn list_event(notify: Notify) -> (Ticket, Sigevent) {
    let ticket = ledger::issue(notify);
    (ticket, ticket.event(notify))
}
