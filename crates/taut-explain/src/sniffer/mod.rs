//! A link of Bluetooth LE that a sniffer followed, connection event by connection event.

mod events;
mod half;
mod report;
#[cfg(test)]
mod tests;
mod verdict;

use taut_event::{Direction as Way, Event, Flow, Le, LeLink, LePdu, What};

use events::Events;
use half::{Half, Past};
pub(crate) use report::direction;
pub(crate) use verdict::CAUSES;

use crate::engine::Breakdown;

/// What is known of a link, in bounded memory.
#[derive(Debug)]
pub(crate) struct Sniffed {
    flow: Flow,
    link: LeLink,
    /// Intervals that were in use, in the order of their first use, as many as are told.
    intervals: Vec<u64>,
    /// At some time it was not known how many events the peripheral may skip.
    lacks_latency: bool,
    events: Events,
    /// The direction with index 0 is that of the central.
    halves: [Half; 2],
    last: u64,
    pub(crate) pdus: u64,
}

/// More intervals of a link are not told.
const MOST_INTERVALS: usize = 4;

impl Sniffed {
    pub(crate) fn new(flow: Flow) -> Self {
        let (events, halves) = (Events::default(), <[Half; 2]>::default());
        let (link, intervals) = (LeLink::default(), Vec::new());
        Self { flow, link, intervals, lacks_latency: false, events, halves, last: 0, pdus: 0 }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let What::Le(what) = event.what else { return };
        match what {
            Le::Link(link) => {
                self.link = link;
                self.lacks_latency |= link.latency.is_none();
                let is_new = link.interval_ns > 0 && self.intervals.last() != Some(&link.interval_ns);
                if is_new && self.intervals.len() < MOST_INTERVALS {
                    self.intervals.push(link.interval_ns);
                }
            }
            Le::Pdu(pdu) => {
                // A clock may step back a little.
                let at = event.at.as_nanos().max(self.last);
                self.last = at;
                self.pdus += 1;
                self.pdu((at, event.place), event.direction, &pdu, event.bytes.len());
            }
        }
    }

    fn pdu(&mut self, now: (u64, u64), way: Way, pdu: &LePdu, bytes: u64) {
        if pdu.begins_event {
            let closed = self.events.close(now.0, self.link.interval_ns, pdu.unseen_events);
            for (index, half) in self.halves.iter_mut().enumerate() {
                half.crossed(closed, index == Way::Backward.index());
            }
        }
        if pdu.is_after_hole {
            self.halves.iter_mut().for_each(Half::hole);
        }
        let is_next = |header| self.halves[way.index()].was_acknowledged(header);
        if way == Way::Forward && pdu.header.is_some_and(is_next) {
            self.halves.iter_mut().for_each(Half::was_heard);
        }
        self.events.pdu(now.0, way, pdu);
        let end = (now.0.saturating_add(pdu.air_ns.into()), now.1);
        self.halves[way.reverse().index()].answered(end, pdu.header, !pdu.begins_event);
        let past = Past { latency: self.link.latency };
        self.halves[way.index()].own(now, end, pdu, bytes, past);
    }

    /// The breakdowns of both directions.
    pub(crate) fn breakdowns(&mut self) -> [&mut Breakdown; 2] {
        self.halves.each_mut().map(|half| &mut half.breakdown)
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.events.close(self.last, 0, 0);
        self.halves.iter_mut().for_each(Half::finish);
    }
}
