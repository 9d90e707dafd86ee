//! Regular files. The model is an image of the file; requests run in parallel, so no write overlaps anything in flight.

use std::collections::VecDeque;
use std::ffi::c_int;

use super::batch;
use super::descriptor::{self, close, close_raw};
use super::memory::Buffer;
use super::operation::{Finished, Kind, Operation};
use super::round::{Context, Episode};
use super::wait;

/// Largest file.
const MOST: usize = 1 << 20;
const SECTOR: usize = 4096;

/// A file and the requests on it.
pub(crate) struct File {
    fd: c_int,
    image: Vec<u8>,
    is_direct: bool,
    /// In the order of submission.
    operations: VecDeque<Operation>,
    budget: usize,
}

impl File {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let wants_direct = context.random.percent(25);
        let flags = if wants_direct { libc::O_DIRECT } else { 0 };
        let (fd, is_direct) = match descriptor::file(context.directory, flags) {
            Ok(fd) => (fd, wants_direct),
            // Not every file system has it.
            Err(_) => (descriptor::file(context.directory, 0).expect("a temporary file"), false),
        };
        if context.random.percent(20) {
            descriptor::set_nonblocking(fd);
        }
        let budget = context.random.between(10, 400);
        Self { fd, image: Vec::new(), is_direct, operations: VecDeque::new(), budget }
    }

    fn submit(&mut self, context: &mut Context<'_>) {
        let count = context.random.between(1, 8).min(48_usize.saturating_sub(self.operations.len()));
        let mut batch: Vec<Operation> = Vec::new();
        for _ in 0..count {
            if context.random.percent(1) {
                batch.push(Operation::sync(context, self.fd));
                continue;
            }
            let (offset, length) = self.place(context);
            let kind = if context.random.percent(50) { Kind::Read } else { Kind::Write };
            if self.is_taken(&batch, kind, offset, length) {
                continue;
            }
            let place = i64::try_from(offset).expect("a small file");
            batch.push(match kind {
                Kind::Read => Operation::read(context, self.fd, length, place, self.is_direct),
                _ => Operation::write(context, self.fd, length, place, self.is_direct),
            });
        }
        batch::submit(context, &mut batch, true);
        self.operations.extend(batch);
        self.budget = self.budget.saturating_sub(count.max(1));
    }

    fn place(&self, context: &mut Context<'_>) -> (usize, usize) {
        if self.is_direct {
            return (context.random.below(MOST / SECTOR) * SECTOR, context.random.between(1, 8) * SECTOR);
        }
        let length = if context.random.percent(2) { 0 } else { context.random.length(65_536) };
        // Near the end now and then.
        let most = if context.random.percent(30) { self.image.len() + 4096 } else { MOST };
        (context.random.below(most.clamp(1, MOST)), length)
    }

    /// Whether something in flight is in the way. Where the file grows, what lies behind its end is in the way too.
    fn is_taken(&self, batch: &[Operation], kind: Kind, offset: usize, length: usize) -> bool {
        let end = self.image.len();
        let range = |offset: usize, length: usize| {
            if offset + length > end { (offset.min(end), usize::MAX) } else { (offset, offset + length) }
        };
        let mine = range(offset, length);
        self.operations.iter().chain(batch).any(|other| {
            let other_range = range(usize::try_from(other.offset).expect("not negative"), other.length);
            other.kind != Kind::Sync
                && (kind == Kind::Write || other.kind == Kind::Write)
                && mine.0 < other_range.1
                && other_range.0 < mine.1
        })
    }

    fn collect(&mut self, context: &mut Context<'_>) {
        self.check_syncs();
        // Not in order: they run in parallel.
        let mut place = 0;
        while place < self.operations.len() {
            // An fsync is judged by those before it, so these stay until it is complete.
            let is_ready = self.operations[place].is_ready(context);
            if is_ready && !self.operations.range(place..).any(|later| later.kind == Kind::Sync && !later.is_complete())
            {
                if let Some(operation) = self.operations.remove(place) {
                    let finished = operation.finish(context);
                    self.check(&finished);
                }
            } else {
                place += 1;
            }
        }
    }

    /// An fsync is complete after everything before it.
    fn check_syncs(&self) {
        for (place, sync) in self.operations.iter().enumerate() {
            if sync.kind != Kind::Sync || !sync.is_complete() || sync.status() != 0 {
                continue;
            }
            for earlier in self.operations.range(..place) {
                assert!(earlier.is_complete(), "an fsync was done before {earlier:?}");
            }
        }
    }

    fn check(&mut self, finished: &Finished) {
        let Finished { kind, length, .. } = *finished;
        match finished.outcome.error {
            0 => {}
            libc::ECANCELED => {
                assert!(finished.cancel_tried, "a request on a file was cancelled, unasked");
                if kind == Kind::Read {
                    finished.buffer.assert_untouched_from(0);
                }
                return;
            }
            other => panic!("{kind:?} of a file failed with {other}"),
        }
        let offset = usize::try_from(finished.offset).expect("not negative");
        let count = finished.outcome.value.unsigned_abs();
        match kind {
            Kind::Sync => assert_eq!(count, 0, "the result of an fsync"),
            Kind::Write => {
                assert_eq!(count, length, "a write to a file was short");
                if length > 0 {
                    let end = offset + length;
                    self.image.resize(self.image.len().max(end), 0);
                    self.image[offset..end].copy_from_slice(finished.buffer.bytes());
                }
            }
            Kind::Read => {
                let there = self.image.len().saturating_sub(offset).min(length);
                assert_eq!(count, there, "a read of {length} bytes at {offset} of {}", self.image.len());
                let expected = &self.image[offset.min(self.image.len())..][..count];
                assert!(finished.buffer.bytes()[..count] == *expected, "other bytes at {offset} than were written");
                if !self.is_direct {
                    finished.buffer.assert_untouched_from(count);
                }
            }
        }
    }

    fn cancel(&mut self, context: &mut Context<'_>) {
        if self.operations.is_empty() {
            return;
        }
        if context.random.percent(70) {
            let place = context.random.below(self.operations.len());
            self.operations[place].cancel(context);
        } else {
            for operation in &mut self.operations {
                operation.may_end();
            }
            let answer = super::ffi::cancel(self.fd, std::ptr::null_mut(), context.random.percent(50));
            let all_complete = self.operations.iter().all(Operation::is_complete);
            let valid = match answer {
                libc::AIO_CANCELED | libc::AIO_ALLDONE => all_complete,
                libc::AIO_NOTCANCELED => true,
                _ => false,
            };
            assert!(valid, "aio_cancel of a file = {answer}, all complete: {all_complete}");
        }
    }

    fn suspend(&mut self, context: &mut Context<'_>, microseconds: usize) {
        let operations: Vec<&Operation> = self.operations.iter().collect();
        wait::suspend(context, &operations, microseconds);
    }
}

