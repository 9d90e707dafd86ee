//! One direction of a channel: at each moment one holder.
//!
//! What the log's host sends is seen from its hand-over to the controller until the controller tells that it is
//! through (Number Of Completed Packets); what it receives, when it arrives. The air time of a packet is
//! computed, and lies just before that; what else passed is booked to who could have prevented it:
//!
//! 1. Nothing in the controller: *credits* when there are none; the *peer's turn* while a question waits for its
//!    answer; else the *sending program*.
//! 2. Packets in the controller, and it had run dry when the last event closed: the event would have taken more.
//!    *Credits* when there are none left, the *controller's buffers* when they are full, else the *connection
//!    interval*.
//! 3. It had not run dry: the *connection interval* until the next event, *controller and air* beyond.

mod booking;

use std::collections::VecDeque;

use taut_event::{Acl, Channel as Kind, Holder, RadioLink};

use super::media::Media;
use super::model;
use super::program::Program;
use super::tally::Tally;
use super::turns::Question;
use super::uses::Uses;
use crate::engine::{Breakdown, Episode};

/// So many stretches wait at most for the completion that tells what they were.
const MOST_PENDING: usize = 64;
/// So many packets in the controller when an event closed were more than it could send: the acknowledgement of
/// the last one may come only with the next event.
pub(super) const LEFT_OVER: usize = 2;
/// So many packets in the controller are remembered.
const MOST_IN_CONTROLLER: usize = 4096;

/// A link on which nothing comes for so long is over: the largest supervision timeout of BR/EDR (Core Specification,
/// Vol 4, Part E, section 6.21); that of LE is 32 s at most (section 7.8.12).
const LONGEST_SUPERVISION_NS: u64 = 40_900_000_000;

/// No controller takes more packets, where its buffers are not known.
const MOST_BUFFERS: usize = 128;

/// What the receiver of a direction said of the channel; 0: not seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) mtu: u16,
    pub(crate) mps: u16,
    pub(crate) credits: u16,
}

/// A stretch of which only the next completion tells how much was air time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) holder: Holder,
    is_queued: bool,
    /// Whether the program waited for room meanwhile.
    is_awaited: bool,
    /// Without credits and with nothing in the kernel: a write that begins before credits come tells that it was the
    /// program's.
    pub(super) is_tentative: bool,
    /// Whether nobody is known for it as the controller may have had packets that the log lacks.
    is_hidden: bool,
    pub(super) part: Episode,
    /// What the link was like.
    link: RadioLink,
}

#[derive(Debug)]
pub(crate) struct Half {
    is_sent_here: bool,
    needs_credits: bool,
    /// Whether the link has no connection events.
    pub(super) is_classic: bool,
    /// Where no credits are used: whether the receiver takes nothing for now; and whether it may say so at all.
    pub(super) is_stopped: bool,
    may_be_stopped: bool,
    pub(super) media: Media,
    pub(crate) breakdown: Breakdown,
    pub(crate) tally: Tally,
    pub(crate) limits: Limits,
    pub(super) uses: Uses,
    /// PDUs that may be sent now; `None`: not known, or none are needed.
    pub(super) credits: Option<i64>,
    /// Since when there are none.
    pub(super) dry_since: Option<u64>,
    /// Whether credits were given since there were none, and nothing has come since.
    pub(super) is_freshly_granted: bool,
    /// When they were.
    granted_at: u64,
    /// Bytes since an SDU that was shorter than the channel takes.
    block: u64,
    /// Lengths of the packets in the controller, with when they were handed over.
    pub(super) in_controller: VecDeque<(u16, u64)>,
    bytes_in_controller: u64,
    /// Packets that were in it after the last completion.
    pub(super) left_over: usize,
    pub(super) is_full: bool,
    /// When a buffer became free while all were taken, until it is used.
    freed_at: Option<u64>,
    pub(crate) buffers: u16,
    /// Packets that went lately.
    gone: VecDeque<u64>,
    /// When one of the other direction last went.
    pub(super) other_went: Option<u64>,
    sdu: u64,
    /// Whether PDUs were lost, and no SDU was seen to end since.
    is_within_unknown_sdu: bool,
    /// When the newest packet was handed over, or arrived.
    newest: u64,
    /// Where its program is seen at its socket.
    pub(crate) program: Option<Box<Program>>,
    /// Most packets in the controller at once.
    pub(super) most_in_controller: usize,
    /// Whether the controller may have packets that the log lacks: of this link, and of any that takes its buffers.
    hidden: (bool, bool),
    /// Whether packets of the log were lost since one was seen.
    pub(super) is_adrift: bool,
    since: Option<(u64, u64)>,
    pub(crate) span_start: Option<u64>,
    pub(super) pending: VecDeque<Pending>,
}

