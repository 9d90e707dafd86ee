//! What a capture and a trace have around a stretch of time: packets, and what the traced programs did.

use std::collections::HashMap;

use taut_event::{AckSentBy, Release, Timer};

use super::super::matching::Match;
use super::super::sightings::Sightings;
use super::log::{Mark, Marked};
use crate::words;

/// The packets of one connection and the events of one trace, in the order of time, on the clock of the capture.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// Times and numbers of packets.
    packets: Vec<(u64, u64)>,
    /// Times of events of the trace whose packet is known, with its number.
    known: Vec<(u64, u64)>,
    marks: Vec<Mark>,
}

/// Of each connection by its number. The marks have the capture's time.
pub(super) fn around(sightings: &Sightings, marks: &[Mark], events: &[Match]) -> HashMap<u32, Around> {
    let mut all: HashMap<u32, Around> = HashMap::new();
    for mark in marks {
        all.entry(mark.flow).or_default().marks.push(*mark);
    }
    for seen in &sightings.seen {
        if let Some(around) = all.get_mut(&seen.flow) {
            around.packets.push((seen.at, seen.frame));
        }
    }
    for found in events {
        let mark = &marks[found.other as usize];
        if let Some(around) = all.get_mut(&mark.flow) {
            around.known.push((mark.at, sightings.seen[found.reference as usize].frame));
        }
    }
    for around in all.values_mut() {
        around.packets.sort_unstable();
        around.known.sort_unstable();
        around.marks.sort_by_key(|mark| mark.at);
    }
    all
}

impl Around {
    /// The packet before a stretch or at its begin, and the one that ended it; 0 where there is none.
    pub(super) fn frames(&self, from: u64, to: u64) -> [u64; 2] {
        let known = |at: u64| {
            let place = self.known.partition_point(|known| known.0 < at);
            self.known.get(place).filter(|known| known.0 == at).map(|known| known.1)
        };
        let before = || {
            let place = self.packets.partition_point(|packet| packet.0 <= from);
            place.checked_sub(1).map_or(0, |place| self.packets[place].1)
        };
        let after = || {
            let place = self.packets.partition_point(|packet| packet.0 < to);
            self.packets.get(place).map_or(0, |packet| packet.1)
        };
        [known(from).unwrap_or_else(before), known(to).unwrap_or_else(after)]
    }

    /// What the program of the sender did last before the end of a stretch, and what ended it, as far as traces tell.
    pub(super) fn told(&self, to: u64, sender_is_first: bool, program: &impl Fn(u32) -> String) -> String {
        let until = &self.marks[..self.marks.partition_point(|mark| mark.at <= to)];
        let of_sender = |mark: &&Mark| mark.is_first == sender_is_first;
        let written = until.iter().rev().filter(of_sender).find(|mark| mark.what == Marked::Written && mark.at < to);
        let written = written.map(|mark| {
            let by = mark.thread.map_or_else(|| "The program".to_owned(), program);
            format!("{by} had written {}", words::bytes(mark.to - mark.from))
        });
        let at_end = &until[until.partition_point(|mark| mark.at < to)..];
        // What an acknowledgement lets go leaves a moment later.
        let next = self.marks.get(until.len()).filter(|next| next.is_first == sender_is_first);
        let next = next.filter(|next| matches!(next.what, Marked::Released(Release::Acknowledgement(_))));
        let is_acknowledged = |mark: &Mark| (mark.what, mark.is_first) == (Marked::Acknowledged, sender_is_first);
        let let_go = next.filter(|_| at_end.iter().any(is_acknowledged));
        let all = let_go.into_iter().chain(at_end);
        let ended = all.into_iter().find_map(|mark| ended(mark, mark.is_first == sender_is_first, program));
        match (written, ended) {
            (Some(written), Some(ended)) => format!("{written}; {ended}."),
            (Some(written), None) => format!("{written}."),
            (None, Some(ended)) => format!("What ended it: {ended}."),
            (None, None) => String::new(),
        }
    }
}

/// What an event ends, in words.
fn ended(mark: &Mark, is_of_sender: bool, program: &impl Fn(u32) -> String) -> Option<String> {
    let by = || mark.thread.map_or_else(|| "the program".to_owned(), program);
    Some(match (mark.what, is_of_sender) {
        // The write's own call, or a later one.
        (Marked::Released(Release::Call), true) => "then a call of the program sent".to_owned(),
        (Marked::Released(release), true) => format!("let go by {}", let_go_by(release)),
        (Marked::WriteBegin, true) => format!("then {} wrote", by()),
        (Marked::Left, true) => "then a segment left".to_owned(),
        (Marked::Acknowledged, true) => "then it was acknowledged".to_owned(),
        (Marked::Received, true) => "then data came back".to_owned(),
        (Marked::Received, false) => "then data came to the receiver".to_owned(),
        (Marked::Read, false) => format!("then {} read", by()),
        (Marked::WriteBegin, false) => format!("then {} wrote back", by()),
        _ => return None,
    })
}

const fn let_go_by(release: Release) -> &'static str {
    match release {
        Release::Call => "a later call",
        Release::Acknowledgement(AckSentBy::DelayedAckTimer) => "an ACK that the peer's delayed-ACK timer had sent",
        Release::Acknowledgement(AckSentBy::Arrival) => "an ACK sent as data arrived",
        Release::Acknowledgement(AckSentBy::Program) => "an ACK sent as the peer's program read or wrote",
        Release::Acknowledgement(AckSentBy::NotSeen) => "an ACK",
        Release::Timer(Timer::Write) => "the timer of retransmissions and probes",
        Release::Timer(Timer::Pacing) => "the timer of pacing",
        Release::Timer(Timer::DelayedAck | Timer::Other) => "a timer",
        Release::Unknown => "something not seen",
    }
}
