use taut_time::{Duration, Framing};

use crate::boot::is_this_boot;
use crate::session::Session;
use crate::wire::{AckPolicy, Frame, Usage, Work};
use crate::{Endpoint, Error, Interrupt, Request, Result};

/// A server's consent to start a process that echoes over many links, a crowd host; the host lives
/// as long as this does.
#[derive(Debug)]
pub struct CrowdSession {
    session: Session,
    place: Endpoint,
    host_core: Option<usize>,
}

/// What a server is asked for.
#[derive(Clone, Debug)]
pub struct CrowdRequest {
    /// The server.
    pub endpoint: Endpoint,
    /// Engine of the host, by its number (docs/protocol.md).
    pub engine: u8,
    /// Links that it drives.
    pub connections: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// How long the host is to live at most; zero for as long as the server allows.
    pub duration: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Processor that the host should be on, if the server is of this host.
    pub core: Option<usize>,
}

/// Longest wait for a host to have its engine ready: a thread for each of 10,000 links takes seconds.
const READY: Duration = Duration::from_secs(60);
/// Longest wait for a host to be gone: one with 10,000 threads takes a while.
const GONE: Duration = Duration::from_secs(10);

impl CrowdSession {
    /// Asks for a crowd host. The user can end the wait, and that for the host to be ready.
    ///
    /// # Errors
    /// A datagram endpoint; the server is not there, or refuses; [`Error::Interrupted`].
    pub fn open(order: &CrowdRequest, interrupt: &Interrupt) -> Result<Self> {
        let &CrowdRequest { ref endpoint, engine, connections, message_bytes, duration, timeout, core } = order;
        if endpoint.framing() == Framing::Datagram {
            return Err(Error::no_crowd(endpoint));
        }
        let request = Request {
            endpoint: endpoint.clone(),
            work: Work::Crowd,
            acks: AckPolicy::System,
            message_bytes,
            duration,
            options: Vec::new(),
            plain: false,
            timeout,
            core,
        };
        let (session, accept) = Session::greet(&request, interrupt)?;
        let question = Frame::Crowd { engine, connections: u32::try_from(connections).unwrap_or(u32::MAX) };
        let Frame::HostAt { number } = session.ask(&question, "the question for a crowd")? else {
            return Err(session.broke_protocol("the peer did not tell where its crowd is"));
        };
        // The name may have several addresses: the host is at the one that answered.
        let reached = session.link().peer_address().map_or_else(|| endpoint.clone(), Endpoint::of_tcp);
        let place = reached
            .crowd_place(number)
            .map_err(|error| session.broke_protocol(&format!("where its crowd is makes no sense: {error}")))?;
        // The host is bound as the thread is that starts it.
        let host_core = accept.core.filter(|_| is_this_boot(accept.boot)).map(usize::from);
        Ok(Self { session, place, host_core })
    }

    /// Where the host takes its links.
    pub const fn place(&self) -> &Endpoint {
        &self.place
    }

    /// The processor that the host runs on, where it is of this computer and bound to one.
    pub const fn host_core(&self) -> Option<usize> {
        self.host_core
    }

    /// Waits until the host has all its links and its engine is set up.
    ///
    /// # Errors
    /// The engine can't be set up there; the server went away.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.session.set_timeout(READY);
        match self.session.ask(&Frame::Start, "the start of a crowd")? {
            Frame::Ready => {
                self.session.ignore_interrupt();
                Ok(())
            }
            _ => Err(self.session.broke_protocol("the crowd was not ready")),
        }
    }

    /// What the host uses by now.
    ///
    /// # Errors
    /// The host or the server went away.
    pub fn usage(&self) -> Result<Usage> {
        match self.session.ask(&Frame::Usage(Usage::default()), "the question for usage")? {
            Frame::Usage(usage) => Ok(usage),
            _ => Err(self.session.broke_protocol("the peer did not tell what its crowd uses")),
        }
    }
}

impl Drop for CrowdSession {
    /// Waits until the host is gone, so that there is a place for the next one.
    fn drop(&mut self) {
        let link = self.session.link();
        let waits = link.finish_sending().and_then(|()| link.set_receive_timeout(Some(GONE)));
        while waits.is_ok() && matches!(link.receive(&mut [0; 64]), Ok(1..)) {}
    }
}
