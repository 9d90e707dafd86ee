//! The system calls that are traced.

/// System calls that send on a socket which is their first argument.
pub(super) const SENDS: [i64; 6] =
    [libc::SYS_write, libc::SYS_writev, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_sendfile];
/// And those that receive.
pub(super) const RECEIVES: [i64; 5] =
    [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg];
/// Those that wait until something is ready on one of several descriptors. Reading by io_uring needs none of them.
pub(super) const POLLS: [i64; 7] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
];
