//! What the figures of a direction come to, with the link's model.

use taut_air::Limit;
use taut_event::{Direction as Way, Holder, RadioLink};

use super::gains::Gains;
use super::{Channel, Half, model};
use crate::engine::{Cost, Evidence};

/// What the figures of a direction come to.
pub(super) struct Facts<'a> {
    pub(super) channel: &'a Channel,
    pub(super) way: Way,
    pub(super) half: &'a Half,
    pub(super) link: RadioLink,
    /// Most packets that went within one interval.
    pub(super) per_interval: u64,
    pub(super) whole_ns: u64,
    pub(super) limit: Limit,
    /// What the other direction's data adds to an exchange on average, in nanoseconds.
    answers_ns: u64,
    /// Bits of the program.
    pub(super) bits: f64,
    /// What the remedies give, where scenarios show what the log shows.
    pub(super) gains: Option<Gains>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(channel: &'a Channel, way: Way) -> Self {
        let half = channel.half(way);
        // Where no SDU is known as a whole, each PDU counts as one.
        let in_pdu = half.tally.bytes / half.tally.pdus.max(1);
        let sdu = half.tally.sdu_bytes.median().unwrap_or(in_pdu).max(1);
        let mps = if half.limits.mps > 0 { half.limits.mps } else { half.tally.largest_packet.saturating_sub(4) };
        let mut link = channel.link(way);
        link.is_encrypted |= half.tally.mic.is_seen();
        let per_interval = half.uses.main().map_or(0, |its| its.per_interval);
        let limit = model::limit(&link, way.index(), (sdu, channel.sdu_header()), mps);
        let answers_ns = answers_ns(channel, way);
        let (whole_ns, bits) = (half.breakdown.total_ns(), half.tally.bytes as f64 * 8.0);
        Self { channel, way, half, link, per_interval, whole_ns, limit, answers_ns, bits, gains: None }
    }

    pub(super) fn ns(&self, holder: Holder) -> f64 {
        self.half.breakdown.ns(holder) as f64
    }

    pub(super) const fn interval(&self) -> u64 {
        self.link.interval_ns
    }

    /// Whether interval, PHY and lengths are known for nearly all of the time.
    pub(super) fn is_link_known(&self) -> bool {
        let is_known = |link: &RadioLink| link.from_start && link.interval_ns > 0;
        is_known(&self.link) && self.half.uses.all().all(|its| is_known(&its.link))
    }

    /// Packets that were through.
    pub(super) fn through(&self) -> u64 {
        if self.half.is_sent_here() { self.half.tally.completions.count() } else { self.half.tally.packets }
    }

    /// Bits a second that the link carried since the channel opened.
    pub(super) fn rate(&self) -> f64 {
        let part = self.through() as f64 / self.half.tally.packets.max(1) as f64;
        self.bits * part * 1e9 / (self.whole_ns as f64 - self.ns(Holder::Handshake)).max(1.0)
    }

    /// Bits a second that the link would carry, with the other direction's data beside.
    pub(super) fn carries(&self) -> f64 {
        self.carried_by(&self.limit, self.interval())
    }

    /// The same of another link.
    pub(super) fn carried_by(&self, limit: &Limit, interval_ns: u64) -> f64 {
        let alone = limit.cycle(limit.length) as f64;
        let share = alone / (alone + self.answers_ns as f64);
        model::carries(limit, (interval_ns as f64 * share) as u64) * share
    }

    /// Whether the other direction's data takes much of the air, too.
    pub(super) fn is_both_ways(&self) -> bool {
        4 * self.answers_ns > self.limit.cycle(self.limit.length)
    }

    /// So many of the longest exchanges an interval has room for.
    pub(super) fn fits(&self) -> u64 {
        self.interval() / (self.limit.cycle(self.limit.length) + self.answers_ns).max(1)
    }

    /// Time that the data takes at so many bits a second.
    pub(super) fn takes(&self, bps: f64) -> f64 {
        self.bits * 1e9 / bps.max(1.0)
    }

    /// Time in which the link had to do, with waits for events that could not take all there was.
    pub(super) fn busy(&self) -> f64 {
        (self.ns(Holder::Air) + self.half.tally.queued_ns as f64).min(self.whole_ns as f64)
    }

    /// Part of the time in which the link had to do.
    pub(super) fn busy_share(&self) -> f64 {
        self.busy() / (self.whole_ns as f64).max(1.0)
    }

    /// Time that is left over when a holder lets go and the link then is as busy as it was seen to be at best;
    /// `least` is what other limits ask for. Of a link that is not known nobody can tell what it would carry: all.
    pub(super) fn saved_of(&self, held: f64, least: f64) -> f64 {
        if !self.is_link_known() {
            return held;
        }
        let whole = self.whole_ns as f64;
        let least = self.takes(self.carries()).max(self.busy()).max(least);
        let not_busy = (whole - self.busy()).max(1.0);
        (whole - least).max(0.0) * (held / not_busy).min(1.0)
    }

    /// Least time with so many credits: what they allow goes in one event, and the next ones come in another.
    pub(super) fn by_credits(&self) -> f64 {
        match self.half.tally.most_credits {
            0 => 0.0,
            most => self.half.tally.pdus as f64 / most as f64 * 2.0 * self.interval() as f64 - self.ns(Holder::Air),
        }
    }

    /// Least time when the controller carries no more in an interval than it did at best, or than its buffers hold.
    pub(super) fn by_buffers(&self) -> f64 {
        let tally = &self.half.tally;
        // Where packets were left over an event was seen at its most; else the buffers may be filled again while it
        // lasts.
        let is_seen = tally.queued_ns as f64 > 0.1 * self.whole_ns as f64;
        let most = match self.half.buffers {
            _ if is_seen => self.per_interval,
            0 => return 0.0,
            of => self.per_interval.max(2 * u64::from(of)),
        };
        tally.packets as f64 / most.max(1) as f64 * self.interval() as f64
    }

    /// Whether events ended although their sender had more for them and credits, in the log of the receiver: packets
    /// came an event later each, fewer in one than have room.
    pub(super) fn is_cut_short(&self) -> bool {
        let is_cut = 4 * self.half.tally.cut_short > self.half.tally.packets;
        !self.half.is_sent_here() && is_cut && self.per_interval < self.fits()
    }

    /// Time in which packets waited in the controller, beyond what the interval takes.
    pub(super) fn beyond_model(&self) -> f64 {
        (self.busy() - self.takes(self.carries())).max(0.0)
    }

    /// Time saved by another link, where this one had to do.
    pub(super) fn saved_by(&self, other: Limit, interval: u64) -> f64 {
        let now = self.takes(self.carries());
        (now - self.takes(self.carried_by(&other, interval))).max(0.0) * self.busy_share()
    }

    pub(super) fn cost(&self, holders: &[Holder]) -> Cost {
        self.half.breakdown.cost(holders, self.whole_ns)
    }

    /// The longest stretch of these holders, if they had any time.
    pub(super) fn longest(&self, holders: &[Holder]) -> Option<Evidence> {
        self.half.breakdown.longest(holders).map(|_| self.half.breakdown.longest_seen(holders))
    }

    /// Whether a cause's remedy gives so much where it is run, and the log has time that it may have held: of its
    /// holders, or of none that is known.
    pub(super) fn is_gain(&self, cause: &str, holders: &[Holder], least: f64) -> bool {
        let held: f64 = holders.iter().chain([&Holder::NotKnown]).map(|&holder| self.ns(holder)).sum();
        let is_held = held >= least * self.whole_ns as f64;
        self.gains.as_ref().is_some_and(|gains| (is_held || gains.is_near()) && gains.saved(cause) >= least)
    }

    /// Whether a scenario shows nearly what the log shows.
    pub(super) fn is_near(&self) -> bool {
        self.gains.as_ref().is_some_and(Gains::is_near)
    }
}

/// What the data of the other direction takes on the air in an exchange, beyond an empty PDU, where both have data at
/// once.
fn answers_ns(channel: &Channel, way: Way) -> u64 {
    let exchanges = |way: Way| {
        let (tally, limit) = (&channel.half(way).tally, model::limit(&channel.link(way), way.index(), (1, 0), 0));
        ((tally.air_ns / limit.cycle(limit.length)).max(tally.packets), limit)
    };
    let ((own, _), (others, limit)) = (exchanges(way), exchanges(way.reverse()));
    let tally = &channel.half(way.reverse()).tally;
    let empty_ns = others.saturating_mul(limit.cycle(0));
    let beyond = tally.air_ns.saturating_sub(empty_ns) as f64 / tally.air_ns.max(1) as f64;
    (tally.met_ns as f64 * beyond) as u64 / own.max(others).max(1)
}
