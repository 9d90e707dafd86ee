//! The connection of a [`Carrier`]: made, lost, and made again.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::{SockAddr, Socket, Type};
use taut_time::{Duration, Instant};

use super::account::BrokerAccount;
use super::reader::Reader;
use super::wire::Wire;
use super::writer::Writer;
use crate::broker::address::CarriedTopics;
use crate::broker::client::Ending;
use crate::endpoint;
use crate::{Endpoint, Error, keep_alive};

/// Messages to and from a broker, with their account. An epoll descriptor tells when something can be done.
#[derive(Debug)]
pub struct Carrier {
    pub(super) endpoint: Endpoint,
    pub(super) addresses: Vec<SockAddr>,
    /// Waits for the socket, whichever it is; who waits for this one needs not know.
    pub(super) epoll: OwnedFd,
    pub(super) line: Line,
    /// Name of the client.
    pub(super) name: String,
    pub(super) filters: CarriedTopics,
    pub(super) writer: Option<Writer>,
    pub(super) reader: Option<Reader>,
    /// Number of the next connection's first packet.
    pub(super) next_number: u16,
    /// How long one attempt to connect may take, over all addresses of the broker.
    pub(super) patience: Duration,
    /// Attempts in a row that came to nothing, or to a connection that did not last.
    pub(super) failures: u32,
    /// Connections in a row that did not last.
    pub(super) short_lived: u32,
    /// The connection was closed, and it is not known yet whether the broker is still there.
    pub(super) closed: Option<Closed>,
    /// How often in a row a broker that is there has taken a session away soon after it had given it.
    pub(super) taken_away: u32,
    /// Whether the broker has let us in once.
    pub(super) is_known: bool,
    pub(super) error: Option<Error>,
    pub(super) ending: Option<Leave>,
    pub(super) input: Vec<u8>,
    /// The last turn of reading did not come to an end.
    pub(super) has_more: bool,
    pub(super) notes: VecDeque<String>,
    /// What has been said since the broker let us in, and is not said again.
    pub(super) noted: BTreeSet<String>,
    pub(super) told: BrokerAccount,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    /// How long it had been in use.
    age: Duration,
    /// Whether the broker has not said why.
    without_a_word: bool,
    /// Whether a message may be why.
    at_message: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    pub(super) since: Instant,
    /// How much the broker and readers have taken, and since when it is so much.
    pub(super) progress: (u64, Instant),
    /// When readers had told of the last message.
    pub(super) answered: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Line {
    Away {
        until: Instant,
        address: usize,
    },
    Connecting {
        socket: Socket,
        until: Instant,
        address: usize,
    },
    Open {
        wire: Wire,
        until: Instant,
        ready_at: Option<Instant>,
    },
    /// All is said; the broker closes.
    Leaving {
        wire: Wire,
        until: Instant,
        /// TLS has said its own end, or has none.
        is_said: bool,
        is_shut: bool,
    },
    Left,
}

/// Longest wait for a connection and for being let in, once it is known that the broker can be had.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that is closed sooner did not last. A session that is taken away so twice by a broker that is there was
/// taken over by another client.
pub(super) const SHORT_SESSION: Duration = Duration::from_secs(5);
/// Those of the connections that did not last which are told of, until one lasts: a broker that ends each of them, for
/// what it is sent, does so every 2 s for ever.
pub(super) const MOST_TOLD: u32 = 20;
/// Reasons that are said each once: while a broker does not let us in, and of messages while it does.
pub(super) const MOST_NOTED: usize = 16;
/// How long a session that was taken away is left to who has it.
const TAKEN_AWAY: Duration = Duration::from_secs(1);
/// How long the end waits for the broker, and for what readers tell, since either has taken something: a broker that
/// writes each message to a disk which others use takes its time.
const ENDING: Duration = Duration::from_secs(10);
/// The same in all: anybody can say that he has read something.
const LONGEST_ENDING: Duration = Duration::from_secs(120);

impl Leave {
    /// Whether it is waited for no more, now that so much is taken.
    pub(super) fn is_over(&mut self, taken: u64, now: Instant) -> bool {
        if taken > self.progress.0 {
            self.progress = (taken, now);
        }
        now >= self.progress.1 + ENDING || now >= self.since + LONGEST_ENDING
    }
}

impl Carrier {
    pub(super) fn connect(&mut self, address: usize, now: Instant) {
        if self.addresses.is_empty() {
            match self.endpoint.resolve() {
                Ok(addresses) => self.addresses = addresses,
                Err(error) => {
                    self.error = Some(error);
                    return self.be_away(address, now);
                }
            }
        }
        let Some(to) = self.addresses.get(address) else { return self.be_away(0, now) };
        let made = Socket::new(endpoint::domain(to), Type::STREAM.cloexec().nonblocking(), None).and_then(|socket| {
            socket.set_tcp_nodelay(true)?;
            keep_alive(&socket)?;
            match socket.connect(to) {
                Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
                _ => Ok(socket),
            }
        });
        match made.and_then(|socket| {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.epoll, &socket, EventData::new_u64(0), flags)?;
            Ok(socket)
        }) {
            Ok(socket) => {
                // One that nobody answers at leaves time for the next one.
                let others = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
                self.line = Line::Connecting { socket, until: now + self.patience / others.max(1), address };
                self.look_at_connection(now);
            }
            Err(error) => self.not_there(error, address, now),
        }
    }

