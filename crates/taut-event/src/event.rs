use taut_time::{ByteRange, Host, Instant, Layer, SendQueue};

use crate::{ChannelEnd, Datagram, FlowId, Hci, Kind, L2cap, Le, Quic, SocketState, VantageId};

/// Something that happened to bytes of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Event {
    /// When, on the clock of the vantage point.
    pub at: Instant,
    /// Who saw it.
    pub seen_by: VantageId,
    /// To which flow it belongs.
    pub flow: FlowId,
    /// Which way the bytes go.
    pub direction: Direction,
    /// In which layer it happened.
    pub layer: Layer,
    /// What happened.
    pub what: What,
    /// To which bytes of that direction, counted from its first.
    pub bytes: ByteRange,
    /// The task that did it, where the source knows.
    pub who: Option<TaskId>,
    /// Where the source has it: the number of the packet in its file, counted from 1; 0 where
    /// there is no such number.
    pub place: u64,
}

/// Which way bytes go in a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Direction {
    /// From the end that opened the flow, or that was seen first.
    Forward,
    /// Towards that end.
    Backward,
}

impl Direction {
    /// Both, in the order of their indices.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    /// The other one.
    pub const fn reverse(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

    /// 0 or 1.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A thread of a program.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TaskId(pub u32);

/// What happened to the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A segment of TCP passed the vantage point. One that repeats bytes is an event of its own.
    Segment(Segment),
    /// A datagram of UDP passed the vantage point.
    Datagram(Datagram),
    /// Something of an L2CAP channel passed between a host and its Bluetooth controller.
    L2cap(L2cap),
    /// Something of a link passed between a host and its Bluetooth controller, of whatever channel.
    Hci(Hci),
    /// Something of a Bluetooth LE link was on the air.
    Le(Le),
    /// An end of a connection of QUIC logged something.
    Quic(Quic),
    /// The bytes reached a stage on their way.
    Reached(Stamp),
    /// State of the sending socket just after a write.
    Queue(SendQueue),
    /// A system call on the flow.
    Call(Call),
    /// A task that reads or writes the flow changed its state.
    Task(Task),
    /// State of the sending socket just after what happened at this time.
    State(SocketState),
    /// What made the bytes leave that are told of next.
    Released(Release),
    /// Which channel of Bluetooth the socket is an end of.
    IsEnd(ChannelEnd),
    /// What the connection is to be accepted by, on this host: asked after its first segment, or the first data of the
    /// connection, was sent again, and while it waits to be accepted.
    Listens(Listening),
    /// The other end has opened the connection, which waits to be accepted from now on.
    Awaits,
    /// The program has accepted it.
    Accepted,
    /// The connection is one path of a connection of MPTCP, on whose own socket its program makes its calls.
    IsPath,
    /// The source lost what happened to this flow since its last event.
    Gap,
}

impl What {
    /// The kind that a [`Coverage`](crate::Coverage) speaks of.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Segment(_) => Kind::Segments,
            Self::Datagram(_) => Kind::Datagrams,
            Self::L2cap(_) | Self::Hci(_) => Kind::AclPackets,
            Self::Le(_) => Kind::AirPdus,
            Self::Quic(_) => Kind::QuicEvents,
            Self::Reached(Stamp::Intended) => Kind::Schedule,
            Self::Reached(Stamp::WriteBegin | Stamp::WriteEnd) => Kind::Writes,
            Self::Reached(Stamp::Read) => Kind::Reads,
            Self::Reached(_) => Kind::KernelStamps,
            Self::Queue(_) | Self::State(_) | Self::IsEnd(_) | Self::Listens(_) | Self::IsPath | Self::Gap => {
                Kind::Queues
            }
            Self::Awaits | Self::Accepted => Kind::Queues,
            Self::Released(_) => Kind::Releases,
            Self::Call(_) => Kind::Calls,
            Self::Task(_) => Kind::Tasks,
        }
    }
}

/// A segment of TCP, with positions that never wrap. The event's bytes are its payload.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Segment {
    /// Its flags.
    pub flags: SegmentFlags,
    /// Whether `window` counts bytes. It does not when the scale was agreed on before the source
    /// began to look; 0 then still means 0.
    pub window_is_scaled: bool,
    /// The largest segment its sender takes, in bytes, as a SYN says it; 0 elsewhere.
    pub mss: u16,
    /// Bytes that its sender takes beyond `ack`.
    pub window: u32,
    /// All bytes of the other direction before this position are acknowledged.
    pub ack: u64,
    /// End of the highest range acknowledged beyond `ack` (RFC 2018); 0 when there is none.
    pub sacked_to: u64,
    /// Its sender says that so many bytes came although they had arrived before (D-SACK, RFC 2883); else 0.
    pub came_twice: u32,
    /// The connection is one of several that carry one stream (MPTCP, RFC 8684).
    pub is_subflow: bool,
    /// The timestamps option (RFC 7323).
    pub timestamps: Option<TimestampOption>,
    /// Distinguishes a repetition from a packet that a capture has twice: the identification of
    /// its IPv4 header. `None` for IPv6, which has none.
    pub identification: Option<u16>,
}

/// The timestamps option of TCP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TimestampOption {
    /// The sender's own clock.
    pub value: u32,
    /// The newest value that it has from the other side.
    pub echo: u32,
}

/// Flags of a segment, as the bits of its header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SegmentFlags(pub u8);

impl SegmentFlags {
    /// The sender has no more to send.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Ends it at once.
    pub const RST: u8 = 4;
    /// Nothing more was waiting behind it when it was made.
    pub const PSH: u8 = 8;
    /// `ack` holds.
    pub const ACK: u8 = 16;

