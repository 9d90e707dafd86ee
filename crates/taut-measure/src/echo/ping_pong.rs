use rustix::io::Errno;
use taut_link::{Result, Session, SocketOption, clock};
use taut_time::{Duration, Framing, Instant};

use super::copies::{Copies, FILLER};
use super::plan::WriteStyle;
use super::samples::{Flight, Samples};
use super::stray::Strays;
use crate::engine::{Engine, EngineKind};
use crate::interrupt::Interrupt;
use crate::observe::Observer;

/// Longest call that waits for the link: between two of them the user is heard, whose signal may go to another thread.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Room for the events of a round, about 60 MB.
const OBSERVED_EVENTS: usize = 1_000_000;

/// Closed loop over one link: send, wait for the reply, again.
pub(super) struct PingPong<'a> {
    session: &'a Session,
    interrupt: &'a Interrupt,
    engine: Box<dyn Engine + 'a>,
    ready: Vec<usize>,
    writes: WriteStyle,
    timeout: Duration,
    blocks: bool,
    /// Whether the link's own time-out is down to what is left of a message's.
    shortened: bool,
    message: Vec<u8>,
    buffer: Vec<u8>,
    sequence: u64,
    strays: Strays,
    copies: Copies,
    pub(super) observer: Option<Observer>,
}

impl<'a> PingPong<'a> {
    pub(super) fn new(
        session: &'a Session,
        engine: EngineKind,
        writes: WriteStyle,
        message_bytes: usize,
        plain: bool,
        timeout: Duration,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let link = session.link();
        link.set_nonblocking(!engine.blocks())?;
        link.set_receive_timeout(Some(timeout.min(LOOK_PERIOD)))?;
        link.set_send_timeout(Some(timeout.min(LOOK_PERIOD)))?;
        let blocks = engine.blocks();
        let engine = engine.build(&[link]).map_err(|error| {
            taut_link::Error::Unavailable(format!("the engine {engine} can't be set up on this host: {error}"))
        })?;
        Ok(Self {
            session,
            interrupt,
            engine,
            ready: Vec::with_capacity(1),
            writes,
            timeout,
            blocks,
            shortened: false,
            message: vec![FILLER; message_bytes],
            buffer: vec![0; message_bytes.max(64 * 1024)],
            sequence: 0,
            strays: Strays::default(),
            copies: Copies::new(plain, message_bytes),
            observer: None,
        })
    }

    /// Watches the writes from now on: those of the warm-up are no evidence.
    pub(super) fn observe(&mut self) {
        let observer = Observer::start(self.session.link(), self.message.len());
        self.observer = Some(observer.keep_at_most(OBSERVED_EVENTS));
    }

    /// What was sent so far was the warm-up.
    pub(super) fn begin_counting(&mut self) {
        self.strays.begin_counting(self.sequence);
    }

    /// Exchanges messages until there are `count` of them or it is `end`.
    pub(super) fn run(&mut self, samples: &mut Samples, count: u64, end: Instant) -> Result<()> {
        let mut done = 0;
        while done < count && !self.interrupt.is_set() {
            let begin = clock::now();
            if begin >= end {
                break;
            }
            self.exchange(samples, begin)?;
            done += 1;
        }
        Ok(())
    }