    pub(super) fn look_at_connection(&mut self, now: Instant) {
        let Line::Connecting { socket, until, address } = &self.line else { return };
        let (until, address) = (*until, *address);
        let state = match socket.take_error() {
            Ok(None) => socket.peer_addr().map(drop),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        match state {
            Ok(()) => self.log_in(now),
            Err(error) if error.kind() == io::ErrorKind::NotConnected && now < until => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.not_there(io::ErrorKind::TimedOut.into(), address, now);
            }
            Err(error) => self.not_there(error, address, now),
        }
    }

    /// Nobody answers there.
    pub(super) fn not_there(&mut self, error: io::Error, address: usize, now: Instant) {
        (self.closed, self.taken_away) = (None, 0);
        if address + 1 < self.addresses.len() {
            self.line = Line::Away { until: now, address: address + 1 };
        } else {
            if !self.is_known {
                self.error = Some(Error::io("connect to", &self.endpoint, error));
            }
            self.be_away(0, now);
        }
    }

    /// Waits with the next attempt, longer each time: 0.1 s to 2 s.
    pub(super) fn be_away(&mut self, address: usize, now: Instant) {
        // The first failure is that of the connection that was made again at once.
        let pause = Duration::from_millis(100 << self.failures.saturating_sub(1).min(5)).min(Duration::from_secs(2));
        self.failures = self.failures.saturating_add(1);
        self.line = Line::Away { until: now + pause, address };
    }

    pub(super) fn log_in(&mut self, now: Instant) {
        if let Some(closed) = self.closed.take().filter(|closed| closed.without_a_word) {
            // It is still there, and has closed the connection on purpose. Brokers need not say why, of MQTT 3.1.1 they
            // can't.
            if self.is_lasting() {
                self.taken_away += u32::from(closed.age < SHORT_SESSION && !closed.at_message);
                if self.taken_away > 1 {
                    return self.be_taken_over();
                }
                // Another client may have been let in just now.
                self.line = Line::Away { until: now + TAKEN_AWAY, address: 0 };
                return;
            }
            // Of a stream we get only what we ask for.
            if matches!(&self.endpoint, Endpoint::Nats(address) if address.stream.is_none()) {
                self.be_cut_off();
            }
        }
        let Line::Connecting { socket, .. } = std::mem::replace(&mut self.line, Line::Left) else { return };
        let Some(address) = self.endpoint.broker() else { return };
        // Who only writes has all that is to be kept himself. In a session that is kept, a number of QoS 2 that is used
        // anew would stand for the old message (MQTT 5.0, section 4.3.3).
        let is_lasting = self.is_lasting() && self.reader.is_some();
        let client =
            address.carrying_client(&self.endpoint, self.name.clone(), &self.filters, (is_lasting, self.next_number));
        let wire = client.and_then(|client| {
            let mut wire = Wire::new(socket, client);
            if address.begins_with_tls() {
                wire.begin(address.tls(&self.endpoint)?);
            }
            Ok(wire)
        });
        match wire {
            Ok(wire) => self.line = Line::Open { wire, until: now + PATIENCE, ready_at: None },
            Err(error) => {
                self.error = Some(error);
                self.line = Line::Left;
            }
        }
    }

