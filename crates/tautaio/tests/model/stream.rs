//! Byte streams: pipes, local sockets, TCP. The model is the sequence of bytes of every write by
//! its final count, in the order of submission; the reads, in theirs, must have got just that.

use std::collections::VecDeque;
use std::ffi::c_int;

use super::batch;
use super::descriptor::{self, close, close_raw};
use super::operation::{Cancelled, Finished, Kind, Operation};
use super::random;
use super::round::{Context, Episode};
use super::wait;

/// In flight in one direction.
const MOST: usize = 40;

/// One end: a descriptor, and what became of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct End {
    fd: c_int,
    open: bool,
}

/// Bytes from one end to the other.
struct Direction {
    writer: usize,
    reader: usize,
    writes: VecDeque<Operation>,
    reads: VecDeque<Operation>,
    /// Written and not yet compared.
    sent: VecDeque<u8>,
    /// Read and not yet compared.
    got: VecDeque<u8>,
    /// After a write that failed as nobody reads: how much of it went is unknown.
    is_sent_vague: bool,
    ended: bool,
}

/// A stream and the requests on it.
pub(crate) struct Stream {
    ends: [End; 2],
    directions: Vec<Direction>,
    is_pipe: bool,
    /// A close may throw away what is under way.
    may_reset: bool,
    budget: usize,
}