impl Half {
    pub(super) fn new(is_sent_here: bool, kind: Kind) -> Self {
        Self {
            is_sent_here,
            needs_credits: !matches!(kind, Kind::Att | Kind::Basic(_) | Kind::Media(_)),
            is_classic: kind.is_classic(),
            is_stopped: false,
            may_be_stopped: false,
            media: Media::default(),
            breakdown: Breakdown::default(),
            tally: Tally::default(),
            limits: Limits::default(),
            uses: Uses::default(),
            credits: None,
            dry_since: None,
            is_freshly_granted: false,
            granted_at: 0,
            block: 0,
            in_controller: VecDeque::new(),
            bytes_in_controller: 0,
            left_over: 0,
            is_full: false,
            freed_at: None,
            buffers: 0,
            gone: VecDeque::new(),
            other_went: None,
            sdu: 0,
            is_within_unknown_sdu: false,
            newest: 0,
            program: None,
            most_in_controller: 0,
            hidden: (false, false),
            is_adrift: false,
            since: None,
            span_start: None,
            pending: VecDeque::new(),
        }
    }

    pub(super) fn in_controller(&self) -> usize {
        self.in_controller.len()
    }

    /// Whether credits limit it, and are known.
    pub(super) const fn knows_credits(&self) -> bool {
        self.credits.is_some()
    }

    /// Whether credits limit it, and are not known.
    pub(super) const fn lacks_credits(&self) -> bool {
        self.needs_credits && self.credits.is_none()
    }

    /// Whether the log is that of this direction's sender.
    pub(super) const fn is_sent_here(&self) -> bool {
        self.is_sent_here
    }

    /// Whether the controller's buffers are all taken, by whatever channel.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes who held until now.
    pub(super) fn advance(
        &mut self,
        at: u64,
        place: u64,
        is_peers: bool,
        to_answer: Option<Question>,
        link: &RadioLink,
    ) {
        let Some((from, from_place)) = self.since else { return };
        if at <= from {
            return;
        }
        let is_awaited = self.program.as_ref().is_some_and(|program| program.is_waiting());
        let is_tentative = self.has_more() == Some(false) && self.in_controller.is_empty() && self.is_dry();
        let gap = at - self.gone.back().map_or(from, |&last| last.min(from));
        let (holder, is_queued) = self.holder(is_peers, to_answer, (at, gap), link);
        self.since = Some((at, place));
        let part = Episode { from, to: at, places: (from_place, place) };
        let is_hidden = holder == Holder::NotKnown && self.hides_any();
        let longest = self.tally.silence.map_or(LONGEST_SUPERVISION_NS, |longest| longest.length());
        if self.is_sent_here && !self.in_controller.is_empty() && part.length() > longest {
            self.tally.silence = Some(part);
        }
        if let Some(last) = self.pending.back_mut()
            && (last.holder, last.is_queued, last.link) == (holder, is_queued, *link)
            && (last.is_awaited, last.is_tentative, last.is_hidden) == (is_awaited, is_tentative, is_hidden)
        {
            (last.part.to, last.part.places.1) = (at, place);
            return;
        }
        if self.pending.len() == MOST_PENDING
            && let Some(mut oldest) = self.pending.pop_front()
        {
            if self.is_sent_here && self.tally.completions.count() == 0 {
                oldest.holder = Holder::NotKnown;
            }
            self.book(oldest);
        }
        self.pending.push_back(Pending { holder, is_queued, is_awaited, is_tentative, is_hidden, part, link: *link });
    }

