//! Files opened to append: the writes stand in the file in the order of submission, without a gap.

use std::collections::VecDeque;
use std::ffi::c_int;

use super::batch;
use super::descriptor::{self, close};
use super::operation::{Kind, Operation};
use super::round::{Context, Episode};
use super::stream::{check_order, pop_ready};
use super::wait;

/// A file that only grows.
pub(crate) struct Append {
    fd: c_int,
    writes: VecDeque<Operation>,
    syncs: VecDeque<Operation>,
    written: Vec<u8>,
    budget: usize,
}

impl Append {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let fd = descriptor::file(context.directory, libc::O_APPEND).expect("a temporary file");
        let budget = context.random.between(10, 200);
        Self { fd, writes: VecDeque::new(), syncs: VecDeque::new(), written: Vec::new(), budget }
    }

    fn submit(&mut self, context: &mut Context<'_>) {
        let count = context.random.between(1, 8).min(40_usize.saturating_sub(self.writes.len()));
        let mut batch: Vec<Operation> = Vec::new();
        for _ in 0..count {
            let length = context.random.length(16_384);
            // Where it goes is the file's end, whatever the request says.
            let offset = if context.random.percent(50) { 0 } else { context.random.below(1 << 30) };
            let offset = i64::try_from(offset).expect("small");
            batch.push(Operation::write(context, self.fd, length, offset, false));
        }
        batch::submit(context, &mut batch, true);
        self.writes.extend(batch);
        if context.random.percent(3) && self.syncs.len() < 4 {
            let mut sync = Operation::sync(context, self.fd);
            sync.submit(context);
            self.syncs.push_back(sync);
        }
        self.budget = self.budget.saturating_sub(count);
    }

    fn collect(&mut self, context: &mut Context<'_>) {
        check_order(&self.writes);
        while let Some(write) = pop_ready(context, &mut self.writes) {
            match write.outcome.error {
                0 => {
                    assert_eq!(write.outcome.value.unsigned_abs(), write.length, "a write to a file was short");
                    self.written.extend(write.buffer.bytes());
                }
                libc::ECANCELED => assert!(write.cancel_tried, "a write was cancelled, unasked"),
                other => panic!("a write to a file failed with {other}"),
            }
        }
        while let Some(sync) = pop_ready(context, &mut self.syncs) {
            let cancelled = sync.cancel_tried && sync.outcome.error == libc::ECANCELED;
            assert!(sync.kind == Kind::Sync && (cancelled || sync.outcome.error == 0), "fsync: {:?}", sync.outcome);
        }
    }

    fn cancel(&mut self, context: &mut Context<'_>) {
        if !self.writes.is_empty() {
            let place = context.random.below(self.writes.len());
            self.writes[place].cancel(context);
        }
    }

    fn suspend(&mut self, context: &mut Context<'_>, microseconds: usize) {
        let operations: Vec<&Operation> = self.writes.iter().chain(&self.syncs).collect();
        wait::suspend(context, &operations, microseconds);
    }
}

impl Episode for Append {
    fn step(&mut self, context: &mut Context<'_>) {
        match context.random.below(100) {
            0..50 => self.submit(context),
            50..86 => self.collect(context),
            86..95 => {
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
        let own = descriptor::duplicate(self.fd);
        let closes_early = context.random.percent(30);
        if closes_early {
            for operation in self.writes.iter_mut().chain(&mut self.syncs) {
                operation.may_end();
            }
            close(self.fd);
        }
        while !(self.writes.is_empty() && self.syncs.is_empty()) {
            self.suspend(context, 1000);
            self.collect(context);
        }
        if !closes_early {
            close(self.fd);
        }
        let mut bytes = vec![0; self.written.len() + 1];
        let count = descriptor::read_at(own, &mut bytes, 0);
        assert_eq!(count, self.written.len(), "the file's size");
        assert!(bytes[..count] == self.written[..], "what was appended isn't in the order of the requests");
        close(own);
    }

    fn describe(&self) -> String {
        let operations = self.writes.iter().chain(&self.syncs).take(12);
        let operations: Vec<String> = operations.map(|operation| format!("\n    {operation:?}")).collect();
        format!("append, {} requests:{}", self.writes.len() + self.syncs.len(), operations.concat())
    }
}
