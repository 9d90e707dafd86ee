//! A channel of Bluetooth, followed packet by packet in the log of one of its hosts.

mod classic;
mod facts;
mod fit;
mod gain;
mod gains;
mod gatt;
mod half;
mod held;
mod judged;
mod known;
mod media;
mod mic;
mod model;
mod modelled;
mod names;
mod program;
mod replay;
mod report;
mod rhythm;
mod shape;
mod tally;
#[cfg(test)]
mod tests;
mod turns;
mod uses;
mod verdict;

use taut_air::SDU_LENGTH_BYTES;
use taut_event::{
    Acl, Att, Channel as Kind, ChannelKey, Direction as Way, Event, Flow, FlowKey, L2cap, RadioLink, Turn, What,
};

use crate::engine::Breakdown;
pub(crate) use classic::CAUSES as CLASSIC_CAUSES;
pub(crate) use half::Half;
pub(crate) use judged::CAUSES;
pub(crate) use report::{direction, times};
use turns::{Question, Turns, transaction};
pub(crate) use verdict::{LISTENS, SKIPPED};

/// What is known of a channel, in bounded memory. The direction with index 0 is that of what the log's host sends.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) flow: Flow,
    pub(crate) halves: [Half; 2],
    /// As it is now.
    link: RadioLink,
    asked: Option<(u64, u64)>,
    turns: Turns,
    /// Of the attribute protocol.
    gatt: Option<Box<gatt::Gatt>>,
    /// By direction: an answer of which more packets are to come.
    answer: [Option<Att>; 2],
    pub(crate) first: Option<u64>,
    last: u64,
    pub(crate) packets: u64,
    /// Whether it turned out to be one of BR/EDR, which has another name.
    is_classic: bool,
}

