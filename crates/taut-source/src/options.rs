use rustix::fs::fstat;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::{Owner, Socket};

/// Options of a socket that sock_diag does not tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// `TCP_NODELAY`: Nagle's algorithm is off.
    pub no_delay: bool,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `TCP_QUICKACK`: acknowledgements are not delayed at the moment; the kernel changes it as the
    /// connection goes on (tcp(7)).
    pub quick_ack: bool,
}

impl Options {
    /// Reads the options of another program's socket. `None` where that is not allowed
    /// (`PTRACE_MODE_ATTACH_REALCREDS`, pidfd_getfd(2)), or the program has closed it.
    ///
    /// The kernel lends a second descriptor of the same socket. It is held for three system calls: a
    /// program that closes its own meanwhile sends its FIN that much later.
    pub fn read(owner: &Owner, socket: &Socket) -> Option<Self> {
        let process = pidfd_open(Pid::from_raw(owner.pid)?, PidfdFlags::empty()).ok()?;
        let lent = pidfd_getfd(&process, owner.fd, PidfdGetfdFlags::empty()).ok()?;
        // The number may have become another socket's.
        if fstat(&lent).ok()?.st_ino != u64::from(socket.inode) {
            return None;
        }
        Some(Self {
            no_delay: sockopt::tcp_nodelay(&lent).ok()?,
            cork: sockopt::tcp_cork(&lent).ok()?,
            quick_ack: sockopt::tcp_quickack(&lent).ok()?,
        })
    }
}
