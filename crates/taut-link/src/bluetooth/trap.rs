use std::os::fd::AsFd;
use std::thread;

use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket, Type};
use taut_time::Duration;

use super::credit_rule::version;
use super::management::no_bluetooth;
use crate::{Error, Result, clock, sys};

/// bluetooth.h
const BTPROTO_L2CAP: i32 = 0;
const SOL_BLUETOOTH: i32 = 274;
const BT_SECURITY: i32 = 4;
/// How long the trial waits for a datagram that nobody sends.
const WAIT: Duration = Duration::from_millis(200);
/// The other thread gets to run in this time, and the option is read in microseconds unless it has to wait.
const HEAD_START: Duration = Duration::from_millis(50);
const LEAST: Duration = Duration::from_millis(75);

/// Whether a thread that waits in recv(2) of an L2CAP socket which keeps boundaries (`SOCK_SEQPACKET`,
/// `SOCK_DGRAM`) holds the socket's lock all the while (`bt_sock_recvmsg`): then nothing can be taken
/// in for it meanwhile, as in some updates of Linux 5.10. Tried on a socket of one's own; takes 0.2 s.
///
/// # Errors
/// [`Error::Unavailable`] where the kernel has no Bluetooth.
pub fn receiving_blocks_others() -> Result<bool> {
    // A datagram socket waits without being connected, by the same function.
    let kind = Type::DGRAM.cloexec();
    let socket = Socket::new(Domain::from(libc::AF_BLUETOOTH), kind, Some(Protocol::from(BTPROTO_L2CAP)));
    let socket = socket.map_err(no_bluetooth)?;
    let host = |error| Error::Host { what: "try a socket of L2CAP".to_owned(), error };
    socket.set_read_timeout(Some(WAIT)).map_err(host)?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| rustix::net::recv(&socket, &mut [0; 16], RecvFlags::empty()).map(drop));
        clock::sleep(HEAD_START);
        let before = clock::now();
        // Takes the lock; whether such a socket has the option does not matter.
        let _ = sys::option_bytes(socket.as_fd(), SOL_BLUETOOTH, BT_SECURITY, &mut [0; 2]);
        let took = clock::now().saturating_since(before);
        let _ = receiver.join();
        Ok(took > LEAST)
    })
}

/// Whether send(2) on an L2CAP socket of LE waits for the peer's credits although it was told not
/// to (`MSG_DONTWAIT`, `O_NONBLOCK`), for as long as 40 s: `bt_sock_wait_ready()`
/// (net/bluetooth/af_bluetooth.c) looked for the wrong bit before Linux 5.18. By the release, since
/// it takes an open channel to try it; a distribution may have the correction in an older one.
pub fn sending_waits_all_the_same() -> Option<bool> {
    let release = rustix::system::uname();
    Some(version(release.release().to_str().ok()?)? < (5, 18))
}
