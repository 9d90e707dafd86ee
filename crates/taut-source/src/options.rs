use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::{Errno, Result};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::Owner;

/// Options of a socket that sock_diag does not tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// `TCP_NODELAY`: Nagle's algorithm is off.
    pub no_delay: bool,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `TCP_QUICKACK`. Where it is off, the kernel takes the connection for an interactive one and delays
    /// acknowledgements. Where it is on, only the first ones of a connection are sure to be prompt
    /// (`tcp_in_quickack_mode`, net/ipv4/tcp_input.c). The kernel changes it as the connection goes on.
    pub quick_ack: bool,
    /// `SO_RCVLOWAT`: of fewer bytes the kernel does not tell the program that it can read; 1 unless set.
    pub receive_low_water: u32,
}

impl Options {
    /// Reads the options of another program's socket, which has this inode.
    ///
    /// The kernel lends a second descriptor of the same socket. It is held for four system calls: a
    /// program that closes its own meanwhile sends its FIN that much later.
    ///
    /// # Errors
    ///
    /// `BADF` and `SRCH` when the program has closed it, or ended. All else is here to stay: `PERM` without the right
    /// (`PTRACE_MODE_ATTACH_REALCREDS`, pidfd_getfd(2)), `NOSYS` before Linux 5.6.
    pub fn read(owner: &Owner, inode: u32) -> Result<Self> {
        let lent = lend(owner, inode)?;
        Ok(Self {
            no_delay: sockopt::tcp_nodelay(&lent)?,
            cork: sockopt::tcp_cork(&lent)?,
            quick_ack: sockopt::tcp_quickack(&lent)?,
            // It fails for no socket; whatever comes instead is read at once.
            receive_low_water: taut_link::receive_low_water(lent.as_fd()).unwrap_or(1),
        })
    }
}

/// Sets `TCP_NODELAY` of another program's socket, or clears it. To set it sends what Nagle's algorithm holds.
///
/// # Errors
///
/// As [`Options::read`].
pub(crate) fn set_no_delay(owner: &Owner, inode: u32, is_on: bool) -> Result<()> {
    sockopt::set_tcp_nodelay(lend(owner, inode)?, is_on)
}

/// A second descriptor of a socket that a program has open, for a moment.
pub(crate) fn lend(owner: &Owner, inode: u32) -> Result<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(owner.pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    let lent = pidfd_getfd(&process, owner.fd, PidfdGetfdFlags::empty())?;
    // The number may have become another socket's.
    if fstat(&lent)?.st_ino == u64::from(inode) { Ok(lent) } else { Err(Errno::BADF) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::{Socket, SocketTable};

    #[test]
    fn options_are_those_of_the_socket_and_of_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let mut socket = None;
        let mut table = SocketTable::open().unwrap();
        let is_client = |one: &Socket| one.local == client.local_addr().unwrap();
        table.look(|one| socket = if is_client(one) { Some(*one) } else { socket }).unwrap();
        let mut owner =
            Owner { pid: std::process::id() as i32, fd: client.as_raw_fd(), name: String::new(), others: 0 };
        let options = Options::read(&owner, socket.unwrap().inode).unwrap();
        assert!(options.no_delay && !options.cork);
        sockopt::set_tcp_cork(&client, true).unwrap();
        assert!(Options::read(&owner, socket.unwrap().inode).unwrap().cork);
        owner.fd = listener.as_raw_fd();
        assert_eq!(Options::read(&owner, socket.unwrap().inode), Err(Errno::BADF));
    }
}
