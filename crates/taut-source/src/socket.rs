use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use taut_event::{Recovery, SocketState};
use taut_link::TcpInfo;

/// Tells sockets apart, also after an address or a descriptor was used again: the kernel's cookie (`SO_COOKIE`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SocketId(pub u64);

/// State of a connection (RFC 9293, section 3.3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "they are the names of the RFC")]
pub enum State {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    CloseWait,
    LastAck,
    Listen,
    Closing,
}

impl State {
    /// Numbers of include/net/tcp_states.h.
    const NUMBERS: [(Self, u8); 9] = [
        (Self::Established, 1),
        (Self::SynSent, 2),
        (Self::SynReceived, 3),
        (Self::FinWait1, 4),
        (Self::FinWait2, 5),
        (Self::CloseWait, 8),
        (Self::LastAck, 9),
        (Self::Listen, 10),
        (Self::Closing, 11),
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::NUMBERS.into_iter().find(|(_, known)| *known == number).map(|(state, _)| state)
    }

    /// All of them, as sock_diag asks for them: a bit for each number.
    pub(crate) fn all() -> u32 {
        Self::NUMBERS.into_iter().fold(0, |bits, (state, _)| bits | state.bit())
    }

    /// This one alone, in the same way.
    pub(crate) fn bit(self) -> u32 {
        Self::NUMBERS.into_iter().find(|(state, _)| *state == self).map_or(0, |(_, number)| 1 << number)
    }

    /// As ss(8) has it: `established`, `syn-sent`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::FinWait1 => "fin-wait-1",
            Self::FinWait2 => "fin-wait-2",
            Self::CloseWait => "close-wait",
            Self::LastAck => "last-ack",
            Self::Listen => "listen",
            Self::Closing => "closing",
        }
    }
}

/// One TCP socket at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Socket {
    /// Which one.
    pub id: SocketId,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// State of the connection.
    pub state: State,
    /// Number of its inode; 0 when no program has it open.
    pub inode: u32,
    /// Number of the interface that it is bound to; 0 when to none.
    pub interface: u32,
    /// Received, and not yet read by the program, in bytes.
    pub unread_bytes: u32,
    /// Written, and not yet acknowledged by the peer, in bytes.
    pub unacknowledged_bytes: u32,
    /// Of a listening socket, the connections that wait to be accepted.
    pub accept_queue: Option<AcceptQueue>,
    /// What `TCP_INFO` says.
    pub info: TcpInfo,
}

/// Connections that are open and that no program has accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AcceptQueue {
    /// How many wait.
    pub waiting: u32,
    /// The backlog of listen(2), within `net.core.somaxconn`.
    pub backlog: u32,
}

impl AcceptQueue {
    /// Whether the kernel takes no more: one more than the backlog has room (`sk_acceptq_is_full` of
    /// include/net/sock.h).
    pub const fn is_full(self) -> bool {
        self.waiting > self.backlog
    }
}

/// `struct inet_diag_msg` of linux/inet_diag.h, without the attributes behind it.
const MESSAGE_BYTES: usize = 72;
const INET: u8 = 2;
const INET6: u8 = 10;
/// Attribute `INET_DIAG_INFO`: a `struct tcp_info`.
const INFO: u16 = 2;

impl Socket {
    /// Whether it is open and no program has accepted it. What a program closed is in another state.
    pub fn is_unaccepted(&self) -> bool {
        self.inode == 0 && matches!(self.state, State::Established | State::CloseWait)
    }

    /// Whether it listens and its queue has no room.
    pub fn is_full(&self) -> bool {
        self.accept_queue.is_some_and(AcceptQueue::is_full)
    }

    /// The socket of an answer of sock_diag. `None` for what is no socket of TCP, or is cut off.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (message, attributes) = bytes.split_at_checked(MESSAGE_BYTES)?;
        let native = |at: usize| message[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let address = |at: usize| -> Option<IpAddr> {
            match message[0] {
                INET => Some(Ipv4Addr::from_octets(message[at..at + 4].try_into().ok()?).into()),
                INET6 => Some(Ipv6Addr::from_octets(message[at..at + 16].try_into().ok()?).into()),
                _ => None,
            }
        };
        let state = State::from_number(message[1])?;
        let (read, write) = (native(56), native(60));
        let is_listening = state == State::Listen;
        let bytes = |count: u32| if is_listening { 0 } else { count };
        Some(Self {
            id: SocketId(u64::from(native(44)) | u64::from(native(48)) << 32),
            local: SocketAddr::new(address(8)?.to_canonical(), port(4)),
            peer: SocketAddr::new(address(24)?.to_canonical(), port(6)),
            state,
            inode: native(68),
            interface: native(40),
            unread_bytes: bytes(read),
            unacknowledged_bytes: bytes(write),
            // `tcp_diag_get_info`, net/ipv4/tcp_diag.c.
            accept_queue: is_listening.then_some(AcceptQueue { waiting: read, backlog: write }),
            info: attribute(attributes, INFO).map(TcpInfo::parse).unwrap_or_default(),
        })
    }

