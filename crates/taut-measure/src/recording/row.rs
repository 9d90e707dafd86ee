use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{AirChangeRow, AirRow, Placement};
use crate::stats::{Distribution, Exceedance, Losses, MOST_FALSE, Quantile, Summary, losses_differ_at};

/// Declares the kinds of rows, each with its name in JSON. All that goes through the kinds follows from this one list.
macro_rules! rows {
    ($($(#[$about:meta])+ $name:literal => $variant:ident($of:ty),)+) => {
        /// One thing measured.
        #[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
        #[serde(tag = "workload")]
        pub enum Row {
            $($(#[$about])+ #[serde(rename = $name)] $variant($of),)+
        }

        impl Row {
            /// Names of all kinds, as `workload` has them.
            pub const KINDS: &[&str] = &[$($name),+];

            /// Reads a row of this kind; `None` when there is no such kind. Unlike reading a `Row`,
            /// which has to look for its kind first, this knows where something does not fit.
            pub fn of_kind<'de, D: Deserializer<'de>>(kind: &str, row: D) -> Option<Result<Self, D::Error>> {
                match kind {
                    $($name => Some(<$of>::deserialize(row).map(Self::$variant)),)+
                    _ => None,
                }
            }
        }
    };
}

rows! {
    /// Round trips.
    "echo" => Echo(Box<EchoRow>),
    /// Periodic sending.
    "pace" => Pace(Box<PaceRow>),
    /// Throughput.
    "stream" => Stream(Box<StreamRow>),
    /// Many links, few of them active.
    "crowd" => Crowd(Box<CrowdRow>),
    /// From a sensor to its sinks.
    "route" => Route(Box<RouteRow>),
    /// One setting tried against the base.
    "tune" => Tune(Box<TuneRow>),
    /// A Bluetooth LE link in virtual time.
    "air" => Air(Box<AirRow>),
    /// A change of such a link's parameters that was tried.
    "air_change" => AirChange(Box<AirChangeRow>),
    /// What the tool and the host cost by themselves.
    "floor" => Floor(Box<FloorRow>),
    /// Whether something that Tautline needs works here.
    "check" => Check(CheckRow),
}

/// Round trips of messages over one endpoint.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct EchoRow {
    /// The peer.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// How the process drove its I/O.
    pub engine: String,
    /// What one wait of the engine for a link that is ready costs, the median, measured just after;
    /// absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_wait_ns: Option<u64>,
    /// Bytes of one message.
    pub message_bytes: u64,
    /// How a message was written: `write`, `write-write`, `writev` or `cork`.
    pub writes: String,
    /// Links open at once.
    pub connections: usize,
    /// Messages per second that the schedule asked for (open loop); absent when each message waited
    /// for the reply before (closed loop).
    pub rate_hz: Option<f64>,
    /// Round trip: from the actual sending to the reply (service time).
    pub rtt_ns: Option<Summary>,
    /// From the intended sending to the reply (response time); open loop only.
    pub response_ns: Option<Summary>,
    /// From the intended to the actual sending: our own lateness; open loop only.
    pub send_lateness_ns: Option<Summary>,
    /// Messages sent.
    pub sent: u64,
    /// Messages without a reply within the time-out.
    pub lost: u64,
    /// Of the lost ones, those whose reply came later still.
    pub late_replies: u64,
    /// Replies that came once more, to messages that had been answered.
    #[serde(default)]
    pub duplicates: u64,
    /// Messages that the schedule of an open loop planned and the sender never sent, since it was
    /// too far behind. Beside those sent, and later than every limit.
    pub unsent: u64,
    /// How many different numbers the messages could hold, where that was fewer than there were
    /// messages on a link: datagrams of fewer than 8 bytes to a plain server. A reply that comes so
    /// many messages late is taken for a later one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<u64>,
    /// The time-out.
    pub timeout_ns: u64,
    /// Share of the messages sent whose reply took longer than a limit (response time in an open
    /// loop), losses included.
    pub exceed: Vec<Exceedance>,
    /// Quantile of all messages of all rounds pooled, and its time in ns, for drawing; of the
    /// response time in an open loop. It ends where the lost ones begin.
    pub curve: Vec<(f64, u64)>,
    /// Independent repetitions, each with new links.
    pub rounds: Vec<Round>,
    /// Against the first endpoint of the same command and the same kind of placement.
    pub compared: Option<Comparison>,
    /// What the observer costs, where a timeline was kept. The figures of this row are of rounds without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverCost>,
    /// Its losses against those of the first endpoint; absent where neither loses any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_compared: Option<LossComparison>,
    /// Whether the transport was free to hold small writes back (Nagle's algorithm); absent where
    /// there is no such thing.
    pub nagle: Option<bool>,
    /// On which processors both ends ran; absent in virtual time and in older recordings. Only rows
    /// of the same kind of placement are held against each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The first TCP connection of the last round, at its end.
    pub tcp: Option<TcpFacts>,
    /// Socket options in force, as the kernel has them.
    pub options: Vec<String>,
    /// How the peer acknowledged.
    pub peer_acks: String,
}

/// How much longer a round trip takes when the writes are observed: timestamps asked of the kernel,
/// the send queue looked at, the clock read around each call.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ObserverCost {
    /// Median with the observer less the median without, in ns, measured in turn; the median over the rounds.
    pub p50_ns: i64,
    /// Interval of that across rounds; absent with fewer than five.
    pub p50_ci: Option<(i64, i64)>,
    /// Rounds that were measured both ways.
    pub rounds: usize,
}

/// One independent repetition; of the response time in an open loop. Its figures are of all
/// messages: null where they fall on a lost one, or nothing was sent.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Round {
    /// Median.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// Messages sent.
    pub sent: u64,
    /// Messages lost.
    pub lost: u64,
    /// Whether the round came to its end. One that the user or the peer cut short is counted in
    /// `sent` and `lost`, and is in no interval and no comparison.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub complete: bool,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_true(value: &bool) -> bool {
    *value
}

impl Round {
    /// A whole round with these times.
    pub fn of(times: &Distribution, sent: u64, lost: u64) -> Self {
        let at = |q| times.quantile(q).and_then(Quantile::time);
        Self { p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0), sent, lost, complete: true }
    }
}

