use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::{AckSentBy, Direction as Way, Holder, Side};
use taut_time::Instant;

use super::connection::Connection;
use super::ends::Ends;
use super::message::TracedMessages;
use super::parts::is_held;
use super::readiness::TracedReadiness;
use super::tally::{Tally, ack_index};
use super::thread::TracedThreads;
use super::wait::TracedWait;
use super::{call, finding};
use crate::engine::{CauseIn, ChannelFacts, Held, Picture, Stall, Verdict, VerdictOn};
use crate::words;

/// What a live trace came to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Traced {
    /// From the first event of a connection to the end.
    pub span_ns: u64,
    /// Connections of TCP.
    pub connections: u64,
    /// Unix sockets, sockets of UDP and pipes.
    #[serde(default)]
    pub others: u64,
    /// Directions of connections in which data went, or waited for long.
    pub directions: u64,
    /// Who held the data of all directions, longest first.
    pub totals: Vec<Held>,
    /// The causes that were found or could not be told, over all directions.
    pub causes: Vec<CauseIn>,
    /// The directions whose data was held longest, worst first.
    pub worst: Vec<TracedDirection>,
    /// What all directions' breakdowns lay to programs, by thread.
    #[serde(default)]
    pub threads: TracedThreads,
    /// The longest single waits over all directions, longest first; no more than directions are kept (`--top`).
    #[serde(default)]
    pub waits: Vec<TracedWait>,
    /// The first event of a connection, on the clock of the trace (`CLOCK_MONOTONIC`): all begins count from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// The same.
    #[serde(skip)]
    pub start: Option<Instant>,
}

impl Traced {
    /// Names the programs of all threads that are told of.
    pub fn name_programs(&mut self, program: impl Fn(u32) -> Option<String>) {
        self.worst.iter_mut().for_each(|direction| direction.program = direction.thread.and_then(&program));
        self.threads.worst.iter_mut().for_each(|row| row.program = program(row.thread));
        self.waits.iter_mut().for_each(|wait| wait.program = wait.thread.and_then(&program));
    }
}

/// What one end of a connection sent, or what it received.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TracedDirection {
    /// Address and port of the sender.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// What it is: `tcp`, `udp`, `unix`, `pipe`, `l2cap`, `rfcomm` or `sco`.
    #[serde(default = "tcp")]
    pub transport: String,
    /// Whether the traced socket is the sender; else it is the receiver, and the breakdown says how long what had
    /// come waited for the program.
    pub is_outgoing: bool,
    /// Thread that used the traced socket last.
    pub thread: Option<u32>,
    /// Name and number of its process, where known.
    pub program: Option<String>,
    /// Bytes of data, each counted once.
    pub bytes: u64,
    /// Writes of the program that the kernel took something of.
    pub writes: u64,
    /// Of them, those that were still in the socket when the call came back.
    pub held_writes: u64,
    /// How long these stayed there after that, median.
    pub median_held_ns: Option<u64>,
    /// The longest of them.
    pub longest_held_ns: u64,
    /// Writes that were refused for lack of room (`EAGAIN`).
    pub refused_writes: u64,
    /// Of a socket that is known by its calls: writes that waited in the call for room.
    #[serde(default)]
    pub waited_writes: u64,
    /// Of a socket of Bluetooth: refused writes for which the send buffer had room. Linux refuses as well while a
    /// channel has no credits.
    #[serde(default)]
    pub refused_with_room: u64,
    /// Of a socket of Bluetooth: the system calls that wrote, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written_by: Vec<String>,
    /// Of a socket of Bluetooth: who held the data while the program waited for room, after a write that was refused or
    /// in a write; longest first, their shares of that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Held>,
    /// Of a socket of Bluetooth whose channel was heard: the adapter and the handle of its link.
    #[serde(skip)]
    pub link: Option<(u16, u16)>,
    /// Of a socket of Bluetooth: the channel that it is an end of, where what passes below it was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelFacts>,
    /// What let the held writes go.
    pub released: Releases,
    /// Segments that were sent again.
    pub repeated_segments: u64,
    /// Of them, those that the peer had already, as it told (DSACK).
    #[serde(default)]
    pub needless_segments: u64,
    /// From the beginning of the trace to the first event of this connection.
    pub begin_ns: u64,
    /// From its first event to its last, or to the end of the trace. The parts of the breakdown add up to this.
    pub span_ns: u64,
    /// Who held the data, longest first.
    pub breakdown: Vec<Held>,
    /// Of what was received: how its program came to read it.
    #[serde(default)]
    pub readiness: Option<TracedReadiness>,
    /// Of what was sent by TCP: how long messages took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<TracedMessages>,
    /// What was found, worst first.
    pub verdicts: Vec<VerdictOn>,
    /// What was not seen.
    pub remarks: Vec<String>,
    /// Its time, stretch by stretch, where the trace was asked for it (`with_spans`).
    #[serde(skip)]
    pub picture: Option<Picture>,
}