impl Stream {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let is_pipe = context.random.percent(35);
        let fds = if is_pipe {
            descriptor::pipe()
        } else if context.random.percent(12) {
            descriptor::tcp()
        } else {
            descriptor::socket_pair(libc::SOCK_STREAM)
        };
        for fd in fds {
            if context.random.percent(25) {
                descriptor::set_nonblocking(fd);
            }
            if context.random.percent(30) {
                descriptor::set_small(fd, is_pipe);
            }
        }
        let direction = |writer, reader| Direction {
            writer,
            reader,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            sent: VecDeque::new(),
            got: VecDeque::new(),
            is_sent_vague: false,
            ended: false,
        };
        let mut directions = vec![direction(1, 0)];
        if !is_pipe {
            directions.push(direction(0, 1));
        }
        let budget = context.random.between(10, 600);
        Self { ends: fds.map(|fd| End { fd, open: true }), directions, is_pipe, may_reset: false, budget }
    }

    fn submit(&mut self, context: &mut Context<'_>, which: usize, kind: Kind) {
        let direction = &mut self.directions[which];
        let (queue, end) = match kind {
            Kind::Read => (&mut direction.reads, direction.reader),
            _ => (&mut direction.writes, direction.writer),
        };
        let count = context.random.between(1, 6).min(MOST.saturating_sub(queue.len()));
        let fd = self.ends[end].fd;
        let mut batch: Vec<Operation> = Vec::with_capacity(count);
        for _ in 0..count {
            let length = if context.random.percent(2) { 0 } else { context.random.length(131_072) };
            // Streams have no place; what the field holds must not matter.
            let offset = if context.random.percent(50) { 0 } else { context.random.next() as i64 };
            batch.push(match kind {
                Kind::Read => Operation::read(context, fd, length, offset, false),
                _ => Operation::write(context, fd, length, offset, false),
            });
        }
        batch::submit(context, &mut batch, false);
        queue.extend(batch);
        self.budget = self.budget.saturating_sub(count);
    }

    /// Takes what is complete, and compares.
    fn collect(&mut self, context: &mut Context<'_>) {
        for which in 0..self.directions.len() {
            check_order(&self.directions[which].writes);
            check_order(&self.directions[which].reads);
            while let Some(finished) = pop_ready(context, &mut self.directions[which].writes) {
                self.written(which, &finished);
            }
            while let Some(finished) = pop_ready(context, &mut self.directions[which].reads) {
                self.was_read(which, &finished);
            }
            self.compare(which);
        }
    }

    fn written(&mut self, which: usize, write: &Finished) {
        let direction = &mut self.directions[which];
        let reader_gone = !self.ends[direction.reader].open;
        match write.outcome.error {
            0 => {
                let count = write.outcome.value.unsigned_abs();
                assert!(
                    count == write.length || write.cancel_tried || reader_gone,
                    "a write of {} bytes ended after {count} of them, unasked",
                    write.length
                );
                assert!(count > 0 || write.length == 0, "a write that moved nothing succeeded");
                direction.sent.extend(&write.buffer.bytes()[..count]);
            }
            libc::ECANCELED => assert!(write.cancel_tried, "a write was cancelled, unasked"),
            libc::EPIPE | libc::ECONNRESET => {
                assert!(reader_gone, "a write failed with {} while there was a reader", write.outcome.error);
                direction.sent.extend(write.buffer.bytes());
                direction.is_sent_vague = true;
            }
            other => panic!("a write failed with {other}"),
        }
    }

    fn was_read(&mut self, which: usize, read: &Finished) {
        let direction = &mut self.directions[which];
        let writer_gone = !self.ends[direction.writer].open;
        let count = match read.outcome.error {
            0 => read.outcome.value.unsigned_abs(),
            libc::ECANCELED => {
                assert!(read.cancel_tried, "a read was cancelled, unasked");
                0
            }
            libc::ECONNRESET => {
                assert!(writer_gone && !self.is_pipe, "a read failed with ECONNRESET, unasked");
                self.may_reset = true;
                0
            }
            other => panic!("a read failed with {other}"),
        };
        if read.outcome.error == 0 && count == 0 && read.length > 0 {
            assert!(writer_gone, "the end of the stream while there was a writer");
            direction.ended = true;
        }
        assert!(count == 0 || !direction.ended, "{count} bytes after the end of the stream");
        read.buffer.assert_untouched_from(count);
        direction.got.extend(&read.buffer.bytes()[..count]);
    }

    fn compare(&mut self, which: usize) {
        let direction = &mut self.directions[which];
        if direction.is_sent_vague && direction.got.is_empty() {
            return;
        }
        let common = direction.sent.len().min(direction.got.len());
        let sent = direction.sent.drain(..common);
        let got = direction.got.drain(..common);
        assert!(sent.eq(got), "other bytes were read than were written ({common} compared)");
    }

    /// Written, complete and not read.
    fn is_dry(&self, which: usize) -> bool {
        let direction = &self.directions[which];
        direction.writes.is_empty() && direction.sent.is_empty() && !direction.is_sent_vague
    }

    fn cancel_one(&mut self, context: &mut Context<'_>) {
        self.collect(context);
        let which = context.random.below(self.directions.len());
        let dry = self.is_dry(which);
        let direction = &mut self.directions[which];
        let of_reads = context.random.percent(50);
        let queue = if of_reads { &mut direction.reads } else { &mut direction.writes };
        if queue.is_empty() {
            return;
        }
        let place = context.random.below(queue.len());
        let operation = &mut queue[place];
        let waits = of_reads && dry && operation.length > 0 && !operation.is_complete();
        let answer = operation.cancel(context);
        assert!(!waits || answer == Cancelled::Yes, "a read that waits for data was not cancelled: {operation:?}");
    }

    /// `aio_cancel` of everything on one end.
    fn cancel_all(&mut self, context: &mut Context<'_>) {
        let end = context.random.below(2);
        let fd = self.ends[end].fd;
        let mut before = Vec::new();
        for operation in self.on_end(end) {
            before.push(operation.is_complete());
            operation.may_end();
        }
        let answer = super::ffi::cancel(fd, std::ptr::null_mut(), context.random.percent(50));
        let after: Vec<_> = self.on_end(end).map(|operation| (operation.is_complete(), operation.status())).collect();
        let was_busy = before.iter().any(|complete| !complete);
        match answer {
            libc::AIO_CANCELED => {
                assert!(was_busy, "AIO_CANCELED with nothing in flight");
                assert!(after.iter().all(|(complete, _)| *complete), "AIO_CANCELED with something in flight");
            }
            libc::AIO_ALLDONE => assert!(after.iter().all(|(complete, _)| *complete), "AIO_ALLDONE, and it isn't"),
            libc::AIO_NOTCANCELED => assert!(was_busy, "AIO_NOTCANCELED with nothing in flight"),
            other => panic!("aio_cancel({fd}, NULL) = {other}"),
        }
    }

    /// All requests on one end, in no order.
    fn on_end(&mut self, end: usize) -> impl Iterator<Item = &mut Operation> {
        self.directions.iter_mut().flat_map(move |direction| {
            let writes = (direction.writer == end).then_some(&mut direction.writes);
            let reads = (direction.reader == end).then_some(&mut direction.reads);
            writes.into_iter().chain(reads).flatten()
        })
    }

    fn all(&self) -> impl Iterator<Item = &Operation> {
        self.directions.iter().flat_map(|direction| direction.writes.iter().chain(&direction.reads))
    }

    fn plain_write(&mut self, context: &mut Context<'_>, which: usize) {
        self.collect(context);
        let direction = &mut self.directions[which];
        if !direction.writes.is_empty() || !self.ends[direction.reader].open {
            return;
        }
        let mut bytes = vec![0; context.random.between(1, 4096)];
        random::fill(&mut bytes, context.random.next());
        if let Some(count) = descriptor::write_now(self.ends[direction.writer].fd, &bytes) {
            direction.sent.extend(&bytes[..count]);
        }
    }

    /// A plain read of what is there. False when nothing was.
    fn plain_read(&mut self, context: &mut Context<'_>, which: usize) -> bool {
        self.collect(context);
        let direction = &mut self.directions[which];
        if !direction.reads.is_empty() {
            return false;
        }
        let mut bytes = vec![0; context.random.between(1, 65_536)];
        match descriptor::read_now(self.ends[direction.reader].fd, &mut bytes) {
            None => return false,
            Some(Ok(0)) => {
                assert!(!self.ends[direction.writer].open, "the end of the stream while there was a writer");
                direction.ended = true;
            }
            Some(Ok(count)) => direction.got.extend(&bytes[..count]),
            Some(Err(error)) => {
                assert!(!self.ends[direction.writer].open && !self.is_pipe, "a plain read failed with {error}");
                direction.ended = true;
                self.may_reset = true;
            }
        }
        self.compare(which);
        true
    }

    fn misuse(&mut self, context: &mut Context<'_>) {
        self.collect(context);
        for which in 0..self.directions.len() {
            if self.is_dry(which) {
                let reads = &mut self.directions[which].reads;
                if let Some(read) = reads.iter_mut().find(|read| read.length > 0 && !read.is_cancel_tried()) {
                    read.misuse(context);
                }
            }
        }
    }

    fn suspend(&mut self, context: &mut Context<'_>, microseconds: usize) {
        let operations: Vec<&Operation> = self.all().collect();
        wait::suspend(context, &operations, microseconds);
    }

    /// Reads until every write of this direction is complete and all its bytes are compared.
    fn drain(&mut self, context: &mut Context<'_>, which: usize) {
        let mut idle = 0;
        loop {
            self.collect(context);
            let direction = &self.directions[which];
            if direction.writes.is_empty() && direction.sent.is_empty() {
                return;
            }
            if direction.reads.is_empty() && !self.plain_read(context, which) && context.random.percent(30) {
                self.submit(context, which, Kind::Read);
            }
            idle = self.rest(context, idle);
        }
    }

    /// Waits until nothing is in flight.
    fn settle(&mut self, context: &mut Context<'_>) {
        let mut idle = 0;
        loop {
            self.collect(context);
            if self.all().next().is_none() {
                return;
            }
            idle = self.rest(context, idle);
        }
    }

    fn rest(&mut self, context: &mut Context<'_>, idle: usize) -> usize {
        if idle > 3 {
            if context.random.percent(50) { self.suspend(context, 2000) } else { descriptor::pause(50) }
        }
        idle + 1
    }

    /// Closes an end, which cancels what is on it.
    fn close_end(&mut self, context: &mut Context<'_>, end: usize) {
        for operation in self.on_end(end) {
            operation.may_end();
        }
        let fd = self.ends[end].fd;
        self.ends[end].open = false;
        if context.random.percent(20) {
            // The number changes owner without being free in between.
            let other = descriptor::pipe();
            descriptor::duplicate_onto(other[0], fd, context.random.percent(50));
            close(other[0]);
            self.assert_cancelled(end);
            super::reuse::use_pipe(context, [fd, other[1]]);
            close(fd);
            close(other[1]);
        } else {
            close(fd);
            self.assert_cancelled(end);
        }
    }

    fn assert_cancelled(&mut self, end: usize) {
        for operation in self.on_end(end) {
            assert!(operation.is_complete(), "in flight after close: {operation:?}");
        }
    }

    /// Closes an end behind the library's back, once nothing is in flight on it. Its number is most
    /// likely used again at once.
    fn close_end_raw(&mut self, context: &mut Context<'_>, end: usize) {
        let mut idle = 0;
        loop {
            self.collect(context);
            if self.on_end(end).next().is_none() {
                break;
            }
            for operation in self.on_end(end) {
                operation.may_end();
            }
            let fd = self.ends[end].fd;
            super::ffi::cancel(fd, std::ptr::null_mut(), false);
            idle = self.rest(context, idle);
        }
        self.may_reset |= self.may_lose(end);
        close_raw(self.ends[end].fd);
        self.ends[end].open = false;
        let other = descriptor::pipe();
        super::reuse::use_pipe(context, other);
        close(other[0]);
        close(other[1]);
        self.drink_up(context, 1 - end);
    }

    /// Cancels what waits; with nothing to read all of it must go.
    fn cancel_rest(&mut self, context: &mut Context<'_>) {
        self.collect(context);
        for which in 0..self.directions.len() {
            let dry = self.is_dry(which);
            for read in &mut self.directions[which].reads {
                let waits = dry && read.length > 0 && !read.is_complete();
                let answer = read.cancel(context);
                assert!(!waits || answer == Cancelled::Yes, "a read that waits for data was not cancelled: {read:?}");
            }
        }
        self.settle(context);
    }

    /// Whether closing this end may reset the connection: when there is something in it that nobody read.
    fn may_lose(&self, end: usize) -> bool {
        !self.is_pipe
            && self
                .directions
                .iter()
                .any(|direction| direction.reader == end && !(direction.writes.is_empty() && direction.sent.is_empty()))
    }

    /// After the other end was closed: reads what it left behind, up to the end of the stream.
    fn drink_up(&mut self, context: &mut Context<'_>, end: usize) {
        if !self.ends[end].open {
            return;
        }
        let Some(which) = self.directions.iter().position(|direction| direction.reader == end) else { return };
        let mut idle = 0;
        while !self.directions[which].ended {
            if !self.plain_read(context, which) {
                idle = self.rest(context, idle);
            }
        }
        self.collect(context);
        let direction = &self.directions[which];
        if direction.writes.is_empty() {
            assert!(direction.got.is_empty() || direction.is_sent_vague, "more bytes were read than were written");
        }
        if !self.may_reset && direction.writes.is_empty() {
            assert!(direction.sent.is_empty(), "{} bytes that were written were never read", direction.sent.len());
        }
    }
}

