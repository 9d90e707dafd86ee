//! What keeps datagrams from going in circles. The programs in the kernel keep the same rules (`bpf/outgoing.rs`).

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::bpf::FIRST_PORT;

/// Whether a sender may be answered.
#[derive(Debug)]
pub(super) struct ReplyGuard {
    own: SocketAddr,
    /// Most replies a second.
    most: u32,
    second: i64,
    replies: u32,
}

impl ReplyGuard {
    pub(super) const fn new(own: SocketAddr, most: u32) -> Self {
        Self { own, most, second: 0, replies: 0 }
    }

    /// Not from a port that may answer by itself, our own one included, nor to nobody or ourselves;
    /// and no more than the number for each second of `CLOCK_MONOTONIC`.
    pub(super) fn allows(&mut self, to: SocketAddr, now_ns: i64) -> bool {
        let (ip, own) = (to.ip(), self.own.ip());
        let answers_itself = to.port() < FIRST_PORT || to.port() == self.own.port();
        let is_nobody = ip.is_unspecified() || ip == own && !own.is_loopback();
        if answers_itself || is_nobody {
            return false;
        }
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.replies) = (second, 0);
        }
        let is_allowed = self.replies < self.most;
        self.replies += u32::from(is_allowed);
        is_allowed
    }
}

/// How many hosts the datagrams of a socket may pass (`IP_TTL`, `IPV6_UNICAST_HOPS`): one less than
/// that might whose event they are. So loops of routes end, as those of routers do.
#[derive(Debug, Default)]
pub(super) struct Hops(Option<u8>);

impl Hops {
    /// Whether there are any left for what follows from a datagram that came with so many.
    pub(super) fn are_left(came: Option<u8>) -> bool {
        came.is_none_or(|came| came > 1)
    }

    /// Sets them for what the socket sends from now on to addresses of the version of `to`, if they
    /// are others than before.
    pub(super) fn keep(&mut self, socket: &UdpSocket, to: SocketAddr, came: Option<u8>) -> io::Result<()> {
        let Some(left) = came.map(|came| came.saturating_sub(1)).filter(|left| *left > 0) else { return Ok(()) };
        if self.0 != Some(left) {
            match to {
                SocketAddr::V6(to) if to.ip().to_ipv4_mapped().is_none() => {
                    rustix::net::sockopt::set_ipv6_unicast_hops(socket, Some(left))?;
                }
                _ => socket.set_ttl(left.into())?,
            }
            self.0 = Some(left);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_answer_by_itself_is_not_answered() {
        let own: SocketAddr = "192.0.2.1:9000".parse().unwrap();
        let mut guard = ReplyGuard::new(own, 3);
        for no in ["192.0.2.9:0", "192.0.2.9:7", "192.0.2.9:1023", "192.0.2.9:9000", "192.0.2.1:40000", "0.0.0.0:40000"]
        {
            assert!(!guard.allows(no.parse().unwrap(), 1), "{no}");
        }
        let to = "192.0.2.9:1024".parse().unwrap();
        let allowed = |guard: &mut ReplyGuard, now| (0..10).filter(|_| guard.allows(to, now)).count();
        assert_eq!(allowed(&mut guard, 999_999_999), 3);
        assert_eq!(allowed(&mut guard, 1_000_000_000), 3);
        assert!(ReplyGuard::new("127.0.0.1:9000".parse().unwrap(), 1).allows("127.0.0.1:40000".parse().unwrap(), 0));
    }
}
