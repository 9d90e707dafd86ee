//! A connection of TCP, followed segment by segment: both directions, from any vantage point.

mod acks;
mod echoes;
mod ending;
mod half;
mod holes;
mod order;
mod recovery;
mod repeats;
mod rules;
pub(crate) mod sample;
mod scale;
mod sight;
mod silence;
mod spread;
mod state;
mod stretch;
mod tally;
mod vantage;

use taut_event::{Direction, Event, Flow, FlowKey, Segment, SegmentFlags, TimestampOption, What};
use taut_time::Instant;

use crate::engine::Breakdown;
use ending::End;
pub(crate) use half::Half;
use repeats::Repeats;
pub(crate) use sample::Sample;
pub(crate) use sight::Lack;
pub(crate) use silence::Silence;
pub(crate) use spread::Spread;
use state::Peer;
pub(crate) use tally::Tally;
use vantage::{Loops, Opening};

/// What is known of a connection, in bounded memory.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) flow: Flow,
    pub(crate) halves: [Half; 2],
    opening: Opening,
    loops: Loops,
    repeats: Repeats,
    /// The newest SYN with data, until it is answered.
    early: Option<Box<Event>>,
    /// What each end said its largest segment is.
    mss: [u16; 2],
    pub(crate) has_timestamps: bool,
    pub(crate) was_reset: bool,
    /// Both ends said so at its opening.
    pub(crate) is_subflow: bool,
    pub(crate) first: Option<u64>,
    pub(crate) last: u64,
    last_place: u64,
    pub(crate) segments: u64,
}