impl Episode for Stream {
    fn step(&mut self, context: &mut Context<'_>) {
        let which = context.random.below(self.directions.len());
        match context.random.below(100) {
            0..30 => self.submit(context, which, Kind::Write),
            30..60 => self.submit(context, which, Kind::Read),
            60..76 => self.collect(context),
            76..82 => {
                let time = context.random.below(300);
                self.suspend(context, time);
            }
            82..87 => self.cancel_one(context),
            87..89 => self.cancel_all(context),
            89..93 => self.plain_write(context, which),
            93..97 => drop(self.plain_read(context, which)),
            _ => self.misuse(context),
        }
    }

    fn is_over(&self) -> bool {
        self.budget == 0
    }

    fn wind_up(&mut self, context: &mut Context<'_>) {
        self.collect(context);
        let way = context.random.below(6);
        let end = context.random.below(2);
        match way {
            0..=2 => {
                for which in 0..self.directions.len() {
                    self.drain(context, which);
                }
                if way == 0 {
                    self.cancel_rest(context);
                }
            }
            3 => self.close_end_raw(context, end),
            _ => {}
        }
        for end in [end, 1 - end] {
            if self.ends[end].open {
                self.may_reset |= self.may_lose(end);
                self.close_end(context, end);
                self.drink_up(context, 1 - end);
            }
        }
        self.settle(context);
    }

    fn describe(&self) -> String {
        let operations: Vec<String> = self.all().take(12).map(|operation| format!("\n    {operation:?}")).collect();
        format!(
            "stream {:?}, pipe: {}, {} requests:{}",
            self.ends,
            self.is_pipe,
            self.all().count(),
            operations.concat()
        )
    }
}

/// First in, first out: one that is complete has none before it that isn't, unless it was cancelled while it waited.
pub(crate) fn check_order(queue: &VecDeque<Operation>) {
    let mut later = false;
    // The last first: what completes meanwhile does no harm.
    for operation in queue.iter().rev() {
        let complete = operation.is_complete();
        assert!(complete || !later, "a later request was done before {operation:?}");
        later |= complete && operation.status() != libc::ECANCELED;
    }
}

/// The oldest request, if it is ready.
pub(crate) fn pop_ready(context: &mut Context<'_>, queue: &mut VecDeque<Operation>) -> Option<Finished> {
    if !queue.front_mut()?.is_ready(context) {
        return None;
    }
    queue.pop_front().map(|operation| operation.finish(context))
}
