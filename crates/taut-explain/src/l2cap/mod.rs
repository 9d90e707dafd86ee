//! L2CAP channels of Bluetooth LE under real kernels: what holds their throughput or their round
//! trip, from what both ends negotiated and what was measured.

mod facts;

pub use facts::Facts;
use facts::{Receiver, Rule};

use taut_air::SDU_LENGTH_BYTES;
use taut_air::l2cap::{CreditPolicy, ReceiveBuffer};

use crate::{Finding, Unit};

/// A stream that was measured.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What it was.
    pub on: String,
    /// From the peer to us.
    pub down: bool,
    /// Bytes of one write.
    pub block_bytes: u64,
    /// Bits per second that arrived.
    pub throughput_bps: f64,
}

/// Messages that were measured one by one.
#[derive(Clone, Debug)]
pub struct Messages {
    /// What it was.
    pub on: String,
    /// Median of the round trip or of the delivery, in ns.
    pub p50_ns: u64,
}

/// A stream with more of what the air can carry is not held by its credits.
const NEARLY_ALL: f64 = 0.85;
/// Default limits of the kernel in ms (`conn_min_interval`, `conn_max_interval` in debugfs: 24 and 40 times 1.25 ms).
const DEFAULT_INTERVAL_US: std::ops::RangeInclusive<u32> = 30_000..=50_000;
/// Payload of a data PDU without the Data Length Extension (Bluetooth Core Specification, Vol 6,
/// Part B, section 4.5.10).
const SHORT_PDU: u32 = 27;
const LONG_PDU: u32 = 251;
/// `sizeof(struct sk_buff)` on 64 bits, in bytes: what a kernel with the newer rule reckons for
/// each PDU besides its payload.
const SK_BUFF: u32 = 232;
/// SO_RCVBUF as it is unless somebody changes it (net.core.rmem_default).
const DEFAULT_BUFFER: u32 = 212_992;
/// Share of the SDUs that are remainders from which one minds them.
const LEAST_TAIL: f64 = 0.01;
/// A remainder of at least so much of an SDU is nearly as good as a whole one.
const SMALL_TAIL: f64 = 0.5;

/// Why nothing moved any more on a link: its receiver never gives the credits of a whole SDU.
/// `bytes` are those of one write.
pub fn of_standstill(facts: &Facts, on: &str, down: bool, bytes: u64) -> Option<Finding> {
    let receiver = facts.receiver(down);
    let (mtu, mps, buffer) = (receiver.mtu?, receiver.mps?, receiver.buffer?);
    receiver.rule.filter(|rule| *rule == Rule::ReceiveBuffer)?;
    let sdu = bytes.min(mtu.into()) as usize;
    let room = ReceiveBuffer { size: buffer as usize, overhead: SK_BUFF as usize, used: 0 };
    let stands_still = |sdu| CreditPolicy::LinuxRecvbuf.stands_still(sdu, mtu as usize, mps as usize, room);
    let come = stands_still(sdu)?;
    let (whose, pdus) = (if down { "this side" } else { "the peer" }, (sdu + SDU_LENGTH_BYTES).div_ceil(mps as usize));
    let mut evidence = vec![
        format!(
            "SO_RCVBUF of {whose} is {buffer} bytes, {DEFAULT_BUFFER} by default; its kernel gives credits for what that has room for, {SK_BUFF} \
             bytes reckoned for each PDU, less the PDUs of the SDU that it puts together (net/bluetooth/l2cap_core.c, Linux 6.10 and newer)"
        ),
        format!(
            "an SDU of {sdu} bytes is {pdus} PDUs of {mps}: with an empty buffer the credits end after {come} of them, and nothing that is \
             read brings more"
        ),
    ];
    if let (Some(first), Some(grant)) = (receiver.credits, receiver.largest_grant) {
        evidence.push(format!(
            "{first} credits at first, then never more than {grant} at once were heard, and nothing moved any more"
        ));
    }
    Some(Finding {
        cause: "credit_window_below_sdu".to_owned(),
        summary: "The receiver's socket buffer is so small that its kernel never gives the credits of a whole SDU: the channel stands still."
            .to_owned(),
        on: on.to_owned(),
        share: 1.0,
        share_of: Unit::Time,
        cost_ns: 0,
        evidence,
        remedy: format!(
            "Leave SO_RCVBUF of the socket of {whose} alone, or raise it (rcvbuf= in taut's endpoint; the kernel doubles \
             what is asked for). Messages of at most {} bytes come through as it is.",
            (0..sdu).rev().find(|&sdu| stands_still(sdu).is_none()).unwrap_or(0)
        ),
        proof: None,
    })
}

