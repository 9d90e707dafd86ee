use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_time::Instant;

use super::link_model::LinkModel;
use super::over_all::OverAll;
use super::picture::Picture;
use super::times::Times;

/// What the packets of one source came to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Explanation {
    /// From the first to the last packet that is part of a connection.
    pub span_ns: u64,
    /// Segments of TCP, without copies, datagrams of UDP, and of Bluetooth ACL packets, or data PDUs on the air.
    pub segments: u64,
    /// Packets that the capture had twice; the copies were left out.
    pub copies: u64,
    /// Connections of TCP, flows of UDP, channels of L2CAP, and links of Bluetooth LE on the air.
    pub flows: u64,
    /// Connections that were booked before their end, since too many were open at once.
    pub evicted_flows: u64,
    /// How often the clock of the capture was set back by more than a second, stood so far ahead in a
    /// few packets, or was set for the first time. No time is booked for such a step.
    #[serde(default)]
    pub clock_steps: u64,
    /// Connections that were asked for again and again, and never opened.
    #[serde(default)]
    pub unanswered: Unanswered,
    /// Directions of connections in which data went.
    pub directions: u64,
    /// Who held the data of all directions, longest first.
    pub totals: Vec<Held>,
    /// The causes that were found or could not be told, over all directions.
    pub causes: Vec<CauseIn>,
    /// What stands out over all directions, also of those that are not among the worst.
    #[serde(default)]
    pub over_all: OverAll,
    /// The directions in which most time could be had back, worst first.
    pub worst: Vec<Direction>,
    /// The first packet that is part of a connection, on the clock of the capture.
    #[serde(skip)]
    pub start: Option<Instant>,
}

/// Connections of TCP whose SYN was sent again, and never answered.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Unanswered {
    /// How many.
    pub connections: u64,
    /// How long the one was asked for that was longest, from its first to its last SYN.
    pub longest_ns: u64,
    /// The packet of its first SYN; 0: none.
    pub frame: u64,
}

/// In how many directions a cause was found.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CauseIn {
    /// Short name of the cause.
    pub cause: String,
    /// Directions in which it was found.
    pub found: u64,
    /// Directions of which the capture can't tell.
    pub unknown: u64,
    /// The largest share of one direction's time, 0 to 1.
    pub largest_share: f64,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Direction {
    /// Address and port of the sender.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// Bytes of data, each counted once.
    pub bytes: u64,
    /// Segments with data, repetitions too.
    pub segments: u64,
    /// From the beginning of the capture to that of this direction's time.
    pub begin_ns: u64,
    /// From the opening, or the first data where that was not seen, to the last acknowledgement, or
    /// to the end of the connection if a wait lasted until then.
    /// The parts of the breakdown add up to this.
    pub span_ns: u64,
    /// First and last packet with its data.
    pub frames: [u64; 2],
    /// Where the capture was taken: 0 at the sender, 1 at the receiver, by the times of the
    /// handshake, or without one by the least times to answers. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vantage: Option<f64>,
    /// Least round trip of the path; 0: not known.
    pub min_rtt_ns: u64,
    /// Median round trip, with what the receiver delayed its acknowledgements.
    pub median_rtt_ns: Option<u64>,
    /// Largest segment, in bytes.
    pub mss_bytes: u64,
    /// Largest receive window, in bytes; absent where its scale was not seen.
    pub largest_window_bytes: Option<u32>,
    /// Most bytes in flight.
    pub peak_flight_bytes: u64,
    /// Segments that were sent again, of the largest size each.
    pub repeated_segments: u64,
    /// Who held the data, longest first.
    pub breakdown: Vec<Held>,
    /// What each detector says: first what was found, worst first.
    pub verdicts: Vec<VerdictOn>,
    /// What the capture lacks, and what that means for the figures.
    pub remarks: Vec<String>,
    /// How long the peer's answers, round trips and packets in the controller took, where the capture tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<Times>,
    /// Of a channel of Bluetooth, what it and its link are like; absent elsewhere. There `segments` are ACL
    /// packets, `mss_bytes` is the longest of them and `peak_flight_bytes` the most in the controller; round
    /// trips, windows and repetitions are not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelFacts>,
    /// Of datagrams of UDP, what they are like; absent elsewhere. There `segments` are datagrams, `mss_bytes` is the
    /// longest of them and `repeated_segments` those that were sent again with the same payload; round trips, windows
    /// and the bytes in flight are not seen. The time goes from the first datagram to the last one, or to its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramFacts>,
    /// Of a link of Bluetooth LE on the air, what it is like; absent elsewhere. There `bytes` are those of data PDUs,
    /// `segments` PDUs with data or control, `mss_bytes` the longest of them, and `repeated_segments` those that were
    /// sent again. The time goes from the first PDU with data to the answer to the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub air: Option<AirFacts>,
    /// Of a channel of Bluetooth, the simulated link that shows what the log shows, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<LinkModel>,
    /// Its time, stretch by stretch, where the engine was asked for it (`with_spans`).
    #[serde(skip)]
    pub picture: Option<Picture>,
}