impl Connection {
    pub(crate) fn new(flow: Flow) -> Self {
        Self {
            flow,
            halves: [Half::new(0), Half::new(1)],
            opening: Opening::default(),
            loops: Loops::default(),
            repeats: Repeats::default(),
            early: None,
            mss: [0; 2],
            has_timestamps: false,
            was_reset: false,
            is_subflow: false,
            first: None,
            last: 0,
            last_place: 0,
            segments: 0,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        // The clock of a capture may step back, between packets of two queues or when it is set.
        let at = event.at.as_nanos().max(self.last);
        if at == event.at.as_nanos() {
            self.event_at(event);
        } else {
            self.event_at(&Event { at: Instant::from_nanos(at), ..*event });
        }
    }

    fn event_at(&mut self, event: &Event) {
        let What::Segment(segment) = &event.what else { return };
        let at = event.at.as_nanos();
        let sender = event.direction.index();
        let says_nothing_new = if segment.flags.has(SegmentFlags::SYN) {
            true
        } else if event.bytes.is_empty() {
            self.halves[1 - sender].is_acknowledged(segment.ack)
        } else {
            self.halves[sender].has_passed(event.bytes.end)
        };
        if self.repeats.is_copy(event, segment, says_nothing_new) {
            return;
        }
        (self.last, self.last_place) = (at, event.place);
        self.first.get_or_insert(at);
        self.segments += 1;
        if segment.flags.has(SegmentFlags::RST) {
            self.was_reset = true;
            return;
        }
        if segment.flags.has(SegmentFlags::SYN) {
            self.open(event, segment);
            self.fast_open(event, segment);
        }
        let has_ack = segment.flags.has(SegmentFlags::ACK);
        let is_owed = self.halves[1 - sender].is_outstanding();
        if has_ack && sender == 0 && self.opening.is_under_way() && !segment.flags.has(SegmentFlags::SYN) {
            self.established(at, event.place, segment.timestamps);
        }
        if has_ack {
            self.halves[1 - sender].acknowledged(event, segment, &mut self.loops);
        }
        if segment.flags.has(SegmentFlags::SYN) && (!has_ack || event.bytes.is_empty()) {
            return;
        }
        if segment.timestamps.is_some() && !self.has_timestamps {
            self.has_timestamps = true;
            self.agree();
        }
        let asked = self.halves[1 - sender].asked_at();
        let asked_at = asked.filter(|&asked| self.halves[sender].last_data.is_none_or(|own| own < asked));
        self.halves[sender].sent(event, segment, &mut self.loops, Peer { asked_at, is_owed });
    }

    /// Data in a SYN counts if the SYN/ACK takes it (RFC 7413, section 4.2); else it is sent once more
    /// after the opening.
    fn fast_open(&mut self, event: &Event, segment: &Segment) {
        if !segment.flags.has(SegmentFlags::ACK) {
            self.early = (!event.bytes.is_empty()).then(|| Box::new(*event));
            return;
        }
        let Some(early) = self.early.take().filter(|early| segment.ack >= early.bytes.end) else { return };
        if let What::Segment(syn) = &early.what {
            self.halves[early.direction.index()].sent(&early, syn, &mut self.loops, Peer::default());
        }
    }

    fn open(&mut self, event: &Event, segment: &Segment) {
        let (at, sender) = (event.at.as_nanos(), event.direction.index());
        self.mss[sender] = segment.mss;
        self.has_timestamps = segment.timestamps.is_some();
        if segment.flags.has(SegmentFlags::ACK) {
            self.is_subflow = segment.is_subflow;
            self.opening.syn_ack(at, segment.timestamps);
            self.agree();
        } else {
            self.opening.syn(at, event.place, segment.timestamps);
        }
    }

    /// The largest segment, once both ends have told theirs.
    fn agree(&mut self) {
        let [client, server] = self.mss;
        if client > 0 && server > 0 {
            let options = if self.has_timestamps { 12 } else { 0 };
            let mss = u64::from(client.min(server)).saturating_sub(options).max(1);
            for half in &mut self.halves {
                (half.mss, half.mss_is_agreed) = (mss, true);
            }
        }
    }

    fn established(&mut self, at: u64, place: u64, stamps: Option<TimestampOption>) {
        if let Some((begin, loops)) = self.opening.answer(at, stamps) {
            self.loops = loops;
            self.halves.iter_mut().for_each(|half| half.opened(begin, (at, place)));
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        let has_pure = self.halves.iter().any(|half| half.sight.has_pure());
        let data = [self.halves[1].last_data, self.halves[0].last_data];
        let has_handshake = self.has_handshake();
        for (index, half) in self.halves.iter_mut().enumerate() {
            let is_client = has_handshake && index == 0;
            let (at, place, peer_data) = (self.last, self.last_place, data[index]);
            let to_sender = self.loops.to_sender(index);
            half.finish(End { at, place, has_pure, is_client, peer_data, to_sender });
        }
    }

    /// The breakdowns of both directions.
    pub(crate) fn breakdowns(&mut self) -> [&mut Breakdown; 2] {
        self.halves.each_mut().map(|half| &mut half.breakdown)
    }

    pub(crate) fn copies(&self) -> u64 {
        self.repeats.dropped
    }

    /// SYN and SYN/ACK that were sent again.
    pub(crate) const fn repeated_openings(&self) -> u64 {
        self.opening.repeated()
    }

    /// How long it was asked for in vain, and the first packet, if it was asked for again and nothing came.
    pub(crate) fn unanswered(&self) -> Option<(u64, u64)> {
        let (at, place) = self.opening.unanswered().filter(|_| !self.was_reset)?;
        Some((self.last.saturating_sub(at), place))
    }

    pub(crate) const fn has_handshake(&self) -> bool {
        self.opening.is_established
    }

    /// Whether it is the client's direction: what passes before a client asks again is nobody's answer. Of a connection
    /// that was opened before the capture the end with the lower port is taken for the server.
    pub(crate) fn asks(&self, way: Direction) -> bool {
        match self.flow.key {
            FlowKey::Tcp(first, second) if !self.has_handshake() && first.port != second.port => {
                (first.port > second.port) == (way == Direction::Forward)
            }
            _ => way == Direction::Forward,
        }
    }

    /// 0 at the sender of a direction, 1 at its receiver.
    pub(crate) fn position(&self, direction: usize) -> f64 {
        self.loops.position(direction)
    }

    /// The least time to the receiver of a direction and back.
    pub(crate) fn to_receiver(&self, direction: usize) -> u64 {
        self.loops.to_receiver(direction)
    }

    /// Whether the round trip and the place on the path were seen.
    pub(crate) fn knows_loops(&self) -> bool {
        self.loops.are_known()
    }

    /// Whether it is known how long ago what passes here left its sender.
    pub(crate) fn knows_sender(&self, direction: usize) -> bool {
        self.loops.known_to_sender(direction).is_some()
    }

    pub(crate) fn round_trip(&self) -> u64 {
        self.loops.round_trip()
    }

    pub(crate) fn unseen_bytes(&self, direction: usize) -> u64 {
        self.halves[direction].unseen_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 10,000 connections each byte here is 10 kB.
    #[test]
    fn what_a_connection_takes_without_any_data_stays_small() {
        assert!(size_of::<Half>() <= 1000, "{}", size_of::<Half>());
        assert!(size_of::<Connection>() <= 2496, "{}", size_of::<Connection>());
    }
}