/// What holds a stream.
pub fn of_stream(facts: &Facts, stream: &Stream) -> Vec<Finding> {
    let held = credit_window(facts, stream);
    let mut findings = of_link(facts, &stream.on);
    findings.extend(data_length(facts, stream));
    if let Some(held) = held {
        findings.extend(tail(facts, stream));
        let cost = held.cost_ns;
        findings.push(held);
        findings.extend(default_interval(facts, &stream.on, cost));
    }
    findings
}

/// What lengthens the way of single messages.
pub fn of_messages(facts: &Facts, messages: &Messages) -> Vec<Finding> {
    let mut findings = of_link(facts, &messages.on);
    let waits = facts.interval_us.is_some_and(|us| messages.p50_ns * 2 >= u64::from(us) * 1000);
    findings.extend(default_interval(facts, &messages.on, messages.p50_ns).filter(|_| waits));
    findings
}

/// What concerns a link whatever goes over it.
fn of_link(facts: &Facts, on: &str) -> Vec<Finding> {
    [put_back(facts, on), early_data(facts, on)].into_iter().flatten().collect()
}

/// The receiver lets one SDU come at a time, and the air is idle until its credits have travelled.
fn credit_window(facts: &Facts, stream: &Stream) -> Option<Finding> {
    let receiver = facts.receiver(stream.down);
    let limit = facts.limit_bps(stream.down, None)?;
    let share = stream.throughput_bps / limit;
    let (window, pdus, mtu, mps) = (receiver.window()?, receiver.pdus()?, receiver.mtu?, receiver.mps?);
    let why = Why::of(&receiver)?;
    if share >= NEARLY_ALL || stream.throughput_bps <= 0.0 {
        return None;
    }
    let sdu_ns = |bps: f64| f64::from(mtu) * 8e9 / bps;
    let whose = if stream.down { "this side" } else { "the peer" };
    let mut evidence = vec![
        format!(
            "{whose} takes SDUs of {mtu} bytes in PDUs of {mps} ({pdus} of them), gave {} credits at first and never more than {} at once: \
             {window} PDUs may be on their way",
            receiver.credits?, receiver.largest_grant?
        ),
        format!(
            "{:.1} kb/s arrived, {:.0} % of the {:.1} kb/s that the air can carry",
            stream.throughput_bps / 1e3,
            share * 100.0,
            limit / 1e3
        ),
    ];
    if let Some(us) = facts.interval_us {
        let intervals = sdu_ns(stream.throughput_bps) / (f64::from(us) * 1000.0);
        evidence.push(format!("an SDU took {intervals:.1} connection intervals of {} ms", f64::from(us) / 1000.0));
    }
    evidence.push(why.evidence(&receiver, whose));
    Some(Finding {
        cause: why.cause().to_owned(),
        summary: why.summary().to_owned(),
        on: stream.on.clone(),
        share: (1.0 - share).max(0.0),
        share_of: Unit::Time,
        cost_ns: (sdu_ns(stream.throughput_bps) - sdu_ns(limit)).max(0.0) as u64,
        evidence,
        remedy: why.remedy(whose),
        proof: None,
    })
}

/// Why so few credits are given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// The kernel's older rule.
    OldRule,
    /// The newer rule does not come into force with PDUs so short.
    SmallMps,
    /// The newer rule, and a small buffer.
    SmallBuffer,
    /// One of the first two.
    Unknown,
}

impl Why {
    fn of(receiver: &Receiver) -> Option<Self> {
        let small_buffer = receiver.buffer.is_some_and(|bytes| bytes < DEFAULT_BUFFER / 4);
        match receiver.rule {
            Some(Rule::ReceiveBuffer) if small_buffer => Some(Self::SmallBuffer),
            _ if !receiver.is_one_sdu() => None,
            Some(Rule::Sdu) => Some(Self::OldRule),
            Some(Rule::ReceiveBuffer) => receiver.mps.filter(|mps| *mps <= SK_BUFF).map(|_| Self::SmallMps),
            None => Some(Self::Unknown),
        }
    }