    pub(super) fn opened(&mut self, asked: Option<(u64, u64)>, (at, place): (u64, u64), limits: Limits) {
        self.limits = limits;
        self.credits = self.needs_credits.then_some(limits.credits.into());
        self.tally.most_credits = limits.credits.into();
        if let (Some((from, from_place)), None) = (asked, self.since) {
            self.span_start = Some(from);
            self.breakdown.book(Holder::Handshake, Episode { from, to: at, places: (from_place, place) });
        }
        self.span_start.get_or_insert(at);
        self.since = Some((at, place));
    }

    pub(super) fn granted(&mut self, at: u64, count: u16) {
        self.tally.grants.add(count.into());
        self.learns_credits(at);
        let Some(credits) = &mut self.credits else { return };
        *credits = credits.saturating_add(count.into());
        self.tally.most_credits = self.tally.most_credits.max(u64::try_from(*credits).unwrap_or(0));
        if *credits > 0
            && let Some(since) = self.dry_since.take()
        {
            self.pending.iter_mut().for_each(|pending| pending.is_tentative = false);
            self.tally.credit_waits.add(at.saturating_sub(since));
            // While the last ones were still under way, the receiver could give none for them.
            let through = self.gone.back().map_or(since, |&last| last.max(since));
            let is_under_way = !self.in_controller.is_empty();
            self.tally.grant_delays.add(if is_under_way { 0 } else { at.saturating_sub(through) });
            (self.is_freshly_granted, self.granted_at) = (true, at);
        }
    }

    pub(super) fn buffers(&mut self, in_use: u16, of: u16) {
        self.is_full = in_use >= of;
        self.buffers = of;
    }

    /// A packet was handed over, or arrived.
    pub(super) fn packet(&mut self, (at, place): (u64, u64), acl: &Acl, bytes: u64, link: &RadioLink) {
        self.notes_rhythm(at, acl, bytes, link);
        let tally = &mut self.tally;
        if tally.packets == 0 {
            tally.first_place = place;
        }
        tally.last_place = place;
        tally.packets += 1;
        tally.bytes += bytes;
        tally.pdus += u64::from(acl.begins_pdu);
        tally.largest_packet = tally.largest_packet.max(acl.length);
        // Behind a loss the bytes are of one SDU or of many.
        self.sdu = if self.is_within_unknown_sdu && acl.begins_pdu { bytes } else { self.sdu + bytes };
        if acl.ends_sdu {
            tally.sdus += 1;
            tally.sdu_bytes.add(std::mem::take(&mut self.sdu));
            if std::mem::take(&mut self.is_within_unknown_sdu) && !acl.begins_pdu {
                // What shows that SDUs are known again is in one PDU, which was counted as it began.
                tally.pdus_of_unknown_sdus = tally.pdus_of_unknown_sdus.saturating_sub(1);
            }
        }
        tally.pdus_of_unknown_sdus += u64::from(acl.begins_pdu && self.is_within_unknown_sdu);
        self.span_start.get_or_insert(at);
        self.since.get_or_insert((at, place));
        (self.newest, self.is_adrift) = (at, false);
        if acl.begins_pdu {
            self.takes_credit((at, place));
        }
        self.is_freshly_granted = false;
        if !self.is_sent_here {
            self.notes_mic(at, std::iter::once(acl.length), link);
            let air_ns = self.air_ns(acl.length, link);
            self.went(at, air_ns, link);
            self.settle(air_ns);
            return;
        }
        if let Some(program) = &mut self.program {
            program.handed_over(bytes);
        }
        if self.in_controller.is_empty() {
            self.settle(0);
        }
        // A host keeps within its controller's buffers: completions are missing.
        if self.buffers > 0 && self.in_controller.len() >= usize::from(self.buffers) {
            self.lost();
            self.is_adrift = false;
        }
        if self.in_controller.len() < MOST_IN_CONTROLLER {
            self.in_controller.push_back((acl.length, at));
            self.bytes_in_controller += u64::from(acl.length);
            self.most_in_controller = self.most_in_controller.max(self.in_controller.len());
            self.tally.peak_bytes = self.tally.peak_bytes.max(self.bytes_in_controller);
        }
    }

