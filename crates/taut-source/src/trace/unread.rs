//! What waited in a program's Unix sockets and sockets of UDP when the trace began. No event tells of it: such a socket
//! is known from the program's first call on it.

use rustix::io::ioctl_fionread;
use rustix::net::{AddressFamily, SocketAddrAny, getsockname, ipproto, sockopt};
use taut_time::{Duration, Instant};

use super::other::Others;
use super::told::canonical;
use crate::options::lend;
use crate::{Owner, Owners};

/// So many are remembered.
const MOST: usize = 1024;

/// Such a socket.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    inode: u32,
    owner: Owner,
    name: String,
    bytes: u64,
    since: Instant,
}

/// What became of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WaitedBefore {
    /// What socket it is, as the breakdown has it.
    pub socket: String,
    /// The process that had it, and its name.
    pub process: i32,
    /// Its name (`/proc/PID/comm`), without control characters.
    pub program: String,
    /// Bytes that waited when the trace began: all, or those of the first datagram.
    pub bytes: u64,
    /// From the begin of the trace to the program's first call on it; `None` if it made none and something waits still.
    pub until_call: Option<Duration>,
}

impl Unread {
    /// Those of a process in which something waits now.
    pub(super) fn of(pid: i32, now: Instant) -> Vec<Self> {
        let owners = Owners::read(Some(pid));
        let found = owners.all().filter_map(|(inode, owner)| {
            let (name, bytes) = look(owner, inode)?;
            Some(Self { inode, owner: owner.clone(), name, bytes, since: now })
        });
        found.take(MOST).collect()
    }

    /// What became of it; `None` if somebody took it whose call was not seen.
    pub(super) fn outcome(&self, others: &Others) -> Option<WaitedBefore> {
        let until_call = others.first_call(self.inode.into()).map(|at| at.saturating_since(self.since));
        if until_call.is_none() {
            look(&self.owner, self.inode)?;
        }
        Some(WaitedBefore {
            socket: self.name.clone(),
            process: self.owner.pid,
            program: self.owner.name.clone(),
            bytes: self.bytes,
            until_call,
        })
    }
}

/// What it is, and how much waits in it; `None` of one of another kind, in which nothing waits, or that may not be
/// borrowed.
fn look(owner: &Owner, inode: u32) -> Option<(String, u64)> {
    let lent = lend(owner, inode).ok()?;
    let name = match sockopt::socket_domain(&lent).ok()? {
        AddressFamily::UNIX => format!("Unix socket {inode}"),
        AddressFamily::INET | AddressFamily::INET6 if sockopt::socket_protocol(&lent).ok()? == Some(ipproto::UDP) => {
            match SocketAddrAny::try_into(getsockname(&lent).ok()?) {
                Ok(own) => format!("UDP {}", canonical(own)),
                Err(_) => format!("UDP socket {inode}"),
            }
        }
        _ => return None,
    };
    let bytes = ioctl_fionread(&lent).ok()?;
    (bytes > 0).then_some((name, bytes))
}