impl TracedDirection {
    /// The trace began so much earlier than was known.
    pub(super) fn begins_later(&mut self, by: u64) {
        let stalls = self.breakdown.iter_mut().flat_map(|held| &mut held.longest).map(|stall| &mut stall.begin_ns);
        let spans = self.picture.iter_mut().flat_map(|picture| &mut picture.spans).map(|span| &mut span.begin_ns);
        let begins = stalls.chain(spans).chain([&mut self.begin_ns]);
        begins.for_each(|begin| *begin = begin.saturating_add(by));
    }
}

/// Before there were others.
fn tcp() -> String {
    "tcp".to_owned()
}

/// What let writes go that had been held.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Releases {
    /// A later call of the program.
    pub call: u64,
    /// An acknowledgement that the peer's delayed-ACK timer had sent.
    pub ack_by_delayed_ack_timer: u64,
    /// An acknowledgement sent on arrival of data.
    pub ack_on_arrival: u64,
    /// An acknowledgement that the peer's program brought about by reading or writing.
    pub ack_by_program: u64,
    /// An acknowledgement of a peer that was not seen.
    pub ack_not_seen: u64,
    /// The timer of retransmissions and probes.
    pub write_timer: u64,
    /// The timer of pacing.
    pub pacing_timer: u64,
    /// Something else.
    pub other: u64,
}

impl Releases {
    fn of(tally: &Tally) -> Self {
        let ack = |by| tally.by_ack[ack_index(by)];
        Self {
            call: tally.by_call,
            ack_by_delayed_ack_timer: ack(AckSentBy::DelayedAckTimer),
            ack_on_arrival: ack(AckSentBy::Arrival),
            ack_by_program: ack(AckSentBy::Program),
            ack_not_seen: ack(AckSentBy::NotSeen),
            write_timer: tally.by_write_timer,
            pacing_timer: tally.by_pacing,
            other: tally.by_other,
        }
    }

    /// Acknowledgements, whatever sent them.
    pub const fn acks(&self) -> u64 {
        self.ack_by_delayed_ack_timer + self.ack_on_arrival + self.ack_by_program + self.ack_not_seen
    }
}

/// Time that could be had back. What is held on its way comes before what waits for a reader.
pub(super) fn weight(is_outgoing: bool, verdicts: &[VerdictOn]) -> u64 {
    let found = verdicts.iter().filter_map(|on| match &on.verdict {
        Verdict::Found(found) => Some(found.cost.held_ns),
        _ => None,
    });
    let found = found.fold(0_u64, u64::saturating_add);
    if is_outgoing && found > 0 { found.saturating_add(1 << 62) } else { found }
}

pub(super) fn held(holder: Holder, ns: u64, whole: u64, episodes: u64, longest: Vec<Stall>) -> Held {
    Held {
        holder: holder.name().to_owned(),
        side: holder.side().to_string(),
        held_ns: ns,
        share: if whole == 0 { 0.0 } else { ns as f64 / whole as f64 },
        episodes,
        longest,
    }
}

/// Whether data waited for long, or waits for room still, though nothing of it moved while it was traced: such a
/// connection hangs.
fn is_stalled(connection: &Connection, way: Way) -> bool {
    let breakdown = connection.breakdown(way);
    let held_long =
        |&holder: &Holder| is_held(holder) && breakdown.get(holder).is_some_and(|cell| cell.ns >= finding::STALL_NS);
    let waits_for_room = way == Way::Forward && (connection.tally.refused > 0 || connection.is_waiting());
    waits_for_room || Holder::ALL.iter().any(held_long)
}

