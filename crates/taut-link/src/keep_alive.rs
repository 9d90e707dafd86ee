//! Peers that vanish without a word: switched off, or behind a network that is gone.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt;
use taut_time::Duration;

/// Silence after which the peer's kernel is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(60);
/// How long until it is asked again, where no answer came.
const AGAIN: Duration = Duration::from_secs(15);
/// Questions without an answer after which the connection is over.
const QUESTIONS: u32 = 4;

/// Has the kernel find out when the peer of a TCP connection is gone: after 60 s of silence it asks up to
/// four times, 15 s apart (RFC 9293, section 3.8.4), and ends the connection with `ETIMEDOUT` when no answer
/// comes, so within two minutes. What a listening socket is told holds for the connections that it accepts.
///
/// While something that was sent is not acknowledged, retransmissions tell (`tcp_retries2`, tcp(7):
/// some 15 minutes). `TCP_USER_TIMEOUT` would tell sooner, but it also ends a connection to a peer
/// that is there and does not read, which is back-pressure.
///
/// # Errors
/// As setsockopt(2).
pub fn keep_alive(tcp: impl AsFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(&tcp, true)?;
    sockopt::set_tcp_keepidle(&tcp, SILENCE)?;
    sockopt::set_tcp_keepintvl(&tcp, AGAIN)?;
    Ok(sockopt::set_tcp_keepcnt(&tcp, QUESTIONS)?)
}