    const fn cause(self) -> &'static str {
        match self {
            Self::OldRule | Self::Unknown => "credit_window_one_sdu",
            Self::SmallMps => "credit_window_small_mps",
            Self::SmallBuffer => "credit_window_small_buffer",
        }
    }

    const fn summary(self) -> &'static str {
        match self {
            Self::OldRule | Self::Unknown => {
                "The receiver gives credits for one SDU at a time, and the air is idle until they are back at the sender."
            }
            Self::SmallMps => {
                "The receiver's PDUs are too short for its kernel's rule of credits, which falls back to one SDU at a time."
            }
            Self::SmallBuffer => "The receiver's socket buffer is so small that its kernel gives few credits.",
        }
    }

    fn evidence(self, receiver: &Receiver, whose: &str) -> String {
        match self {
            Self::OldRule => format!(
                "the kernel of {whose} gives MTU / MPS + 1 credits and gives them back when an SDU is complete, as Linux before 6.10 \
                 does (net/bluetooth/l2cap_core.c; some older series have the change)"
            ),
            Self::SmallMps => format!(
                "the kernel of {whose} gives credits for its receive buffer less {SK_BUFF} bytes for each PDU, and nothing is left of it \
                 at {} bytes a PDU",
                receiver.mps.unwrap_or(0)
            ),
            Self::SmallBuffer => format!(
                "SO_RCVBUF of {whose} is {} bytes, {DEFAULT_BUFFER} by default; the kernel gives credits for it less {SK_BUFF} bytes for \
                 each PDU",
                receiver.buffer.unwrap_or(0)
            ),
            Self::Unknown => format!("by which rule the kernel of {whose} gives credits is not known"),
        }
    }

    fn remedy(self, whose: &str) -> String {
        let socket = format!("the socket of {whose}");
        match self {
            Self::OldRule | Self::Unknown => format!(
                "Give {socket} a larger receive MTU before it connects or listens (BT_RCVMTU, mtu= in taut's endpoint), shorten the \
                 connection interval on both machines, or run Linux 6.10 or newer there. `taut tune` tries it."
            ),
            Self::SmallMps => {
                "The controller's ACL packets are too short: use one that takes 251 bytes (LE Read Buffer Size), so that the MPS \
                 exceeds the kernel's overhead; else give the receiving socket a larger MTU (BT_RCVMTU)."
                    .to_owned()
            }
            Self::SmallBuffer => format!("Leave SO_RCVBUF of {socket} alone, or raise it (rcvbuf= in taut's endpoint)."),
        }
    }
}

/// Each write ends in a short SDU, which takes the credit and the time of a long one.
fn tail(facts: &Facts, stream: &Stream) -> Option<Finding> {
    let mtu = u64::from(facts.receiver(stream.down).mtu.filter(|mtu| *mtu > 0)?);
    let (whole, rest) = (stream.block_bytes / mtu, stream.block_bytes % mtu);
    let share = 1.0 / (whole + 1) as f64;
    if rest == 0 || whole == 0 || share < LEAST_TAIL || rest as f64 > SMALL_TAIL * mtu as f64 {
        return None;
    }
    let interval_ns = u64::from(facts.interval_us?) * 1000;
    let intervals = stream.block_bytes as f64 * 8e9 / (stream.throughput_bps * interval_ns as f64);
    Some(Finding {
        cause: "partial_sdu_tail".to_owned(),
        summary: "Writes are no multiple of the peer's MTU: each ends in a short SDU, which uses up a credit as a whole one does."
            .to_owned(),
        on: stream.on.clone(),
        share,
        share_of: Unit::Sdus,
        cost_ns: interval_ns,
        evidence: vec![
            format!(
                "a write of {} bytes is {whole} SDUs of {mtu} bytes and one of {rest}, with credits for one SDU at a time",
                stream.block_bytes
            ),
            format!(
                "a write took {intervals:.1} connection intervals: the next write's first SDU has only the credits that the short one \
                 left, and its last PDU waits for that one's credit"
            ),
        ],
        remedy: format!("Write in multiples of {mtu} bytes (BT_SNDMTU tells the sender): {} here.", whole * mtu),
        proof: None,
    })
}