    #[inline]
    fn exchange(&mut self, samples: &mut Samples, begin: Instant) -> Result<()> {
        let sequence = self.sequence;
        self.sequence += 1;
        self.copies.mark(&mut self.message, sequence);
        self.session.mark(&mut self.message, sequence);
        if let Some(observer) = &mut self.observer {
            observer.intend(begin, self.message.len());
        }
        self.send()?;
        samples.sent += 1;
        let flight = Flight { sequence, intended: begin, sent: begin };
        match self.session.link().endpoint().framing() {
            Framing::Stream => self.receive_bytes(flight, samples)?,
            Framing::Datagram => self.receive_datagram(flight, samples)?,
        }
        if std::mem::take(&mut self.shortened) {
            self.session.link().set_receive_timeout(Some(self.timeout.min(LOOK_PERIOD)))?;
        }
        if let Some(observer) = &mut self.observer {
            observer.drain(self.session.link())?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        match self.writes {
            WriteStyle::One => self.write(0..self.message.len()),
            WriteStyle::Two { first } => {
                self.write(0..first)?;
                self.write(first..self.message.len())
            }
            WriteStyle::Corked { first } => {
                SocketOption::Cork(true).apply(self.session.link())?;
                self.write(0..first)?;
                self.write(first..self.message.len())?;
                SocketOption::Cork(false).apply(self.session.link())
            }
            WriteStyle::Vectored { first } => {
                let (head, tail) = self.message.split_at(first);
                let begin = clock::now();
                let sent = match self.session.link().send_two(head, tail) {
                    Ok(sent) => sent,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
                    Err(error) => {
                        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                        return Err(self.session.link().error("send on", errno));
                    }
                };
                if let (Some(observer), true) = (&mut self.observer, sent > 0) {
                    observer.wrote(self.session.link(), sent, begin, clock::now());
                }
                self.write(sent..self.message.len())
            }
        }
    }

    /// Writes a part of the message, all of it.
    #[inline]
    fn write(&mut self, mut part: std::ops::Range<usize>) -> Result<()> {
        let mut stuck = None;
        while !part.is_empty() {
            let begin = self.observer.is_some().then(clock::now);
            match self.session.link().send(&self.message[part.clone()]) {
                Ok(sent) => {
                    part.start += sent;
                    stuck = None;
                    if let (Some(observer), Some(begin)) = (&mut self.observer, begin) {
                        observer.wrote(self.session.link(), sent, begin, clock::now());
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => self.wait_for_room(*stuck.get_or_insert_with(clock::now))?,
                Err(errno) => return Err(self.session.link().error("send on", errno)),
            }
        }
        Ok(())
    }

    /// Waits a while for a link that has had no room since then. Half a message is given up when the user wants to
    /// stop.
    fn wait_for_room(&mut self, since: Instant) -> Result<()> {
        let endpoint = || self.session.link().endpoint().to_string();
        if self.interrupt.is_set() {
            return Err(taut_link::Error::Interrupted { endpoint: endpoint() });
        }
        let (now, until) = (clock::now(), since + self.timeout);
        if now >= until {
            let after_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
            let to = "what was sent: it reads nothing";
            return Err(taut_link::Error::Silent { endpoint: endpoint(), to, after_ms });
        }
        self.engine
            .wait(Some(until.min(now + LOOK_PERIOD)), Some(0), &mut self.ready)
            .map_err(|error| self.session.link().error("wait on", Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Reads the reply of a stream, and enters how that went.
    #[inline]
    fn receive_bytes(&mut self, flight: Flight, samples: &mut Samples) -> Result<()> {
        let deadline = flight.sent + self.timeout;
        let mut missing = self.message.len();
        // Bytes that are there, and are looked at when the time of the last one has been taken.
        let mut unseen = 0;
        loop {
            if unseen == self.buffer.len() {
                self.look(&mut unseen)?;
            }
            let wanted = (self.strays.stale_bytes() + missing).min(self.buffer.len() - unseen);
            let in_time = match self.session.link().receive(&mut self.buffer[unseen..unseen + wanted]) {
                Ok(0) => {
                    self.look(&mut unseen)?;
                    return Err(self.closed());
                }
                Ok(bytes) => {
                    let at = clock::now();
                    unseen += bytes;
                    missing -= self.strays.bytes(bytes, samples);
                    let in_time = at <= deadline;
                    if missing == 0 {
                        self.look(&mut unseen)?;
                        if in_time {
                            samples.replied(flight, at);
                        } else {
                            samples.replied_late();
                        }
                        return Ok(());
                    }
                    self.shorten(deadline, at)?;
                    in_time
                }
                Err(errno) => self.wait(errno, flight, samples)?,
            };
            if !in_time {
                self.look(&mut unseen)?;
                self.strays.lost_bytes(missing);
                samples.lose(1);
                return Ok(());
            }
        }
    }

    /// Looks at what came in pieces.
    #[inline]
    fn look(&mut self, unseen: &mut usize) -> Result<()> {
        let bytes = std::mem::take(unseen);
        self.copies.stream(&self.buffer[..bytes], self.session.link())
    }

    /// Waits for the datagram with the message's sequence number, and enters how that went.
    #[inline]
    fn receive_datagram(&mut self, flight: Flight, samples: &mut Samples) -> Result<()> {
        let deadline = flight.sent + self.timeout;
        loop {
            let in_time = match self.session.link().receive(&mut self.buffer) {
                Ok(bytes) => {
                    let at = clock::now();
                    let datagram = &self.buffer[..bytes];
                    let found = self.session.sequence(datagram, flight.sequence);
                    match self.copies.datagram(datagram, found, self.sequence, self.session.link())? {
                        Some(found) if found == flight.sequence => {
                            if at <= deadline {
                                samples.replied(flight, at);
                            } else {
                                samples.replied_late();
                            }
                            return Ok(());
                        }
                        Some(found) => self.strays.datagram(found, samples),
                        None => {}
                    }
                    self.shorten(deadline, at)?;
                    at < deadline
                }
                // Nobody is bound there any more, or not yet: an ICMP error of an earlier datagram.
                Err(Errno::CONNREFUSED) => return Err(self.session.link().error("receive on", Errno::CONNREFUSED)),
                Err(errno) => self.wait(errno, flight, samples)?,
            };
            if !in_time {
                self.strays.lost_datagram(flight.sequence);
                samples.lose(1);
                return Ok(());
            }
        }
    }

    /// After a receive that brought nothing: waits for the link, and says whether there is time left.
    #[inline]
    fn wait(&mut self, errno: Errno, flight: Flight, samples: &Samples) -> Result<bool> {
        if !matches!(errno, Errno::AGAIN | Errno::INTR) {
            return Err(self.session.link().error("receive on", errno));
        }
        let patience = if self.interrupt.is_set() { samples.patience(self.timeout) } else { self.timeout };
        let (now, deadline) = (clock::now(), flight.sent + patience);
        if now >= deadline {
            return Ok(false);
        }
        self.shorten(deadline, now)?;
        if errno == Errno::INTR {
            return Ok(true);
        }
        self.engine.drained(0);
        self.engine
            .wait(Some(deadline.min(now + LOOK_PERIOD)), None, &mut self.ready)
            .map_err(|error| self.session.link().error("wait on", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(true)
    }

    /// Before one more receiving call for the same message: the kernel counts each call's time-out from its beginning.
    fn shorten(&mut self, deadline: Instant, now: Instant) -> Result<()> {
        let left = deadline.saturating_since(now);
        let usual = self.timeout.min(LOOK_PERIOD);
        // Next to nothing has passed while a large reply comes in pieces, and a call for each piece would cost it time.
        if !self.blocks || left > usual - usual / 16 {
            return Ok(());
        }
        self.shortened = true;
        self.session.link().set_receive_timeout(Some(left.max(Duration::from_millis(1))))
    }

    fn closed(&self) -> taut_link::Error {
        taut_link::Error::Closed { endpoint: self.session.link().endpoint().to_string(), when: "before its reply came" }
    }
}