/// What a sniffer saw of a link of Bluetooth LE. What the capture does not tell is absent. Events are those of the
/// link, PDUs those of this direction.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AirFacts {
    /// The link's access address, in hexadecimal.
    pub access_address: String,
    /// Connection interval in use at the end.
    pub interval_ns: Option<u64>,
    /// Whether a PDU told the interval; else it is that of the anchors.
    pub is_interval_told: bool,
    /// Events that the peripheral may skip.
    pub latency: Option<u16>,
    /// Physical layer of most PDUs with data: 1M, 2M, Coded.
    pub phy: Option<String>,
    /// Longest payload of a data PDU that was agreed on.
    pub length_bytes: Option<u16>,
    /// Whether encryption was seen to begin, or the capture marks PDUs as encrypted.
    pub is_encrypted: bool,
    /// Connection events of which a PDU was seen.
    pub events: u64,
    /// Connection events of which none was, by the interval or the sniffer's count.
    pub unseen_events: u64,
    /// Connection events in which the peripheral was not seen to answer.
    pub silent_events: u64,
    /// Median exchanges in an event.
    pub exchanges_per_event: Option<u64>,
    /// The most.
    pub most_exchanges: u64,
    /// Events that ended with more data told of (MD) and no time left.
    pub full_events: u64,
    /// Events that ended with more data told of and time left, since the central did not go on.
    pub ended_by_central: u64,
    /// The same, since the peripheral was not seen to answer.
    pub ended_by_peripheral: u64,
    /// The same, where the last PDU had a wrong CRC.
    pub ended_by_crc: u64,
    /// PDUs of link layer control.
    pub control_pdus: u64,
    /// Empty PDUs.
    pub empty_pdus: u64,
    /// PDUs whose answer asked for them once more (NESN).
    pub refused: u64,
    /// PDUs that the sniffer got with a wrong CRC.
    pub wrong_crc: Option<u64>,
    /// How often sequence numbers show that the sniffer missed PDUs.
    pub unseen_pdus: u64,
    /// Time on air of PDUs with data, repetitions not counted.
    pub air_ns: u64,
}

/// What the datagrams of a flow of UDP are like. What the capture does not tell is absent.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DatagramFacts {
    /// `udp`, `quic` or `dns`. Of DNS one report has all that a host asks, from whichever port.
    pub protocol: String,
    /// Payload per second over the whole time.
    pub bits_per_second: u64,
    /// Datagrams that came in several fragments of IP.
    pub fragmented: u64,
    /// Sent again with the same payload before anything came back; of DNS questions asked again.
    pub repeated: u64,
    /// How often something came the other way after these datagrams; of DNS answers.
    pub answers: u64,
    /// From the last datagram to the first one the other way, or from a question to its answer.
    pub median_answer_ns: Option<u64>,
    /// The longest of these times.
    pub longest_answer_ns: Option<u64>,
    /// Of QUIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicFacts>,
    /// Of DNS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsFacts>,
    /// Streams of numbered packets: RTP, and Tautline's own data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamFacts>,
}

/// What the numbers of a stream tell, at the place of the capture.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StreamFacts {
    /// `rtp` or `tautline`.
    pub protocol: String,
    /// SSRC or session, in hexadecimal.
    pub id: String,
    /// Of RTP, that of the last packet.
    pub payload_type: Option<u8>,
    /// The first packet and the last one.
    pub frames: [u64; 2],
    /// Packets with a number of their own.
    pub packets: u64,
    /// Numbers from the first to the highest one (RFC 3550, appendix A.3).
    pub expected_packets: u64,
    /// Numbers of these that did not come. Copies do not make up for them, as they do in RFC 3550.
    pub lost_packets: u64,
    /// Runs of such numbers. What comes behind 128 later numbers or more counts as lost.
    pub gaps: u64,
    /// The most of them that are missing in a row.
    pub most_lost_in_a_row: u64,
    /// The longest time from the packet before such a run to the one behind it.
    pub longest_gap_ns: u64,
    /// These two packets.
    pub longest_gap_frames: Option<[u64; 2]>,
    /// Copies of packets that had come.
    pub duplicates: u64,
    /// Came behind a packet with a higher number.
    pub overtaken: u64,
    /// How often the numbers began anew.
    pub restarts: u64,
    /// The clock of RTP's timestamps: that of the payload type, or the usual one that they go by. Absent if neither is
    /// known, and so is the jitter.
    pub clock_hz: Option<u32>,
    /// Interarrival jitter behind the last packet (RFC 3550, appendix A.8).
    pub jitter_ns: Option<u64>,
    /// The largest that it was.
    pub most_jitter_ns: Option<u64>,
}