    pub(super) fn is_lasting(&self) -> bool {
        self.endpoint.broker().is_some_and(|address| address.carriage().session.is_some())
    }

    pub(super) fn be_taken_over(&mut self) {
        let what = format!("gave the session {} to another client of that name, which has taken it over", self.name);
        self.error = Some(Error::Broker { endpoint: self.endpoint.to_string(), what });
        self.line = Line::Left;
    }

    pub(super) fn be_cut_off(&mut self) {
        self.told.cut_off += 1;
        self.reader.iter_mut().for_each(Reader::be_cut_off);
    }

    /// The connection is over.
    pub(super) fn lose(&mut self, why: &str, now: Instant) {
        let Line::Open { mut wire, ready_at, .. } = std::mem::replace(&mut self.line, Line::Left) else { return };
        let _ = epoll::delete(&self.epoll, &wire.socket);
        let refusal = wire.take_refusal();
        let client = &mut wire.client;
        let without_a_word = client.failure().is_none();
        client.fail(why);
        let why = client.failure().unwrap_or(why).to_owned();
        // Numbers go on behind those that the broker may still have.
        self.next_number = client.next_ticket().unwrap_or(self.next_number);
        if let Some((number, bytes)) = self.writer.as_mut().and_then(Writer::lose_connection) {
            let why = format!("the broker closes the connection at message {number} ({bytes} bytes) each time");
            self.notes.push_back(format!("{}: {why} and takes others: that message is lost", self.endpoint));
            // The first time it could have been another client that took the session.
            self.taken_away = 0;
        }
        let at_message = self.writer.as_ref().is_some_and(Writer::has_broken_at_one);
        self.reader.iter_mut().for_each(Reader::lose_connection);
        match client.ending() {
            Ending::TakenOver => return self.be_taken_over(),
            Ending::SlowConsumer => self.be_cut_off(),
            Ending::Open | Ending::Refused => {}
        }
        let endpoint = self.endpoint.to_string();
        let error = match refusal {
            Some(reason) => Error::Unsecured { endpoint, reason },
            None => Error::Broker { endpoint, what: why },
        };
        if !self.is_known || client.ending() == Ending::Refused {
            self.error = Some(error);
            return;
        }
        let Some(age) = ready_at.map(|ready_at| now.saturating_since(ready_at)) else {
            let note = format!("{error}; trying again");
            if self.noted.len() < MOST_NOTED && self.noted.insert(note.clone()) {
                self.notes.push_back(note);
            }
            return self.be_away(0, now);
        };
        if age >= SHORT_SESSION {
            (self.failures, self.taken_away, self.short_lived) = (0, 0, 0);
        } else {
            self.short_lived = self.short_lived.saturating_add(1);
        }
        match self.short_lived.cmp(&MOST_TOLD) {
            Ordering::Less => self.notes.push_back(format!("{error}; connecting again")),
            Ordering::Equal => {
                self.notes.push_back(format!("{error}; connecting again, as often: no more is said until it lasts"));
            }
            Ordering::Greater => {}
        }
        // At once, so that it is known whether the broker is still there; but not again and again. Of a session that
        // was taken away without a word it has to be known each time whether another client has it.
        if self.failures == 0 || self.is_lasting() && without_a_word {
            self.failures += 1;
            self.closed = Some(Closed { age, without_a_word, at_message });
            self.connect(0, now);
        } else {
            self.be_away(0, now);
        }
    }
}
