//! TLS between a client of a broker and its socket.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::Socket;
use taut_time::{Duration, Instant};

use super::client::Client;
use crate::interrupt::{Interrupt, LOOK_PERIOD};
use crate::tls::Tls;
use crate::{Error, Result, clock};

/// How a connection ended, in words that go after `the broker`.
pub(super) const CLOSED: &str = "closed the connection";
/// The same where TLS would have had its own end.
pub(super) const CUT: &str = "closed the connection without TLS' own end: what it sent may have been cut off";

/// A connection's records, and those of them that the kernel has had no room for.
#[derive(Debug)]
pub(super) struct Secured {
    tls: Tls,
    records: Vec<u8>,
    /// Bytes of the client that are in these records, and are its output until the kernel has taken all of them.
    sealed: usize,
    /// Why TLS failed.
    failure: Option<String>,
    /// Whether the server has said the end of TLS.
    has_ended: bool,
}

impl Secured {
    /// Lets TLS begin, until `give_up`.
    ///
    /// # Errors
    /// [`Error::Unsecured`] says which side refused, and why; [`Error::Silent`] when the server says nothing.
    pub(super) fn begin(
        mut tls: Tls,
        socket: &Socket,
        endpoint: &impl std::fmt::Display,
        (give_up, timeout): (Instant, Duration),
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let wait = LOOK_PERIOD.try_into().map_err(|_| Error::io("log in to", endpoint, Errno::INVAL))?;
        loop {
            let greeted = tls.greet(socket.as_fd());
            if greeted
                .map_err(|error| Error::Unsecured { endpoint: endpoint.to_string(), reason: error.to_string() })?
            {
                return Ok(Self::new(tls));
            }
            if interrupt.is_set() {
                return Err(Error::Interrupted { endpoint: endpoint.to_string() });
            }
            if clock::now() > give_up {
                let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                let to = "the beginning of TLS (does it listen with TLS there?)";
                return Err(Error::Silent { endpoint: endpoint.to_string(), to, after_ms });
            }
            match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("log in to", endpoint, errno)),
            }
        }
    }

    /// Of TLS that has begun.
    pub(super) const fn new(tls: Tls) -> Self {
        Self { tls, records: Vec::new(), sealed: 0, failure: None, has_ended: false }
    }

    /// The plain bytes of what the socket brought; the end that TLS itself has said is `None`.
    ///
    /// # Errors
    /// What is wrong with them, in words that go after `the broker`.
    pub(super) fn take(&mut self, bytes: &[u8]) -> std::result::Result<Option<Vec<u8>>, String> {
        let mut plain = Vec::new();
        match self.tls.take(bytes, &mut plain) {
            Ok(has_ended) => {
                // It may stand in one read with what came before it.
                self.has_ended |= has_ended;
                Ok((!has_ended || !plain.is_empty()).then_some(plain))
            }
            Err(why) => {
                self.failure = Some(why.to_string());
                Err(format!("and we fail at TLS: {why}"))
            }
        }
    }

    /// Whether the server has said the end of TLS, so that nothing of what it sent was cut off.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether something waits for room, of TLS' own as well.
    ///
    /// # Errors
    /// None that a connection in order has.
    pub(super) fn has_records(&mut self) -> rustix::io::Result<bool> {
        if self.records.is_empty() {
            self.seal(&[])?;
        }
        Ok(!self.records.is_empty())
    }

    fn seal(&mut self, plain: &[u8]) -> rustix::io::Result<usize> {
        self.tls.seal(plain, &mut self.records).map_err(|_| Errno::PROTO)
    }

    /// Nothing more will be said.
    pub(super) fn say_end(&mut self) {
        self.tls.say_end();
    }

    /// Why TLS failed, after it had begun.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Writes what waits for the broker, in records, and counts their bytes.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn flush(
        &mut self,
        socket: &Socket,
        client: &mut dyn Client,
        flags: SendFlags,
        count: &AtomicU64,
    ) -> rustix::io::Result<()> {
        loop {
            let sent = self.send(socket, client, flags)?;
            count.fetch_add(sent as u64, Ordering::Relaxed);
            if sent == 0 || self.records.is_empty() && client.output().is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes once, of what waits for the broker; how many bytes of records the kernel has taken.
    ///
    /// # Errors
    /// As send(2).
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        client: &mut dyn Client,
        flags: SendFlags,
    ) -> rustix::io::Result<usize> {
        // No more is sealed than can be sent, so that what waits shows where it is looked for.
        if self.records.is_empty() {
            self.sealed = self.seal(client.output())?;
            if self.records.is_empty() {
                return Ok(0);
            }
        }
        let sent = rustix::net::send(socket, &self.records, flags | SendFlags::NOSIGNAL)?;
        self.records.drain(..sent);
        if self.records.is_empty() {
            client.wrote(std::mem::take(&mut self.sealed));
        }
        Ok(sent)
    }
}