/// Losses of two things measured in turn.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LossComparison {
    /// What it is held against.
    pub with: String,
    /// Share of the messages that were lost, from 0 to 1; in an open loop, of those planned that
    /// were lost or never sent.
    pub lost_share: f64,
    /// The same of what it is held against.
    pub lost_share_of_other: f64,
    /// Whether the two differ beyond chance, each message being lost by itself (Fisher's exact test, two-sided;
    /// at most 5 % false ones in a run, however many are compared). Then nothing is said of which is shorter.
    pub differs: bool,
}

impl LossComparison {
    /// Holds losses of one of `others` against those of their base; `None` where there are none.
    pub fn of(mine: Losses, other: Losses, others: usize, with: impl Into<String>) -> Option<Self> {
        (mine.lost + other.lost > 0).then(|| Self {
            with: with.into(),
            lost_share: mine.share(),
            lost_share_of_other: other.share(),
            differs: losses_differ_at(mine, other, MOST_FALSE / others.max(1) as f64).is_some(),
        })
    }
}

/// Two things measured in turn, round by round.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Comparison {
    /// What it is held against.
    pub with: String,
    /// Ratio of the medians: below 1 means that this row is shorter. The median over the rounds.
    pub p50_ratio: f64,
    /// Interval of that ratio across rounds.
    pub p50_ratio_ci: (f64, f64),
    /// Probability with which such an interval covers the ratio; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ratio_level: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
}

impl Comparison {
    /// Without a verdict on times where the losses differ.
    pub fn beside(self, losses: Option<&LossComparison>) -> Self {
        let differs = losses.is_some_and(|losses| losses.differs);
        Self { verdict: if differs { Verdict::LossesDiffer } else { self.verdict }, ..self }
    }
}

/// What a comparison allows to say.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The times are shorter.
    Shorter,
    /// The times are longer.
    Longer,
    /// The interval across rounds holds "no difference".
    CannotTellApart,
    /// It could not be tried here.
    NotAvailable,
    /// With so few rounds equal things would be told apart too often.
    TooFewRounds,
    /// One loses more than the other, so that their times are no fair comparison.
    LossesDiffer,
}