/// What can be read of a connection of QUIC.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct QuicFacts {
    /// `1`, `2`, `draft 29`.
    pub version: String,
    /// Destination's connection ID of the first packet with a long header, in hexadecimal.
    pub connection_id: String,
    /// Median time between two changes of the spin bit, which is a round trip with what the ends add; absent where it
    /// does not spin.
    pub spin_rtt_ns: Option<u64>,
    /// How often the spin bit of this direction changed.
    pub spin_changes: u64,
    /// What a log of one of the ends has (qlog); absent of a capture. There the places of stretches are numbers of the
    /// log's events, from 1, and `segments` are packets of QUIC. The time goes from the log's first event to the last
    /// data, its acknowledgement, or the first answer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<QuicLogFacts>,
}

/// What the log of an end of QUIC has of a direction. What it does not tell is absent.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct QuicLogFacts {
    /// Whether the end that logs is the one that sends.
    pub is_own: bool,
    /// Packets with data of streams, or datagrams.
    pub data_packets: u64,
    /// Packets with data that the sender took for lost.
    pub lost_packets: Option<u64>,
    /// Of them such as were acknowledged after all.
    pub spurious_losses: Option<u64>,
    /// Probes after silence (PTO; RFC 9002, section 6.2).
    pub probes: Option<u64>,
    /// How often the sender said that the receiver's limits held it.
    pub blocked: u64,
    /// Largest congestion window.
    pub largest_congestion_window_bytes: Option<u64>,
}

/// What a host asked servers of DNS.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DnsFacts {
    /// Questions that were neither answered nor asked again within 30 s.
    pub given_up: u64,
    /// Answers to questions that had been asked again by then.
    pub late: u64,
    /// Questions asked again of which the other one of a pair (A and AAAA, sent together) was answered.
    pub of_pairs: u64,
    /// Questions and answers that the capture has twice; the copies are left out.
    pub copies: u64,
    /// The servers, the first eight.
    pub servers: Vec<DnsServer>,
}

/// What a server of DNS did.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DnsServer {
    /// Its address.
    pub address: String,
    /// Questions it was asked.
    pub questions: u64,
    /// Answers that came.
    pub answers: u64,
    /// Questions that it had not answered when they were asked again, or were given up.
    pub unanswered: u64,
    /// Answers that say that the server failed or refused.
    pub failures: u64,
    /// Median time to an answer.
    pub median_answer_ns: Option<u64>,
}

/// What an L2CAP channel of Bluetooth and its link are like. Where the link changed it is as it was for most of the
/// time in which packets used it or waited for it. What the log does not tell is absent.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ChannelFacts {
    /// `att`, `credit_based`, or `dynamic` where its opening was not seen; of BR/EDR `basic`, `rfcomm`, `media`.
    pub kind: String,
    /// Connection interval.
    pub interval_ns: Option<u64>,
    /// Events that the peripheral may skip.
    pub latency: Option<u16>,
    /// Physical layer of this direction: 1M, 2M, Coded.
    pub phy: Option<String>,
    /// Longest payload of a data PDU in this direction.
    pub length_bytes: Option<u16>,
    /// Whether encryption was seen to begin.
    pub is_encrypted: bool,
    /// Longest SDU that the receiver takes.
    pub mtu_bytes: Option<u16>,
    /// Longest PDU that the receiver takes.
    pub mps_bytes: Option<u16>,
    /// PDUs that the receiver allowed when the channel was opened.
    pub initial_credits: Option<u16>,
    /// ACL packets that the sender's controller takes at once.
    pub controller_buffers: Option<u16>,
    /// SDUs.
    pub sdus: u64,
    /// PDUs.
    pub pdus: u64,
    /// Of these, the ones behind packets that the log lacks, of which is not known where their SDUs begin and end; such
    /// SDUs are not counted.
    #[serde(default)]
    pub pdus_of_unknown_sdus: u64,
    /// Most ACL packets that went within one interval; 0 where that is not known.
    pub most_packets_per_interval: u64,
    /// Median time from a packet's hand-over until the controller told that it is through.
    pub median_completion_ns: Option<u64>,
    /// The longest such time.
    pub max_completion_ns: Option<u64>,
    /// Time on the air in nanoseconds, computed from the packets' lengths: data PDUs, their answers, and the spaces
    /// between.
    pub on_air_ns: u64,
    /// Of the attribute protocol what went over which handle; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gatt: Option<GattFacts>,
}

