//! What is known of a log while it is read: its traces, connections and clock.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde_json::Value;
use taut_event::{
    Closed, ConnectionId, Coverage, Direction, Event, Flow, FlowId, FlowKey, Kind, Quic, QuicKey, Sink, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use super::counts::QlogCounts;
use super::event;
use crate::error::Error;

/// So many connections of a log are followed.
const MOST: usize = 1024;
/// No name of a connection is longer, in bytes.
const LONGEST_NAME: usize = 256;
const NS_PER_MS: f64 = 1e6;
/// A century in milliseconds from 1970, and more than any log takes.
const LATEST_MS: f64 = 4e12;
/// After so many events the caller is told.
const TICK: u64 = 4096;

pub(super) struct Log<'s, S> {
    pub(super) counts: QlogCounts,
    /// Why the reading was given up.
    pub(super) refused: Option<Error>,
    sink: &'s mut S,
    tick: &'s mut dyn FnMut(),
    seen_by: VantageId,
    flows: Vec<State>,
    numbers: HashMap<Name, usize, RandomState>,
    trace: Trace,
    /// The trace's number.
    traces: u32,
    /// The newest time handed over; further traces begin there.
    newest: u64,
}

/// The trace, and what its events or the trace itself call the connection.
type Name = (u32, String);

#[derive(Default)]
struct Trace {
    is_client: Option<bool>,
    name: String,
    /// Times are those since the event before.
    is_delta: bool,
    /// The time of its newest event, in milliseconds.
    now: f64,
    /// The time of its first event, and when that is for the sink.
    origin: Option<(f64, u64)>,
}

#[derive(Default)]
struct State {
    positions: [u64; 2],
    role: Option<bool>,
}

impl<'s, S: Sink> Log<'s, S> {
    pub(super) fn new(seen_by: VantageId, sink: &'s mut S, tick: &'s mut dyn FnMut()) -> Self {
        let (counts, trace, numbers) = (QlogCounts::default(), Trace::default(), HashMap::default());
        Self { counts, refused: None, sink, tick, seen_by, flows: Vec::new(), numbers, trace, traces: 0, newest: 0 }
    }

    /// What stands at the top of a log.
    pub(super) fn version(&mut self, file: &Value) -> Result<(), Error> {
        let not_yet = |form| Err(Error::NotYet { form, instead: "write qlog 0.3 or 0.4" });
        let text = |name: &str| file[name].as_str();
        if let Some(version) = text("qlog_version") {
            let is_read = ["0.3", "0.4"].iter().any(|known| version.starts_with(known)) || version == "draft-02";
            if !is_read {
                return not_yet("a log of QUIC (qlog) of another version");
            }
        }
        match (text("qlog_format"), text("file_schema")) {
            (Some("JSON" | "JSON-SEQ"), _) | (None, None) => Ok(()),
            (Some(_), _) => not_yet("a log of QUIC (qlog) in another form than JSON and JSON-SEQ"),
            (None, Some(schema)) if schema.starts_with("urn:ietf:params:qlog:file:") => Ok(()),
            (None, Some(_)) => not_yet("a log of QUIC (qlog) of another schema"),
        }
    }

    /// A trace begins.
    pub(super) fn begin(&mut self) {
        self.close();
        self.traces += 1;
        self.trace = Trace::default();
    }

    /// What a trace says of itself, before its events or behind them.
    pub(super) fn trace(&mut self, trace: &Value) -> Result<(), Error> {
        let common = &trace["common_fields"];
        let format = common["time_format"].as_str();
        if matches!(format, Some("delta" | "relative_to_previous_event")) {
            if self.trace.origin.is_some() {
                let form = "a log of QUIC (qlog) that says only behind its events that their times are differences";
                return Err(Error::NotYet {
                    form,
                    instead: "write absolute or relative times, or a sequence (JSON-SEQ)",
                });
            }
            self.trace.is_delta = true;
        }
        let name = ["ODCID", "odcid", "group_id"].iter().find_map(|name| common[name].as_str());
        if let Some(name) = name.filter(|name| name.len() <= LONGEST_NAME) {
            name.clone_into(&mut self.trace.name);
        }
        let vantage = &trace["vantage_point"];
        // One in the middle says whose events it has by the flow.
        let role = ["type", "flow"].iter().find_map(|key| match vantage[key].as_str() {
            Some("client") => Some(true),
            Some("server") => Some(false),
            _ => None,
        });
        self.trace.is_client = role.or(self.trace.is_client);
        Ok(())
    }

