//! One direction of a flow of UDP.

use taut_event::{Content, Datagram, Holder};

use super::spin::Spin;
use super::streams::{Seen, Stream, Streams};
use super::turns::{Rhythm, Turns};
use crate::engine::{Breakdown, Episode};
use crate::tcp::Spread;

/// The same payload sooner than this is a copy of the capture or a burst, and nobody's second try.
const LEAST_WAIT_NS: u64 = 100_000_000;

/// How the gap before a datagram is booked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Book {
    /// By whose turn it was.
    ByTurn,
    /// To this one.
    As(Holder),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) largest: u64,
    pub(super) fragmented: u64,
    pub(super) first_place: u64,
    pub(super) last_place: u64,
    /// Sent once more with the same payload, after no answer.
    pub(super) repeated: u64,
    /// From the last of these datagrams to the first of the other direction.
    pub(super) answers: Spread,
}

#[derive(Debug)]
pub(super) struct Half {
    pub(super) tally: Tally,
    pub(super) breakdown: Breakdown,
    pub(super) spin: Spin,
    pub(super) rhythm: Rhythm,
    /// Whether waits for answers that did not come can be told from a payload that is always the same.
    pub(super) knows_repeats: bool,
    pub(super) begin: Option<u64>,
    streams: Option<Box<Streams>>,
    turns: Turns,
    last: Option<Last>,
}

impl Default for Half {
    fn default() -> Self {
        Self {
            tally: Tally::default(),
            breakdown: Breakdown::default(),
            spin: Spin::default(),
            rhythm: Rhythm::NotKnown,
            knows_repeats: true,
            begin: None,
            streams: None,
            turns: Turns::default(),
            last: None,
        }
    }
}

/// The newest datagram, and what came the other way since.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Seen,
    hash: Option<u32>,
    length: u64,
    /// The newest one of the other direction.
    answer: Option<Seen>,
}

impl Half {
    /// A datagram of this direction.
    pub(super) fn own(&mut self, at: Seen, datagram: &Datagram, length: u64, book: Book) {
        let tally = &mut self.tally;
        if tally.datagrams == 0 {
            tally.first_place = at.1;
        }
        tally.datagrams += 1;
        tally.bytes = tally.bytes.saturating_add(length);
        tally.largest = tally.largest.max(length);
        tally.fragmented += u64::from(datagram.is_fragmented);
        tally.last_place = at.1;
        self.begin.get_or_insert(at.0);
        if let Content::Numbered(packet) = &datagram.content {
            self.streams.get_or_insert_default().packet(at, packet);
        }
        let now = Last { at, hash: datagram.hash, length, answer: None };
        let Some(last) = self.last.replace(now) else { return };
        match (book, last.answer) {
            (Book::As(holder), _) => self.book(holder, last.at, at),
            (Book::ByTurn, Some(answer)) => {
                self.turns.add(answer.0 - last.at.0, at.0 - last.at.0);
                // Which of the two it is, the end tells.
                self.book(Holder::PeerTurn, last.at, answer);
                self.book(Holder::SendingProgram, answer, at);
            }
            (Book::ByTurn, None) => {
                let is_same = last.hash.is_some() && last.hash == now.hash && last.length == now.length;
                let is_repeated = is_same && at.0 - last.at.0 >= LEAST_WAIT_NS;
                self.tally.repeated += u64::from(is_repeated);
                let holder = if is_repeated { Holder::Unanswered } else { Holder::SendingProgram };
                self.book(holder, last.at, at);
            }
        }
    }

    /// A datagram of the other direction.
    pub(super) fn other(&mut self, at: Seen) {
        let Some(last) = &mut self.last else { return };
        if last.answer.replace(at).is_none() {
            self.tally.answers.add(at.0.saturating_sub(last.at.0));
        }
    }

    /// Streams of numbered packets, and packets of streams beyond those.
    pub(super) fn streams(&self) -> (Vec<&Stream>, u64) {
        let told = self.streams.as_ref().map(|streams| (streams.told(self.tally.datagrams), streams.beyond));
        told.unwrap_or_default()
    }

    fn book(&mut self, holder: Holder, from: Seen, to: Seen) {
        self.breakdown.book(holder, Episode { from: from.0, to: to.0, places: (from.1, to.1) });
    }

    /// Nothing more comes; now it is known what the gaps were.
    pub(super) fn finish(&mut self, is_quic: bool, is_answered: bool) {
        self.rhythm = self.turns.rhythm();
        self.streams.iter_mut().for_each(|streams| streams.finish());
        // Where more went unanswered than answered, the payload may be the same by its nature, as a heartbeat's is.
        self.knows_repeats = self.tally.repeated == 0 || self.tally.answers.count() >= self.tally.repeated;
        if !self.knows_repeats {
            self.breakdown.rename(Holder::Unanswered, Holder::NotKnown);
        }
        let last = self.last.take();
        if is_quic {
            // What came before the first long header can't be told apart from it.
            [Holder::PeerTurn, Holder::SendingProgram, Holder::Unanswered]
                .iter()
                .for_each(|&holder| self.breakdown.rename(holder, Holder::NotKnown));
        } else {
            match self.rhythm {
                Rhythm::Waits => {}
                Rhythm::OwnClock => self.breakdown.rename(Holder::PeerTurn, Holder::SendingProgram),
                Rhythm::NotKnown => self.breakdown.rename(Holder::PeerTurn, Holder::NotKnown),
            }
            let end = last.and_then(|last| Some((last.at, last.answer?)));
            if let (Some((last, answer)), true) = (end, is_answered) {
                match self.rhythm {
                    Rhythm::Waits => self.book(Holder::PeerTurn, last, answer),
                    Rhythm::NotKnown => self.book(Holder::NotKnown, last, answer),
                    // It had nothing more to send.
                    Rhythm::OwnClock => {}
                }
            }
        }
        self.breakdown.close();
    }
}
