//! The engine: takes events of any number of flows, one by one, and says in the end who held the
//! data of each direction, for how long, and what to change.
//!
//! It holds no events. Of a flow that is closed only the report stays, and of all reports only
//! the worst ones. No I/O, no clock, no thread.

mod breakdown;
mod clock;
mod detect;
#[cfg(test)]
pub(crate) mod drawn;
mod episode;
mod explanation;
mod gathering;
mod link_model;
mod over_all;
mod parts;
mod picture;
mod report;
mod times;
mod trail;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use taut_event::{Closed, Event, Flow, FlowId, FlowKey, Holder, Sink};
use taut_time::Instant;

pub(crate) use breakdown::Breakdown;
pub use detect::causes;
pub(crate) use detect::is_enough;
pub(crate) use episode::Episode;
pub use explanation::{
    AirFacts, CauseIn, Certainty, ChannelFacts, Cost, DatagramFacts, Direction, DnsFacts, DnsServer, Evidence,
    Explanation, Found, GattFacts, GattHandle, Held, QuicFacts, QuicLogFacts, Stall, StreamFacts, Unanswered, Verdict,
    VerdictOn,
};

pub use link_model::{LinkModel, ModelledLink, ModelledRemedy};
pub use over_all::{CauseTime, HostPair, LongStall, MostHeld, OverAll};
pub use picture::{Picture, Span};
pub(crate) use report::held;
pub(crate) use times::Timed;
pub use times::{Latest, Percentile, Rank, Times, TimesOf, TimesOverAll};
pub(crate) use trail::Allowance;

use self::clock::Clock;
use self::gathering::Gathering;
use self::parts::{New, Part, Parts};
use crate::channel::{self, Channel};
use crate::dns::{self, Resolver};
use crate::quic::{self, Logged};
use crate::sniffer::{self, Sniffed};
use crate::tcp::Connection;
use crate::udp::{self, Datagrams};

/// Takes events, gives an [`Explanation`].
#[derive(Debug)]
pub struct Engine {
    connections: Vec<Option<Tracker>>,
    /// What was counted of each before.
    counted: Vec<Part>,
    parts: Parts,
    kept: usize,
    clock: Clock,
    start: Option<u64>,
    end: u64,
    worst: Vec<(u64, Direction)>,
    totals: BTreeMap<Holder, Total>,
    causes: Causes,
    over_all: Gathering,
    counts: Counts,
    /// Where pictures are wanted.
    pictures: Option<Allowance>,
    /// Whether the simulated links are told.
    tells_models: bool,
}

/// What follows a flow.
#[derive(Debug)]
enum Tracker {
    Connection(Box<Connection>),
    Channel(Box<Channel>),
    Datagrams(Box<Datagrams>),
    Resolver(Box<Resolver>),
    Sniffed(Box<Sniffed>),
    Logged(Box<Logged>),
}

/// The links of so many directions are modelled at most: each takes tens of runs.
const MOST_MODELLED: u64 = 16;

impl Tracker {
    fn keep_trails(&mut self, limit: usize) {
        let keep = |breakdown: &mut Breakdown| breakdown.keep_trail(limit);
        match self {
            Self::Connection(connection) => connection.breakdowns().into_iter().for_each(keep),
            Self::Channel(channel) => channel.breakdowns().into_iter().for_each(keep),
            Self::Datagrams(datagrams) => datagrams.breakdowns().into_iter().for_each(keep),
            Self::Resolver(resolver) => keep(&mut resolver.breakdown),
            Self::Sniffed(link) => link.breakdowns().into_iter().for_each(keep),
            Self::Logged(logged) => logged.breakdowns().into_iter().for_each(keep),
        }
    }
}

/// What one holder had of all directions.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    ns: u64,
    episodes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    flows: u64,
    directions: u64,
    segments: u64,
    copies: u64,
    evicted: u64,
    unanswered: Unanswered,
}

/// Causes over all directions, by the order in which they were first told.
#[derive(Debug, Default)]
pub(crate) struct Causes(pub(crate) Vec<CauseIn>);

impl Causes {
    pub(crate) fn add(&mut self, on: &VerdictOn) {
        self.add_part(on, true);
    }

    /// Those of a part of a direction, of which some may have been counted with another part.
    fn add_all(&mut self, verdicts: &[VerdictOn], part: &mut Part, direction: usize) -> New {
        let mut new = New { direction: part.count(direction), verdicts: Vec::new() };
        for on in verdicts {
            let place = self.0.iter().position(|known| known.cause == on.cause).unwrap_or(self.0.len());
            let is_new = part.count_verdict(direction, place, &on.verdict);
            self.add_part(on, is_new);
            new.verdicts.push(is_new);
        }
        new
    }

