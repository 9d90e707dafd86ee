use taut_time::Duration;

use super::format::{
    ArrivalRecord, CONTROL_BYTES, DATA_HEADER_BYTES, FETCH_BYTES, HEADER_BYTES, RECORDS_PER_FRAME, Reader, VERSION,
    WireError, Writer,
};
use super::hello::{Accept, Hello, Refusal, Shape, Shaped};

const MAGIC: [u8; 4] = *b"TAUT";
const DATA: u8 = 0;
/// Length of the number of a question.
const NUMBER_BYTES: usize = 4;

/// One frame, but for data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Frame {
    /// Client: this is what I ask.
    Hello(Hello),
    /// Server, datagrams only: say it again with this token, so that I know that you get what is sent to your address.
    Challenge {
        /// To be repeated in the next hello.
        token: u64,
    },
    /// Server: granted.
    Accept(Accept),
    /// Server: declined.
    Refuse(Refusal),
    /// Client: what does your clock say? Server: this.
    Clock {
        /// The server's `CLOCK_MONOTONIC` in ns; 0 in the question.
        server_ns: u64,
    },
    /// Client: the work begins.
    Start,
    /// Server: ready for the work.
    Ready,
    /// Client: the work is done, what did it come to? On a stream only where its end can't be told otherwise.
    Bye,
    /// Client, datagrams only: nothing more to ask; the place is free. Has no answer.
    Done,
    /// Server: what the work came to.
    Summary(Totals),
    /// Client, datagrams only: send records from this index on.
    Fetch {
        /// Index of the first record wanted.
        index: u64,
    },
    /// Server: when bytes arrived.
    Records {
        /// Index of the first record.
        index: u64,
        /// The records.
        records: Vec<ArrivalRecord>,
    },
    /// Client, streams only: make me a crowd host.
    Crowd {
        /// How it is to drive its I/O, by number (docs/protocol.md).
        engine: u8,
        /// Links it is to take.
        connections: u32,
    },
    /// Server: the crowd host listens there.
    HostAt {
        /// Port, or what stands after the dot of a Unix name.
        number: u32,
    },
    /// Client: what does the crowd host use? Server: this.
    Usage(Usage),
    /// Client, Bluetooth LE only: receive links so from now on.
    Shape(Shape),
    /// Server: so it is now.
    Shaped(Shaped),
}

/// What a process uses; all zeroes in the question.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// CPU time since it began.
    pub cpu: Duration,
    /// Threads it has now.
    pub threads: u32,
    /// Memory it has now (`VmRSS`), in bytes.
    pub rss_bytes: u64,
}

/// What a session came to, as the server saw it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Messages that arrived (datagrams) or reads that brought something (streams).
    pub messages: u64,
    /// When the first byte arrived, on the server's `CLOCK_MONOTONIC` in ns.
    pub first_ns: u64,
    /// When the last byte arrived.
    pub last_ns: u64,
    /// CPU time that the server spent on the session.
    pub cpu: Duration,
    /// Records that the server had no room for.
    pub records_dropped: u32,
}

