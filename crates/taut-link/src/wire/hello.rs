use std::fmt;
use std::str::FromStr;

use taut_time::Duration;

use super::format::{Reader, WireError, Writer};
use crate::Error;
use crate::bluetooth::{Agreed, CreditRule, IntervalLimits};

/// What a client asks of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// The work to be done.
    pub work: Work,
    /// How the server should acknowledge (TCP only).
    pub acks: AckPolicy,
    /// Bytes of one message.
    pub message_bytes: u32,
    /// How long the client means to take.
    pub duration: Duration,
    /// A number of the client's choice, which its session gets.
    pub nonce: u64,
    /// What the server's challenge gave, 0 before; datagrams only.
    pub token: u64,
    /// Processor that the client wants to be served on, below 65,535; heeded for clients of the server's own boot only.
    pub core: Option<u16>,
    /// Identifies the client's boot; 0 when it does not tell.
    pub boot: u64,
}

/// What a server does with a client's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// Sends every message back.
    Echo,
    /// Notes when each message arrived, and reports it at the end.
    Collect,
    /// Reads and counts.
    Sink,
    /// Sends for the duration asked for (streams only).
    Source,
    /// Reads, counts and sends at once (streams only).
    Duplex,
    /// Starts a process that echoes over many other links (streams only).
    Crowd,
    /// Receives other links in another way, as long as this one is open (Bluetooth LE only).
    Shape,
}

/// When a receiver acknowledges, as far as Linux lets a program choose (tcp(7), `TCP_QUICKACK`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AckPolicy {
    /// As a program that sets nothing.
    #[default]
    System,
    /// At once: `TCP_QUICKACK` on after each read.
    Prompt,
    /// By the timer, 40 ms at least: `TCP_QUICKACK` off before each read.
    Delayed,
    /// By the timer, but not after more than this many µs: `TCP_DELACK_MAX_US` (Linux 6.15), 8,000 to 200,000.
    DelayedAtMost(u32),
}

/// A server's consent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accept {
    /// Identifies the server's boot: equal on both sides means one clock.
    pub boot: u64,
    /// Largest message that the server takes, in bytes.
    pub max_message_bytes: u32,
    /// Longest session that the server grants.
    pub max_duration: Duration,
    /// `SO_RCVBUF` of the link as the server's kernel has it, in bytes; 0 when it does not tell.
    pub receive_buffer: u32,
    /// How the server's kernel gives credits; Bluetooth LE only.
    pub credit_rule: Option<CreditRule>,
    /// What the server has heard of the link; Bluetooth LE only.
    pub agreed: Agreed,
    /// Processor that the client is served on, where it is of the server's boot and the server is bound to one.
    pub core: Option<u16>,
}

/// How a server is to receive the links that are opened from now on, and between which connection
/// intervals its adapter is to keep them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Shape {
    /// `BT_RCVMTU` in bytes; `None` is what the server's endpoint says.
    pub mtu: Option<u16>,
    /// `SO_RCVBUF` in bytes, which the kernel doubles; `None` is what the server's endpoint says.
    pub receive_buffer: Option<u32>,
    /// In units of 1.25 ms; `None` is as they were.
    pub intervals: Option<IntervalLimits>,
    /// All of it stays when the link closes.
    pub keep: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Shaped {
    /// The adapter's limits of intervals now, where they can be read.
    pub intervals: Option<IntervalLimits>,
    /// The system's error number when something could not be set, else 0.
    pub errno: u32,
}