    fn add_part(&mut self, on: &VerdictOn, is_new: bool) {
        let one = u64::from(is_new);
        let (found, unknown, share) = match &on.verdict {
            Verdict::Found(found) => (one, 0, found.cost.share),
            Verdict::Unknown { .. } => (0, one, 0.0),
            Verdict::Clear => return,
        };
        match self.0.iter_mut().find(|known| known.cause == on.cause) {
            Some(known) => {
                known.found += found;
                known.unknown += unknown;
                known.largest_share = known.largest_share.max(share);
            }
            None => self.0.push(CauseIn { cause: on.cause.clone(), found, unknown, largest_share: share }),
        }
    }
}

impl Engine {
    /// Keeps the reports of the `kept` directions in which most time could be had back.
    pub fn new(kept: usize) -> Self {
        Self {
            connections: Vec::new(),
            counted: Vec::new(),
            parts: Parts::default(),
            kept: kept.max(1),
            clock: Clock::default(),
            start: None,
            end: 0,
            worst: Vec::new(),
            totals: BTreeMap::new(),
            causes: Causes::default(),
            over_all: Gathering::default(),
            counts: Counts::default(),
            pictures: None,
            tells_models: false,
        }
    }

    /// Of channels of Bluetooth it tells the simulated link that shows what the log shows, too.
    pub fn with_models(mut self) -> Self {
        self.tells_models = true;
        self
    }

    /// Of the directions that are kept it draws the time, too, with at most so many stretches in all. While flows are
    /// open, they have as many again.
    pub fn with_spans(mut self, limit: usize) -> Self {
        self.pictures = Some(Allowance::new(limit));
        self
    }

    /// What it all came to. Flows that were not closed are closed now.
    pub fn finish(mut self) -> Explanation {
        self.clock.release(None).iter().for_each(|held| self.pass(held));
        for index in 0..self.connections.len() {
            self.close(FlowId(index as u32), Closed::EndOfSource);
        }
        let whole = self.totals.values().fold(0_u64, |sum, total| sum.saturating_add(total.ns));
        let share = |ns: u64| if whole == 0 { 0.0 } else { ns as f64 / whole as f64 };
        let held = |(&holder, total): (&Holder, &Total)| Held {
            holder: holder.name().to_owned(),
            side: holder.side().to_string(),
            held_ns: total.ns,
            share: share(total.ns),
            episodes: total.episodes,
            longest: Vec::new(),
        };
        let mut totals: Vec<Held> = self.totals.iter().map(held).collect();
        totals.sort_by_key(|held| std::cmp::Reverse(held.held_ns));
        Explanation {
            span_ns: self.start.map_or(0, |start| self.end.saturating_sub(start)),
            segments: self.counts.segments,
            copies: self.counts.copies,
            flows: self.counts.flows,
            evicted_flows: self.counts.evicted,
            clock_steps: self.clock.steps,
            unanswered: self.counts.unanswered,
            directions: self.counts.directions,
            totals,
            causes: self.causes.0,
            over_all: self.over_all.finish(),
            worst: self.worst.into_iter().map(|(_, direction)| direction).collect(),
            start: self.start.map(Instant::from_nanos),
        }
    }

    /// Hands on an event, now that its time is known.
    #[inline(always)]
    fn pass(&mut self, event: &Event) {
        let at = event.at.as_nanos();
        self.start = Some(self.start.map_or(at, |start| start.min(at)));
        self.end = self.end.max(at);
        match self.connections.get_mut(event.flow.0 as usize) {
            Some(Some(Tracker::Connection(connection))) => connection.event(event),
            Some(Some(Tracker::Channel(channel))) => channel.event(event),
            Some(Some(Tracker::Datagrams(datagrams))) => datagrams.event(event),
            Some(Some(Tracker::Resolver(resolver))) => resolver.event(event),
            Some(Some(Tracker::Sniffed(link))) => link.event(event),
            Some(Some(Tracker::Logged(logged))) => logged.event(event),
            Some(None) | None => {}
        }
    }

    /// A flow begins; if pictures are wanted, its stretches are kept.
    fn keep_trails(&mut self, index: usize) {
        let Some(pictures) = &mut self.pictures else { return };
        let all_get_less = pictures.opened();
        let first = if all_get_less { 0 } else { index };
        let open = self.connections.iter_mut().skip(first).flatten();
        let of_flows = if all_get_less { usize::MAX } else { 1 };
        open.take(of_flows).for_each(|tracker| tracker.keep_trails(pictures.each()));
    }

