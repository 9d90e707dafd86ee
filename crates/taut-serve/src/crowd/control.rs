//! A crowd host kept for a client: a process of its own, which ends with the client's control link.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use taut_link::descriptors::most_connections;
use taut_link::wire::{Frame, Hello, Refusal};
use taut_link::{Endpoint, Link};

use super::host::HostOrder;
use super::kind::CrowdEngine;
use super::process::{HostFailure, HostProcess};
use crate::exchange::{Bounds, Outcome, SessionError, receive_frame, send};
use crate::shared::Shared;

/// Numbers of the Unix names that hosts get.
static NAMES: AtomicU32 = AtomicU32::new(1);

/// Serves a client whose hello has been accepted: starts the host that it asks for, and tells what that uses.
pub(crate) fn serve(link: &Link, shared: &Shared, hello: &Hello, session: u64, greeting: &Bounds<'_>) -> Outcome {
    let limits = &shared.config.limits;
    let (_, Frame::Crowd { engine, connections }) = receive_frame(link, greeting)? else {
        return Err(SessionError::Misbehaved);
    };
    let most = u32::try_from(limits.crowd.min(most_connections())).unwrap_or(u32::MAX);
    let program = shared.config.crowd_host.as_ref().ok_or(SessionError::Refused(Refusal::CrowdTooLarge(0)))?;
    if connections == 0 || connections > most {
        return Err(SessionError::Refused(Refusal::CrowdTooLarge(most)));
    }
    let engine = CrowdEngine::of_number(engine).ok_or(SessionError::Refused(Refusal::NotUnderstood))?;
    let _taken = CrowdSlot::take(shared)?;
    shared.clients.fetch_add(1, Ordering::Relaxed);
    let (listen, number) = place(link)?;
    let from = link.peer_address().map(|address| address.ip());
    let order = HostOrder { engine, connections: connections as usize, listen, from, core: None };
    let mut host = HostProcess::start(program, &order, shared.ending.flag()).map_err(refuse)?;
    let number = number.or_else(|| port_of(host.endpoint())).ok_or(SessionError::Gone)?;
    let bounds = Bounds::new(shared, hello);
    send(link, &Frame::HostAt { number }.emit(session), &bounds)?;

    loop {
        let answer = match receive_frame(link, &bounds) {
            Ok((_, Frame::Start)) => {
                host.wait_ready(shared.ending.flag()).map_err(refuse)?;
                Frame::Ready
            }
            Ok((_, Frame::Usage(_))) => Frame::Usage(host.usage().map_err(|_| SessionError::Gone)?),
            Ok(_) => return Err(SessionError::Misbehaved),
            Err(_) if bounds.are_passed() => return Err(SessionError::Gone),
            Err(trouble) => return Err(trouble),
        };
        send(link, &answer.emit(session), &bounds)?;
    }
}

/// The server's one place for a crowd, given back when dropped.
struct CrowdSlot<'a>(&'a Shared);

impl<'a> CrowdSlot<'a> {
    fn take(shared: &'a Shared) -> Result<Self, SessionError> {
        if shared.has_crowd.swap(true, Ordering::Relaxed) {
            return Err(SessionError::Refused(Refusal::CrowdTaken));
        }
        Ok(Self(shared))
    }
}

impl Drop for CrowdSlot<'_> {
    fn drop(&mut self) {
        self.0.has_crowd.store(false, Ordering::Relaxed);
    }
}

/// Where a host is to listen: at the address by which the client reached us, or beside our own name, with its number.
fn place(link: &Link) -> Result<(Endpoint, Option<u32>), SessionError> {
    if let Some(mut address) = link.local_address() {
        address.set_port(0);
        return Ok((Endpoint::of_tcp(address), None));
    }
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let beside = link
        .endpoint()
        .crowd_place(number)
        .map_err(|_| SessionError::Refused(Refusal::CrowdFailed(Errno::NAMETOOLONG.raw_os_error().unsigned_abs())))?;
    Ok((beside, Some(number)))
}

fn port_of(endpoint: &Endpoint) -> Option<u32> {
    endpoint.to_string().rsplit_once(':')?.1.parse().ok()
}

fn refuse(failure: HostFailure) -> SessionError {
    SessionError::Refused(Refusal::CrowdFailed(failure.number))
}