    /// Whether the segment has all of these.
    pub const fn has(self, flags: u8) -> bool {
        self.0 & flags == flags
    }
}

/// The first block of a selective acknowledgement: what made its sender send it (RFC 2018, section 4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SackBlock {
    /// Number of the first byte.
    pub from: u32,
    /// That behind the last one.
    pub to: u32,
    /// Those bytes came although they had arrived before (D-SACK, RFC 2883).
    pub is_duplicate: bool,
}

/// A stage on the way of bytes from program to program.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Stamp {
    /// The schedule says that this message should start now.
    Intended,
    /// The program called the sending system call.
    WriteBegin,
    /// That call came back.
    WriteEnd,
    /// The transport handed the bytes to the queueing discipline.
    Scheduled,
    /// The driver handed them to the device.
    Left,
    /// The peer's transport acknowledged them.
    Acknowledged,
    /// The peer's kernel took them in.
    Received,
    /// The peer's program read them.
    Read,
    /// The transport sent them again.
    Repeated,
}

/// What made bytes leave a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Release {
    /// The write that they came with, or a later call of the program.
    Call,
    /// An acknowledgement came.
    Acknowledgement(AckSentBy),
    /// A timer of the kernel ran out.
    Timer(Timer),
    /// Something else: the device made room, or it was not seen.
    Unknown,
}

/// What made the peer's kernel send an acknowledgement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AckSentBy {
    /// Its delayed-ACK timer ran out.
    DelayedAckTimer,
    /// It came at once with the arrival of data.
    Arrival,
    /// The peer's program read or wrote.
    Program,
    /// The peer is not on this host, or was not seen.
    NotSeen,
}

/// A timer of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Timer {
    /// That of retransmissions, of probes of a lost tail and of a closed window.
    Write,
    /// That of delayed acknowledgements.
    DelayedAck,
    /// That of pacing.
    Pacing,
    /// Another one.
    Other,
}

/// A system call, as it begins or as it ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// It was called.
    Begin {
        /// Its number on this architecture.
        number: u16,
    },
    /// It came back.
    End {
        /// Its number on this architecture.
        number: u16,
        /// What it returned; negative is an error number.
        result: i32,
    },
}

/// A listening socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Listening {
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// The backlog of listen(2), within `net.core.somaxconn`. With one more the kernel drops what opens a connection.
    pub backlog: u32,
}

impl Listening {
    /// Whether the kernel takes no more (`sk_acceptq_is_full` of include/net/sock.h).
    pub const fn is_full(self) -> bool {
        self.waiting > self.backlog
    }
}

/// A change of a task's state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Task {
    /// It went to sleep.
    Slept,
    /// Something woke it up; it does not run yet.
    Woken,
    /// It runs.
    Ran {
        /// How long it had been ready to run before that, in ns: it had been woken up, or others were let run.
        waited_ns: u64,
    },
    /// Its wait for one of several descriptors (epoll_wait, poll, select) came back, and it knows of what came since
    /// the last read.
    Polled {
        /// How long it had been in that call, in ns.
        waited_ns: u64,
    },
    /// Such a wait came back since its time was up: none of its descriptors was ready.
    TimedOut {
        /// How long it had been in that call, in ns.
        waited_ns: u64,
    },
}

impl Event {
    /// An event of the older form, seen on a flow whose forward direction is that of the timeline.
    /// `None` for what happens on a simulated radio or behind a broker, which is no stage of these.
    pub fn from_stamp(stamp: &taut_time::Event, flow: FlowId, local: VantageId, peer: VantageId) -> Option<Self> {
        use taut_time::What as Old;
        let what = match stamp.what {
            Old::Intended => What::Reached(Stamp::Intended),
            Old::WriteBegin => What::Reached(Stamp::WriteBegin),
            Old::WriteEnd => What::Reached(Stamp::WriteEnd),
            Old::SendQueue(queue) => What::Queue(queue),
            Old::Scheduled => What::Reached(Stamp::Scheduled),
            Old::Left => What::Reached(Stamp::Left),
            Old::Acked => What::Reached(Stamp::Acknowledged),
            Old::Received => What::Reached(Stamp::Received),
            Old::Read => What::Reached(Stamp::Read),
            _ => return None,
        };
        let seen_by = if stamp.host == Host::Local { local } else { peer };
        let (at, layer, bytes) = (stamp.at, stamp.layer, stamp.bytes);
        Some(Self { at, seen_by, flow, direction: Direction::Forward, layer, what, bytes, who: None, place: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_small() {
        assert!(size_of::<Event>() <= 112, "{}", size_of::<Event>());
    }

    #[test]
    fn a_stamp_of_the_timeline_keeps_what_it_says() {
        let bytes = ByteRange::new(10, 20);
        let at = Instant::from_nanos(7);
        let old = |what, host| taut_time::Event { at, host, layer: Layer::Socket, what, bytes };
        let (flow, local, peer) = (FlowId(3), VantageId(0), VantageId(1));
        let new = |old| Event::from_stamp(&old, flow, local, peer);
        let read = new(old(taut_time::What::Read, Host::Peer)).unwrap();
        assert_eq!((read.what, read.seen_by, read.bytes), (What::Reached(Stamp::Read), peer, bytes));
        assert_eq!(read.what.kind(), Kind::Reads);
        let queue = new(old(taut_time::What::SendQueue(SendQueue::default()), Host::Local)).unwrap();
        assert_eq!((queue.what.kind(), queue.seen_by), (Kind::Queues, local));
        assert_eq!(new(old(taut_time::What::OnAir { nanos: 5 }, Host::Local)), None);
    }
}