    /// What tells of the programs and of the way between host and controller.
    fn notes_rhythm(&mut self, at: u64, acl: &Acl, bytes: u64, link: &RadioLink) {
        let since_last = at.saturating_sub(self.newest);
        if self.is_sent_here {
            // Before the first SDU of a block the program may have made it.
            if let Some(freed) = self.freed_at.take()
                && !self.is_freshly_granted
            {
                self.tally.refills.add(at.saturating_sub(freed));
            }
            if self.is_freshly_granted {
                let wakes = match (self.sdu, self.block) {
                    (1.., _) => &mut self.tally.resumes,
                    (_, 1..) => &mut self.tally.wakes,
                    _ => &mut self.tally.block_wakes,
                };
                wakes.add(at.saturating_sub(self.granted_at));
            }
        } else if self.tally.packets > 0 {
            let has_credits = self.credits.is_some_and(|credits| credits > 0) && !self.is_freshly_granted;
            let quarter = link.interval_ns / 4;
            let is_later = link.interval_ns > 0 && since_last > link.interval_ns - quarter;
            // The sender had more: an SDU was under way, or the next came in the very next event after several. A
            // program may write something once in an interval.
            let had_more = self.sdu > 0 || self.gone.len() > 1 && since_last < link.interval_ns + quarter;
            self.tally.cut_short += u64::from(has_credits && is_later && had_more);
            self.notes_way(acl.length, since_last);
        }
        self.block += bytes;
        if acl.ends_sdu && self.sdu + bytes < u64::from(self.limits.mtu) {
            self.tally.blocks.add(std::mem::take(&mut self.block));
        }
    }

    /// The longest packets tell most of the way's time for a byte.
    fn notes_way(&mut self, length: u16, took: u64) {
        if took > 0
            && self.tally.least_way.is_none_or(|(longest, least)| length > longest || length == longest && took < least)
        {
            self.tally.least_way = Some((length, took));
        }
    }

    fn takes_credit(&mut self, (at, place): (u64, u64)) {
        match &mut self.credits {
            Some(credits @ 1..) => {
                *credits -= 1;
                if *credits == 0 {
                    self.dry_since = Some(at);
                }
            }
            // No host sends without a credit: some were given that the log lacks, so nobody waited for them.
            Some(_) => {
                self.tally.overdrawn = Some(place);
                self.loses_credits();
            }
            // A host that was told to stop does: the log lacks that it may go on.
            None if self.is_stopped && self.is_sent_here => {
                self.is_stopped = false;
                self.give(Holder::RfcommCredits, Holder::NotKnown);
            }
            None => {}
        }
    }

    /// How many credits there are is not known from now on.
    pub(super) fn loses_credits(&mut self) {
        (self.needs_credits, self.credits, self.dry_since) = (true, None, None);
        (self.is_stopped, self.may_be_stopped, self.is_freshly_granted) = (false, false, false);
        self.give(Holder::Credits, Holder::NotKnown);
        self.give(Holder::RfcommCredits, Holder::NotKnown);
    }

