//! The record that the programs in the kernel write, and its reading.

/// Offsets in a record. The copies of the socket come after [`HEADER`].
pub(super) mod at {
    pub(in crate::trace) const NS: i16 = 0;
    pub(in crate::trace) const SOCKET: i16 = 8;
    /// The socket whose segment the processor was taking in, or 0.
    pub(in crate::trace) const RECEIVING: i16 = 16;
    /// Function of the timer that was running there, or 0.
    pub(in crate::trace) const TIMER: i16 = 24;
    /// The thread in the lower half, its process in the upper one.
    pub(in crate::trace) const TASK: i16 = 32;
    /// 20 bytes of the segment's header; of a call on what is not TCP, the number of the inode; of a process, its name.
    pub(in crate::trace) const TCP: i16 = 40;
    /// Bytes of the segment from its header on.
    pub(in crate::trace) const LENGTH: i16 = 60;
    /// Of a system call, or of what was written or read without one; whether what opened is of MPTCP.
    pub(in crate::trace) const RESULT: i16 = 64;
    /// Of the system call; else the flags (`MSG_PEEK`).
    pub(in crate::trace) const NUMBER: i16 = 72;
    /// Records lost so far.
    pub(in crate::trace) const LOST: i16 = 80;
    pub(in crate::trace) const WHAT: i16 = 88;
}

/// Bytes before the copies.
pub(super) const HEADER: u32 = 96;

/// What a record tells of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum What {
    /// A system call on a socket begins.
    Call = 1,
    /// It came back.
    Return = 2,
    /// A segment goes to the device.
    Queue = 3,
    /// A segment came in; the socket is as it was before that.
    Receive = 4,
    /// A segment is sent again.
    Repeat = 5,
    /// The connection is over.
    Close = 6,
    /// Something was written without a system call on the socket, or was refused.
    Written = 7,
    /// The same of reading.
    Taken = 8,
    /// A system call begins on a Unix socket or one of UDP.
    SocketCall = 9,
    /// It came back.
    SocketReturn = 10,
    /// Something came for such a socket.
    SocketReady = 11,
    /// A system call on a pipe begins.
    PipeCall = 12,
    /// It came back.
    PipeReturn = 13,
    /// A thread that waited for a processor runs: how long it waited is the result, and the socket is the one whose
    /// segment woke it up, or 0.
    Ran = 14,
    /// A thread's wait for one of several descriptors came back with some that are ready: when it had begun stands in
    /// the socket's place.
    Polled = 15,
    /// The other end has answered the first segment: the connection is open.
    Opened = 16,
    /// Something came for a socket of TCP that is not established.
    Arrived = 17,
    /// The program has accepted the connection.
    Accepted = 18,
    /// A thread that called ends: the name of its process.
    Named = 19,
    /// A segment has left the queue of a device.
    Started = 20,
}

/// Which structure a record has copies of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Copied {
    /// A socket of TCP.
    Tcp,
    /// Another socket.
    Socket,
    /// A pipe.
    Pipe,
    /// None.
    Nothing,
}

impl What {
    const ALL: [Self; 20] = [
        Self::Call,
        Self::Return,
        Self::Queue,
        Self::Receive,
        Self::Repeat,
        Self::Close,
        Self::Written,
        Self::Taken,
        Self::SocketCall,
        Self::SocketReturn,
        Self::SocketReady,
        Self::PipeCall,
        Self::PipeReturn,
        Self::Ran,
        Self::Polled,
        Self::Opened,
        Self::Arrived,
        Self::Accepted,
        Self::Named,
        Self::Started,
    ];

    pub(super) const fn copied(self) -> Copied {
        match self {
            Self::SocketCall | Self::SocketReturn | Self::SocketReady => Copied::Socket,
            Self::PipeCall | Self::PipeReturn => Copied::Pipe,
            Self::Ran | Self::Polled | Self::Named | Self::Started => Copied::Nothing,
            _ => Copied::Tcp,
        }
    }

    /// Whether the program itself did it, so that the thread is one of its own.
    pub(super) const fn is_of_program(self) -> bool {
        matches!(
            self,
            Self::Call
                | Self::Return
                | Self::Written
                | Self::Taken
                | Self::SocketCall
                | Self::SocketReturn
                | Self::PipeCall
                | Self::PipeReturn
                | Self::Accepted
        )
    }
}

/// A record, read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) what: What,
    pub(super) ns: u64,
    pub(super) socket: u64,
    pub(super) receiving: u64,
    pub(super) timer: u64,
    pub(super) thread: u32,
    pub(super) process: u32,
    pub(super) segment: Segment,
    /// Of what is not TCP.
    pub(super) inode: u64,
    /// Of a [`What::Named`], with zeros behind it.
    pub(super) name: &'a [u8],
    pub(super) result: i64,
    pub(super) number: u32,
    pub(super) lost: u64,
    /// The copies of the socket.
    pub(super) copies: &'a [u8],
}

/// The segment of a [`What::Queue`], [`What::Receive`] or [`What::Started`], in TCP's own numbers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Segment {
    pub(super) seq: u32,
    /// After its last byte; SYN and FIN count as one.
    pub(super) end: u32,
    pub(super) ack: u32,
    /// As it stands in the header, not scaled.
    pub(super) window: u16,
    pub(super) is_syn: bool,
    pub(super) is_fin: bool,
    pub(super) payload: u32,
}

impl<'a> Record<'a> {
    /// `None` for what no program of ours writes.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, copies) = bytes.split_at_checked(HEADER as usize)?;
        let long = |at: i16| head[at as usize..][..8].try_into().map_or(0, u64::from_ne_bytes);
        let word = |at: i16| head[at as usize..][..4].try_into().map_or(0, u32::from_ne_bytes);
        let what = What::ALL.into_iter().find(|what| *what as u8 == head[at::WHAT as usize])?;
        let task = long(at::TASK);
        let tcp = &head[at::TCP as usize..at::TCP as usize + 20];
        Some(Self {
            what,
            ns: long(at::NS),
            socket: long(at::SOCKET),
            receiving: long(at::RECEIVING),
            timer: long(at::TIMER),
            thread: task as u32,
            process: (task >> 32) as u32,
            segment: Segment::parse(tcp, word(at::LENGTH)),
            inode: long(at::TCP),
            name: &tcp[..16],
            result: long(at::RESULT).cast_signed(),
            number: word(at::NUMBER),
            lost: long(at::LOST),
            copies,
        })
    }

    /// Whether a [`What::Opened`] is of a part of a connection of MPTCP.
    pub(super) fn is_path(&self) -> bool {
        self.what == What::Opened && self.result == 1
    }

    /// The result of a [`What::Written`] or [`What::Taken`]: an `int`, whose upper half the tracepoint leaves empty.
    pub(super) const fn short_result(&self) -> i32 {
        (self.result as u32).cast_signed()
    }
}

impl Segment {
    fn parse(tcp: &[u8], length: u32) -> Self {
        let word = |at: usize| tcp[at..at + 4].try_into().map_or(0, u32::from_be_bytes);
        let header = u32::from(tcp[12] >> 4) * 4;
        let payload = length.saturating_sub(header);
        let flags = tcp[13];
        let (is_fin, is_syn) = (flags & 1 != 0, flags & 2 != 0);
        let seq = word(4);
        let counted = payload.wrapping_add(u32::from(is_fin)).wrapping_add(u32::from(is_syn));
        Self {
            seq,
            end: seq.wrapping_add(counted),
            ack: word(8),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            is_syn,
            is_fin,
            payload,
        }
    }
}
