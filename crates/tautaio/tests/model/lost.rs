//! Descriptors closed behind the library's back with requests in flight, their numbers used again at once. A
//! request holds its file: the old requests get what is in the old file, in order, and not a byte of the new one.

use std::collections::VecDeque;

use super::descriptor::{self, close, close_raw};
use super::operation::Operation;
use super::random;
use super::reuse;
use super::round::{Context, Episode};
use super::stream::{check_order, pop_ready};
use super::wait;

/// What fits into any pipe or socket, so that writing it waits for nobody.
const LARGEST: usize = 1024;

/// A reader that is closed, and its peer.
pub(crate) struct Lost {
    turns: usize,
    reads: VecDeque<Operation>,
}

impl Lost {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        Self { turns: context.random.between(1, 4), reads: VecDeque::new() }
    }

    fn lose(&mut self, context: &mut Context<'_>) {
        let [reader, writer] = match context.random.below(3) {
            0 => descriptor::pipe(),
            1 => descriptor::socket_pair(libc::SOCK_STREAM),
            _ => descriptor::tcp(),
        };
        for _ in 0..context.random.between(1, 5) {
            let length = context.random.between(1, LARGEST);
            let mut read = Operation::read(context, reader, length, 0, false);
            read.submit(context);
            self.reads.push_back(read);
        }
        let mut sent = vec![0; context.random.between(1, LARGEST)];
        random::fill(&mut sent, context.random.next());
        assert_eq!(descriptor::write_now(writer, &sent), Some(sent.len()), "a write to a pipe or socket with room");
        if context.random.percent(30) {
            descriptor::pause(context.random.below(100) as u64);
        }
        close_raw(reader);
        let other = descriptor::pipe();
        reuse::use_pipe(context, other);
        // The reads keep the file as long as one of them is in flight.
        let in_flight = self.reads.iter().filter(|read| !read.is_complete()).count();
        let length = context.random.between(1, LARGEST);
        let mut late = Operation::write(context, writer, length, 0, false);
        late.submit(context);
        let late = reuse::complete(context, late);
        match late.outcome.error {
            0 => sent.extend_from_slice(late.buffer.bytes()),
            libc::EPIPE | libc::ECONNRESET => {
                let left = self.reads.iter().filter(|read| !read.is_complete()).count();
                assert!(left == 0, "{left} of {in_flight} reads are in flight on a file that nothing holds");
            }
            other => panic!("a write to a file whose reader was closed failed with {other}"),
        }
        close(writer);
        self.take_all(context, &sent);
        close(other[0]);
        close(other[1]);
    }

    fn take_all(&mut self, context: &mut Context<'_>, sent: &[u8]) {
        let mut got = Vec::new();
        while !self.reads.is_empty() {
            check_order(&self.reads);
            while let Some(read) = pop_ready(context, &mut self.reads) {
                assert_eq!(read.outcome.error, 0, "a read whose descriptor was closed behind the library's back");
                let count = read.outcome.value.unsigned_abs();
                read.buffer.assert_untouched_from(count);
                got.extend_from_slice(&read.buffer.bytes()[..count]);
            }
            let operations: Vec<&Operation> = self.reads.iter().collect();
            wait::suspend(context, &operations, 500);
        }
        assert!(sent.starts_with(&got), "other bytes than those of the file that was read");
    }
}

impl Episode for Lost {
    fn step(&mut self, context: &mut Context<'_>) {
        self.lose(context);
        self.turns -= 1;
    }

    fn is_over(&self) -> bool {
        self.turns == 0
    }

    fn wind_up(&mut self, _: &mut Context<'_>) {}

    fn describe(&self) -> String {
        let reads: Vec<String> = self.reads.iter().map(|read| format!("\n    {read:?}")).collect();
        format!("lost, {} reads:{}", self.reads.len(), reads.concat())
    }
}
