//! A live trace's links and programs against a capture of Bluetooth: one breakdown of program, kernel and air.

use std::collections::{HashMap, HashSet};

use taut_event::{Closed, Direction as Way, Event, Flow, FlowId, FlowKey, Hci, Holder, Sink, What};
use taut_time::Instant;

use super::between::joined;
use super::crossings::{Crossings, HostLink, key};
use super::host::Content;
use super::meanwhile::Timeline;
use super::report::WayOnAir;
use super::told::{HeldOnAir, Meanwhile, ProgramOnAir};
use crate::engine::Picture;
use crate::join::fit::Fit;
use crate::join::report::Joined;
use crate::join::traced::HostClock;
use crate::join::why::NotJoined;
use crate::trace::{Trace, Traced, TracedDirection};

/// So many directions of traced sockets have their time kept, and so many stretches of each.
const MOST_DIRECTIONS: usize = 16;
const MOST_STRETCHES: usize = 1 << 16;
/// The kernel stamps packets in steps of so much.
const STEP_NS: u64 = 1000;

/// What a trace saw of links of Bluetooth and of the sockets above them: a sink for its events.
#[derive(Debug)]
pub struct TracedLinks {
    crossings: Crossings,
    trace: Trace,
    links: HashMap<u32, HostLink>,
    /// Flows of sockets and channels of Bluetooth.
    wanted: HashSet<u32>,
    has_channels: bool,
}

impl Default for TracedLinks {
    fn default() -> Self {
        Self {
            crossings: Crossings::new(),
            trace: Trace::new(MOST_DIRECTIONS).with_spans(MOST_DIRECTIONS * MOST_STRETCHES),
            links: HashMap::new(),
            wanted: HashSet::new(),
            has_channels: false,
        }
    }
}

impl Sink for TracedLinks {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        match flow.key {
            FlowKey::Link(link) => {
                let place = (link.adapter, link.handle);
                match link.peer.filter(|_| flow.from_start) {
                    Some(peer) => self.crossings.connected(place, link.is_central, peer),
                    None => self.crossings.disconnected(place),
                }
                self.links.insert(id.0, place);
            }
            FlowKey::L2cap(_) => {
                self.has_channels = true;
                self.wanted.insert(id.0);
                self.trace.flow(id, flow);
            }
            FlowKey::Local(local) if local.kind.is_bluetooth() => {
                self.wanted.insert(id.0);
                self.trace.flow(id, flow);
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        let What::Hci(hci) = event.what else {
            if self.wanted.contains(&event.flow.0) {
                self.trace.event(event);
            }
            return;
        };
        let Some(&link) = self.links.get(&event.flow.0) else { return };
        let place = (event.at, event.place);
        match hci {
            Hci::Part { begins, length, pdu, sum } => {
                let content = Content::Sum { pdu, sum };
                let is_received = event.direction == Way::Backward;
                self.crossings.part(place, link, is_received, begins, content, length.into());
            }
            Hci::Completed { packets } => self.crossings.completed(place, link, packets),
            Hci::Lost => self.crossings.lost_of(link),
        }
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        if let Some(link) = self.links.remove(&id.0) {
            self.crossings.disconnected(link);
        } else if self.wanted.remove(&id.0) {
            self.trace.close(id, why);
        }
    }
}

/// The same, once the trace is over.
#[derive(Debug)]
pub struct FinishedLinks {
    crossings: Crossings,
    traced: Traced,
    has_clock: bool,
    is_old: bool,
    /// By how much the time of day is ahead of the clock of the trace.
    ahead_ns: i64,
}

impl TracedLinks {
    /// Nothing more comes. The trace lasted until `end`; `clock` is what it recorded of its host's clocks.
    pub fn finish(mut self, end: Instant, clock: Option<&HostClock>) -> FinishedLinks {
        let ahead_ns = clock.map_or(0, |clock| clock.end.time_of_day_ahead_ns);
        self.crossings.set_resolution(STEP_NS);
        self.crossings.finish();
        self.crossings.shift(ahead_ns);
        let is_old = self.has_channels && self.crossings.is_empty();
        let (crossings, traced) = (self.crossings, self.trace.finish(end));
        FinishedLinks { crossings, traced, has_clock: clock.is_some(), is_old, ahead_ns }
    }
}

impl FinishedLinks {
    /// Whether there is nothing of Bluetooth.
    pub fn is_empty(&self) -> bool {
        self.crossings.is_empty() && !self.is_old
    }

