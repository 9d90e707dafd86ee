//! The service manager's side of a server: sockets that it passes, and what it is told
//! (sd_listen_fds(3), sd_notify(3)).

use std::os::fd::OwnedFd;

use sd_notify::NotifyState;

use crate::{Error, Listener, Result, sys};

/// The sockets that the service manager passed to this process (`LISTEN_FDS`), in its order. They are given once.
///
/// # Errors
/// [`Error::Input`] when none was passed to this process.
pub fn passed_sockets() -> Result<Vec<OwnedFd>> {
    let passed = sys::take_passed().map_err(|error| Error::Input(format!("LISTEN_FDS: {error}")))?;
    let Some(passed) = passed else {
        return Err(Error::Input("the sockets that were passed (LISTEN_FDS) are taken already".to_owned()));
    };
    if passed.is_empty() {
        return Err(Error::Input(
            "no sockets were passed (LISTEN_FDS): start it by a socket unit, or give endpoints instead".to_owned(),
        ));
    }
    Ok(passed)
}

/// The same, for a server of streams.
///
/// # Errors
/// [`Error::Input`] also when one is no listening stream socket.
pub fn passed_listeners() -> Result<Vec<Listener>> {
    passed_sockets()?.into_iter().map(Listener::passed).collect()
}

/// Tells the service manager, if there is one that wants to know, that the service is up, and in a line what it does.
pub fn tell_ready(status: &str) {
    // A line is all that the protocol has room for.
    tell(&[NotifyState::Ready, NotifyState::Status(&status.replace(['\n', '\r'], " "))]);
}

/// Tells it that the service is going down.
pub fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// A manager that does not listen is its own business.
fn tell(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}
