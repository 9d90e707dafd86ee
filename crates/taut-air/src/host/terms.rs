//! What a host is told, and what it tells.

use alloc::vec::Vec;

use super::latency::Latency;
use super::writer::Blocked;
use crate::l2cap::{ChannelParameters, CreditPolicy};
use crate::pdu::advertising::Address;
use crate::phy::Phy;
use crate::time::Nanos;

/// What the programs and the kernel of a host are like.
#[derive(Clone, Debug, PartialEq)]
pub struct HostConfig {
    /// Longest SDU that its channel takes (`BT_RCVMTU`; 672 unless set).
    pub mtu: u16,
    /// Longest information payload of a PDU; `None` for Linux's: what fits into one ACL packet, and
    /// no more than the MTU.
    pub mps: Option<u16>,
    /// How it gives credits back.
    pub credits: CreditPolicy,
    /// `SO_RCVBUF` as the kernel counts it, in bytes.
    pub recvbuf: usize,
    /// `sizeof(struct sk_buff)`.
    pub skb_overhead: usize,
    /// `SO_SNDBUF` as the kernel counts it, in bytes.
    pub sndbuf: usize,
    /// Bytes that the writer has at a time, written in SDUs of at most the peer's MTU.
    pub block: u32,
    /// Bytes of the first block, 0 for as many as in the others: where in a connection event and an
    /// SDU the flow gets going is up to what came before it.
    pub first: u32,
    /// Time that it takes to have the next block, once the last one is written.
    pub block_work: Latency,
    /// Time from one block's beginning to the next at least; 0 for as fast as it goes.
    pub period: Nanos,
    /// Time of one `send`.
    pub send: Latency,
    /// Time of one `recv`.
    pub recv: Latency,
    /// From a socket's becoming ready to the program's next system call: waking the task through the runtime.
    pub wakeup: Latency,
    /// From a packet's arrival over the host transport to its being handled: interrupt, receive work.
    pub rx: Latency,
    /// From the protocol's handing over a packet to its reaching the driver: transmit work.
    pub tx: Latency,
}

/// What a host sets out to do.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Advertises, and takes the connection and the channel.
    Peripheral,
    /// Connects to the peers one after another and opens a channel on each link.
    Central(Vec<Wish>),
}

/// What a central wants of a link.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The peer's address.
    pub peer: Address,
    /// Connection interval, in the controller's units.
    pub interval: u16,
    /// Peripheral latency in events.
    pub latency: u16,
    /// Supervision timeout in units of 10 ms.
    pub timeout: u16,
    /// Longest payload of a data PDU.
    pub length: u16,
    /// Physical layer.
    pub phy: Phy,
}

/// What a host gives.
#[derive(Clone, Debug)]
pub enum Output {
    /// An HCI packet for the controller.
    Controller(Vec<u8>),
    /// Something worth telling.
    Notice(Notice),
}

/// Something that happened in a host. `handle` is the connection's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    /// Connection handle at this host's controller.
    pub handle: u16,
    /// What happened.
    pub what: What,
}

/// What happened in a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// The channel is open.
    Open(ChannelParameters),
    /// The link is gone; the reason is HCI's.
    Closed(u8),
    /// The program's `send` took an SDU.
    Written {
        /// Bytes.
        bytes: usize,
        /// PDUs that it was cut into.
        pdus: usize,
    },
    /// The program could not send.
    Blocked(Blocked),
    /// It can again; it will know after its wake-up latency.
    Writable,
    /// An SDU is complete and waits for the program.
    Complete {
        /// Bytes.
        bytes: usize,
    },
    /// The program has read an SDU.
    Read {
        /// Its bytes.
        sdu: Vec<u8>,
    },
    /// Credits were given back.
    Granted(u16),
    /// Credits were received.
    Received {
        /// How many.
        credits: u16,
        /// How many there are now.
        total: u32,
    },
    /// The controller reported packets completed.
    Completed {
        /// How many.
        packets: u16,
        /// Free buffers in the controller, as far as the host knows.
        free: u16,
    },
    /// The peer broke a rule of L2CAP; the channel is no longer used.
    Broken,
}

/// Who holds the data of a writer, as its host knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hold {
    /// The program has none.
    Application,
    /// The program is being woken, or the kernel is at work.
    WakeUp,
    /// PDUs wait for credits.
    Credit,
    /// Packets wait for buffers in the controller.
    Buffers,
}

/// The peers of a central.
impl Plan {
    /// A central with these wishes.
    pub fn central(wishes: impl IntoIterator<Item = Wish>) -> Self {
        Self::Central(wishes.into_iter().collect::<Vec<_>>())
    }
}