    fn reported(&mut self, tracker: &Tracker, part: &mut Part) {
        let start = self.start.unwrap_or_default();
        for direction in taut_event::Direction::BOTH {
            let reported = match tracker {
                Tracker::Connection(connection) => {
                    report::direction(connection, direction, start).map(|(report, breakdown)| {
                        (report, breakdown, report::weight(&connection.halves[direction.index()]))
                    })
                }
                Tracker::Channel(channel) => {
                    channel::direction(channel, direction, start, self.counts.directions < MOST_MODELLED)
                }
                Tracker::Datagrams(datagrams) => udp::direction(datagrams, direction, start),
                Tracker::Resolver(resolver) => dns::direction(resolver, direction, start),
                Tracker::Sniffed(link) => sniffer::direction(link, direction, start),
                Tracker::Logged(logged) => quic::direction(logged, direction, start),
            };
            let Some((mut report, breakdown, weight)) = reported else { continue };
            let new = self.causes.add_all(&report.verdicts, part, direction.index());
            self.counts.directions += u64::from(new.direction);
            let timed = match tracker {
                Tracker::Connection(connection) => report::times(connection, direction),
                Tracker::Channel(channel) => channel::times(channel, direction),
                Tracker::Datagrams(datagrams) => udp::times(datagrams, direction),
                Tracker::Resolver(resolver) => dns::times(resolver),
                Tracker::Sniffed(_) | Tracker::Logged(_) => Vec::new(),
            };
            report.model = report.model.filter(|_| self.tells_models);
            report.times = timed.iter().filter_map(Timed::told).collect();
            self.over_all.add(&report, weight, &timed, &new);
            for holder in Holder::ALL {
                let Some(cell) = breakdown.get(holder) else { continue };
                let total = self.totals.entry(holder).or_default();
                // Damaged times may be centuries apart in each direction.
                total.ns = total.ns.saturating_add(cell.ns);
                total.episodes += cell.episodes;
            }
            let place = self.worst.partition_point(|(known, other)| (*known, other.bytes) >= (weight, report.bytes));
            if place < self.kept {
                let pictures = self.pictures.as_ref();
                report.picture = pictures.and_then(|its| breakdown.picture(start, its.of_reports(self.kept)));
                self.worst.truncate(self.kept - 1);
                self.worst.insert(place, (weight, report));
            }
        }
    }

    /// One whose time is not as it stands, or not known yet.
    #[cold]
    #[inline(never)]
    fn event_after_step(&mut self, event: &Event) {
        if self.clock.holds() {
            self.clock.release(Some(event)).iter().for_each(|held| self.pass(held));
        }
        let Some(at) = self.clock.read(event).map(Instant::from_nanos) else { return };
        // Nearly all keep their time; to copy one costs as much as to look at it.
        let moved;
        let event = if at == event.at {
            event
        } else {
            moved = Event { at, ..*event };
            &moved
        };
        self.pass(event);
    }
}

impl Sink for Engine {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        let index = id.0 as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(match flow.key {
            FlowKey::L2cap(_) => Tracker::Channel(Box::new(Channel::new(*flow))),
            FlowKey::Udp(..) => Tracker::Datagrams(Box::new(Datagrams::new(*flow))),
            FlowKey::Dns(_) => Tracker::Resolver(Box::new(Resolver::new(*flow))),
            FlowKey::Le(_) => Tracker::Sniffed(Box::new(Sniffed::new(*flow))),
            FlowKey::Quic(_) => Tracker::Logged(Box::new(Logged::new(*flow))),
            FlowKey::Tcp(..) | FlowKey::Socket(_) | FlowKey::Local(_) | FlowKey::Link(_) => {
                Tracker::Connection(Box::new(Connection::new(*flow)))
            }
        });
        let (part, is_new) = self.parts.begin(flow);
        self.counted.resize_with(self.connections.len(), Part::default);
        self.counted[index] = part;
        self.counts.flows += u64::from(is_new);
        self.keep_trails(index);
    }

    fn event(&mut self, event: &Event) {
        if self.clock.goes_on(event.at.as_nanos()) {
            return self.pass(event);
        }
        self.event_after_step(event);
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.clock.release(None).iter().for_each(|held| self.pass(held));
        let Some(mut tracker) = self.connections.get_mut(id.0 as usize).and_then(Option::take) else { return };
        match &mut tracker {
            Tracker::Connection(connection) => {
                connection.finish();
                self.counts.segments += connection.segments;
                self.counts.copies += connection.copies();
                if let Some((longest_ns, frame)) = connection.unanswered() {
                    let so_far = &mut self.counts.unanswered;
                    so_far.connections += 1;
                    if so_far.frame == 0 || longest_ns > so_far.longest_ns {
                        (so_far.longest_ns, so_far.frame) = (longest_ns, frame);
                    }
                }
            }
            Tracker::Channel(channel) => {
                channel.finish();
                self.counts.segments += channel.packets;
            }
            Tracker::Datagrams(datagrams) => {
                datagrams.finish();
                self.counts.segments += datagrams.datagrams;
            }
            Tracker::Resolver(resolver) => {
                resolver.finish();
                self.counts.segments += resolver.datagrams;
            }
            Tracker::Sniffed(link) => {
                link.finish();
                self.counts.segments += link.pdus;
            }
            Tracker::Logged(logged) => {
                logged.finish();
                self.counts.segments += logged.packets;
            }
        }
        if let Some(pictures) = &mut self.pictures {
            pictures.closed();
        }
        let mut part = self.counted.get_mut(id.0 as usize).map(std::mem::take).unwrap_or_default();
        self.reported(&tracker, &mut part);
        if why == Closed::Evicted {
            self.counts.evicted += 1;
            self.parts.closed_early(part);
        }
    }
}