/// Many links of which some are active, served by one engine. Each exchange is a message on each of
/// `active` links drawn at random, and the wait for all replies.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CrowdRow {
    /// Who ran the server under test: a `taut serve`, or with port 0 the command itself, there.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// How the server under test drove its I/O.
    pub engine: String,
    /// Links open at once.
    pub connections: usize,
    /// Links with a message under way at once.
    pub active: usize,
    /// Bytes of one message.
    pub message_bytes: u64,
    /// Round trip of a message: from its sending to its reply. Of a round in which links starved only the lost messages
    /// count; absent when no round was answered in whole.
    pub rtt_ns: Option<Summary>,
    /// CPU time of the server's process, all threads, for one message. The median over the rounds.
    pub cpu_ns_per_message: Option<f64>,
    /// Interval of that across rounds; absent with fewer than five.
    pub cpu_ns_per_message_ci: Option<(f64, f64)>,
    /// Its level: the probability, from 0 to 1, that such an interval covers the median of what the
    /// rounds are a sample of.
    #[serde(default)]
    pub cpu_ns_per_message_ci_level: Option<f64>,
    /// Threads of the server's process, the most of all rounds.
    pub threads: Option<u32>,
    /// Resident memory of the server's process, the most of all rounds.
    pub rss_bytes: Option<u64>,
    /// Exchanges answered in whole.
    pub exchanges: u64,
    /// Messages sent, those of the roll call only when it found a starved link.
    pub sent: u64,
    /// Messages without a reply.
    pub lost: u64,
    /// How long no reply at all came before messages counted as lost.
    pub timeout_ns: u64,
    /// That links got no answer from this engine, in this row or in another one of it; it was not
    /// tried again after that.
    pub starved: Option<Starvation>,
    /// Why the engine could not be tried, or not any further.
    pub why_not: Option<String>,
    /// Independent repetitions, each with a new server and new links.
    pub rounds: Vec<CrowdRound>,
    /// The round trip against that of the first engine of the same command.
    pub compared: Option<Comparison>,
    /// The CPU time of a message against that of `uring`, or of the first engine where that was not tried.
    pub cpu_compared: Option<CpuComparison>,
    /// Processor that the client stayed on.
    pub client_core: Option<usize>,
    /// Processor that the server under test stayed on, where it was put on one.
    pub server_core: Option<usize>,
    /// How the two stood to each other; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Whether the client, on a processor of its own, asked for replies without ever sleeping: then
    /// its own waking up is not in the round trips.
    pub client_spins: bool,
}

/// Links that got no answer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Starvation {
    /// Links open at once.
    pub connections: u64,
    /// Links on which a message was sent.
    pub asked: u64,
    /// Of these, links that were answered.
    pub answered: u64,
    /// How long no reply came when that was found.
    pub waited_ns: u64,
    /// Threads of the server's process then.
    pub threads: u32,
}

/// One repetition of a crowd.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CrowdRound {
    /// Median round trip; null when links starved.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// CPU time of the server's process for one message.
    pub cpu_ns_per_message: Option<f64>,
    /// Threads of the server's process.
    pub threads: u32,
    /// Resident memory of the server's process.
    pub rss_bytes: u64,
    /// Exchanges answered in whole.
    pub exchanges: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages without a reply.
    pub lost: u64,
}

/// CPU time of two things measured in turn, round by round.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CpuComparison {
    /// What it is held against.
    pub with: String,
    /// Ratio of the CPU times of a message: below 1 means that this row takes less. The median over the rounds.
    pub ratio: f64,
    /// Interval of that ratio across rounds.
    pub ratio_ci: (f64, f64),
    /// Probability with which such an interval covers the ratio; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_level: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
}

/// From a sensor's event to the notification of its last sink, by one path.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RouteRow {
    /// `naive` (everything opened and closed for each event), `kept-open`, on GPIO lines also
    /// `cdev` and `user` (what a route takes by itself); or where in the kernel: `xdp` (in the
    /// driver), `xdp-generic`, `tc`, `kthread`, `hardirq`.
    pub path: String,
    /// What the events went over.
    pub over: String,
    /// The command that repeats this row.
    pub command: String,
    /// The condition.
    pub when: String,
    /// Sinks notified of each event.
    pub sinks: usize,
    /// Routes at work on the device, this one included.
    #[serde(default = "one")]
    pub routes: usize,
    /// Over UDP from before the sensor's sending to the last notification, the sensor's own sending and receiving
    /// included; on GPIO lines from the edge to the output, both as the chip stamps them. None in a row of turns.
    pub edge_to_edge_ns: Option<Summary>,
    /// One turn of read, decide and write in a loop, without edges. None in a row from edge to edge.
    #[serde(default)]
    pub loop_ns: Option<Summary>,
    /// Quantile of all events of all rounds pooled, and its time in ns, for drawing. It ends where the lost ones begin.
    pub curve: Vec<(f64, u64)>,
    /// Events sent.
    pub sent: u64,
    /// Events of which not every sink was notified in time.
    pub lost: u64,
    /// Events that the path itself says it lost, those that would not have passed included; none where it can't know.
    #[serde(default)]
    pub reported_lost: Option<u64>,
    /// The time-out.
    pub timeout_ns: u64,
    /// Time from a notification to the next event; on GPIO lines from edge to edge, and 0 in a loop.
    pub gap_ns: u64,
    /// Independent repetitions, each with new sockets or a new program.
    pub rounds: Vec<Round>,
    /// Against `kept-open` with as many sinks.
    pub compared: Option<Comparison>,
    /// Its losses against those of that one; absent where neither loses any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_compared: Option<LossComparison>,
    /// Ratio of the 99th percentiles to those of `kept-open`, the median over the rounds.
    pub p99_ratio: Option<f64>,
    /// Processor of the sensor, which spins.
    pub sensor_core: Option<usize>,
    /// Processor of the thread under test.
    pub route_core: Option<usize>,
    /// `SCHED_FIFO` priority of the sensor.
    #[serde(default)]
    pub sensor_fifo: Option<u8>,
    /// `SCHED_FIFO` priority of the thread under test.
    #[serde(default)]
    pub route_fifo: Option<u8>,
}

