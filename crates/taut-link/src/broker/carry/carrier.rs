//! A client of a broker over its socket, without a call that waits: the connection is made again when it breaks.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use socket2::{SockAddr, Socket, Type};
use taut_time::{Duration, Instant};

use super::account::BrokerAccount;
use super::envelope::Run;
use super::reader::Reader;
use super::writer::{Answer, Writer};
use crate::broker::address::BrokerAddress;
use crate::broker::client::{Client, Ending};
use crate::endpoint;
use crate::{Endpoint, Error, Result, clock, keep_alive, sys};

/// Which ways messages go, and on which topic each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Directions {
    /// Messages are published.
    pub writes: bool,
    /// Messages are heard.
    pub reads: bool,
    /// The address' own topic is that which is heard; else it is that which is published to. The other way is below
    /// it, at `back`.
    pub topic_is_heard: bool,
}

/// What became of a message that was offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Offered {
    /// It is kept until the broker has it.
    Taken,
    /// There is no room until the broker has taken some.
    Full,
}

/// Messages to and from a broker, with their account. An epoll descriptor tells when something can be done.
#[derive(Debug)]
pub struct Carrier {
    endpoint: Endpoint,
    addresses: Vec<SockAddr>,
    /// Waits for the socket, whichever it is; who waits for this one needs not know.
    epoll: OwnedFd,
    line: Line,
    /// Name of the client.
    name: String,
    filters: Filters,
    writer: Option<Writer>,
    reader: Option<Reader>,
    /// Number of the next connection's first packet.
    next_number: u16,
    /// Attempts in a row that came to nothing, or to a connection that did not last.
    failures: u32,
    /// The connection was closed, and it is not known yet whether the broker is still there.
    closed: Option<Closed>,
    /// How often in a row a broker that is there has taken a session away soon after it had given it.
    taken_away: u32,
    /// Whether the broker has let us in once.
    is_known: bool,
    error: Option<Error>,
    ending: Option<Leave>,
    input: Vec<u8>,
    /// The last turn of reading did not come to an end.
    has_more: bool,
    notes: VecDeque<String>,
    told: BrokerAccount,
}

#[derive(Debug, Default)]
struct Filters {
    data: Option<String>,
    tallies: Option<String>,
    receipts: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Closed {
    /// How long it had been in use.
    age: Duration,
    /// Whether the broker has not said why.
    without_a_word: bool,
}

#[derive(Clone, Copy, Debug)]
struct Leave {
    since: Instant,
    /// When readers had told of the last message.
    answered: Option<Instant>,
}

#[derive(Debug)]
enum Line {
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
        socket: Socket,
        client: Box<dyn Client>,
        until: Instant,
        ready_at: Option<Instant>,
    },
    /// All is said; the broker closes.
    Leaving {
        socket: Socket,
        client: Box<dyn Client>,
        until: Instant,
        is_shut: bool,
    },
    Left,
}

/// Longest wait for a connection and for being let in, once it is known that the broker can be had.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end waits for the broker, and for what readers tell.
const ENDING: Duration = Duration::from_secs(10);
/// How long for readers that have never been heard of, and for what is late.
const SILENCE: Duration = Duration::from_secs(2);
/// How long the broker may take to close.
const LEAVING: Duration = Duration::from_secs(1);
/// A connection that is closed sooner did not last. A session that is taken away so twice by a broker that is there was
/// taken over by another client.
const SHORT_SESSION: Duration = Duration::from_secs(5);
/// How long a session that was taken away is left to who has it.
const TAKEN_AWAY: Duration = Duration::from_secs(1);
/// Room for one read, and reads of one turn.
const INPUT_BYTES: usize = 64 << 10;
const READS: usize = 16;

