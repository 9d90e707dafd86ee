//! What is counted of a connection beside its time.

use std::collections::BTreeSet;

use taut_event::{AckSentBy, Holder, Listening, Release, SocketState, Timer};

use crate::tcp::sample::Sample;

/// Kinds of system calls that are told by name.
const MOST_CALLS: usize = 8;

/// What a connection did, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) writes: u64,
    /// Writes that were still in the socket when the call came back; how long they stayed after that.
    pub(super) held: Sample,
    /// Writes of which it is not known when they left: too many waited at once.
    pub(super) not_followed: u64,
    /// Reads that got something.
    pub(super) reads: u64,
    /// Writes that waited for room, of a socket that is known by its calls alone.
    pub(super) waited: u64,
    /// Writes that the kernel took nothing of, for lack of room.
    pub(super) refused: u64,
    /// Of them, those for which the send buffer had room: Linux refuses as well while a channel has no credits.
    pub(super) refused_with_room: u64,
    /// Numbers of the system calls that write, of a socket of Bluetooth.
    pub(super) writing_calls: BTreeSet<u16>,
    pub(super) repeated: u64,
    /// Of them, the first segment of a connection that was not open.
    pub(super) repeated_openings: u64,
    /// Of them, those that the peer had already, as it told.
    pub(super) needless: u64,
    /// The socket's own count of these.
    duplicates: Option<u32>,
    /// It was seen to wait to be accepted, so `listening` is its own program's.
    pub(super) was_awaited: bool,
    /// It waited to be accepted to its end.
    pub(super) is_never_accepted: bool,
    /// It is one path of a connection of MPTCP.
    pub(super) is_path: bool,
    /// The listening socket of this host that is to accept it, as it was when fullest.
    pub(super) listening: Option<Listening>,
    /// What let the writes go that had been held.
    pub(super) by_call: u64,
    pub(super) by_ack: [u64; 4],
    pub(super) by_write_timer: u64,
    pub(super) by_pacing: u64,
    pub(super) by_other: u64,
    /// Times that records were lost.
    pub(super) gaps: u64,
    pub(super) largest_window: u32,
    pub(super) least_window: Option<u32>,
    /// The last state in which each holder stood that is told with its state.
    pub(super) evidence: Vec<(Holder, SocketState)>,
}

impl Tally {
    /// A call of this number writes.
    pub(super) fn writes_by(&mut self, number: u16) {
        if self.writing_calls.len() < MOST_CALLS {
            self.writing_calls.insert(number);
        }
    }

    /// The socket has counted so many needless repeats. What it counted before the first state is of no repeat here.
    pub(super) fn duplicates(&mut self, now: u32) {
        let before = self.duplicates.unwrap_or(now);
        self.duplicates = Some(before.max(now));
        self.needless =
            self.needless.saturating_add(now.saturating_sub(before).into()).min(self.repeated - self.repeated_openings);
    }

    pub(super) fn listens(&mut self, now: Listening) {
        let fuller = |known: Listening| if known.is_full() && !now.is_full() { known } else { now };
        self.listening = Some(self.listening.map_or(now, fuller));
    }

    pub(super) fn released(&mut self, release: Option<Release>) {
        match release {
            Some(Release::Call) => self.by_call += 1,
            Some(Release::Acknowledgement(by)) => self.by_ack[ack_index(by)] += 1,
            Some(Release::Timer(Timer::Write)) => self.by_write_timer += 1,
            Some(Release::Timer(Timer::Pacing)) => self.by_pacing += 1,
            Some(Release::Timer(_) | Release::Unknown) | None => self.by_other += 1,
        }
    }
}

pub(super) const fn ack_index(by: AckSentBy) -> usize {
    match by {
        AckSentBy::DelayedAckTimer => 0,
        AckSentBy::Arrival => 1,
        AckSentBy::Program => 2,
        AckSentBy::NotSeen => 3,
    }
}
