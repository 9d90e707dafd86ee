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
use super::order::{Order, Waiting};
use crate::archive::readable;
use crate::error::Error;

/// So many connections of a log are followed.
const MOST: usize = 1024;
/// No name of a connection is longer, in bytes.
const LONGEST_NAME: usize = 256;
const NS_PER_MS: f64 = 1e6;
/// A century in milliseconds from 1970, and more than any log takes.
const LATEST_MS: f64 = 4e12;
/// What a file's schema is called, with its texts in one object or in a sequence.
const SCHEMAS: [&str; 2] = ["urn:ietf:params:qlog:file:contained", "urn:ietf:params:qlog:file:sequential"];
/// So much of what a log calls itself is told, in characters.
const SHOWN: usize = 40;
/// After so many events the caller is told.
const TICK: u64 = 4096;

pub(super) struct Log<'s, S> {
    pub(super) counts: QlogCounts,
    /// Why the reading was given up.
    pub(super) refused: Option<Error>,
    /// What stands at the top says which version it is.
    pub(super) has_version: bool,
    /// There was a list of events, so what stands behind the object is no further event.
    pub(super) has_list: bool,
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
    /// The time of the event read last, in milliseconds.
    now: f64,
    /// The latest time so far.
    latest: f64,
    order: Order,
    has_events: bool,
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
        Self {
            counts,
            refused: None,
            has_version: false,
            has_list: false,
            sink,
            tick,
            seen_by,
            flows: Vec::new(),
            numbers,
            trace,
            traces: 0,
            newest: 0,
        }
    }

    /// What stands at the top of a log. Versions are texts (draft-ietf-quic-qlog-main-schema-00 to -09); later drafts
    /// have a schema's name instead. What was before 0.3 (draft-marx-qlog-main-schema) has other fields.
    pub(super) fn version(&mut self, file: &Value) -> Result<(), Error> {
        let known: [(&str, &str, &[&str]); 3] = [
            ("qlog_version", "version", &["0.3", "0.4"]),
            ("file_schema", "schema", &SCHEMAS),
            // How texts are told from each other is seen from the log itself.
            ("qlog_format", "format", &["JSON", "JSON-SEQ", "NDJSON"]),
        ];
        for (name, what, known) in known {
            let Some(value) = file.get(name) else { continue };
            if !value.as_str().is_some_and(|text| known.contains(&text)) {
                return Err(Error::Qlog { what, found: shown(value) });
            }
            self.has_version |= name != "qlog_format";
        }
        Ok(())
    }

    /// The whole log is read and must have said what it is.
    pub(super) fn check_version(&self) -> Result<(), Error> {
        let form = "a log of QUIC (qlog) that says neither its version nor its schema";
        if self.has_version { Ok(()) } else { Err(Error::NotYet { form, instead: "write qlog 0.3 or 0.4" }) }
    }

    /// A trace begins.
    pub(super) fn begin(&mut self) {
        self.close();
        self.traces += 1;
        self.trace = Trace { latest: f64::NEG_INFINITY, ..Trace::default() };
    }

    /// The first trace begins, if none has.
    pub(super) fn begin_unless_begun(&mut self) {
        if self.traces == 0 {
            self.begin();
        }
    }

    /// What a trace says of itself, before its events or behind them.
    pub(super) fn trace(&mut self, trace: &Value) -> Result<(), Error> {
        let common = &trace["common_fields"];
        let format = common["time_format"].as_str();
        if matches!(format, Some("delta" | "relative_to_previous_event")) {
            if self.trace.has_events {
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

    /// An event of the trace. It is handed over once those that stand a little behind it can't be earlier.
    ///
    /// # Errors
    ///
    /// When it is earlier than what was handed over.
    pub(super) fn event(&mut self, value: &Value) -> Result<(), Error> {
        self.counts.events += 1;
        self.trace.has_events = true;
        if self.counts.events.is_multiple_of(TICK) {
            (self.tick)();
        }
        let (Some(at_ms), Some(name)) = (self.time(&value["time"]), value["name"].as_str()) else {
            self.counts.unreadable += 1;
            return Ok(());
        };
        // `transport:packet_sent`, `quic:packet_sent`.
        let name = name.rsplit(':').next().unwrap_or(name);
        let Some(flow) = self.flow(value) else {
            self.counts.beyond += 1;
            return Ok(());
        };
        self.counts.packets += u64::from(matches!(name, "packet_sent" | "packet_received"));
        let mut told = Vec::new();
        event::events(name, &value["data"], &mut |direction, what, length| told.push((direction, what, length)));
        let place = self.counts.events;
        self.trace
            .order
            .push(Waiting { at_ms, place, flow, told })
            .map_err(|late_ms| Error::Disordered { place, late_ms })?;
        while let Some(next) = self.trace.order.next(false) {
            self.tell(next);
        }
        Ok(())
    }

    /// Hands over what an event tells; never before an earlier one.
    fn tell(&mut self, Waiting { at_ms, place, flow, told }: Waiting) {
        let (first, begin) = *self.trace.origin.get_or_insert((at_ms, self.newest));
        // Differences of doubles of today's time are exact to a quarter of a microsecond.
        let since = ((at_ms - first) * NS_PER_MS).round() as u64;
        let at = begin.saturating_add(since);
        self.newest = self.newest.max(at);
        for (direction, what, length) in told {
            self.hand_over(flow, (at, place), direction, what, length);
        }
        if self.flows[flow].role != self.trace.is_client {
            self.tell_role(flow, (at, place));
        }
    }

    fn hand_over(&mut self, index: usize, (at, place): (u64, u64), direction: Direction, what: Quic, length: u64) {
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
            place,
        });
    }

    fn tell_role(&mut self, index: usize, at: (u64, u64)) {
        self.flows[index].role = self.trace.is_client;
        if let Some(is_client) = self.trace.is_client {
            self.hand_over(index, at, Direction::Forward, Quic::Role { is_client }, 0);
        }
    }

    /// The time of an event in milliseconds, by the log's own clock.
    fn time(&mut self, time: &Value) -> Option<f64> {
        let told = event::real(time).filter(|time| (-LATEST_MS..LATEST_MS).contains(time))?;
        let trace = &mut self.trace;
        let now = if trace.is_delta { trace.now + told } else { told };
        if !(-LATEST_MS..LATEST_MS).contains(&now) {
            return None;
        }
        self.counts.reordered += u64::from(now < trace.latest);
        trace.latest = trace.latest.max(now);
        trace.now = now;
        Some(now)
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
        while let Some(next) = self.trace.order.next(true) {
            self.tell(next);
        }
        let end = (self.newest, self.counts.events);
        for (_, index) in std::mem::take(&mut self.numbers) {
            if self.flows[index].role != self.trace.is_client {
                self.tell_role(index, end);
            }
            self.hand_over(index, end, Direction::Forward, Quic::Ended, 0);
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

/// What a log calls itself, as it may be printed.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    readable(text.as_bytes()).chars().take(SHOWN).collect()
}