    /// No credits are used, and the receiver may take nothing for now.
    pub(super) const fn is_free_but(&mut self, is_stopped: bool) {
        (self.needs_credits, self.credits, self.dry_since) = (false, None, None);
        (self.is_stopped, self.may_be_stopped) = (is_stopped, true);
    }

    /// Whether nothing may be sent for want of credits.
    pub(super) fn is_dry(&self) -> bool {
        self.is_stopped || self.credits.is_some_and(|credits| credits <= 0)
    }

    /// What one holder has of the stretches that are pending is another's.
    fn give(&mut self, from: Holder, to: Holder) {
        self.pending.iter_mut().filter(|pending| pending.holder == from).for_each(|pending| pending.holder = to);
    }

    /// What goes now could have gone before the peer's turn was over, and is no answer that was waited for.
    pub(super) fn was_free(&mut self) {
        if !self.is_sent_here {
            self.give(Holder::SendingProgram, Holder::NotKnown);
        }
        self.give(Holder::PeerTurn, if self.is_sent_here { Holder::SendingProgram } else { Holder::NotKnown });
    }

    /// A question was answered, and the log lacks that: since when its answer was there is not known.
    pub(super) fn lacks_an_answer(&mut self) {
        self.tally.lacks_answers = true;
        self.give(Holder::PeerTurn, Holder::NotKnown);
        self.give(Holder::SendingProgram, Holder::NotKnown);
    }

    /// Whose turn it was is not known.
    pub(super) fn loses_turns(&mut self) {
        self.tally.is_turnless = true;
        self.give(Holder::PeerTurn, Holder::NotKnown);
        self.give(Holder::SendingProgram, Holder::NotKnown);
    }

    /// Whether the controller may have packets of this link that the log lacks.
    pub(super) const fn hides(&self) -> bool {
        self.is_sent_here && self.hidden.0
    }

    /// Whether it may have such packets of any link that takes the same buffers.
    pub(super) const fn hides_any(&self) -> bool {
        self.is_sent_here && self.hidden.1
    }

    pub(super) const fn hidden(&mut self, of_link: bool, of_any: bool) {
        self.hidden = (of_link, of_any);
    }

    /// Packets of the log are missing; on a channel with credits it is not known where SDUs begin, either.
    pub(super) fn loses_packets(&mut self) {
        if self.may_be_stopped {
            // That it has to stop, or may go on, is perhaps among them; what goes may have been handed over before.
            self.loses_credits();
        }
        self.lost();
        self.is_within_unknown_sdu = self.needs_credits;
        self.hidden = (true, true);
        self.media.lost();
    }

    /// What the controller has and which credits there are is not known.
    pub(super) fn lost(&mut self) {
        self.tally.is_lossy = true;
        self.pending.iter_mut().for_each(|pending| pending.holder = Holder::NotKnown);
        self.settle(0);
        self.in_controller.clear();
        (self.bytes_in_controller, self.left_over, self.is_full, self.freed_at) = (0, 0, false, None);
        (self.credits, self.dry_since, self.is_freshly_granted) = (None, None, false);
        self.is_adrift = true;
        if let Some(program) = &mut self.program {
            program.has_queued(None);
        }
    }

    /// Whether the log lacks what tells when packets were through: it ever did of the adapter, or not.
    pub(super) fn lacks_completions(&self, tells_completions: bool) -> bool {
        let is_many = self.tally.is_lossy || self.in_controller.len() > MOST_BUFFERS;
        self.is_sent_here && (!tells_completions || self.tally.completions.count() == 0 && is_many)
    }

    /// The log does not tell when packets were through: until the last one nobody is known to have held them.
    pub(super) fn never_told(&mut self) {
        self.tally.is_blind = self.tally.packets > 0;
        for Pending { holder, is_queued, part, .. } in &mut self.pending {
            (*holder, *is_queued) = (Holder::NotKnown, false);
            part.to = part.to.min(self.newest).max(part.from);
        }
        self.settle(0);
    }