impl Episode for File {
    fn step(&mut self, context: &mut Context<'_>) {
        match context.random.below(100) {
            0..50 => self.submit(context),
            50..85 => self.collect(context),
            85..95 => {
                let time = context.random.below(300);
                self.suspend(context, time);
            }
            _ => self.cancel(context),
        }
    }

    fn is_over(&self) -> bool {
        self.budget == 0
    }

    fn wind_up(&mut self, context: &mut Context<'_>) {
        let closes_early = context.random.percent(30);
        // The model needs a descriptor that stays.
        let own = descriptor::duplicate(self.fd);
        if closes_early {
            for operation in &mut self.operations {
                operation.may_end();
            }
            close(self.fd);
        }
        for tries in 0_usize.. {
            self.collect(context);
            if self.operations.is_empty() {
                break;
            }
            if tries > 3 {
                self.suspend(context, 2000);
            }
        }
        if !closes_early {
            if context.random.percent(50) { close(self.fd) } else { close_raw(self.fd) }
        }
        let mut bytes = Buffer::new(MOST + 65_536 + SECTOR, true);
        let count = descriptor::read_at(own, bytes.bytes_mut(), 0);
        assert_eq!(count, self.image.len(), "the file's size");
        assert!(bytes.bytes()[..count] == self.image[..], "the file isn't what was written");
        close(own);
    }

    fn describe(&self) -> String {
        let operations: Vec<String> =
            self.operations.iter().take(12).map(|operation| format!("\n    {operation:?}")).collect();
        format!("file, direct: {}, {} requests:{}", self.is_direct, self.operations.len(), operations.concat())
    }
}
