//! A client of a broker over its socket, without a call that waits: the connection is made again when it breaks.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use taut_time::{Duration, Instant};

use super::account::BrokerAccount;
use super::envelope::Run;
use super::line::{Carrier, Leave, Line, MOST_NOTED, MOST_TOLD, PATIENCE, SHORT_SESSION};
use super::reader::Reader;
use super::wire::Came;
use super::writer::{Answer, MOST_OUTPUT, Writer};
use crate::broker::address::{BACK, BrokerAddress, CarriedTopics};
use crate::broker::client::{Client, Ending};
use crate::broker::secured::CLOSED;
use crate::{Endpoint, Error, Result, clock, sys};

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

/// How long for readers that have never been heard of, and for what is late.
const SILENCE: Duration = Duration::from_secs(2);
/// How long the broker may take to close.
const LEAVING: Duration = Duration::from_secs(1);
/// Room for one read, and reads of one turn.
const INPUT_BYTES: usize = 64 << 10;
const READS: usize = 16;
/// Reads once nothing can be written any more: more than a socket keeps, as a broker may send on.
const LAST_READS: usize = 128;
/// Bytes that may wait for a broker which sends and does not read.
const MOST_WAITING: usize = 1 << 20;

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
        carrier.patience = timeout;
        let until = now + timeout;
        while !carrier.is_known {
            carrier.drive(clock::now());
            if let Some(error) = carrier.error.take() {
                return Err(error);
            }
            if clock::now() > until {
                let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                let to = match &carrier.line {
                    Line::Open { wire, .. } => wire.client.waits_for(),
                    _ => "our attempt to connect",
                };
                return Err(Error::Silent { endpoint: endpoint.to_string(), to, after_ms });
            }
            if !carrier.is_known {
                let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                // A signal only has it look sooner.
                let _ = poll(&mut [PollFd::new(&carrier.epoll, PollFlags::IN)], Some(&pause));
            }
        }
        carrier.patience = PATIENCE;
        Ok(carrier)
    }

    fn new(endpoint: Endpoint, address: BrokerAddress<'_>, directions: Directions, now: Instant) -> io::Result<Self> {
        let (topic, separator) = (address.topic(), address.separator());
        let below = |topic: &str, level: &str| format!("{topic}{separator}{level}");
        let (own, back) = (topic.to_owned(), below(topic, BACK));
        let (heard, written) = if directions.topic_is_heard { (own, back) } else { (back, own) };
        let carriage = address.carriage().clone();
        let epoch = clock::RealtimeOffset::read().to_realtime(now);
        let own_name = format!("{:016x}", epoch ^ u64::from(std::process::id()).rotate_left(40));
        let name = carriage.session.clone().unwrap_or_else(|| format!("taut-{own_name}"));
        // The name by which the broker knows a reader when he comes again.
        let lasting = carriage.session.clone().or_else(|| address.stream().and_then(|stream| stream.reader.clone()));
        let (has_envelope, is_lasting) = (carriage.envelope, lasting.is_some());
        let run = Run { writer: writer_number(&endpoint, carriage.session.as_deref()), epoch };
        let reads = directions.reads;
        let filters = CarriedTopics {
            published: directions.writes.then(|| written.clone()),
            data: reads.then(|| heard.clone()),
            tallies: (reads && has_envelope).then(|| below(&heard, "sent")),
            receipts: (directions.writes && has_envelope).then(|| below(&written, "receipt")),
        };
        let writer = directions.writes.then(|| {
            let tally_topic = below(&written, "sent");
            Writer::new(written, tally_topic, run, carriage.buffer)
                .with(has_envelope, address.is_confirmed())
                .in_stream(address.stream().is_some())
        });
        let reader_name = lasting.unwrap_or(own_name);
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
            patience: PATIENCE,
            failures: 0,
            short_lived: 0,
            closed: None,
            taken_away: 0,
            is_known: false,
            error: None,
            ending: None,
            input: vec![0; INPUT_BYTES],
            has_more: false,
            notes: VecDeque::new(),
            noted: BTreeSet::new(),
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
            // Once the socket takes more, that is what there is to do.
            Line::Open { wire, .. } if wire.client.output().len() >= MOST_OUTPUT => None,
            Line::Open { .. } => {
                let tally = self.writer.as_ref().and_then(|writer| writer.tally_due(leaving));
                let receipts = self.reader.as_ref().and_then(Reader::receipts_due);
                tally.into_iter().chain(receipts).min()
            }
            Line::Left => None,
        }
    }

    /// Takes in what the broker has sent, as far as there is room for it.
    fn read(&mut self, now: Instant) {
        self.has_more = true;
        for _ in 0..READS {
            let (wire, is_ready) = match &mut self.line {
                Line::Open { wire, ready_at, .. } => (wire, ready_at.is_some()),
                Line::Leaving { .. } => return self.read_last(now),
                _ => {
                    self.has_more = false;
                    return;
                }
            };
            if self.ending.is_none() && self.reader.as_ref().is_some_and(|reader| !reader.has_room(is_ready)) {
                // Who takes from it has it driven.
                self.has_more = false;
                break;
            }
            match wire.receive(&mut self.input) {
                Came::Some => {
                    if wire.client.wants_tls() {
                        match self.endpoint.broker().map(|address| address.tls(&self.endpoint)) {
                            Some(Ok(tls)) => wire.begin(tls),
                            Some(Err(error)) => {
                                (self.error, self.line) = (Some(error), Line::Left);
                                return;
                            }
                            None => {}
                        }
                    }
                    if wire.client.output().len() > MOST_WAITING {
                        wire.client.fail("does not read what it is sent");
                    }
                }
                Came::Nothing => {
                    self.has_more = false;
                    break;
                }
                Came::Over(how) => {
                    self.sort(now);
                    return self.lose(how, now);
                }
            }
            self.sort(now);
        }
        let Line::Open { wire, until, ready_at } = &mut self.line else { return };
        let client = &mut wire.client;
        if ready_at.is_none() && client.is_ready() {
            *ready_at = Some(now);
            self.told.broker = client.about();
            let note = client.take_note().filter(|_| !self.is_known);
            // What keeps us out after this is said anew.
            self.noted.clear();
            self.notes.extend(note.map(|note| format!("{}: the broker {note}", self.endpoint)));
            if std::mem::replace(&mut self.is_known, true) {
                self.told.reconnections += 1;
                if self.short_lived < MOST_TOLD {
                    self.notes.push_back(format!("{}: with the broker again", self.endpoint));
                }
            }
        } else if client.failure().is_some() {
            self.lose("ended the connection", now);
        } else if ready_at.is_none() && now >= *until {
            self.lose("gives no answer in time", now);
        } else if self.short_lived >= MOST_TOLD
            && ready_at.is_some_and(|ready_at| now.saturating_since(ready_at) >= SHORT_SESSION)
        {
            self.short_lived = 0;
            self.notes.push_back(format!("{}: with the broker again", self.endpoint));
        }
    }

    /// Sorts what the client has taken in.
    fn sort(&mut self, now: Instant) {
        let Line::Open { wire, .. } = &mut self.line else { return };
        let client = &mut wire.client;
        while let Some(message) = client.next_message() {
            let topic = Some(message.topic.as_str());
            if topic == self.filters.receipts.as_deref() {
                client.acknowledge(&message);
                self.writer.iter_mut().for_each(|writer| writer.take_receipt(message.payload(), now));
            } else if topic == self.filters.tallies.as_deref() {
                client.acknowledge(&message);
                self.reader.iter_mut().for_each(|reader| reader.push_tally(message.payload()));
            } else if self.ending.is_some() {
                // What comes at the end is not taken: a lasting session keeps it.
            } else if topic == self.filters.data.as_deref()
                && let Some(reader) = &mut self.reader
            {
                reader.push(message);
            } else {
                // A lasting session brings what an earlier start of this name has subscribed to as well, and waits for
                // the answer.
                client.acknowledge(&message);
            }
        }
        while let Some(ticket) = client.next_confirmed() {
            self.writer.iter_mut().for_each(|writer| writer.confirm(ticket));
        }
    }

    fn pump(&mut self, now: Instant) {
        let Line::Open { wire, ready_at: Some(_), .. } = &mut self.line else { return };
        let client = &mut wire.client;
        let is_ending = self.ending.is_some();
        if let Some(writer) = &mut self.writer
            && let Err(why) = writer.pump(&mut **client)
        {
            // Once for a connection: each message that comes may be such a one.
            let note = format!("{}: the broker {why}; such messages are lost", self.endpoint);
            if self.noted.len() < MOST_NOTED && self.noted.insert(note.clone()) {
                self.notes.push_back(note);
            }
        }
        if client.output().len() >= MOST_OUTPUT {
            return;
        }
        if let Some(writer) = &mut self.writer {
            writer.tell(&mut **client, now, is_ending);
        }
        if let Some(reader) = &mut self.reader {
            reader.tell(&mut **client, now, false);
        }
    }

    /// Writes what there is room for.
    fn flush(&mut self, now: Instant) {
        loop {
            let (Line::Open { wire, .. } | Line::Leaving { wire, .. }) = &mut self.line else { return };
            if !wire.has_output() && !self.shut() {
                return;
            }
            let (Line::Open { wire, .. } | Line::Leaving { wire, .. }) = &mut self.line else { return };
            match wire.send() {
                Ok(bytes) => self.writer.iter_mut().for_each(|writer| writer.wrote(bytes)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    // Why, the broker may have said in what is still to be read.
                    let mut how = CLOSED;
                    for _ in 0..LAST_READS {
                        match wire.receive(&mut self.input) {
                            Came::Some => {}
                            Came::Nothing => break,
                            Came::Over(said) => {
                                how = said;
                                break;
                            }
                        }
                    }
                    self.sort(now);
                    self.be_gone();
                    return self.lose(how, now);
                }
            }
            if matches!(self.line, Line::Open { .. }) {
                self.pump(now);
            }
        }
    }

    /// Tells the broker and its kernel that nothing more comes, once all has been written. Whether there is something
    /// to write for that.
    fn shut(&mut self) -> bool {
        let Line::Leaving { wire, is_said, is_shut, .. } = &mut self.line else { return false };
        if !std::mem::replace(is_said, true) {
            wire.say_end();
            if wire.has_output() {
                return true;
            }
        }
        if !std::mem::replace(is_shut, true) && wire.shut().is_err() {
            self.be_gone();
        }
        false
    }

    /// The connection that was to be closed is; what the broker has refused in it is an error all the same.
    fn be_gone(&mut self) {
        if let Line::Leaving { wire, .. } = &self.line {
            let client = &wire.client;
            if client.ending() == Ending::Refused
                && let Some(why) = client.failure()
            {
                self.error = Some(Error::Broker { endpoint: self.endpoint.to_string(), what: why.to_owned() });
            }
            self.line = Line::Left;
        }
    }

    /// Until the broker has closed: unread bytes would make the kernel throw away what it has not sent yet.
    fn read_last(&mut self, now: Instant) {
        let Line::Leaving { wire, until, is_shut, .. } = &mut self.line else { return };
        let mut is_over = now >= *until;
        for _ in 0..READS {
            match wire.receive(&mut self.input) {
                Came::Some => {
                    // What came late is the broker's still, and nothing is answered any more.
                    while wire.client.next_message().is_some() {}
                    if *is_shut {
                        wire.client.wrote(usize::MAX);
                    }
                }
                Came::Nothing => break,
                Came::Over(_) => {
                    is_over = true;
                    break;
                }
            }
        }
        while let Some(ticket) = wire.client.next_confirmed() {
            self.writer.iter_mut().for_each(|writer| writer.confirm(ticket));
        }
        if is_over {
            self.be_gone();
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

    /// Takes a message to be published where [`offer`](Self::offer) would not, too: then the oldest one that waits is
    /// dropped, and counted. So is the message itself when all is over.
    pub fn press(&mut self, payload: &[u8]) {
        let is_over = self.has_left();
        if let Some(writer) = &mut self.writer {
            if is_over { writer.discard() } else { writer.take(payload) }
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
            Line::Open { wire, .. } => Some(&mut *wire.client as &mut dyn Client),
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
            let taken = self.writer.as_ref().map_or(0, Writer::taken);
            self.ending = Some(Leave { since: now, progress: (taken, now), answered: None });
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
            Line::Open { mut wire, ready_at: Some(_), .. } => {
                if let Some(reader) = &mut self.reader {
                    reader.tell(&mut *wire.client, now, true);
                }
                wire.client.say_goodbye();
                self.line = Line::Leaving { wire, until: now + LEAVING, is_said: false, is_shut: false };
                self.flush(now);
            }
            line @ Line::Leaving { .. } => self.line = line,
            _ => {}
        }
    }

    /// Whether there is nothing more to wait for.
    fn may_leave(&mut self, now: Instant) -> bool {
        let (Some(leave), Some(writer)) = (&mut self.ending, &self.writer) else { return true };
        if leave.is_over(writer.taken(), now) {
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

    /// What became of the messages, so far or, after [`finish`](Self::finish) or when all is over, for good.
    pub fn account(&self) -> BrokerAccount {
        let is_over = self.ending.is_some() || self.has_left();
        let written = self.writer.as_ref().map(|writer| writer.account(is_over));
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
