//! Several threads write to one descriptor at the same time. Each thread's messages come in its
//! order, and those of a step before those of the next; cancelled ones don't come at all.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::thread;

use super::batch;
use super::descriptor::{self, close};
use super::operation::Operation;
use super::round::{Context, Episode};
use super::stream::{check_order, pop_ready};
use super::wait;

const LARGEST: usize = 40_000;

/// Writes of one thread in one step.
struct Batch {
    step: usize,
    writes: VecDeque<Operation>,
    /// Those that succeeded.
    sent: Vec<Vec<u8>>,
}

/// A socket that threads race on.
pub(crate) struct Race {
    reader: c_int,
    writer: c_int,
    reads: VecDeque<Operation>,
    batches: Vec<Batch>,
    got: Vec<Vec<u8>>,
    steps: usize,
}

impl Race {
    pub(crate) fn new(context: &mut Context<'_>) -> Self {
        let [reader, writer] = descriptor::socket_pair(libc::SOCK_SEQPACKET);
        let (reads, batches, got) = Default::default();
        Self { reader, writer, reads, batches, got, steps: context.random.between(2, 12) }
    }

    fn race(&mut self, context: &mut Context<'_>) {
        let writer = self.writer;
        let threads = context.random.between(2, 4);
        let contexts: Vec<Context<'_>> = (0..threads).map(|_| context.of_short_life()).collect();
        let step = self.steps;
        let done: Vec<(Batch, Context<'_>)> = thread::scope(|scope| {
            let racers: Vec<_> = contexts
                .into_iter()
                .map(|mut context| {
                    let race = move || {
                        let writes = write(&mut context, writer);
                        (Batch { step, writes, sent: Vec::new() }, context)
                    };
                    scope.spawn(race)
                })
                .collect();
            self.read(context);
            racers.into_iter().map(|racer| racer.join().expect("checked by the hook")).collect()
        });
        for (batch, other) in done {
            self.batches.push(batch);
            context.take_over(other);
        }
        self.steps -= 1;
    }

    fn read(&mut self, context: &mut Context<'_>) {
        let count = context.random.between(1, 6).min(20_usize.saturating_sub(self.reads.len()));
        for _ in 0..count {
            let mut read = Operation::read(context, self.reader, LARGEST, 0, false);
            read.submit(context);
            self.reads.push_back(read);
        }
    }

    fn collect(&mut self, context: &mut Context<'_>) {
        check_order(&self.reads);
        while let Some(read) = pop_ready(context, &mut self.reads) {
            match read.outcome.error {
                0 => self.got.push(read.buffer.bytes()[..read.outcome.value.unsigned_abs()].to_vec()),
                libc::ECANCELED => assert!(read.cancel_tried, "a read was cancelled, unasked"),
                other => panic!("a read failed with {other}"),
            }
        }
        for batch in &mut self.batches {
            check_order(&batch.writes);
            while let Some(write) = pop_ready(context, &mut batch.writes) {
                match write.outcome.error {
                    0 => batch.sent.push(write.buffer.bytes().to_vec()),
                    libc::ECANCELED => assert!(write.cancel_tried, "a write was cancelled, unasked"),
                    other => panic!("a write failed with {other}"),
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        let sent: usize = self.batches.iter().map(|batch| batch.sent.len()).sum();
        self.batches.iter().all(|batch| batch.writes.is_empty()) && self.got.len() >= sent
    }

    fn compare(&self) {
        let places: HashMap<&[u8], usize> = self.got.iter().enumerate().map(|(place, got)| (&got[..], place)).collect();
        assert_eq!(places.len(), self.got.len(), "a message came twice");
        let mut count = 0;
        // Steps count down.
        let mut last_of_step = HashMap::new();
        for batch in &self.batches {
            let mut last = None;
            for sent in &batch.sent {
                let place = places.get(&sent[..]).copied();
                assert!(place.is_some() && place > last, "place {place:?} after {last:?} of one thread's messages");
                last = place;
                count += 1;
                if let Some(before) = last_of_step.get(&(batch.step + 1)) {
                    assert!(place > *before, "a message came before one that was written a step earlier");
                }
            }
            let of_step = last_of_step.entry(batch.step).or_insert(None);
            *of_step = (*of_step).max(last);
        }
        assert_eq!(count, self.got.len(), "a message that nobody wrote, or that was cancelled");
    }
}

/// What one thread does: some writes, and half a mind to cancel.
fn write(context: &mut Context<'_>, writer: c_int) -> VecDeque<Operation> {
    let mut writes = VecDeque::new();
    for _ in 0..context.random.between(1, 3) {
        let mut batch: Vec<Operation> = Vec::new();
        for _ in 0..context.random.between(1, 3) {
            // Long enough to be unlike any other.
            let most = if context.random.percent(80) { 600 } else { LARGEST };
            let length = context.random.between(16, most);
            batch.push(Operation::write(context, writer, length, 0, false));
        }
        batch::submit(context, &mut batch, false);
        writes.extend(batch);
        if context.random.percent(30) {
            let place = context.random.below(writes.len());
            writes[place].cancel(context);
        }
    }
    writes
}

impl Episode for Race {
    fn step(&mut self, context: &mut Context<'_>) {
        if context.random.percent(50) {
            self.race(context);
        } else {
            self.collect(context);
        }
    }

    fn is_over(&self) -> bool {
        self.steps == 0
    }

    fn wind_up(&mut self, context: &mut Context<'_>) {
        while !self.is_complete() {
            if self.reads.is_empty() {
                self.read(context);
            }
            let writes = self.batches.iter().flat_map(|batch| &batch.writes);
            let operations: Vec<&Operation> = self.reads.iter().chain(writes).collect();
            wait::suspend(context, &operations, 500);
            self.collect(context);
        }
        for read in &mut self.reads {
            read.may_end();
        }
        close(self.reader);
        while !self.reads.is_empty() {
            self.collect(context);
        }
        close(self.writer);
        self.compare();
    }

    fn describe(&self) -> String {
        let writes: Vec<String> = self
            .batches
            .iter()
            .flat_map(|batch| &batch.writes)
            .chain(&self.reads)
            .take(12)
            .map(|operation| format!("\n    {operation:?}"))
            .collect();
        format!("race, {} batches:{}", self.batches.len(), writes.concat())
    }
}