impl Carrier {
    /// Connects and logs in; waits for at most `timeout`.
    ///
    /// # Errors
    /// As [`crate::Link::connect`] over a broker; [`Error::Input`] for an endpoint without one.
    pub fn open(endpoint: &Endpoint, directions: Directions, timeout: Duration) -> Result<Self> {
        let Some(address) = endpoint.broker() else {
            return Err(Error::Input(format!("{endpoint}: there is no broker at it")));
        };
        let fail = |source| Error::io("wait for", endpoint, source);
        let now = clock::now();
        let mut carrier = Self::new(endpoint.clone(), address, directions, now).map_err(fail)?;
        let until = now + timeout;
        while !carrier.is_known {
            carrier.drive(clock::now());
            if let Some(error) = carrier.error.take() {
                return Err(error);
            }
            if clock::now() > until {
                let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Silent { endpoint: endpoint.to_string(), to: "the broker's CONNECT", after_ms });
            }
            if !carrier.is_known {
                let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                // A signal only has it look sooner.
                let _ = poll(&mut [PollFd::new(&carrier.epoll, PollFlags::IN)], Some(&pause));
            }
        }
        Ok(carrier)
    }

    fn new(endpoint: Endpoint, address: BrokerAddress<'_>, directions: Directions, now: Instant) -> io::Result<Self> {
        let (topic, separator) = (address.topic(), address.separator());
        let below = |topic: &str, level: &str| format!("{topic}{separator}{level}");
        let (own, back) = (topic.to_owned(), below(topic, "back"));
        let (heard, written) = if directions.topic_is_heard { (own, back) } else { (back, own) };
        let carriage = address.carriage().clone();
        let epoch = clock::RealtimeOffset::read().to_realtime(now);
        let own_name = format!("{:016x}", epoch ^ u64::from(std::process::id()).rotate_left(40));
        let name = carriage.session.clone().unwrap_or_else(|| format!("taut-{own_name}"));
        let (has_envelope, is_lasting) = (carriage.envelope, carriage.session.is_some());
        let run = Run { writer: writer_number(&endpoint, carriage.session.as_deref()), epoch };
        let reads = directions.reads;
        let filters = Filters {
            data: reads.then(|| heard.clone()),
            tallies: (reads && has_envelope).then(|| below(&heard, "sent")),
            receipts: (directions.writes && has_envelope).then(|| below(&written, "receipt")),
        };
        let writer = directions.writes.then(|| {
            let tally_topic = below(&written, "sent");
            Writer::new(written, tally_topic, run, carriage.buffer).with(has_envelope, address.is_confirmed())
        });
        let reader_name = carriage.session.unwrap_or(own_name);
        let reader = reads.then(|| {
            let receipt_topic = below(&heard, "receipt");
            Reader::new(heard, receipt_topic, reader_name, epoch).with(has_envelope, is_lasting)
        });
        Ok(Self {
            addresses: Vec::new(),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            line: Line::Away { until: now, address: 0 },
            name,
            filters,
            writer,
            reader,
            next_number: (epoch >> 10) as u16,
            failures: 0,
            closed: None,
            taken_away: 0,
            is_known: false,
            error: None,
            ending: None,
            input: vec![0; INPUT_BYTES],
            has_more: false,
            notes: VecDeque::new(),
            told: BrokerAccount::default(),
            endpoint,
        })
    }

    /// A descriptor that becomes readable when there is something for [`drive`](Self::drive) to do.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn watch(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.epoll, 3)?)
    }

    /// Whether the broker has let us in.
    fn is_in(&self) -> bool {
        matches!(self.line, Line::Open { ready_at: Some(_), .. })
    }

    /// Does what can be done now: reads, writes, connects, tells readers and writers.
    pub fn drive(&mut self, now: Instant) {
        // Edges: who is asked is asked until it has no more, so what they were of does not matter.
        let _ = sys::epoll_wait(self.epoll.as_fd(), &mut [libc::epoll_event { events: 0, u64: 0 }; 4], false);
        match &self.line {
            Line::Away { until, address } if *until <= now => self.connect(*address, now),
            Line::Connecting { .. } => self.look_at_connection(now),
            _ => {}
        }
        self.read(now);
        self.pump(now);
        self.flush(now);
        if self.ending.is_some() {
            self.leave(now);
        }
    }

    /// When [`drive`](Self::drive) is to be called, if nothing happens before.
    pub fn due(&self) -> Option<Instant> {
        let leaving = self.ending.is_some();
        match &self.line {
            Line::Away { until, .. } | Line::Connecting { until, .. } | Line::Leaving { until, .. } => Some(*until),
            _ if self.has_more => Some(Instant::from_nanos(0)),
            Line::Open { ready_at: None, until, .. } => Some(*until),
            Line::Open { .. } => {
                let tally = self.writer.as_ref().and_then(|writer| writer.tally_due(leaving));
                let receipts = self.reader.as_ref().and_then(Reader::receipts_due);
                tally.into_iter().chain(receipts).min()
            }
            Line::Left => None,
        }
    }

    fn connect(&mut self, address: usize, now: Instant) {
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
                self.line = Line::Connecting { socket, until: now + PATIENCE, address };
                self.look_at_connection(now);
            }
            Err(error) => self.not_there(error, address, now),
        }
    }

    fn look_at_connection(&mut self, now: Instant) {
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
    fn not_there(&mut self, error: io::Error, address: usize, now: Instant) {
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
    fn be_away(&mut self, address: usize, now: Instant) {
        let pause = Duration::from_millis(100 << self.failures.min(5)).min(Duration::from_secs(2));
        self.failures = self.failures.saturating_add(1);
        self.line = Line::Away { until: now + pause, address };
    }

    fn log_in(&mut self, now: Instant) {
        if let Some(closed) = self.closed.take().filter(|closed| closed.without_a_word) {
            // It is still there, and has closed the connection on purpose. Brokers need not say why, of MQTT 3.1.1 they
            // can't.
            if self.is_lasting() {
                self.taken_away += u32::from(closed.age < SHORT_SESSION);
                if self.taken_away > 1 {
                    return self.be_taken_over();
                }
                // Another client may have been let in just now.
                self.line = Line::Away { until: now + TAKEN_AWAY, address: 0 };
                return;
            }
            if matches!(self.endpoint, Endpoint::Nats(_)) {
                self.be_cut_off();
            }
        }
        let Line::Connecting { socket, .. } = std::mem::replace(&mut self.line, Line::Left) else { return };
        let Filters { data, tallies, receipts } = &self.filters;
        let filters: Vec<String> = data.iter().chain(tallies).chain(receipts).cloned().collect();
        let client = match self.endpoint.broker() {
            Some(address) => address.carrying_client(&self.endpoint, self.name.clone(), filters, self.next_number),
            None => return,
        };
        // Numbers go on behind those that the broker may still have.
        self.next_number = self.next_number.wrapping_add(1009);
        match client {
            Ok(client) => self.line = Line::Open { socket, client, until: now + PATIENCE, ready_at: None },
            Err(error) => {
                self.error = Some(error);
                self.line = Line::Left;
            }
        }
    }

    fn is_lasting(&self) -> bool {
        self.endpoint.broker().is_some_and(|address| address.carriage().session.is_some())
    }

    fn be_taken_over(&mut self) {
        let what = format!("gave the session {} to another client of that name, which has taken it over", self.name);
        self.error = Some(Error::Broker { endpoint: self.endpoint.to_string(), what });
        self.line = Line::Left;
    }

    fn be_cut_off(&mut self) {
        self.told.cut_off += 1;
        self.reader.iter_mut().for_each(Reader::be_cut_off);
    }

    /// Takes in what the broker has sent, as far as there is room for it.
    fn read(&mut self, now: Instant) {
        self.has_more = true;
        for _ in 0..READS {
            let (socket, client) = match &mut self.line {
                Line::Open { socket, client, .. } => (socket, client),
                Line::Leaving { .. } => return self.read_last(now),
                _ => {
                    self.has_more = false;
                    return;
                }
            };
            if self.ending.is_none() && self.reader.as_ref().is_some_and(|reader| !reader.has_room()) {
                // Who takes from it has it driven.
                self.has_more = false;
                return;
            }
            match rustix::net::recv(&*socket, &mut self.input[..], RecvFlags::DONTWAIT) {
                Ok((bytes @ 1.., _)) => client.handle(&self.input[..bytes]),
                Err(Errno::AGAIN) => {
                    self.has_more = false;
                    break;
                }
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => {
                    self.sort(now);
                    return self.lose("closed the connection", now);
                }
            }
            self.sort(now);
        }
        let Line::Open { client, until, ready_at, .. } = &mut self.line else { return };
        if ready_at.is_none() && client.is_ready() {
            *ready_at = Some(now);
            self.told.broker = client.about();
            if std::mem::replace(&mut self.is_known, true) {
                self.told.reconnections += 1;
                self.notes.push_back(format!("{}: with the broker again", self.endpoint));
            }
        } else if client.failure().is_some() {
            self.lose("ended the connection", now);
        } else if ready_at.is_none() && now >= *until {
            self.lose("does not answer to CONNECT", now);
        }
    }

    /// Sorts what the client has taken in.
    fn sort(&mut self, now: Instant) {
        let Line::Open { client, .. } = &mut self.line else { return };
        while let Some(message) = client.next_message() {
            let topic = Some(message.topic.as_str());
            if topic == self.filters.receipts.as_deref() {
                client.acknowledge(&message);
                self.writer.iter_mut().for_each(|writer| writer.take_receipt(message.payload(), now));
            } else if topic == self.filters.tallies.as_deref() {
                client.acknowledge(&message);
                self.reader.iter_mut().for_each(|reader| reader.push_tally(message.payload()));
            } else if topic == self.filters.data.as_deref()
                // What comes at the end is not taken: a lasting session keeps it.
                && self.ending.is_none()
                && let Some(reader) = &mut self.reader
            {
                reader.push(message);
            }
        }
        while let Some(ticket) = client.next_confirmed() {
            self.writer.iter_mut().for_each(|writer| writer.confirm(ticket));
        }
    }

    /// The connection is over.
    fn lose(&mut self, why: &str, now: Instant) {
        let Line::Open { socket, mut client, ready_at, .. } = std::mem::replace(&mut self.line, Line::Left) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &socket);
        let without_a_word = client.failure().is_none();
        client.fail(why);
        let why = client.failure().unwrap_or(why).to_owned();
        self.writer.iter_mut().for_each(Writer::lose_connection);
        self.reader.iter_mut().for_each(Reader::lose_connection);
        match client.ending() {
            Ending::TakenOver => return self.be_taken_over(),
            Ending::SlowConsumer => self.be_cut_off(),
            Ending::Open | Ending::Refused => {}
        }
        let error = Error::Broker { endpoint: self.endpoint.to_string(), what: why };
        if !self.is_known || client.ending() == Ending::Refused {
            self.error = Some(error);
            return;
        }
        let Some(age) = ready_at.map(|ready_at| now.saturating_since(ready_at)) else { return self.be_away(0, now) };
        self.notes.push_back(format!("{error}; connecting again"));
        if age >= SHORT_SESSION {
            (self.failures, self.taken_away) = (0, 0);
        }
        // At once, so that it is known whether the broker is still there; but not again and again.
        if self.failures == 0 || self.is_lasting() {
            self.failures += 1;
            self.closed = Some(Closed { age, without_a_word });
            self.connect(0, now);
        } else {
            self.be_away(0, now);
        }
    }

    fn pump(&mut self, now: Instant) {
        let Line::Open { client, ready_at: Some(_), .. } = &mut self.line else { return };
        let is_ending = self.ending.is_some();
        if let Some(writer) = &mut self.writer {
            if let Err(why) = writer.pump(&mut **client) {
                self.notes.push_back(format!("{}: the broker {why}; a message is lost", self.endpoint));
            }
            writer.tell(&mut **client, now, is_ending);
        }
        if let Some(reader) = &mut self.reader {
            reader.tell(&mut **client, now, false);
        }
    }

    /// Writes what there is room for.
    fn flush(&mut self, now: Instant) {
        loop {
            let (Line::Open { socket, client, .. } | Line::Leaving { socket, client, .. }) = &mut self.line else {
                return;
            };
            if client.output().is_empty() {
                return self.shut();
            }
            match rustix::net::send(&*socket, client.output(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => client.wrote(bytes),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    // Why, the broker may have said in what is still to be read.
                    while let Ok((bytes @ 1.., _)) =
                        rustix::net::recv(&*socket, &mut self.input[..], RecvFlags::DONTWAIT)
                    {
                        client.handle(&self.input[..bytes]);
                    }
                    self.sort(now);
                    if matches!(self.line, Line::Leaving { .. }) {
                        self.line = Line::Left;
                    }
                    return self.lose("closed the connection", now);
                }
            }
            if matches!(self.line, Line::Open { .. }) {
                self.pump(now);
            }
        }
    }

    /// Tells the broker's kernel that nothing more comes, once all has been written.
    fn shut(&mut self) {
        if let Line::Leaving { socket, is_shut, .. } = &mut self.line
            && !std::mem::replace(is_shut, true)
            && rustix::net::shutdown(&*socket, Shutdown::Write).is_err()
        {
            self.line = Line::Left;
        }
    }

    /// Until the broker has closed: unread bytes would make the kernel throw away what it has not sent yet.
    fn read_last(&mut self, now: Instant) {
        let Line::Leaving { socket, until, .. } = &self.line else { return };
        let is_over = loop {
            match rustix::net::recv(socket, &mut self.input[..], RecvFlags::DONTWAIT) {
                Ok((1.., _)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break now >= *until,
                Ok(_) | Err(_) => break true,
            }
        };
        if is_over {
            self.line = Line::Left;
        }
    }

    /// Takes a message to be published.
    pub fn offer(&mut self, payload: &[u8]) -> Offered {
        let is_there = self.is_in();
        match &mut self.writer {
            Some(writer) if writer.has_room() || !is_there => {
                writer.take(payload);
                Offered::Taken
            }
            Some(_) => Offered::Full,
            None => Offered::Taken,
        }
    }

    /// Whether [`offer`](Self::offer) would take a message.
    pub fn has_room(&self) -> bool {
        !self.is_in() || self.writer.as_ref().is_none_or(Writer::has_room)
    }

    /// The next message that has come, copied to `buffer`; its length. One that is longer is not given on.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let reader = self.reader.as_mut()?;
        let client = match &mut self.line {
            Line::Open { client, .. } => Some(&mut **client as &mut dyn Client),
            _ => None,
        };
        reader.next(client, buffer)
    }

    /// Whether [`receive`](Self::receive) may bring a message.
    pub fn has_some(&self) -> bool {
        self.reader.as_ref().is_some_and(Reader::has_some)
    }

    /// Nothing more is offered or received: what was taken is brought to the broker, and what readers tell is waited
    /// for, within limits. [`has_left`](Self::has_left) says when that is over.
    pub fn finish(&mut self, now: Instant) {
        if self.ending.is_none() {
            self.ending = Some(Leave { since: now, answered: None });
        }
    }

    /// Whether all is over.
    pub const fn has_left(&self) -> bool {
        matches!(self.line, Line::Left)
    }

    fn leave(&mut self, now: Instant) {
        if !self.may_leave(now) {
            return;
        }
        match std::mem::replace(&mut self.line, Line::Left) {
            Line::Open { socket, mut client, ready_at: Some(_), .. } => {
                if let Some(reader) = &mut self.reader {
                    reader.tell(&mut *client, now, true);
                }
                client.say_goodbye();
                self.line = Line::Leaving { socket, client, until: now + LEAVING, is_shut: false };
                self.flush(now);
            }
            line @ Line::Leaving { .. } => self.line = line,
            _ => {}
        }
    }

    /// Whether there is nothing more to wait for.
    fn may_leave(&mut self, now: Instant) -> bool {
        let (Some(leave), Some(writer)) = (&mut self.ending, &self.writer) else { return true };
        if now >= leave.since + ENDING {
            return true;
        }
        if !writer.is_done() {
            return false;
        }
        let Some(told) = writer.over_told() else {
            // Without numbers or messages nothing is told.
            return writer.tally_due(true).is_none();
        };
        match writer.answer() {
            Answer::Whole => true,
            Answer::Told => now >= *leave.answered.get_or_insert(now) + SILENCE,
            Answer::Open => false,
            // Told again each second: the first time counts.
            Answer::Nobody => now >= (*leave.answered.get_or_insert(told)) + SILENCE,
        }
    }

    /// What ended it for good; it is told once.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// What a user may want to read, the oldest first.
    pub fn take_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    /// Bytes and number of the messages that came, were not taken by [`receive`](Self::receive), and are lost.
    pub fn unread(&self) -> (u64, u64) {
        self.reader.as_ref().map_or((0, 0), Reader::unread)
    }

    /// What became of the messages, so far or, after [`finish`](Self::finish), for good.
    pub fn account(&self) -> BrokerAccount {
        let written = self.writer.as_ref().map(|writer| writer.account(self.ending.is_some()));
        let heard = self.reader.as_ref().map(Reader::account);
        BrokerAccount { written, heard, ..self.told.clone() }
    }
}

/// The same at each start of a writer to this address on this host (FNV-1a).
fn writer_number(endpoint: &Endpoint, session: Option<&str>) -> u32 {
    let uname = rustix::system::uname();
    let text = format!("{} {endpoint}", session.map_or_else(|| uname.nodename().to_string_lossy(), Into::into));
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