const fn one() -> usize {
    1
}

impl EchoRow {
    /// Messages that never came back, in an open loop with those never sent.
    pub const fn losses(&self) -> Losses {
        Losses { lost: self.lost.saturating_add(self.unsent), messages: self.sent.saturating_add(self.unsent) }
    }
}

impl RouteRow {
    /// Events of which not every sink was notified in time.
    pub const fn losses(&self) -> Losses {
        Losses { lost: self.lost, messages: self.sent }
    }

    /// What was timed: from edge to edge, or a turn.
    pub const fn times(&self) -> Option<&Summary> {
        match &self.edge_to_edge_ns {
            Some(summary) => Some(summary),
            None => self.loop_ns.as_ref(),
        }
    }
}

/// Messages sent on a schedule over one endpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaceRow {
    /// The peer.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// Bytes of one message.
    pub message_bytes: u64,
    /// Time between intended sendings.
    pub period_ns: u64,
    /// Whether the transport was free to hold small writes back (Nagle's algorithm); absent where
    /// there is no such thing.
    pub nagle: Option<bool>,
    /// Who received, and how it acknowledged.
    pub peer: String,
    /// Messages sent.
    pub messages: u64,
    /// Segments or datagrams that carried them (`tcpi_data_segs_out`, retransmissions included).
    pub segments: Option<u64>,
    /// Messages per segment.
    pub messages_per_segment: Option<f64>,
    /// Intended to actual start of the sending call: our own lateness.
    pub send_lateness_ns: Option<Summary>,
    /// Duration of the sending call.
    pub send_call_ns: Option<Summary>,
    /// From the return of the sending call to the moment the bytes left the host.
    pub hold_ns: Option<Summary>,
    /// From leaving the host to the peer's acknowledgement.
    pub ack_ns: Option<Summary>,
    /// From the intended sending to the peer's program having read the whole message (its kernel, for a foreign peer).
    pub delivery_ns: Option<Summary>,
    /// Gap between segments that leave the host; where the transport gives no such timestamps, between sending calls.
    pub sender_gap_ns: Option<Summary>,
    /// Whether `sender_gap_ns` comes from the driver's timestamps (`left`) or from the sending calls (`write`).
    pub sender_gap_of: String,
    /// Gap between arrivals at the peer.
    pub receiver_gap_ns: Option<Summary>,
    /// Share of messages delivered later than a limit after their intended time, losses included.
    pub exceed: Vec<Exceedance>,
    /// Messages that never arrived.
    pub lost: u64,
    /// How far the peer's clock may be off ours: 0 when both are one clock; absent when the peer does not tell.
    pub clock_uncertainty_ns: Option<u64>,
    /// Time of messages in each layer, summed, by name of the layer.
    pub ledger_ns: Vec<(String, u64)>,
    /// Independent repetitions, each with a new link.
    pub rounds: Vec<PaceRound>,
    /// Of these the last ones whose events were dropped for want of room, once all other figures
    /// had been taken from them: the ledger and the findings are of the rounds before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_rounds: u64,
    /// The first messages of the last round, stage by stage, for drawing.
    pub excerpt: Vec<MessageExcerpt>,
    /// On which processors both ends ran; absent in virtual time and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The TCP connection at the end of the last round.
    pub tcp: Option<TcpFacts>,
    /// Socket options in force, as the kernel has them.
    pub options: Vec<String>,
    /// What the observer costs a round trip over loopback on this host, measured just after; all
    /// times here are observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverCost>,
}