impl Channel {
    pub(crate) fn new(flow: Flow) -> Self {
        let kind = match flow.key {
            FlowKey::L2cap(key) => key.channel,
            _ => Kind::Dynamic(0),
        };
        let halves = [true, false].map(|is_sent_here| Half::new(is_sent_here, kind));
        let (link, turns) = (RadioLink::default(), Turns::default());
        Self {
            flow,
            halves,
            link,
            asked: None,
            turns,
            gatt: None,
            answer: [None; 2],
            first: None,
            last: 0,
            packets: 0,
            is_classic: false,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let What::L2cap(what) = event.what else { return };
        // The clock of a log may be set back.
        let at = event.at.as_nanos().max(self.last);
        self.last = at;
        self.first.get_or_insert(at);
        let place = event.place;
        for way in [0, 1] {
            let asked = self.asked_of(way);
            self.halves[way].advance(at, place, self.turns.is_peers(way), asked, &self.link);
        }
        let way = event.direction.index();
        match what {
            L2cap::Asked => self.asked = Some((at, place)),
            L2cap::Opened { mtu, mps, credits } => {
                for (index, half) in self.halves.iter_mut().enumerate() {
                    let limits = half::Limits { mtu: mtu[index], mps: mps[index], credits: credits[index] };
                    half.opened(self.asked, (at, place), limits);
                }
            }
            L2cap::Packet(acl) => {
                self.packets += 1;
                let begins = acl.begins_pdu && !self.halves[way].goes_on();
                // What goes while a question is open, or before the peer asked one, waited for nobody's turn.
                let kind = transaction(acl.turn);
                let is_open = self.turns.asked[way][kind].is_some();
                match acl.turn {
                    Turn::Free if begins => self.halves[way].was_free(),
                    Turn::Asks | Turn::Indicates if !is_open => self.halves[way].was_free(),
                    // It came before this one, and the log lacks it.
                    Turn::Asks | Turn::Indicates => self.halves.iter_mut().for_each(Half::lacks_an_answer),
                    Turn::NotKnown => self.halves.iter_mut().for_each(Half::loses_turns),
                    _ => {}
                }
                self.halves[way].packet((at, place), &acl, event.bytes.len(), &self.link);
                if !self.halves[way].is_sent_here() {
                    self.halves[1 - way].other_went = Some(at);
                }
                self.takes_turn(way, at, &acl, begins);
            }
            L2cap::Completed { packets } => {
                self.halves[way].completed((at, place), packets, &self.link);
                self.halves[1 - way].other_went = Some(at);
                for question in self.turns.asked[way].iter_mut().flatten().filter(|question| question.ahead > 0) {
                    question.since = at;
                    question.ahead = question.ahead.saturating_sub(packets.into());
                }
            }
            L2cap::Att(att) => match self.turns.is_under_way(way) && att.kind.is_answer() {
                true => self.answer[way] = Some(att),
                false => self.att(at, way, &att),
            },
            L2cap::Characteristic(named) => self.gatt.get_or_insert_default().named(named),
            L2cap::Credits { count } => self.halves[way].granted(at, count),
            L2cap::Buffers { in_use, of } => self.halves[0].buffers(in_use, of),
            L2cap::Hidden { of_link, of_any } => self.halves[0].hidden(of_link, of_any),
            L2cap::Link(link) => self.link = link,
            L2cap::Lost => {
                self.turns = Turns::default();
                self.halves.iter_mut().for_each(|half| half.loses_packets());
                self.gatt.iter_mut().for_each(|gatt| gatt.lost());
            }
            L2cap::Classic => self.is_classic = true,
            L2cap::Stopped { is_stopped } => self.halves[way].is_free_but(is_stopped),
            L2cap::NotCounted => self.halves.iter_mut().for_each(Half::loses_credits),
            L2cap::Media { sequence, timestamp } => {
                self.halves[way].media.packet((at, place), sequence, timestamp);
            }
            L2cap::Stream { hz } => self.halves.iter_mut().for_each(|half| half.media.starts(hz)),
            L2cap::Ended { tells_completions } => self.ended(at, tells_completions),
        }
    }

    fn att(&mut self, at: u64, way: usize, att: &Att) {
        let bearer = (&self.link, self.mtu());
        self.gatt.get_or_insert_default().att(at, way, att, bearer);
    }

    /// Both ends state what they take, and the lesser of these holds; 0: not seen.
    fn mtu(&self) -> u16 {
        self.halves.iter().map(|half| half.limits.mtu).min().unwrap_or(0)
    }

    /// What a packet ends of what takes turns.
    fn takes_turn(&mut self, way: usize, at: u64, acl: &Acl, begins: bool) {
        if begins {
            self.answer[way] = None;
        }
        let Some(turn) = self.turns.done_by(way, acl, begins) else { return };
        let kind = transaction(turn);
        match turn {
            Turn::NotKnown => self.turns = Turns::default(),
            Turn::Free if begins => self.turns.is_last_answer[way] = false,
            Turn::Free => {}
            Turn::Asks | Turn::Indicates => {
                let ahead = self.halves[way].in_controller() as u64;
                self.turns.asked[way][kind] = Some(Question { since: at, ahead, is_behind_hidden: false });
                self.turns.is_last_answer[way] = false;
            }
            Turn::Answers | Turn::Confirms => {
                self.turns.is_last_answer[way] = true;
                if let Some(question) = self.turns.asked[1 - way][kind].take() {
                    // Before that, it may not have been through.
                    if !self.halves[1 - way].hides() {
                        self.halves[1 - way].tally.answers.add(at.saturating_sub(question.since));
                    }
                    self.halves[1 - way].answered();
                } else {
                    // The log lacks the question, for whose answer the other end may have waited.
                    self.halves[1 - way].lacks_an_answer();
                }
                if let Some(att) = self.answer[way].take() {
                    self.att(at, way, &att);
                }
            }
        }
    }

    /// The program of this end did something at its socket.
    pub(crate) fn program(&mut self, at: u64, change: impl FnOnce(&mut Half, &mut program::Program)) {
        let at = at.max(self.last);
        self.last = at;
        for way in [0, 1] {
            let asked = self.asked_of(way);
            self.halves[way].advance(at, 0, self.turns.is_peers(way), asked, &self.link);
        }
        let mut program = self.halves[0].program.take().unwrap_or_default();
        change(&mut self.halves[0], &mut program);
        self.halves[0].program = Some(program);
    }

    /// The question that a direction has to answer; through once it was handed over, where the log never tells that.
    fn asked_of(&self, way: usize) -> Option<Question> {
        let question = self.turns.asked_of(way)?;
        let is_told = self.halves[1 - way].tally.completions.count() > 0;
        let ahead = if is_told { question.ahead } else { 0 };
        Some(Question { ahead, is_behind_hidden: self.halves[1 - way].hides(), ..question })
    }

    /// What is still waited for has been waited for until now.
    fn ended(&mut self, at: u64, tells_completions: bool) {
        let turns = self.turns;
        for (way, half) in self.halves.iter_mut().enumerate() {
            if half.lacks_completions(tells_completions) {
                half.never_told();
                continue;
            }
            let longest = turns.asked[way].iter().flatten().map(|question| question.since).min();
            half.tally.unanswered = longest.map(|since| at.saturating_sub(since)).or(half.tally.unanswered);
            half.ended(at, turns.is_asked(0) || turns.is_asked(1));
        }
    }

    /// Bytes before an SDU in its first PDU.
    const fn sdu_header(&self) -> usize {
        match self.flow.key {
            FlowKey::L2cap(ChannelKey { channel: Kind::CreditBased(_), .. }) => SDU_LENGTH_BYTES,
            _ => 0,
        }
    }

    /// What the link was like while a direction used it.
    fn link(&self, way: Way) -> RadioLink {
        self.half(way).uses.main().map_or(self.link, |its| its.link)
    }

    /// The half of a direction.
    pub(crate) fn half(&self, way: Way) -> &Half {
        &self.halves[way.index()]
    }

    /// The breakdowns of both directions.
    pub(crate) fn breakdowns(&mut self) -> [&mut Breakdown; 2] {
        self.halves.each_mut().map(|half| &mut half.breakdown)
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.halves.iter_mut().for_each(Half::finish);
    }
}