/// What went over the attributes of a bearer of ATT in one direction.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GattFacts {
    /// Longest PDU of ATT that both take, 23 until they have agreed on another one; at least so much, where it is not
    /// known.
    pub att_mtu_bytes: u16,
    /// Whether the log has that exchange, with its answer, or the opening of an enhanced bearer's channel, whose MTU it
    /// is.
    pub is_mtu_exchanged: bool,
    /// Whether it is known: one of these is there, or the link's begin with nothing longer since.
    #[serde(default)]
    pub is_mtu_known: bool,
    /// The handles, each kind of PDU by itself, the most bytes first.
    pub handles: Vec<GattHandle>,
    /// PDUs of further handles in this direction: 128 of the bearer are followed, of both directions together.
    pub beyond: u64,
}

/// One kind of PDU over one handle.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GattHandle {
    /// The attribute's handle.
    pub handle: u16,
    /// Its type, where the log has the discovery of that.
    pub uuid: Option<String>,
    /// The name of its type, of such as are often seen.
    pub name: Option<String>,
    /// `read`, `write_request`, `prepare_write_request`, `write_command`, `notification` or `indication`.
    pub kind: String,
    /// PDUs; of reads requests.
    pub count: u64,
    /// Bytes of values; of reads those of the answers.
    pub bytes: u64,
    /// The longest value in a PDU.
    pub longest_bytes: u16,
    /// Bytes of values over the time from the first PDU to the last one, or to its answer.
    pub bits_per_second: Option<u64>,
    /// Half of the answers came within this, as the log's host sees it: from its hand-over to the answer's arrival, or
    /// from the arrival to the answer's hand-over. Absent where nothing is answered.
    pub turn_p50_ns: Option<u64>,
    /// 99 % of them.
    pub turn_p99_ns: Option<u64>,
    /// The median in connection intervals.
    pub intervals_per_turn: Option<f64>,
    /// Answers that say why not.
    pub errors: u64,
    /// Questions without an answer in the log: another one went, or the log ends. The turns leave them out. Where the
    /// log counts losses it may be there that the answer is, and these are not counted.
    #[serde(default)]
    pub unanswered: u64,
    /// What limits it, the first one most: `turn` (half of the time or more a question waits for its answer),
    /// `program`, `link` (the log's breakdown has half of the time or more for it), `mtu` (half of the values or more
    /// have all the room there is, and a data PDU on the air has more). Empty: too few, or not known.
    pub limits: Vec<String>,
}

/// What one holder had.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Held {
    /// Who: `receive_window`. `taut explain --help` lists them.
    pub holder: String,
    /// Which end has to act: sender, receiver, path.
    pub side: String,
    /// For how long.
    pub held_ns: u64,
    /// Share of the whole, 0 to 1.
    pub share: f64,
    /// In how many stretches.
    pub episodes: u64,
    /// The longest stretches.
    pub longest: Vec<Stall>,
}

/// One stretch of holding.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Stall {
    /// From the beginning of the capture.
    pub begin_ns: u64,
    /// How long.
    pub held_ns: u64,
    /// The packet before, and the one that ended it.
    pub frames: [u64; 2],
}

/// What one detector says about one direction.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VerdictOn {
    /// Short name of the cause, the same in all versions: `nagle_delayed_ack`.
    pub cause: String,
    /// What it says.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Whether a cause is there.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It is.
    Found(Found),
    /// It is not: it would have been seen.
    Clear,
    /// What was seen can't tell.
    Unknown {
        /// What was not seen.
        missing: String,
        /// What would tell.
        ask: String,
    },
}

/// A cause that was found.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Found {
    /// The cause in a sentence.
    pub summary: String,
    /// Which end has to act.
    pub side: String,
    /// How sure that is.
    pub certainty: Certainty,
    /// What it costs.
    pub cost: Cost,
    /// What was seen, with places to look at.
    pub evidence: Vec<Evidence>,
    /// What to change.
    pub remedy: String,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The remedy was run and helped.
    Proven,
    /// The state itself was seen.
    Seen,
    /// What was seen fits it, and nothing else that is known.
    Consistent,
}

/// What a cause costs, in time of the direction.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Cost {
    /// Time held, in all.
    pub held_ns: u64,
    /// The least and the most that it may be, where a capture can't tell.
    pub between_ns: [u64; 2],
    /// Share of the direction's time, 0 to 1.
    pub share: f64,
    /// In how many stretches.
    pub episodes: u64,
}

/// Something that was seen.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Evidence {
    /// What, with figures.
    pub text: String,
    /// Packets to look at, the first and the last.
    pub frames: Option<[u64; 2]>,
}