    /// What a holder is told from; the options as far as they are known.
    pub fn state_with(&self, options: Option<crate::Options>) -> SocketState {
        let info = &self.info;
        SocketState {
            unsent_bytes: info.unsent_bytes,
            in_flight_bytes: self.unacknowledged_bytes.saturating_sub(info.unsent_bytes),
            unread_bytes: self.unread_bytes,
            in_flight_segments: info.in_flight_segments(),
            congestion_window_segments: info.congestion_window_segments,
            slow_start_threshold_segments: info.slow_start_threshold_segments,
            send_window_bytes: info.send_window_bytes,
            mss_bytes: info.send_mss_bytes,
            is_opening: matches!(self.state, State::SynSent | State::SynReceived),
            recovery: match info.congestion_state {
                3 => Recovery::Repeating,
                4.. => Recovery::AfterTimeout,
                _ => Recovery::None,
            },
            timeouts: info.timeouts,
            window_probes: info.window_probes,
            no_delay: options.map(|options| options.no_delay),
            cork: options.map(|options| options.cork),
            ..SocketState::default()
        }
    }
}

/// The value of the first attribute of a type (`struct nlattr` of linux/netlink.h).
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (head, _) = attributes.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        bytes[..2].copy_from_slice(&[INET, 1]);
        bytes[4..6].copy_from_slice(&80_u16.to_be_bytes());
        bytes[6..8].copy_from_slice(&4000_u16.to_be_bytes());
        bytes[8..12].copy_from_slice(&[10, 0, 0, 1]);
        bytes[24..28].copy_from_slice(&[10, 0, 0, 2]);
        bytes[44..48].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[56..60].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[60..64].copy_from_slice(&300_u32.to_ne_bytes());
        bytes
    }

    fn attribute_of(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = (4 + value.len()) as u16;
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn an_answer_is_read() {
        let mut info = [0; 240];
        info[144..148].copy_from_slice(&100_u32.to_ne_bytes());
        let bytes = [message(), attribute_of(9, &[1, 2, 3]), attribute_of(INFO, &info)].concat();
        let socket = Socket::parse(&bytes).unwrap();
        assert_eq!(socket.local, "10.0.0.1:80".parse().unwrap());
        assert_eq!(socket.peer, "10.0.0.2:4000".parse().unwrap());
        assert_eq!((socket.id, socket.unread_bytes), (SocketId(7), 3));
        let state = socket.state_with(None);
        assert_eq!((state.unsent_bytes, state.in_flight_bytes), (100, 200));
    }

    #[test]
    fn a_listening_socket_has_a_queue_and_no_bytes() {
        let mut bytes = message();
        bytes[1] = 10;
        let socket = Socket::parse(&bytes).unwrap();
        assert_eq!((socket.state, socket.unread_bytes, socket.unacknowledged_bytes), (State::Listen, 0, 0));
        assert_eq!(socket.accept_queue, Some(AcceptQueue { waiting: 3, backlog: 300 }));
        assert!(!socket.is_unaccepted() && Socket::parse(&message()).unwrap().is_unaccepted());
        let is_full = |waiting| AcceptQueue { waiting, backlog: 2 }.is_full();
        assert!(is_full(3) && !is_full(2));
    }

    #[test]
    fn an_answer_without_state_has_none() {
        assert_eq!(Socket::parse(&message()).unwrap().info, TcpInfo::default());
        assert_eq!(Socket::parse(&message()[..71]), None);
    }

    proptest! {
        #[test]
        fn no_answer_is_too_wild(bytes in prop::collection::vec(any::<u8>(), 0..400), head in any::<bool>()) {
            let bytes = if head { [message(), bytes].concat() } else { bytes };
            let _ = Socket::parse(&bytes);
        }
    }
}
