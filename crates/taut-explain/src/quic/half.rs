//! One direction of a connection of QUIC.

use std::collections::BTreeMap;

use taut_event::{Holder, QuicPacket};

use super::sender::{Pacing, State};
use crate::engine::{Breakdown, Episode};

/// A time, and the event of that time.
pub(super) type Seen = (u64, u64);

/// So many blocked streams are followed.
const MOST_STREAMS: usize = 256;
/// So many stretches wait for the next packet with data to tell what they were.
const MOST_PIECES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Half {
    pub(super) breakdown: Breakdown,
    pub(super) packets: u64,
    /// Packets with data of streams, or datagrams.
    pub(super) data_packets: u64,
    pub(super) bytes: u64,
    pub(super) largest: u64,
    pub(super) first_place: u64,
    pub(super) last_place: u64,
    pub(super) begin: Option<u64>,
    /// How often its sender said that the receiver's limits held it.
    pub(super) blocked: u64,
    /// How often of these the connection's limit did.
    pub(super) blocked_by_connection: u64,
    /// Stretches that pacing or the program may have had.
    pub(super) may_be_paced: u64,
    /// Limits that hold it now; `None` is the connection's.
    limits: BTreeMap<Option<u64>, u64>,
    /// Up to here it is told who held the data, or stands in the pieces.
    reached: Option<Seen>,
    pieces: Vec<(State, Episode)>,
    /// Since the last packet with data: when data came the other way first, and last.
    answers: Option<(Seen, Seen)>,
    /// The last time data of this direction was known to arrive.
    arrived: Option<u64>,
    /// When the last packet of the handshake went, if no data did.
    handshake: Option<u64>,
    has_data: bool,
}

impl Half {
    /// Time goes on to this event, and this was the state until then.
    pub(super) fn advance(&mut self, to: Seen, state: State) {
        let Some(from) = self.reached.replace(to) else {
            self.begin = Some(to.0);
            return;
        };
        if from.0 >= to.0 {
            // Nothing passed; a stretch that follows still begins behind the first event of this time.
            self.reached = Some(if from.0 == to.0 { (to.0, to.1) } else { from });
            return;
        }
        match self.pieces.last_mut() {
            Some((last, episode)) if *last == state => {
                episode.to = to.0;
                episode.places.1 = to.1;
            }
            _ => {
                if self.pieces.len() >= MOST_PIECES {
                    // So many changes without data in between: what they were stays open.
                    self.settle(|state| match state {
                        State::Room => Holder::NotKnown,
                        state => seen(state),
                    });
                }
                self.pieces.push((state, Episode { from: from.0, to: to.0, places: (from.1, to.1) }));
            }
        }
    }

    /// A packet of this direction.
    pub(super) fn packet(&mut self, at: Seen, packet: &QuicPacket, bytes: u64, is_probe: bool, pacing: Option<Pacing>) {
        if self.packets == 0 {
            self.first_place = at.1;
        }
        self.packets += 1;
        self.last_place = at.1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.largest = self.largest.max(packet.length.into());
        if !packet.is_application {
            self.handshake = Some(at.0);
        }
        let has_data = bytes > 0 || packet.is_application && !packet.has_frames;
        self.data_packets += u64::from(has_data);
        if !(has_data || is_probe && self.has_data && packet.is_application) {
            return;
        }
        self.has_data = true;
        self.resolve(is_probe, pacing);
        self.answers = None;
    }

