use alloc::collections::VecDeque;

use taut_time::Instant;

use crate::time::NEVER;

/// Why a program can't send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Blocked {
    /// No credit is left: Linux suspends the socket.
    Credits,
    /// The send buffer is full.
    SendBuffer,
}

/// What a writing program is at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Activity {
    /// Has nothing to write.
    #[default]
    Idle,
    /// Makes the next block, or waits for its time.
    Producing,
    /// Is being woken.
    Waking,
    /// In `send`, or between two of them.
    Sending,
    /// Waits until it may send.
    Blocked(Blocked),
}

/// The program that writes.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    activity: Activity,
    at: Instant,
    /// Bytes left of the block.
    pub(crate) left: u32,
    /// When the block was begun.
    pub(crate) begun: Instant,
    /// Bytes written since the channel was opened.
    pub(crate) position: u64,
    /// Whether it writes blocks of its own, without end.
    blocks: bool,
    /// Bytes given from outside, and the ends of the writes that they came in.
    given: VecDeque<u8>,
    writes: VecDeque<usize>,
}

impl Writer {
    pub(crate) const fn new() -> Self {
        Self {
            activity: Activity::Idle,
            at: NEVER,
            left: 0,
            begun: Instant::from_nanos(0),
            position: 0,
            blocks: false,
            given: VecDeque::new(),
            writes: VecDeque::new(),
        }
    }

    pub(crate) const fn activity(&self) -> Activity {
        self.activity
    }

    pub(crate) const fn due(&self) -> Instant {
        self.at
    }

    pub(crate) fn is_blocked_on(&self, why: Blocked) -> bool {
        self.activity == Activity::Blocked(why)
    }

    pub(crate) const fn start(&mut self, now: Instant) {
        self.blocks = true;
        (self.activity, self.at) = (Activity::Producing, now);
    }

    pub(crate) const fn writes_blocks(&self) -> bool {
        self.blocks
    }

    pub(crate) fn give(&mut self, at: Instant, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.given.extend(bytes);
        self.writes.push_back(bytes.len());
        if self.activity == Activity::Idle {
            (self.activity, self.at) = (Activity::Waking, at);
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.given.len()
    }

    /// Bytes of the next SDU from outside: the rest of one write, at most `mtu`.
    pub(crate) fn next_given(&self, mtu: usize) -> usize {
        self.writes.front().map_or(0, |left| (*left).min(mtu))
    }

    pub(crate) fn take_given(&mut self, bytes: usize) -> alloc::vec::Vec<u8> {
        if let Some(left) = self.writes.front_mut() {
            *left -= bytes;
            if *left == 0 {
                self.writes.pop_front();
            }
        }
        self.given.drain(..bytes).collect()
    }

    pub(crate) const fn produce_until(&mut self, at: Instant) {
        (self.activity, self.at) = (Activity::Producing, at);
    }

    pub(crate) const fn send_at(&mut self, at: Instant) {
        (self.activity, self.at) = (Activity::Sending, at);
    }

    pub(crate) const fn wake(&mut self, at: Instant) {
        (self.activity, self.at) = (Activity::Waking, at);
    }

    pub(crate) const fn block(&mut self, why: Blocked) {
        (self.activity, self.at) = (Activity::Blocked(why), NEVER);
    }

    pub(crate) const fn rest(&mut self) {
        (self.activity, self.at) = (Activity::Idle, NEVER);
    }
}

/// The bytes of a program's own blocks: each tells its position in the flow, so that a byte lost,
/// repeated or moved is seen.
pub(crate) fn pattern(position: u64, bytes: &mut [u8]) {
    let start = position as u32;
    for (index, byte) in bytes.iter_mut().enumerate() {
        let at = start.wrapping_add(index as u32);
        *byte = (at ^ (at >> 8) ^ (at >> 16)) as u8;
    }
}

/// Whether these are the bytes that [`pattern`] puts there.
pub(crate) fn is_pattern(position: u64, bytes: &[u8]) -> bool {
    let start = position as u32;
    bytes.iter().enumerate().fold(0, |wrong, (index, byte)| {
        let at = start.wrapping_add(index as u32);
        wrong | (byte ^ (at ^ (at >> 8) ^ (at >> 16)) as u8)
    }) == 0
}
