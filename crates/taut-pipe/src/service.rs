//! Being a service: sockets from its manager (sd_listen_fds(3)) and telling it how we are (sd_notify(3)).

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use taut_link::{Error, Result};

use crate::sys;

/// The sockets that a service manager has passed. To be called once, before threads start and descriptors are made.
///
/// # Errors
/// [`Error::Input`] when none were passed to this process.
pub fn passed_sockets() -> Result<Vec<OwnedFd>> {
    let number = |name: &str| env::var(name).ok()?.parse::<i32>().ok();
    let none = || {
        let text = "no sockets were passed (LISTEN_PID, LISTEN_FDS): start it from a .socket unit, or by systemd-socket-activate";
        Error::Input(text.to_owned())
    };
    if number("LISTEN_PID") != i32::try_from(std::process::id()).ok() {
        return Err(none());
    }
    let count = number("LISTEN_FDS").filter(|count| (1..=1024).contains(count)).ok_or_else(none)?;
    sys::passed_descriptors(count)
        .map_err(|error| Error::Host { what: "take the sockets that were passed".to_owned(), error })
}

/// Tells the service manager, if there is one that listens, `READY=1`, `STOPPING=1` or another state.
///
/// # Errors
/// As socket(2) and sendto(2).
pub fn notify(state: &str) -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(&name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
