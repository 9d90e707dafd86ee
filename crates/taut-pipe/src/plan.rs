//! What a pipe is to be: its ends and its limits.

use taut_link::tls::{TlsFiles, TlsRole, Wording};
use taut_link::{Error, Result};
use taut_time::Duration;

use crate::address::{Address, Side};
use crate::framing::Framing;

/// A pipe to be made: one, or one for each client where an end is listened on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name, for people.
    pub name: String,
    /// The two ends.
    pub sides: [Side; 2],
    /// The limits and the rest.
    pub options: Options,
}

/// What a pipe keeps to.
#[derive(Clone, Debug)]
pub struct Options {
    /// How messages are told apart on an end that is a stream.
    pub framing: Framing,
    /// Clients at once; more wait in the kernel's queue, or, where they send messages, are not served.
    pub clients: usize,
    /// Programs at once (`exec:`, `exec-pty:`) for clients that send messages, whose addresses anybody can make up.
    pub children: usize,
    /// End after the first client.
    pub once: bool,
    /// How often a connection that fails is tried again.
    pub retries: u32,
    /// Longest wait for one connection.
    pub connect_timeout: Duration,
    /// Ends a pipe through which nothing has moved for so long, and one whose client has waited so
    /// long for the other end.
    pub idle: Option<Duration>,
    /// Ends a pipe after so long.
    pub time: Option<Duration>,
    /// Most bytes a second, for each direction.
    pub rate: Option<u64>,
    /// How long a pipe goes on in silence when one end is over and the other can't be told.
    pub linger: Duration,
    /// Files of TLS.
    pub tls: TlsFiles,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            framing: Framing::None,
            clients: 1000,
            children: 16,
            once: false,
            retries: 0,
            connect_timeout: Duration::from_secs(10),
            idle: None,
            time: None,
            rate: None,
            linger: Duration::from_millis(500),
            tls: TlsFiles::default(),
        }
    }
}

/// How long to wait before a connection is tried again, after so many failures: 0.1 s, doubled each time, at most 10 s.
pub(crate) fn back_off(failures: u32) -> Duration {
    Duration::from_millis(100).saturating_mul(1 << failures.min(7)).min(Duration::from_secs(10))
}

impl Plan {
    /// Checks what can be told from the words alone.
    ///
    /// # Errors
    /// [`Error::Input`] says what does not go together.
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::Input(format!("{}: {why}", self.name)));
        let [a, b] = &self.sides;
        let has_messages = |side: &Side| match &side.address {
            Address::Link(endpoint) => endpoint.framing() == taut_time::Framing::Datagram,
            _ => false,
        };
        if self.options.framing != Framing::None && has_messages(a) == has_messages(b) {
            return wrong(
                "--framing is for a stream joined with messages (udp://, unix-dgram:, mqtt://, nats://); here both ends are of the same kind",
            );
        }
        if a.address == Address::Stdio && b.address == Address::Stdio {
            return wrong("only one end can be stdio:");
        }
        if matches!((&a.address, &b.address), (Address::File(_), Address::File(_))) {
            return wrong("between two files there is nothing to wait for; use cp(1)");
        }
        let serves_stdio = a.address == Address::Stdio && b.listens || b.address == Address::Stdio && a.listens;
        if serves_stdio && !self.options.once {
            return wrong("stdio: is there for one client only: add --once");
        }
        if a.listens && b.listens && (has_messages(a) || has_messages(b)) {
            return wrong("of two ends that are both listened on neither can be one of messages");
        }
        let answers_only = |side: &Side| has_messages(side) && !side.listens && !side.address.has_broker();
        if answers_only(a) && (answers_only(b) || matches!(b.address, Address::File(_))) {
            return wrong(
                "neither end sends the first message: who is gone to with udp:// or unix-dgram: does not know the pipe before \
                 something came from it; write listen: before one of them",
            );
        }
        Ok(())
    }

    /// Most clients at once of an end of messages. Where each starts a program they are fewer: one
    /// datagram with a sender that was made up would be a process.
    pub(crate) fn senders(&self, end: usize) -> usize {
        let starts_programs = matches!(self.sides[1 - end].address, Address::Exec { .. });
        if starts_programs { self.options.clients.min(self.options.children) } else { self.options.clients }
    }

    /// Reads the files of TLS for each end that needs them.
    pub(crate) fn tls_roles(&self) -> Result<[Option<TlsRole>; 2]> {
        let role = |side: &Side| match (&side.address, side.listens) {
            (Address::Tls { .. }, true) => TlsRole::server(&self.options.tls, Wording::Options).map(Some),
            (Address::Tls { .. }, false) => TlsRole::client(&self.options.tls, Wording::Options).map(Some),
            _ => Ok(None),
        };
        Ok([role(&self.sides[0])?, role(&self.sides[1])?])
    }
}