/// The report of a direction in which data went or waited for long, or whose connection did not open at once.
pub(super) fn direction(connection: &Connection, way: Way, start: u64) -> Option<TracedDirection> {
    let tally = &connection.tally;
    let is_outgoing = way == Way::Forward;
    let bytes = if is_outgoing { tally.sent_bytes } else { tally.received_bytes };
    // Of several datagrams in one call the bytes are not told.
    let calls = if is_outgoing { tally.writes } else { tally.reads };
    // One that did not open for a while is told of, too.
    let is_unopened = is_outgoing && tally.repeated_openings > 0;
    let breakdown = connection.breakdown(way);
    if bytes == 0 && calls == 0 && !is_unopened && !is_stalled(connection, way) {
        return None;
    }
    let whole = breakdown.total_ns();
    let is_bluetooth = connection.is_bluetooth();
    let Ends { transport, from, to } = Ends::of(connection, way)?;
    let mut rows: Vec<Held> = Holder::ALL
        .into_iter()
        .filter_map(|holder| {
            let cell = breakdown.get(holder).filter(|cell| cell.ns > 0)?;
            let stalls = cell.worst.iter().map(|episode| Stall {
                begin_ns: episode.from.saturating_sub(start),
                held_ns: episode.length(),
                frames: [0, 0],
            });
            let mut held = held(holder, cell.ns, whole, cell.episodes, stalls.collect());
            if holder == Holder::PeerTurn && !is_outgoing {
                // Nothing has come: it is the end that sends.
                held.side = Side::Sender.to_string();
            }
            Some(held)
        })
        .collect();
    rows.sort_by_key(|held| std::cmp::Reverse(held.held_ns));
    let mut remarks = Vec::new();
    if tally.gaps > 0 {
        remarks.push(format!(
            "Events were missed {} while it was traced; the time around each is booked as not known.",
            words::times(tally.gaps)
        ));
    }
    if is_outgoing && tally.not_followed > 0 {
        remarks.push(format!(
            "{} writes were not followed until they left, as too many waited at once; how long writes were held and \
             what let them go is told without these.",
            tally.not_followed
        ));
    }
    if tally.is_path {
        remarks.push(
            "It is one path of a connection of MPTCP. Its program makes its calls on that one, which is not seen: what \
             it writes and when it reads is missing here, and whose turn it was is told by what came and went."
                .to_owned(),
        );
    }
    Some(TracedDirection {
        from,
        to,
        transport: transport.to_owned(),
        is_outgoing,
        thread: connection.thread(way),
        program: None,
        bytes,
        writes: if is_outgoing { tally.writes } else { 0 },
        held_writes: if is_outgoing { tally.held.count() } else { 0 },
        median_held_ns: tally.held.median().filter(|_| is_outgoing),
        longest_held_ns: if is_outgoing { tally.held.max() } else { 0 },
        refused_writes: if is_outgoing { tally.refused } else { 0 },
        waited_writes: if is_outgoing { tally.waited } else { 0 },
        refused_with_room: if is_outgoing && is_bluetooth { tally.refused_with_room } else { 0 },
        written_by: tally.writing_calls.iter().filter(|_| is_outgoing).map(|&number| call::name(number)).collect(),
        waited: Vec::new(),
        link: None,
        channel: None,
        released: if is_outgoing { Releases::of(tally) } else { Releases::default() },
        repeated_segments: if is_outgoing { tally.repeated } else { 0 },
        needless_segments: if is_outgoing { tally.needless } else { 0 },
        begin_ns: connection.first.unwrap_or(start).saturating_sub(start),
        span_ns: whole,
        breakdown: rows,
        readiness: connection.readiness.told().filter(|_| !is_outgoing),
        messages: connection.messages.told().filter(|_| is_outgoing),
        verdicts: finding::verdicts(connection, way),
        remarks,
        picture: None,
    })
}