    /// The packet with data that comes now tells what the time before it was.
    fn resolve(&mut self, is_probe: bool, pacing: Option<Pacing>) {
        if is_probe {
            return self.settle(|state| match state {
                State::Room | State::NotKnown => Holder::TailLossProbe,
                state => seen(state),
            });
        }
        let answers = self.answers;
        let answered = answers.map_or(0, |(_, last)| last.0);
        // What is left of the room once answers and the pace have had theirs is the program's.
        let (paced_until, longest) = match pacing {
            Some(Pacing::Until(until)) => (until, 0),
            Some(Pacing::AtMost(longest)) if answers.is_none() => (0, longest),
            _ => (0, 0),
        };
        let room = self.pieces.iter().filter(|(state, _)| *state == State::Room);
        let may_be_paced = longest > 0 && room.map(|(_, episode)| episode.length()).sum::<u64>() <= longest;
        for (state, episode) in std::mem::take(&mut self.pieces) {
            if state != State::Room {
                self.breakdown.book(seen(state), episode);
                continue;
            }
            if may_be_paced {
                self.may_be_paced += 1;
                self.breakdown.book(Holder::NotKnown, episode);
                continue;
            }
            let place = answers.map_or(episode.places.1, |(_, last)| last.1);
            let rest = self.split(Holder::PeerTurn, episode, answered, place);
            let rest = self.split(Holder::Pacing, rest, paced_until, rest.places.1);
            self.breakdown.book(Holder::SendingProgram, rest);
        }
    }

    /// Books what is before a time, which has this place; what is left.
    fn split(&mut self, holder: Holder, episode: Episode, until: u64, place: u64) -> Episode {
        let to = until.clamp(episode.from, episode.to);
        let place = if to == episode.to { episode.places.1 } else { place };
        self.breakdown.book(holder, Episode { to, places: (episode.places.0, place), ..episode });
        Episode {
            from: to,
            places: (if to > episode.from { place } else { episode.places.0 }, episode.places.1),
            ..episode
        }
    }

    fn settle(&mut self, holder: impl Fn(State) -> Holder) {
        for (state, episode) in std::mem::take(&mut self.pieces) {
            self.breakdown.book(holder(state), episode);
        }
    }

    /// Data came the other way that may be an answer.
    pub(super) fn other(&mut self, at: Seen) {
        self.answers = Some((self.answers.map_or(at, |(first, _)| first), at));
    }

    /// Data of this direction is known to be there.
    pub(super) fn arrived(&mut self, at: Seen) {
        self.arrived = Some(at.0);
    }

    pub(super) fn blocked(&mut self, stream: Option<u64>, limit: u64) {
        self.blocked += 1;
        self.blocked_by_connection += u64::from(stream.is_none());
        if self.limits.len() < MOST_STREAMS || self.limits.contains_key(&stream) {
            self.limits.insert(stream, limit);
        }
    }

    pub(super) fn allowed(&mut self, stream: Option<u64>, limit: u64) {
        if self.limits.get(&stream).is_some_and(|blocked_at| limit > *blocked_at) {
            self.limits.remove(&stream);
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Nothing more comes. What follows the last data counts up to where it arrived, or was answered; a receiver that
    /// still allows nothing holds the data until the end.
    pub(super) fn finish(&mut self, is_own: bool) {
        // Of what the other end does behind its last data nothing is known.
        let answered = self.answers.map(|(first, _)| first.0).filter(|_| is_own);
        let is_blocked = self.is_blocked() && matches!(self.pieces.last(), Some((State::ReceiveWindow, _)));
        let end = match self.has_data {
            _ if is_blocked => u64::MAX,
            true => self.arrived.max(answered).unwrap_or(0),
            false => self.handshake.unwrap_or(0),
        };
        for (state, episode) in std::mem::take(&mut self.pieces) {
            let to = end.clamp(episode.from, episode.to);
            let cut = Episode { to, ..episode };
            match (state, answered) {
                (State::Room, Some(answer)) => {
                    let place = self.answers.map_or(cut.places.1, |(first, _)| first.1);
                    let rest = self.split(Holder::PeerTurn, cut, answer, place);
                    self.breakdown.book(Holder::Delivery, rest);
                }
                (State::Room, _) => self.breakdown.book(Holder::Delivery, cut),
                (state, _) => self.breakdown.book(seen(state), cut),
            }
        }
        self.breakdown.close();
    }
}

/// The holder of a state that tells it.
const fn seen(state: State) -> Holder {
    match state {
        State::Handshake => Holder::Handshake,
        State::CongestionWindow => Holder::CongestionWindow,
        State::SlowStart => Holder::SlowStart,
        State::PathQueue => Holder::PathQueue,
        State::ReceiveWindow => Holder::ReceiveWindow,
        State::LossRecovery => Holder::LossRecovery,
        State::Room | State::NotKnown => Holder::NotKnown,
    }
}