    /// The controller is through with packets.
    pub(super) fn completed(&mut self, (at, place): (u64, u64), packets: u16, link: &RadioLink) {
        let mut air_ns = 0;
        let mut any = false;
        let count = usize::from(packets).min(self.in_controller.len());
        if count > 0 {
            self.tally.reported.add(count as u64);
            let is_close = self.gone.back().is_some_and(|&last| at.saturating_sub(last) < link.interval_ns / 2);
            self.tally.close_reports += u64::from(is_close);
        }
        let lengths: Vec<u16> = self.in_controller.iter().take(count).map(|(length, _)| *length).collect();
        self.notes_mic(at, lengths.into_iter(), link);
        for n in 0..packets {
            let Some((length, handed_over)) = self.in_controller.pop_front() else { break };
            any = true;
            self.bytes_in_controller -= u64::from(length);
            self.tally.completed(handed_over, at);
            if n == 0 && count == 1 {
                self.notes_way(length, at.saturating_sub(handed_over));
            }
            let own_ns = self.air_ns(length, link);
            air_ns += own_ns;
            self.went(at, own_ns, link);
        }
        if any {
            if self.is_full && self.credits.is_none_or(|credits| credits > 0) {
                self.freed_at = Some(at);
            }
            self.tally.last_place = self.tally.last_place.max(place);
            self.settle(air_ns);
            self.left_over = self.in_controller.len();
        }
    }

    /// Time of a packet on the air, where there is any.
    fn air_ns(&self, length: u16, link: &RadioLink) -> u64 {
        if self.is_classic {
            return 0;
        }
        let is_encrypted = link.is_encrypted || self.tally.mic.is_seen();
        model::air_ns(length, &RadioLink { is_encrypted, ..*link }, usize::from(!self.is_sent_here))
    }

    /// What the time since the last packet tells of MICs.
    fn notes_mic(&mut self, at: u64, lengths: impl Iterator<Item = u16> + Clone, link: &RadioLink) {
        if let Some(&last) = self.gone.back().filter(|_| !self.is_classic && !link.is_encrypted) {
            self.tally.mic.saw(at.saturating_sub(last), lengths, link, usize::from(!self.is_sent_here));
        }
    }

    /// Counts how many go within one interval.
    fn went(&mut self, at: u64, air_ns: u64, link: &RadioLink) {
        if link.interval_ns == 0 {
            return;
        }
        self.tally.rhythm.went(at, link.interval_ns, air_ns);
        if self.other_went.is_some_and(|then| at.saturating_sub(then) < link.interval_ns) {
            self.tally.met_ns = self.tally.met_ns.saturating_add(air_ns);
        }
        // A little less: what ends one event and what ends the next are not taken for one.
        let window = link.interval_ns - link.interval_ns / 10;
        while self.gone.front().is_some_and(|&then| then.saturating_add(window) <= at)
            || self.gone.len() >= MOST_IN_CONTROLLER
        {
            self.gone.pop_front();
        }
        self.gone.push_back(at);
        self.uses.went(link, self.gone.len() as u64);
    }

    /// The receiver listens once in this time at least: a peripheral may skip as many events as its latency says.
    pub(super) fn listens_ns(&self, link: &RadioLink) -> u64 {
        let is_to_peripheral = link.is_central == Some(self.is_sent_here);
        let skips = if is_to_peripheral { u64::from(link.latency) } else { 0 };
        link.interval_ns.saturating_mul(1 + skips)
    }

    /// Whether an SDU is under way, so that its sender has more to send.
    pub(super) const fn is_amid_sdu(&self) -> bool {
        self.sdu > 0
    }

    /// Whether the next PDU continues the SDU that is under way.
    pub(super) const fn goes_on(&self) -> bool {
        self.limits.mps > 0 && self.sdu > 0
    }

    pub(super) fn finish(&mut self) {
        self.breakdown.close();
    }
}