impl Frame {
    /// The frame's bytes, for the given session (0 on a stream).
    pub fn emit(&self, session: u64) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(CONTROL_BYTES));
        out.0.extend_from_slice(&MAGIC);
        out.u8(VERSION).u8(self.kind()).u16(0).u64(session);
        match self {
            Self::Hello(hello) => hello.emit(&mut out),
            Self::Challenge { token } => drop(out.u64(*token)),
            Self::Accept(accept) => accept.emit(&mut out),
            Self::Refuse(refusal) => refusal.emit(&mut out),
            Self::Clock { server_ns } => drop(out.u64(*server_ns)),
            Self::Start | Self::Ready | Self::Bye | Self::Done => {}
            Self::Summary(s) => {
                out.u64(s.bytes).u64(s.messages).u64(s.first_ns).u64(s.last_ns);
                out.u64(u64::try_from(s.cpu.as_nanos()).unwrap_or(u64::MAX)).u32(s.records_dropped);
            }
            Self::Fetch { index } => drop(out.u64(*index)),
            Self::Crowd { engine, connections } => drop(out.u8(*engine).u8(0).u16(0).u32(*connections)),
            Self::HostAt { number } => drop(out.u32(*number)),
            Self::Shape(shape) => shape.emit(&mut out),
            Self::Shaped(shaped) => shaped.emit(&mut out),
            Self::Usage(usage) => {
                out.u64(u64::try_from(usage.cpu.as_nanos()).unwrap_or(u64::MAX)).u32(usage.threads).u32(0);
                out.u64(usage.rss_bytes);
            }
            Self::Records { index, records } => {
                out.u64(*index);
                for record in records.iter().take(RECORDS_PER_FRAME) {
                    out.u64(record.end).u64(record.received_ns).u64(record.read_ns);
                }
            }
        }
        match self {
            Self::Records { .. } => {}
            Self::Fetch { .. } => out.0.resize(FETCH_BYTES, 0),
            _ => out.0.resize(CONTROL_BYTES, 0),
        }
        let length = u16::try_from(out.0.len()).unwrap_or(u16::MAX);
        out.0[6..8].copy_from_slice(&length.to_be_bytes());
        out.0
    }

    /// The frame that `bytes` are, all of them, and its session.
    ///
    /// # Errors
    /// The bytes are no frame, one of another version, or data.
    pub fn parse(bytes: &[u8]) -> Result<(u64, Self), WireError> {
        if frame_length(bytes)? != bytes.len() {
            return Err(WireError::Length);
        }
        let (version, kind) = (bytes[4], bytes[5]);
        let refuse = Self::Refuse(Refusal::NotUnderstood).kind();
        // A refusal has the same layout in all versions, so that it can tell of the other version.
        if version != VERSION && kind != refuse {
            return Err(WireError::Version(version));
        }
        let mut from = Reader(&bytes[8..]);
        let session = from.u64()?;
        let expected_length = match kind {
            9 => FETCH_BYTES,
            10 => bytes.len(),
            _ => CONTROL_BYTES,
        };
        if bytes.len() != expected_length {
            return Err(WireError::Length);
        }
        let frame = match kind {
            1 => Self::Hello(Hello::parse(&mut from)?),
            2 => Self::Challenge { token: from.u64()? },
            3 => Self::Accept(Accept::parse(&mut from)?),
            4 => Self::Refuse(Refusal::parse(&mut from)?),
            5 => Self::Clock { server_ns: from.u64()? },
            6 => Self::Start,
            7 => Self::Ready,
            8 => Self::Bye,
            9 => Self::Fetch { index: from.u64()? },
            10 => Self::Records { index: from.u64()?, records: from.records()? },
            11 => Self::Summary(Totals {
                bytes: from.u64()?,
                messages: from.u64()?,
                first_ns: from.u64()?,
                last_ns: from.u64()?,
                cpu: Duration::from_nanos(from.u64()?),
                records_dropped: from.u32()?,
            }),
            12 => Self::Done,
            13 => {
                let engine = from.u8()?;
                let _reserved = (from.u8()?, from.u16()?);
                Self::Crowd { engine, connections: from.u32()? }
            }
            14 => Self::HostAt { number: from.u32()? },
            15 => {
                let (cpu, threads, _reserved) = (Duration::from_nanos(from.u64()?), from.u32()?, from.u32()?);
                Self::Usage(Usage { cpu, threads, rss_bytes: from.u64()? })
            }
            16 => Self::Shape(Shape::parse(&mut from)?),
            17 => Self::Shaped(Shaped::parse(&mut from)?),
            other => return Err(WireError::Kind(other)),
        };
        Ok((session, frame))
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Challenge { .. } => 2,
            Self::Accept(_) => 3,
            Self::Refuse(_) => 4,
            Self::Clock { .. } => 5,
            Self::Start => 6,
            Self::Ready => 7,
            Self::Bye => 8,
            Self::Fetch { .. } => 9,
            Self::Records { .. } => 10,
            Self::Summary(_) => 11,
            Self::Done => 12,
            Self::Crowd { .. } => 13,
            Self::HostAt { .. } => 14,
            Self::Usage(_) => 15,
            Self::Shape(_) => 16,
            Self::Shaped(_) => 17,
        }
    }
}