/// Why a server declines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// All places are taken; the limit.
    Busy(u32),
    /// The messages are too long; the limit in bytes.
    MessageTooLong(u32),
    /// The session would last too long; the limit in milliseconds.
    SessionTooLong(u32),
    /// This kind of endpoint does not do that work.
    WorkNotOffered,
    /// The server speaks another version, this one.
    OtherVersion(u32),
    /// The first bytes were no hello.
    NotUnderstood,
    /// The receiver's ACK behaviour can't be chosen there.
    AcksNotOffered,
    /// A crowd has too many links; the limit.
    CrowdTooLarge(u32),
    /// There is a crowd already.
    CrowdTaken,
    /// Its links can't be shaped.
    ShapeNotOffered,
    /// The crowd host could not be set up there; the system's error number, 0 when there is none.
    CrowdFailed(u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(limit) => write!(f, "it serves {limit} clients at once and has them (see its --max-clients)"),
            Self::MessageTooLong(limit) => write!(f, "messages may have {limit} bytes at most (see its --max-message)"),
            Self::SessionTooLong(limit) => {
                write!(f, "a session may last {} s at most (see its --max-time)", f64::from(*limit) / 1000.0)
            }
            Self::WorkNotOffered => write!(f, "it does not do this over datagrams, since it never amplifies"),
            Self::OtherVersion(version) => {
                write!(f, "it speaks version {version} of the protocol, this is version {}", super::format::VERSION)
            }
            Self::NotUnderstood => write!(f, "it did not understand the first bytes"),
            Self::AcksNotOffered => write!(f, "its kernel does not let it choose when to acknowledge in this way"),
            Self::CrowdTooLarge(0) => write!(f, "it takes no crowd (see its --max-crowd)"),
            Self::CrowdTooLarge(limit) => {
                write!(
                    f,
                    "a crowd may have {limit} connections at most (see its --max-crowd and its limit of open files)"
                )
            }
            Self::CrowdTaken => write!(f, "it has a crowd, and has one at a time"),
            Self::ShapeNotOffered => {
                write!(f, "its links can't be shaped: that is for Bluetooth LE (and see its --fixed)")
            }
            Self::CrowdFailed(errno) => {
                let error = std::io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(0));
                write!(f, "it could not set this engine up")?;
                if *errno == 0 { Ok(()) } else { write!(f, ": {error}") }
            }
        }
    }
}

impl FromStr for AckPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "system" => Ok(Self::System),
            // The second is what Linux calls it (TCP_QUICKACK).
            "prompt" | "quickack" => Ok(Self::Prompt),
            "delayed" => Ok(Self::Delayed),
            _ => text
                .strip_prefix("us=")
                .and_then(|micros| micros.parse().ok())
                .filter(|micros| (8_000..=200_000).contains(micros))
                .map(Self::DelayedAtMost)
                .ok_or_else(|| {
                    Error::Input(format!("`{text}`: write system, prompt, delayed or us=N with N from 8000 to 200000"))
                }),
        }
    }
}

impl fmt::Display for AckPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => write!(f, "system"),
            Self::Prompt => write!(f, "prompt"),
            Self::Delayed => write!(f, "delayed"),
            Self::DelayedAtMost(micros) => write!(f, "us={micros}"),
        }
    }
}

impl Hello {
    pub(super) fn emit(&self, out: &mut Writer) {
        let (acks, micros) = match self.acks {
            AckPolicy::System => (0, 0),
            AckPolicy::Prompt => (1, 0),
            AckPolicy::Delayed => (2, 0),
            AckPolicy::DelayedAtMost(micros) => (3, micros),
        };
        out.u8(self.work as u8).u8(acks).u16(after(self.core)).u32(micros).u32(self.message_bytes);
        out.u32(millis(self.duration)).u64(self.nonce).u64(self.token).u64(self.boot);
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let work = match from.u8()? {
            0 => Work::Echo,
            1 => Work::Collect,
            2 => Work::Sink,
            3 => Work::Source,
            4 => Work::Duplex,
            5 => Work::Crowd,
            6 => Work::Shape,
            _ => return Err(WireError::Field("work")),
        };
        let acks = from.u8()?;
        let core = before(from.u16()?);
        let micros = from.u32()?;
        let acks = match acks {
            0 => AckPolicy::System,
            1 => AckPolicy::Prompt,
            2 => AckPolicy::Delayed,
            3 if (8_000..=200_000).contains(&micros) => AckPolicy::DelayedAtMost(micros),
            _ => return Err(WireError::Field("acknowledgement policy")),
        };
        let message_bytes = from.u32()?;
        if message_bytes == 0 {
            return Err(WireError::Field("message size"));
        }
        let duration = Duration::from_millis(from.u32()?.into());
        let (nonce, token, boot) = (from.u64()?, from.u64()?, from.u64()?);
        Ok(Self { work, acks, message_bytes, duration, nonce, token, core, boot })
    }
}

impl Accept {
    pub(super) fn emit(&self, out: &mut Writer) {
        out.u64(self.boot).u32(self.max_message_bytes).u32(millis(self.max_duration)).u32(self.receive_buffer);
        out.u8(match self.credit_rule {
            None => 0,
            Some(CreditRule::Sdu) => 1,
            Some(CreditRule::ReceiveBuffer) => 2,
        });
        let agreed = self.agreed;
        let [tx, rx] = agreed.phys.unwrap_or_default();
        out.u8(tx).u8(rx);
        for field in [agreed.interval, agreed.latency, agreed.timeout, agreed.tx_octets, agreed.rx_octets] {
            out.u16(field.unwrap_or(0));
        }
        out.u16(after(self.core));
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            boot: from.u64()?,
            max_message_bytes: from.u32()?,
            max_duration: Duration::from_millis(from.u32()?.into()),
            receive_buffer: from.u32()?,
            credit_rule: match from.u8()? {
                0 => None,
                1 => Some(CreditRule::Sdu),
                2 => Some(CreditRule::ReceiveBuffer),
                _ => return Err(WireError::Field("rule of credits")),
            },
            agreed: agreed(from)?,
            core: before(from.u16()?),
        })
    }
}

