use crate::Instant;

/// Something that happened to bytes at a time in a layer. A socket timestamp, a captured packet, an eBPF sample and a
/// simulated radio event all take this form, so that one explainer and one picture serve all of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// When, on the clock of the [`Timeline`](crate::Timeline) that holds the event.
    pub at: Instant,
    /// On which machine.
    pub host: Host,
    /// In which layer of that machine.
    pub layer: Layer,
    /// What happened.
    pub what: What,
    /// To which bytes of the flow.
    pub bytes: ByteRange,
}

/// The machine on which an event happened, as seen from the one that measures.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Host {
    /// The machine that measures.
    Local,
    /// The other end of the link.
    Peer,
}

/// The layers that data passes on its way down; the same on the way up.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Layer {
    /// The program and its runtime.
    Application,
    /// The socket and the transport protocol behind it.
    Socket,
    /// Queueing discipline and device driver.
    Driver,
    /// Wire or air.
    Medium,
}

/// What happened to the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The schedule says that this message should start now. The event's range is the message.
    Intended,
    /// The program called the sending system call.
    WriteBegin,
    /// The sending system call came back.
    WriteEnd,
    /// State of the sending socket just after a write.
    SendQueue(SendQueue),
    /// The transport handed the bytes to the queueing discipline (`SCM_TSTAMP_SCHED`).
    Scheduled,
    /// The driver handed the bytes to the device (`SCM_TSTAMP_SND`).
    Left,
    /// The peer's transport acknowledged the bytes (`SCM_TSTAMP_ACK`).
    Acked,
    /// The peer's kernel took the bytes in.
    Received,
    /// The reader's kernel took in what a broker between both ends passed on.
    Forwarded,
    /// The peer's program read the bytes.
    Read,
    /// A PDU with the bytes was on the air, from this event on.
    OnAir {
        /// How long.
        nanos: u64,
    },
    /// Nothing was on the air, from this event on.
    Idle {
        /// How long.
        nanos: u64,
        /// Who held the data, by its name in the ledger.
        holder: &'static str,
    },
}

/// What the transport of a sending socket held just after a write (`SIOCOUTQNSD`, `TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendQueue {
    /// Bytes written by the program and not yet sent for the first time.
    pub unsent_bytes: u32,
    /// Segments sent and not yet acknowledged.
    pub in_flight_segments: u32,
    /// Segments that the congestion window allows in flight.
    pub congestion_window_segments: u32,
    /// Bytes that the peer's receive window still allows: SND.UNA + SND.WND - SND.NXT (RFC 9293,
    /// section 3.3.1). `None` where the kernel does not tell the window.
    pub window_room_bytes: Option<u32>,
    /// Largest segment, in bytes.
    pub mss_bytes: u32,
}

/// Half-open range of byte positions in a flow, counted from its first byte.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ByteRange {
    /// Position of the first byte.
    pub start: u64,
    /// Position after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The range from `start` up to, but not including, `end`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// Number of bytes in the range.
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the range holds no byte.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}