/// Total length of the frame that begins with these bytes; [`HEADER_BYTES`] of them are enough.
///
/// # Errors
/// [`WireError::Magic`] when no frame begins so, [`WireError::Length`] when the length is impossible.
pub fn frame_length(bytes: &[u8]) -> Result<usize, WireError> {
    if bytes.len() < HEADER_BYTES || bytes[..4] != MAGIC {
        return Err(WireError::Magic);
    }
    let length = usize::from(u16::from_be_bytes([bytes[6], bytes[7]]));
    if length < HEADER_BYTES { Err(WireError::Length) } else { Ok(length) }
}

/// Gives a frame of fixed length the number of a question, in its last four bytes, which no kind of
/// frame uses otherwise. 0 is no number: what is written on a stream, where answers come in turn,
/// and by programs that know of none.
///
/// # Panics
/// When the frame is shorter than [`CONTROL_BYTES`].
pub fn set_number(frame: &mut [u8], number: u32) {
    let at = frame.len() - NUMBER_BYTES;
    assert!(at >= CONTROL_BYTES - NUMBER_BYTES, "every frame with a number has room for it");
    frame[at..].copy_from_slice(&number.to_be_bytes());
}

/// The number of the question in a frame of fixed length, or of the question that it answers; 0 for none.
pub fn number_of(frame: &[u8]) -> u32 {
    if frame.len() < CONTROL_BYTES {
        return 0;
    }
    frame.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Writes the header of a data datagram over the first [`DATA_HEADER_BYTES`] of a message. Its
/// length field is 0, since the datagram's own length tells it and may be beyond 16 bits.
///
/// # Panics
/// When the message is shorter than that.
#[inline]
pub fn data_header(message: &mut [u8], session: u64, sequence: u64) {
    message[..4].copy_from_slice(&MAGIC);
    message[4..8].copy_from_slice(&[VERSION, DATA, 0, 0]);
    message[8..16].copy_from_slice(&session.to_be_bytes());
    message[16..24].copy_from_slice(&sequence.to_be_bytes());
}

/// Session and sequence number of a data datagram, `None` when it is something else.
#[inline]
pub fn data_sequence(datagram: &[u8]) -> Option<(u64, u64)> {
    let header: &[u8; DATA_HEADER_BYTES] = datagram.first_chunk()?;
    if header[..4] != MAGIC || header[4..6] != [VERSION, DATA] {
        return None;
    }
    let mut from = Reader(&header[8..]);
    Some((from.u64().ok()?, from.u64().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{AckPolicy, Work};
    use super::*;
    use crate::bluetooth::{Agreed, CreditRule, IntervalLimits};

    fn samples() -> Vec<Frame> {
        let hello = Hello {
            work: Work::Collect,
            acks: AckPolicy::DelayedAtMost(8000),
            message_bytes: 128,
            duration: Duration::from_secs(10),
            nonce: 7,
            token: 9,
            core: Some(3),
            boot: 11,
        };
        let accept = Accept {
            boot: 3,
            max_message_bytes: 1 << 20,
            max_duration: Duration::from_secs(3600),
            receive_buffer: 212_992,
            credit_rule: Some(CreditRule::Sdu),
            agreed: Agreed {
                interval: Some(6),
                latency: Some(0),
                timeout: Some(42),
                tx_octets: Some(251),
                rx_octets: Some(27),
                phys: Some([1, 2]),
            },
            core: Some(0),
        };
        let of_a_stranger = Accept { credit_rule: None, agreed: Agreed::default(), core: None, ..accept };
        let intervals = Some(IntervalLimits { min: 6, max: 40 });
        let shape = Shape { mtu: Some(2221), receive_buffer: Some(65_536), intervals, keep: true };
        let record = ArrivalRecord { end: 128, received_ns: 5, read_ns: 6 };
        vec![
            Frame::Hello(hello),
            Frame::Challenge { token: 77 },
            Frame::Accept(accept),
            Frame::Accept(of_a_stranger),
            Frame::Refuse(Refusal::Busy(256)),
            Frame::Clock { server_ns: 12 },
            Frame::Start,
            Frame::Ready,
            Frame::Bye,
            Frame::Done,
            Frame::Fetch { index: 50 },
            Frame::Records { index: 50, records: vec![record; 3] },
            Frame::Summary(Totals { bytes: 1, messages: 2, first_ns: 3, last_ns: 4, ..Totals::default() }),
            Frame::Crowd { engine: 3, connections: 10_000 },
            Frame::HostAt { number: 40_123 },
            Frame::Usage(Usage { cpu: Duration::from_millis(5), threads: 2, rss_bytes: 1 << 33 }),
            Frame::Shape(shape),
            Frame::Shape(Shape::default()),
            Frame::Shaped(Shaped { intervals, errno: 13 }),
        ]
    }

    #[test]
    fn a_number_takes_no_place_of_anything_else() {
        let full = Totals {
            bytes: u64::MAX,
            messages: u64::MAX,
            first_ns: u64::MAX,
            last_ns: u64::MAX,
            cpu: Duration::from_nanos(u64::MAX),
            records_dropped: u32::MAX,
        };
        let frames = samples().into_iter().chain([Frame::Summary(full)]);
        // What records answer is told by their index.
        for frame in frames.filter(|frame| !matches!(frame, Frame::Records { .. })) {
            let mut bytes = frame.emit(42);
            assert_eq!(number_of(&bytes), 0, "{frame:?}");
            set_number(&mut bytes, 0xDEAD_BEEF);
            assert_eq!((number_of(&bytes), Frame::parse(&bytes)), (0xDEAD_BEEF, Ok((42, frame))));
        }
        assert_eq!(number_of(&[1; 63]), 0);
    }

    #[test]
    fn every_frame_is_read_as_it_was_written() {
        for frame in samples() {
            assert_eq!(Frame::parse(&frame.emit(42)), Ok((42, frame)));
        }
    }

    #[test]
    fn no_answer_to_a_datagram_is_longer_than_its_question() {
        for answer in samples() {
            let question = match answer {
                Frame::Records { .. } => Frame::Fetch { index: 0 }.emit(1).len(),
                Frame::Hello(_) | Frame::Fetch { .. } => continue,
                _ => CONTROL_BYTES,
            };
            assert!(answer.emit(1).len() <= question, "{answer:?}");
        }
        let full =
            Frame::Records { index: 0, records: vec![ArrivalRecord::default(); super::super::RECORDS_PER_FETCH] };
        assert!(full.emit(1).len() <= FETCH_BYTES);
    }

    #[test]
    fn a_refusal_is_read_in_any_version() {
        let mut bytes = Frame::Refuse(Refusal::OtherVersion(9)).emit(0);
        bytes[4] = 9;
        assert_eq!(Frame::parse(&bytes), Ok((0, Frame::Refuse(Refusal::OtherVersion(9)))));
        let mut bytes = Frame::Start.emit(0);
        bytes[4] = 9;
        assert_eq!(Frame::parse(&bytes), Err(WireError::Version(9)));
    }

    #[test]
    fn a_full_frame_of_records_fits_its_length_field() {
        let full = Frame::Records { index: 0, records: vec![ArrivalRecord::default(); RECORDS_PER_FRAME] };
        assert_eq!(Frame::parse(&full.emit(0)), Ok((0, full)));
    }

    #[test]
    fn data_carries_session_and_sequence() {
        let mut message = [0; 32];
        data_header(&mut message, 5, 6);
        assert_eq!(data_sequence(&message), Some((5, 6)));
        assert_eq!(data_sequence(&message[..23]), None);
        assert_eq!(data_sequence(&Frame::Bye.emit(5)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::parse(&bytes);
            let _ = data_sequence(&bytes);
        }

        #[test]
        fn a_damaged_frame_is_parsed_or_refused(which in 0..15usize, at in 0..64usize, value: u8, cut in 0..80usize) {
            let mut bytes = samples()[which].emit(1);
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(cut.max(1));
            if let Ok((session, frame)) = Frame::parse(&bytes) {
                prop_assert_eq!(Frame::parse(&frame.emit(session)), Ok((session, frame)));
            }
        }
    }
}