impl Shape {
    pub(super) fn emit(self, out: &mut Writer) {
        let intervals = self.intervals.unwrap_or(IntervalLimits { min: 0, max: 0 });
        out.u16(self.mtu.unwrap_or(0)).u16(0).u32(self.receive_buffer.unwrap_or(0));
        out.u16(intervals.min).u16(intervals.max).u8(self.keep.into());
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let mtu = Some(from.u16()?).filter(|mtu| *mtu > 0);
        let _reserved = from.u16()?;
        let receive_buffer = Some(from.u32()?).filter(|bytes| *bytes > 0);
        if receive_buffer.is_some_and(|bytes| i32::try_from(bytes).is_err()) {
            return Err(WireError::Field("receive buffer"));
        }
        let intervals = intervals(from)?;
        Ok(Self { mtu, receive_buffer, intervals, keep: from.u8()? != 0 })
    }
}

impl Shaped {
    pub(super) fn emit(self, out: &mut Writer) {
        let intervals = self.intervals.unwrap_or(IntervalLimits { min: 0, max: 0 });
        out.u16(intervals.min).u16(intervals.max).u32(self.errno);
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { intervals: intervals(from)?, errno: from.u32()? })
    }
}

/// As the end of an accept has it; 0 is what was not heard.
fn agreed(from: &mut Reader<'_>) -> Result<Agreed, WireError> {
    let phys = [from.u8()?, from.u8()?];
    let mut field = || from.u16().map(|value| Some(value).filter(|value| *value > 0));
    let (interval, latency, timeout) = (field()?, field()?, field()?);
    Ok(Agreed {
        interval,
        // Most links have none.
        latency: latency.or_else(|| interval.map(|_| 0)),
        timeout,
        tx_octets: field()?,
        rx_octets: field()?,
        phys: Some(phys).filter(|phys| !phys.contains(&0)),
    })
}

/// Two limits, of which 0 means none.
fn intervals(from: &mut Reader<'_>) -> Result<Option<IntervalLimits>, WireError> {
    let (min, max) = (from.u16()?, from.u16()?);
    Ok((min > 0).then_some(IntervalLimits { min, max }))
}

impl Refusal {
    /// What to answer to bytes that are no frame of this version.
    pub const fn of(error: WireError) -> Self {
        match error {
            WireError::Version(_) => Self::OtherVersion(super::format::VERSION as u32),
            _ => Self::NotUnderstood,
        }
    }

    pub(super) fn emit(self, out: &mut Writer) {
        let (code, limit) = match self {
            Self::Busy(limit) => (0, limit),
            Self::MessageTooLong(limit) => (1, limit),
            Self::SessionTooLong(limit) => (2, limit),
            Self::WorkNotOffered => (3, 0),
            Self::OtherVersion(version) => (4, version),
            Self::NotUnderstood => (5, 0),
            Self::AcksNotOffered => (6, 0),
            Self::CrowdTooLarge(limit) => (7, limit),
            Self::CrowdTaken => (8, 0),
            Self::CrowdFailed(errno) => (9, errno),
            Self::ShapeNotOffered => (10, 0),
        };
        out.u8(code).u8(0).u16(0).u32(limit);
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let code = from.u8()?;
        let _reserved = (from.u8()?, from.u16()?);
        let limit = from.u32()?;
        match code {
            0 => Ok(Self::Busy(limit)),
            1 => Ok(Self::MessageTooLong(limit)),
            2 => Ok(Self::SessionTooLong(limit)),
            3 => Ok(Self::WorkNotOffered),
            4 => Ok(Self::OtherVersion(limit)),
            5 => Ok(Self::NotUnderstood),
            6 => Ok(Self::AcksNotOffered),
            7 => Ok(Self::CrowdTooLarge(limit)),
            8 => Ok(Self::CrowdTaken),
            9 => Ok(Self::CrowdFailed(limit)),
            10 => Ok(Self::ShapeNotOffered),
            _ => Err(WireError::Field("refusal")),
        }
    }
}

/// A processor's number as it is sent: one more, so that 0 is none.
fn after(core: Option<u16>) -> u16 {
    core.and_then(|core| core.checked_add(1)).unwrap_or(0)
}

const fn before(number: u16) -> Option<u16> {
    number.checked_sub(1)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