    /// An event of the trace.
    pub(super) fn event(&mut self, value: &Value) {
        self.counts.events += 1;
        if self.counts.events.is_multiple_of(TICK) {
            (self.tick)();
        }
        let Some(at) = self.time(&value["time"]) else {
            self.counts.unreadable += 1;
            return;
        };
        let Some(name) = value["name"].as_str() else {
            self.counts.unreadable += 1;
            return;
        };
        // `transport:packet_sent`, `quic:packet_sent`.
        let name = name.rsplit(':').next().unwrap_or(name);
        let Some(index) = self.flow(value) else {
            self.counts.beyond += 1;
            return;
        };
        self.counts.packets += u64::from(matches!(name, "packet_sent" | "packet_received"));
        let mut told = Vec::new();
        event::events(name, &value["data"], &mut |direction, what, length| told.push((direction, what, length)));
        for (direction, what, length) in told {
            self.hand_over(index, at, direction, what, length);
        }
        if self.flows[index].role != self.trace.is_client {
            self.tell_role(index, at);
        }
    }

    fn hand_over(&mut self, index: usize, at: u64, direction: Direction, what: Quic, length: u64) {
        let position = &mut self.flows[index].positions[direction.index()];
        let bytes = ByteRange::new(*position, position.saturating_add(length));
        *position = bytes.end;
        self.sink.event(&Event {
            at: Instant::from_nanos(at),
            seen_by: self.seen_by,
            flow: FlowId(index as u32),
            direction,
            layer: Layer::Medium,
            what: What::Quic(what),
            bytes,
            who: None,
            place: self.counts.events,
        });
    }

    fn tell_role(&mut self, index: usize, at: u64) {
        self.flows[index].role = self.trace.is_client;
        if let Some(is_client) = self.trace.is_client {
            self.hand_over(index, at, Direction::Forward, Quic::Role { is_client }, 0);
        }
    }

    /// The time of an event, in nanoseconds from the first one; never before an earlier one.
    fn time(&mut self, time: &Value) -> Option<u64> {
        let told = event::real(time).filter(|time| (-LATEST_MS..LATEST_MS).contains(time))?;
        let trace = &mut self.trace;
        let now = if trace.is_delta { trace.now + told } else { told };
        if !(-LATEST_MS..LATEST_MS).contains(&now) {
            return None;
        }
        trace.now = now;
        let (first, begin) = *trace.origin.get_or_insert((now, self.newest));
        // Differences of doubles of today's time are exact to a quarter of a microsecond.
        let since = ((now - first) * NS_PER_MS).round().max(0.0) as u64;
        let at = begin.saturating_add(since);
        self.newest = self.newest.max(at);
        Some(at)
    }

    /// The event's connection; `None` if too many are followed.
    fn flow(&mut self, event: &Value) -> Option<usize> {
        let own = ["group_id", "ODCID"].iter().find_map(|name| event[name].as_str());
        let name = own.filter(|name| name.len() <= LONGEST_NAME).unwrap_or(&self.trace.name);
        let key = (self.traces, name.to_owned());
        if let Some(index) = self.numbers.get(&key) {
            return Some(*index);
        }
        let index = self.flows.len();
        if index >= MOST {
            return None;
        }
        let flow = Flow {
            key: FlowKey::Quic(QuicKey { id: id(name) }),
            from_start: true,
            coverage: Coverage::of(&[Kind::QuicEvents]),
        };
        self.sink.flow(FlowId(index as u32), &flow);
        self.numbers.insert(key, index);
        self.flows.push(State::default());
        Some(index)
    }

    /// Closes the trace's connections.
    fn close(&mut self) {
        for (_, index) in std::mem::take(&mut self.numbers) {
            if self.flows[index].role != self.trace.is_client {
                self.tell_role(index, self.newest);
            }
            self.hand_over(index, self.newest, Direction::Forward, Quic::Ended, 0);
            self.sink.close(FlowId(index as u32), Closed::EndOfSource);
        }
    }

    pub(super) fn finish(mut self) -> QlogCounts {
        self.close();
        self.counts
    }
}

/// The bytes of a connection ID in hexadecimal, or as many of another name as it takes.
fn id(name: &str) -> ConnectionId {
    let hex = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> =
        if name.len().is_multiple_of(2) { name.as_bytes().chunks(2).map(hex).collect() } else { None };
    let bytes = bytes.unwrap_or_else(|| name.as_bytes().to_vec());
    ConnectionId::new(&bytes[..bytes.len().min(20)]).unwrap_or_default()
}