fn data_length(facts: &Facts, stream: &Stream) -> Option<Finding> {
    facts.octets(stream.down).filter(|octets| *octets == SHORT_PDU)?;
    let (now, then) = (facts.limit_bps(stream.down, None)?, facts.limit_bps(stream.down, Some(LONG_PDU))?);
    Some(Finding {
        cause: "data_length_not_in_force".to_owned(),
        summary: "PDUs of the link layer carry 27 bytes: the data length was not extended.".to_owned(),
        on: stream.on.clone(),
        share: 1.0 - now / then,
        share_of: Unit::Time,
        cost_ns: 0,
        evidence: vec![format!(
            "no longer payload than {SHORT_PDU} bytes was agreed on; the air carries {:.1} kb/s at most so, and {:.1} with {LONG_PDU}",
            now / 1e3,
            then / 1e3
        )],
        remedy: "Ask for 251 bytes (?length=251 in taut's endpoint; hcitool cmd 0x08 0x0024 fb 00 90 42 on both sides for connections to \
                 come). A controller older than Bluetooth 4.2 can't do it."
            .to_owned(),
        proof: None,
    })
}

fn default_interval(facts: &Facts, on: &str, cost_ns: u64) -> Option<Finding> {
    let us = facts.interval_us.filter(|us| DEFAULT_INTERVAL_US.contains(us) && facts.put_back_from_us.is_none())?;
    Some(Finding {
        cause: "interval_default".to_owned(),
        summary: "The connection interval is still the one that kernels ask for by themselves.".to_owned(),
        on: on.to_owned(),
        share: 1.0,
        share_of: Unit::Messages,
        cost_ns,
        evidence: vec![format!(
            "the connection interval is {} ms; 7.5 ms is the shortest, and every exchange waits for the next interval",
            f64::from(us) / 1000.0
        )],
        remedy: BOTH_SIDES.to_owned(),
        proof: None,
    })
}

/// How an interval is set so that it lasts.
const BOTH_SIDES: &str = "Set it on both machines: MinConnectionInterval=6 and MaxConnectionInterval=6 in section [LE] of \
                          /etc/bluetooth/main.conf (units of 1.25 ms), or conn_min_interval and conn_max_interval in \
                          /sys/kernel/debug/bluetooth/hci0 before connecting. `taut tune` tries it.";

fn put_back(facts: &Facts, on: &str) -> Option<Finding> {
    let (from, to) = (facts.put_back_from_us?, facts.interval_us?);
    let ms = |us: u32| f64::from(us) / 1000.0;
    Some(Finding {
        cause: "interval_put_back".to_owned(),
        summary: "The peer had the connection interval changed to its own limits: it was set on one side alone."
            .to_owned(),
        on: on.to_owned(),
        share: 1.0,
        share_of: Unit::Messages,
        cost_ns: u64::from(to.saturating_sub(from)) * 1000,
        evidence: vec![format!(
            "the connection began with {} ms; the peer asked for other limits (L2CAP Connection Parameter Update Request), this kernel \
             granted it, and since then it is {} ms",
            ms(from),
            ms(to)
        )],
        remedy: BOTH_SIDES.to_owned(),
        proof: None,
    })
}

fn early_data(facts: &Facts, on: &str) -> Option<Finding> {
    (facts.early > 0).then(|| Finding {
        cause: "data_before_response".to_owned(),
        summary: "The peer sent data before the answer that opens the channel; this kernel drops it, and its credits are lost."
            .to_owned(),
        on: on.to_owned(),
        share: 1.0,
        share_of: Unit::Connections,
        cost_ns: 0,
        evidence: vec![format!(
            "{} PDUs came for the channel before the LE Credit Based Connection Response",
            facts.early
        )],
        remedy: "Have the accepting program wait until it has received something before it sends, as `taut serve` does; or open the channel \
                 anew."
            .to_owned(),
        proof: None,
    })
}

#[cfg(test)]
mod tests;
