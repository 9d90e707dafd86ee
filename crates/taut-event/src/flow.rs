use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use taut_time::ClockMap;

use crate::{ChannelKey, Coverage, LeKey, LinkKey, QuicKey};

/// Number of a flow within one source. A source may use it again once the flow is closed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlowId(pub u32);

/// Number of a vantage point within one source.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct VantageId(pub u16);

/// An end of a flow.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Address {
    /// Its machine.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// Between whom the bytes of a flow travel.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FlowKey {
    /// A connection of TCP: the end that opened it or was seen first, and the other one.
    Tcp(Address, Address),
    /// Datagrams of UDP: the end that was seen first, and the other one.
    Udp(Address, Address),
    /// What a host asks servers of DNS over UDP, of all its ports and whichever server. Forward is what it asks.
    Dns(IpAddr),
    /// An L2CAP channel of Bluetooth. Forward is what the host sends whose controller was listened to.
    L2cap(ChannelKey),
    /// A link of Bluetooth, by what passed between a host and its controller. Forward is what that host sends.
    Link(LinkKey),
    /// A link of Bluetooth LE, listened to on the air. Forward is what its central sends.
    Le(LeKey),
    /// A connection of QUIC, as one of its ends logs it. Forward is what that end sends.
    Quic(QuicKey),
    /// A socket of this host, by the kernel's cookie (`SO_COOKIE`).
    Socket(u64),
    /// A socket without a protocol that we follow, or a pipe, of this host. Forward is what is written to it.
    Local(LocalKey),
}

/// A socket or a pipe of this host.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LocalKey {
    /// What it is.
    pub kind: LocalKind,
    /// The number of its inode, as `/proc/PID/fd` and `ss -e` have it.
    pub inode: u64,
    /// Its own address and the peer's, of UDP.
    pub ends: Option<(Address, Address)>,
}

/// Kinds of sockets and pipes that are known by their calls alone.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LocalKind {
    /// A Unix socket of any type.
    Unix,
    /// A socket of UDP.
    Udp,
    /// A pipe or FIFO: one object for both its ends.
    Pipe,
    /// A socket of Bluetooth: an L2CAP channel.
    L2cap,
    /// A socket of Bluetooth: a connection of RFCOMM.
    Rfcomm,
    /// A socket of Bluetooth: audio (SCO).
    Sco,
}

impl LocalKind {
    /// All.
    pub const ALL: [Self; 6] = [Self::Unix, Self::Udp, Self::Pipe, Self::L2cap, Self::Rfcomm, Self::Sco];

    /// Whether it is a socket of Bluetooth.
    pub const fn is_bluetooth(self) -> bool {
        matches!(self, Self::L2cap | Self::Rfcomm | Self::Sco)
    }

    /// Short name, the same in all versions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unix => "unix",
            Self::Udp => "udp",
            Self::Pipe => "pipe",
            Self::L2cap => "l2cap",
            Self::Rfcomm => "rfcomm",
            Self::Sco => "sco",
        }
    }
}

/// A flow, as a source makes it known before its first event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Flow {
    /// Between whom.
    pub key: FlowKey,
    /// Whether its opening was seen, so that positions count from the first byte.
    pub from_start: bool,
    /// What the source would report about it.
    pub coverage: Coverage,
}

/// Who saw events, and on which clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Vantage {
    /// As a person knows it: an interface, a host.
    pub name: String,
    /// Its clock.
    pub clock: ClockMap,
}