/// One repetition of a pacing run.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaceRound {
    /// Mean gap between segments that leave.
    pub sender_gap_mean_ns: Option<u64>,
    /// Mean gap between arrivals.
    pub receiver_gap_mean_ns: Option<u64>,
    /// Median of intended to read, of all messages; null where it falls on a lost one, or the peer does not tell.
    pub delivery_p50_ns: Option<u64>,
    /// Messages per segment.
    pub messages_per_segment: Option<f64>,
    /// Messages sent.
    pub messages: u64,
    /// Whether the round came to its end. One that the user or the peer cut short is counted in all
    /// messages together and is in no median and no interval across rounds.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub complete: bool,
}

/// When one message reached each stage, in ns from the first message's intended time; absent where unknown or never.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct MessageExcerpt {
    /// The schedule wanted it sent.
    pub intended: i64,
    /// The sending call began.
    pub write_begin: Option<i64>,
    /// The sending call came back.
    pub write_end: Option<i64>,
    /// The transport passed it to the queueing discipline.
    pub scheduled: Option<i64>,
    /// It left the host.
    pub left: Option<i64>,
    /// The peer acknowledged it.
    pub acked: Option<i64>,
    /// The peer's kernel had it.
    pub received: Option<i64>,
    /// The peer's program had read it.
    pub read: Option<i64>,
}

/// Throughput over one endpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct StreamRow {
    /// The peer.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// `up` (to the peer), `down` or `both`.
    pub direction: String,
    /// Links open at once.
    pub connections: usize,
    /// Bytes of one write.
    pub block_bytes: u64,
    /// Bits per second that arrived at the receiver, both directions added. The median over the rounds.
    pub throughput_bps: f64,
    /// Interval of the throughput across rounds.
    pub throughput_bps_ci: Option<(f64, f64)>,
    /// Its level: the probability, from 0 to 1, that such an interval covers the median of what the
    /// rounds are a sample of.
    #[serde(default)]
    pub throughput_bps_ci_level: Option<f64>,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Where all these bytes were counted.
    #[serde(default)]
    pub counted: Counted,
    /// Bytes sent that never arrived (datagrams).
    pub lost_bytes: u64,
    /// Bytes that this host's kernel took on links that broke before the peer could tell what had arrived, or that
    /// a plain peer's kernel had not acknowledged at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unconfirmed_bytes: u64,
    /// Where the bytes to a plain peer were taken in few large steps: then the links of a round go
    /// on in the next one, and the rate of a single round may be off by a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coarse: Option<Coarse>,
    /// CPU time of this process.
    pub cpu_ns: u64,
    /// CPU time that the peer spent on these links, where it tells.
    pub peer_cpu_ns: Option<u64>,
    /// Bytes that arrived for one second of CPU time, both sides added where the peer tells.
    pub bytes_per_cpu_second: f64,
    /// Independent repetitions, each with new links.
    pub rounds: Vec<StreamRound>,
    /// On which processors both ends ran; absent in virtual time and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The first TCP connection of the last round, at its end.
    pub tcp: Option<TcpFacts>,
    /// Socket options in force, as the kernel has them.
    pub options: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Where the bytes of a throughput run were counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// By the program that received them.
    #[default]
    Received,
    /// By this host's kernel, as the peer's kernel acknowledged them (`tcpi_bytes_acked`); whether the peer's program
    /// read them is not known. A plain peer over TCP.
    Acknowledged,
    /// As this host's socket took them: what the kind of link tells of a plain peer that is not reached by TCP.
    Taken,
}

/// How much at a time a plain peer's kernel takes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Coarse {
    /// Steps in the time that counts, of the round with the fewest.
    pub steps: u64,
    /// Bytes of the largest step.
    pub step_bytes: u64,
}

impl Coarse {
    /// The fewer and the larger steps of two.
    pub fn coarser(self, other: Self) -> Self {
        Self { steps: self.steps.min(other.steps), step_bytes: self.step_bytes.max(other.step_bytes) }
    }
}

