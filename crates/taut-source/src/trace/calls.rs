//! The system calls that are traced.

/// System calls that send on a socket which is their first argument.
pub(super) const SENDS: [i64; 7] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_pwritev2,
];
/// And those that receive. What splice(2) takes out of a pipe it may write to a socket.
pub(super) const RECEIVES: [i64; 7] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_preadv2,
    libc::SYS_splice,
];
/// Those that take a connection from the queue of the listening socket which is their first argument.
pub(super) const ACCEPTS: [i64; 2] = [libc::SYS_accept, libc::SYS_accept4];
/// Those that wait until something is ready on one of several descriptors. Reading by io_uring needs none of them.
pub(super) const POLLS: &[i64] = &[
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Machines that came later have only those that take a signal mask.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
];
