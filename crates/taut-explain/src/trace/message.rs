//! The time of messages: what one write hands over, until it has left, is acknowledged, and is read at the other end.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::{Call, Direction as Way, Event, Stamp, What};

use crate::tcp::sample::Sample;
use crate::words;

/// So many of a connection are followed at once. One that is written meanwhile is not.
const MOST: usize = 64;
/// Threads that write at once. Of more the one that began first is not followed: it may have ended in its call.
const MOST_BEGUN: usize = 8;

/// How long messages took that a program wrote, each from the begin of its write. A message is what one write hands
/// over. At most 64 of a connection are followed at once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct TracedMessages {
    /// Messages that were followed. Those that are missing below were not seen to get so far.
    pub followed: u64,
    /// Until the last byte had left the socket.
    pub left: MessageTimes,
    /// Until the last byte was acknowledged.
    pub acknowledged: MessageTimes,
    /// Until the call came back that read the last byte, where the other end is traced as well.
    pub read: MessageTimes,
}

/// Times of messages.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct MessageTimes {
    /// How many got so far.
    pub messages: u64,
    /// Median, from at most 64 of them, evenly over the whole.
    pub median_ns: u64,
    /// Nine of ten of these took no longer.
    pub p90_ns: u64,
    /// The longest of all.
    pub longest_ns: u64,
}

impl MessageTimes {
    fn of(sample: &Sample) -> Self {
        let [median_ns, p90_ns] = sample.median().zip(sample.ninth_tenth()).map_or([0; 2], |(one, other)| [one, other]);
        Self { messages: sample.count(), median_ns, p90_ns, longest_ns: sample.max() }
    }

    fn told(&self, what: &str) -> Option<String> {
        let Self { messages, median_ns, p90_ns, longest_ns } = *self;
        let [median, p90, longest] = [median_ns, p90_ns, longest_ns].map(words::time);
        (messages > 0).then(|| format!("{what} after {median} (median), {p90} (p90), {longest} (longest)"))
    }
}

impl TracedMessages {
    /// In words.
    pub fn line(&self) -> String {
        let stages = [
            self.left.told("had left the socket"),
            self.acknowledged.told("was acknowledged"),
            self.read.told("was read"),
        ];
        let stages: Vec<String> = stages.into_iter().flatten().collect();
        let each = if self.followed == 1 { "write, its last byte" } else { "writes, the last byte of each" };
        format!("Messages: of {} {each} {}.", self.followed, stages.join(", "))
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Left,
    Acknowledged,
    Read,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    begin: u64,
    end: u64,
    has: [bool; 3],
}

/// Those of what one connection sends.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Writes that go on, by thread.
    begun: Vec<(Option<u32>, u64)>,
    open: VecDeque<Message>,
    /// How far each stage is, and since when.
    so_far: [Option<(u64, u64)>; 3],
    followed: u64,
    times: [Sample; 3],
    /// The other end is traced, too.
    pub(super) is_peer_traced: bool,
}

impl Messages {
    /// Something of the connection happened.
    pub(super) fn event(&mut self, event: &Event) {
        let (at, bytes, who) = (event.at.as_nanos(), event.bytes, event.who.map(|task| task.0));
        match event.what {
            What::Reached(Stamp::WriteBegin) => {
                self.take_begun(who);
                if self.begun.len() >= MOST_BEGUN {
                    self.begun.remove(0);
                }
                self.begun.push((who, at));
            }
            What::Reached(Stamp::WriteEnd) => {
                if let Some(begin) = self.take_begun(who).filter(|_| !bytes.is_empty()) {
                    self.written(begin, bytes.end);
                }
            }
            // It has written nothing.
            What::Call(Call::End { .. }) if event.direction == Way::Forward => {
                self.take_begun(who);
            }
            What::Reached(Stamp::Scheduled) => self.reaches(Stage::Left, at, bytes.end),
            What::Reached(Stamp::Acknowledged) => self.reaches(Stage::Acknowledged, at, bytes.end),
            What::Gap => {
                self.begun.clear();
                self.open.clear();
                self.so_far = [None; 3];
            }
            _ => {}
        }
    }

    /// When the thread began to write.
    fn take_begun(&mut self, who: Option<u32>) -> Option<u64> {
        let place = self.begun.iter().position(|(thread, _)| *thread == who)?;
        Some(self.begun.remove(place).1)
    }

    /// Events of the other end were lost. When it has read what is open is not known.
    pub(super) fn loses_reads(&mut self) {
        let index = Stage::Read as usize;
        self.so_far[index] = None;
        self.open.iter_mut().for_each(|message| message.has[index] = true);
        self.forget_done();
    }

    /// The other end has read up to there.
    pub(super) fn read(&mut self, at: u64, to: u64) {
        self.reaches(Stage::Read, at, to);
    }

    fn written(&mut self, begin: u64, end: u64) {
        if self.open.len() >= MOST {
            return;
        }
        self.followed += 1;
        let mut message = Message { begin, end, has: [false; 3] };
        // It may have gone all the way before its call came back.
        for (index, so_far) in self.so_far.iter().enumerate() {
            if let Some((_, since)) = so_far.filter(|(to, _)| is_within(end, *to)) {
                message.has[index] = true;
                self.times[index].add(since.saturating_sub(begin));
            }
        }
        self.open.push_back(message);
        self.forget_done();
    }

    fn reaches(&mut self, stage: Stage, at: u64, to: u64) {
        let index = stage as usize;
        if self.so_far[index].is_some_and(|(known, _)| is_within(to, known)) {
            return;
        }
        self.so_far[index] = Some((to, at));
        for message in self.open.iter_mut().filter(|message| !message.has[index] && is_within(message.end, to)) {
            message.has[index] = true;
            self.times[index].add(at.saturating_sub(message.begin));
        }
        self.forget_done();
    }

    fn forget_done(&mut self) {
        let is_read_told = self.is_peer_traced;
        let is_done = |message: &Message| {
            let [left, acknowledged, read] = message.has;
            left && acknowledged && (read || !is_read_told)
        };
        while self.open.front().is_some_and(is_done) {
            self.open.pop_front();
        }
    }

    pub(super) fn told(&self) -> Option<TracedMessages> {
        let [left, acknowledged, read] = self.times.each_ref().map(MessageTimes::of);
        (left.messages > 0).then_some(TracedMessages { followed: self.followed, left, acknowledged, read })
    }
}

/// Whether a position is no further than another one. Both ends count by TCP's own numbers, modulo 2^32.
const fn is_within(end: u64, to: u64) -> bool {
    (to.wrapping_sub(end) & 0xffff_ffff) < 1 << 31
}
