use taut_time::{Duration, Framing};

use crate::session::Session;
use crate::wire::{AckPolicy, Frame, Usage, Work};
use crate::{Endpoint, Error, Interrupt, Request, Result};

/// A server's consent to start a process that echoes over many links, a crowd host; the host lives as long as this does.
#[derive(Debug)]
pub struct CrowdSession {
    session: Session,
    place: Endpoint,
}

/// Longest wait for a host to have its engine ready: a thread for each of 10,000 links takes seconds.
const READY: Duration = Duration::from_secs(60);
/// Longest wait for a host to be gone: one with 10,000 threads takes a while.
const GONE: Duration = Duration::from_secs(10);

impl CrowdSession {
    /// Asks the server at `endpoint` for a crowd host that drives `connections` links with an engine, given by its number
    /// (docs/protocol.md), for at most `duration`. The user can end the wait, and that for the host to be ready.
    ///
    /// # Errors
    /// A datagram endpoint; the server is not there, or refuses; [`Error::Interrupted`].
    pub fn open(
        endpoint: &Endpoint,
        engine: u8,
        connections: usize,
        message_bytes: usize,
        duration: Duration,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self> {
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
            core: None,
        };
        let (session, _) = Session::greet(&request, interrupt)?;
        let question = Frame::Crowd { engine, connections: u32::try_from(connections).unwrap_or(u32::MAX) };
        let Frame::Place { number } = session.ask(&question, "the question for a crowd")? else {
            return Err(session.broke_protocol("the peer did not tell where its crowd is"));
        };
        // The name may have several addresses: the host is at the one that answered.
        let reached = session.link().peer_address().map_or_else(|| endpoint.clone(), Endpoint::of_tcp);
        let place = reached
            .crowd_place(number)
            .map_err(|error| session.broke_protocol(&format!("where its crowd is makes no sense: {error}")))?;
        Ok(Self { session, place })
    }

    /// Where the host takes its links.
    pub const fn place(&self) -> &Endpoint {
        &self.place
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