/// One repetition of a throughput run.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct StreamRound {
    /// Bits per second that arrived, what came with the first arrival left out; of a plain peer from the last progress
    /// in the first half of the round to the last in its second half, so that filling the buffers counts for nothing.
    pub throughput_bps: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// The time that the rate is of, longest of all links: from the first byte to the last, and no
    /// less than the time of sending; where it broke off, until then.
    pub duration_ns: u64,
    /// Whether the round came to its end. One that the user or the peer cut short is counted in `bytes` and is in no
    /// interval.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub complete: bool,
}

/// What the kernel told of a TCP connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TcpFacts {
    /// Largest segment.
    pub mss_bytes: u32,
    /// Smoothed round trip.
    pub smoothed_rtt_ns: u64,
    /// Least round trip.
    pub min_rtt_ns: u64,
    /// Congestion window.
    pub congestion_window_segments: u32,
    /// Segments sent again.
    pub retransmitted_segments: u32,
    /// Segments with data sent.
    pub data_segments_out: u32,
    /// Time in which data was outstanding.
    pub busy_ns: u64,
    /// Of that, limited by the peer's receive window.
    pub receive_window_limited_ns: u64,
    /// Of that, limited by the local send buffer.
    pub send_buffer_limited_ns: u64,
    /// Delivery rate as the kernel estimates it.
    pub delivery_rate_bps: u64,
}

impl From<taut_link::TcpInfo> for TcpFacts {
    fn from(info: taut_link::TcpInfo) -> Self {
        let nanos = |duration: taut_time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self {
            mss_bytes: info.send_mss_bytes,
            smoothed_rtt_ns: nanos(info.smoothed_rtt),
            min_rtt_ns: nanos(info.min_rtt),
            congestion_window_segments: info.congestion_window_segments,
            retransmitted_segments: info.retransmitted_segments,
            data_segments_out: info.data_segments_out,
            busy_ns: nanos(info.busy_time),
            receive_window_limited_ns: nanos(info.receive_window_limited),
            send_buffer_limited_ns: nanos(info.send_buffer_limited),
            delivery_rate_bps: info.delivery_rate_bytes_per_second.saturating_mul(8),
        }
    }
}

/// One setting, tried in turn with the base.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TuneRow {
    /// The peer.
    pub endpoint: String,
    /// The command that repeats this row.
    pub command: String,
    /// Workload that was shortened or not: `echo`, `write-write-read`, `pace` or `stream`.
    pub measured: String,
    /// Name of the setting; `base` is the endpoint as it is.
    pub setting: String,
    /// Where it is set: `this socket`, `the peer's socket`, `the program`, `the host`.
    pub place: String,
    /// Median time (of the round trip, of the delivery, or of 1 MiB of the stream).
    pub p50_ns: Option<u64>,
    /// 99th percentile of it, the median over the rounds; absent where a round has too few of them.
    pub p99_ns: Option<u64>,
    /// Share of the messages that were lost in these rounds, from 0 to 1. The figures above are of
    /// all messages, and absent where they fall on a lost one.
    #[serde(default)]
    pub lost_share: f64,
    /// Median with the setting over median without, round by round; below 1 means shorter. The median over the rounds.
    pub p50_ratio: Option<f64>,
    /// Interval of that ratio across rounds.
    pub p50_ratio_ci: Option<(f64, f64)>,
    /// Probability with which such an interval covers the ratio; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ratio_level: Option<f64>,
    /// The same for the 99th percentile.
    pub p99_ratio: Option<f64>,
    /// Ratio in the screening, of a setting that stood out in it and was measured again: everything
    /// else in this row is of the fresh rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screening_ratio: Option<f64>,
    /// Median of the base in the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_p50_ns: Option<u64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
    /// Why it could not be tried, or not be compared.
    pub why_not: Option<String>,
    /// The line of code, or the command, that puts it in force.
    pub apply: Option<String>,
    /// Throughput in bits per second, where that was measured. The median over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
    /// Options in force and what was negotiated in the last round, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// On which processors both ends ran, in all trials of the table: its verdicts hold for that.
    /// Absent over Bluetooth and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// What the tool and the host cost by themselves.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct FloorRow {
    /// What was measured.
    pub what: String,
    /// Its times.
    pub ns: Summary,
    /// What it means for the figures of the other commands.
    pub meaning: String,
}

/// Whether something that Tautline needs works here.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CheckRow {
    /// What was tried.
    pub what: String,
    /// Whether it works.
    pub works: bool,
    /// What of Tautline needs it.
    pub needed_for: String,
    /// What was found.
    pub found: String,
    /// What to do about it when it does not work.
    pub remedy: Option<String>,
}
