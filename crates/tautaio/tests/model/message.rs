//! Sockets with message boundaries: the n-th successful read gets the n-th successful write, cut to its length.

use std::collections::VecDeque;
use std::ffi::c_int;

use super::batch;
use super::descriptor::{self, close};
use super::operation::Operation;
use super::round::{Context, Episode};
use super::stream::{check_order, pop_ready};
use super::wait;

const LARGEST: usize = 2048;

/// Messages from one socket to the other.
pub(crate) struct Messages {
    reader: c_int,
    writer: c_int,
    writes: VecDeque<Operation>,
    reads: VecDeque<Operation>,
    sent: VecDeque<Vec<u8>>,
    /// Each with the length that was asked for.
    got: VecDeque<(Vec<u8>, usize)>,
    budget: usize,
}

impl Messages {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let kind = *context.random.pick(&[libc::SOCK_DGRAM, libc::SOCK_SEQPACKET]);
        let [reader, writer] = descriptor::socket_pair(kind);
        if context.random.percent(30) {
            descriptor::set_nonblocking(reader);
            descriptor::set_nonblocking(writer);
        }
        let (writes, reads, sent, got) = Default::default();
        Self { reader, writer, writes, reads, sent, got, budget: context.random.between(10, 200) }
    }

    fn submit(&mut self, context: &mut Context<'_>, of_reads: bool) {
        let queue = if of_reads { &mut self.reads } else { &mut self.writes };
        let count = context.random.between(1, 4).min(30_usize.saturating_sub(queue.len()));
        let mut batch: Vec<Operation> = Vec::new();
        for _ in 0..count {
            let length = context.random.between(1, LARGEST);
            batch.push(if of_reads {
                Operation::read(context, self.reader, length, 0, false)
            } else {
                Operation::write(context, self.writer, length, 0, false)
            });
        }
        batch::submit(context, &mut batch, false);
        queue.extend(batch);
        self.budget = self.budget.saturating_sub(count);
    }

    fn collect(&mut self, context: &mut Context<'_>) {
        check_order(&self.writes);
        check_order(&self.reads);
        while let Some(write) = pop_ready(context, &mut self.writes) {
            match write.outcome.error {
                0 => {
                    assert_eq!(write.outcome.value.unsigned_abs(), write.length, "a part of a message was written");
                    self.sent.push_back(write.buffer.bytes().to_vec());
                }
                libc::ECANCELED => assert!(write.cancel_tried, "a write was cancelled, unasked"),
                other => panic!("a write of a message failed with {other}"),
            }
        }
        while let Some(read) = pop_ready(context, &mut self.reads) {
            match read.outcome.error {
                0 => {
                    let count = read.outcome.value.unsigned_abs();
                    read.buffer.assert_untouched_from(count);
                    self.got.push_back((read.buffer.bytes()[..count].to_vec(), read.length));
                }
                libc::ECANCELED => {
                    assert!(read.cancel_tried, "a read was cancelled, unasked");
                    read.buffer.assert_untouched_from(0);
                }
                other => panic!("a read of a message failed with {other}"),
            }
        }
        while !self.sent.is_empty() && !self.got.is_empty() {
            let (Some(sent), Some((got, asked))) = (self.sent.pop_front(), self.got.pop_front()) else { break };
            assert!(got == sent[..sent.len().min(asked)], "another message was read than was written");
        }
    }

    fn cancel(&mut self, context: &mut Context<'_>) {
        let queue = if context.random.percent(50) { &mut self.reads } else { &mut self.writes };
        if !queue.is_empty() {
            let place = context.random.below(queue.len());
            queue[place].cancel(context);
        }
    }

    fn rest(&mut self, context: &mut Context<'_>) {
        let operations: Vec<&Operation> = self.reads.iter().chain(&self.writes).collect();
        wait::suspend(context, &operations, 500);
        self.collect(context);
    }
}

impl Episode for Messages {
    fn step(&mut self, context: &mut Context<'_>) {
        match context.random.below(100) {
            0..35 => self.submit(context, false),
            35..70 => self.submit(context, true),
            70..94 => self.collect(context),
            _ => self.cancel(context),
        }
    }

    fn is_over(&self) -> bool {
        self.budget == 0
    }

    fn wind_up(&mut self, context: &mut Context<'_>) {
        while !(self.writes.is_empty() && self.sent.is_empty()) {
            if self.reads.is_empty() {
                self.submit(context, true);
            }
            self.rest(context);
        }
        for read in &mut self.reads {
            read.may_end();
        }
        close(self.reader);
        for read in &self.reads {
            assert!(read.is_complete(), "in flight after close: {read:?}");
        }
        while !self.reads.is_empty() {
            self.rest(context);
        }
        assert!(self.got.is_empty(), "more messages were read than were written");
        close(self.writer);
    }

    fn describe(&self) -> String {
        let operations = self.reads.iter().chain(&self.writes).take(12);
        let operations: Vec<String> = operations.map(|operation| format!("\n    {operation:?}")).collect();
        format!("messages, {} reads, {} writes:{}", self.reads.len(), self.writes.len(), operations.concat())
    }
}