    /// The trace's links on the timeline of a capture: a sniffer's, or the log of a host. `programs` names the programs
    /// of threads.
    ///
    /// # Errors
    ///
    /// As of two captures, and where an older version recorded the trace.
    pub fn join(&self, capture: &Crossings, programs: &HashMap<u32, String>) -> Result<Joined, NotJoined> {
        if self.is_old {
            return Err(NotJoined::NoLinksRecorded);
        }
        let mut ways = Vec::new();
        let (mut joined, fit) = joined(capture, &self.crossings, &mut |way| ways.push(way))?;
        if !self.has_clock {
            joined
                .remarks
                .push("The trace does not tell its host's time of day, so its clock is that since boot.".to_owned());
        }
        let all = self.traced.worst.iter().filter(|direction| direction.is_outgoing);
        let told = all.filter_map(|direction| self.program(direction, capture, &ways, &fit, programs));
        if let Some(bluetooth) = &mut joined.bluetooth {
            bluetooth.programs = told.collect();
        }
        Ok(joined)
    }

    fn program(
        &self,
        direction: &TracedDirection,
        capture: &Crossings,
        ways: &[WayOnAir],
        fit: &Fit,
        programs: &HashMap<u32, String>,
    ) -> Option<ProgramOnAir> {
        let (link, picture) = (key(direction.link?), direction.picture.as_ref()?);
        let start = self.traced.start.map_or(0, Instant::as_nanos);
        let on_capture = |at: u64| to_reference(fit, at.wrapping_add_signed(self.ahead_ns));
        let spans: Vec<(u64, u64, Holder)> = spans(picture, start, on_capture);
        let (from, to) = (spans.first()?.0, spans.last()?.1);
        // A handle may have been given again.
        let overlap = |way: &&WayOnAir| {
            let ends = way.moments.first().zip(way.moments.last());
            ends.map_or(0, |(first, last)| last.to.min(to).saturating_sub(first.from.max(from)))
        };
        let of_link = ways.iter().filter(|way| self.crossings.links[way.host].key == link);
        let way = of_link.max_by_key(overlap).filter(|way| overlap(way) > 0)?;
        let air = capture.links[way.air].air.as_ref()?;
        let timeline = Timeline::of(&air.slots, &way.moments);
        let (rows, outside_ns) = timeline.rows(&spans);
        let held_ns: u64 = rows.values().map(Meanwhile::sum).sum();
        let row = |(holder, air): (Holder, Meanwhile)| HeldOnAir {
            holder: holder.name().to_owned(),
            held_ns: air.sum(),
            share: air.sum() as f64 / held_ns.max(1) as f64,
            air,
        };
        let mut rows: Vec<HeldOnAir> = rows.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.held_ns));
        let cut = (picture.left_out > 0).then(|| {
            format!("{} short stretches of the trace were not kept, and are missing in these sums.", picture.left_out)
        });
        Some(ProgramOnAir {
            from: direction.from.clone(),
            to: direction.to.clone(),
            program: direction.thread.and_then(|thread| programs.get(&thread).cloned()),
            held_ns,
            outside_ns,
            rows,
            remarks: cut.into_iter().collect(),
        })
    }
}

/// A time of the other file on the reference's clock.
fn to_reference(fit: &Fit, at: u64) -> u64 {
    // The clocks' rates differ by a thousandth at most, so a second step leaves nothing that counts.
    let near = |by: u64| at.wrapping_add_signed(-(fit.ahead(by).round() as i64));
    near(near(near(at)))
}

/// Stretches of the trace on the clock of the capture, by time.
fn spans(picture: &Picture, start: u64, on_capture: impl Fn(u64) -> u64) -> Vec<(u64, u64, Holder)> {
    let span = |span: &crate::engine::Span| {
        let from = start.saturating_add(span.begin_ns);
        (on_capture(from), on_capture(from.saturating_add(span.held_ns)), span.holder)
    };
    let mut all: Vec<_> = picture.spans.iter().map(span).filter(|(from, to, _)| from < to).collect();
    all.sort_by_key(|(from, ..)| *from);
    all
}
