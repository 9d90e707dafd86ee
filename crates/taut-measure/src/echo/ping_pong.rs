use rustix::io::Errno;
use taut_link::{Error, Link, Numbering, Result, SocketOption, clock};
use taut_time::{Duration, Framing, Instant};

use super::client::{EchoClient, Step, no_echo, stuck};
use super::plan::{EchoPlan, WriteStyle};
use super::samples::Samples;
use crate::engine::{Engine, EngineKind};
use crate::interrupt::Interrupt;
use crate::observe::Observer;

/// Longest call that waits for the link: between two of them the user is heard, whose signal may go to another thread.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Room for the events of a round, about 60 MB.
const OBSERVED_EVENTS: usize = 1_000_000;

/// Drives a closed loop over one link: send, wait for the reply, again.
pub(super) struct PingPong<'a> {
    client: EchoClient<'a>,
    link: &'a Link,
    framing: Framing,
    interrupt: &'a Interrupt,
    engine: Box<dyn Engine + 'a>,
    ready: Vec<usize>,
    writes: WriteStyle,
    /// The link's own time-out.
    usual_timeout: Duration,
    blocks: bool,
    /// Whether the link's own time-out is down to what is left of a message's.
    shortened: bool,
    buffer: Vec<u8>,
    pub(super) observer: Option<Observer>,
}

impl<'a> PingPong<'a> {
    pub(super) fn new(
        plan: &'a EchoPlan,
        link: &'a Link,
        numbering: Numbering,
        engine: EngineKind,
        writes: WriteStyle,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let usual_timeout = plan.timeout.min(LOOK_PERIOD);
        link.set_nonblocking(!engine.blocks())?;
        link.set_receive_timeout(Some(usual_timeout))?;
        link.set_send_timeout(Some(usual_timeout))?;
        let blocks = engine.blocks();
        let engine = engine.build(&[link]).map_err(|error| {
            Error::Unavailable(format!("the engine {engine} can't be set up on this host: {error}"))
        })?;
        Ok(Self {
            client: EchoClient::new(plan, [numbering]),
            link,
            framing: link.endpoint().framing(),
            interrupt,
            engine,
            ready: Vec::with_capacity(1),
            writes,
            usual_timeout,
            blocks,
            shortened: false,
            buffer: vec![0; plan.message_bytes.max(64 * 1024)],
            observer: None,
        })
    }

    /// Watches the writes from now on: those of the warm-up are no evidence.
    pub(super) fn observe(&mut self) {
        let observer = Observer::start(self.link, self.client.unwritten().0.len());
        self.observer = Some(observer.keep_at_most(OBSERVED_EVENTS));
    }

    /// Exchanges messages that don't count.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        self.client.warm_up(clock::now());
        self.run()
    }

    /// Exchanges so many messages that count, none of them begun at `end` or later.
    pub(super) fn count(&mut self, messages: u64, end: Instant, now: Instant) -> Result<()> {
        self.client.count(messages, end, now);
        self.run()
    }

    /// Exchanges messages until the client has enough.
    fn run(&mut self) -> Result<()> {
        loop {
            let now = clock::now();
            if self.interrupt.is_set() {
                self.client.stop(now);
            }
            match self.client.poll(now) {
                Step::Done => return Ok(()),
                Step::Stuck { waited, .. } => return Err(stuck(self.link, waited)),
                Step::Wait => {}
                Step::Write { is_new, .. } => {
                    if let (Some(observer), true) = (&mut self.observer, is_new) {
                        observer.intend(now, self.client.unwritten().0.len());
                    }
                    if !self.write()? {
                        self.wait(now, true)?;
                        continue;
                    }
                }
            }
            match self.framing {
                Framing::Stream => self.receive_bytes()?,
                Framing::Datagram => self.receive_datagram()?,
            }
            if !self.client.is_waiting() {
                self.rest()?;
            }
        }
    }

    /// Between two messages.
    #[inline]
    fn rest(&mut self) -> Result<()> {
        if std::mem::take(&mut self.shortened) {
            self.link.set_receive_timeout(Some(self.usual_timeout))?;
        }
        match &mut self.observer {
            Some(observer) => observer.drain(self.link),
            None => Ok(()),
        }
    }

    /// Writes what is left of the message; false when the link has no room for all of it.
    #[inline]
    fn write(&mut self) -> Result<bool> {
        loop {
            let (message, written) = self.client.unwritten();
            let begin = self.observer.is_some().then(clock::now);
            let sent = match self.writes {
                WriteStyle::One => self.link.send(&message[written..]),
                WriteStyle::Vectored { first } if written == 0 => {
                    let (head, tail) = message.split_at(first);
                    self.link.send_two(head, tail).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
                }
                WriteStyle::Two { first } | WriteStyle::Corked { first } if written < first => {
                    if let (WriteStyle::Corked { .. }, 0) = (self.writes, written) {
                        SocketOption::Cork(true).apply(self.link)?;
                    }
                    self.link.send(&message[written..first])
                }
                _ => self.link.send(&message[written..]),
            };
            match sent {
                Ok(sent) => {
                    if let (Some(observer), Some(begin)) = (&mut self.observer, begin) {
                        observer.wrote(self.link, sent, begin, clock::now());
                    }
                    if self.client.wrote(sent) {
                        break;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(errno) => return Err(self.link.error("send on", errno)),
            }
        }
        if let WriteStyle::Corked { .. } = self.writes {
            SocketOption::Cork(false).apply(self.link)?;
        }
        Ok(true)
    }

    /// Reads the reply of a stream, until it is there or overdue.
    #[inline]
    fn receive_bytes(&mut self) -> Result<()> {
        // Bytes that are there, and are looked at when the time of the last one has been taken.
        let mut unseen = 0;
        loop {
            let missing = (self.client.missing_bytes(0) - unseen).min(self.buffer.len() - unseen);
            let in_time = match self.link.receive(&mut self.buffer[unseen..unseen + missing]) {
                Ok(0) => {
                    // What came before may say what the peer is.
                    self.handle(unseen, clock::now())?;
                    let endpoint = self.link.endpoint().to_string();
                    return Err(Error::Closed { endpoint, when: "before its reply came" });
                }
                Ok(bytes) => {
                    let at = clock::now();
                    unseen += bytes;
                    if bytes == missing {
                        self.handle(std::mem::take(&mut unseen), at)?;
                        if !self.client.is_waiting() {
                            return Ok(());
                        }
                    }
                    self.has_time(at)?
                }
                Err(errno) => self.wait_for_reply(errno)?,
            };
            if !in_time {
                return self.give_up(unseen);
            }
        }
    }

    /// Reads datagrams until the one that is waited for is there, or overdue.
    #[inline]
    fn receive_datagram(&mut self) -> Result<()> {
        loop {
            let in_time = match self.link.receive(&mut self.buffer) {
                Ok(bytes) => {
                    let at = clock::now();
                    self.handle(bytes, at)?;
                    if !self.client.is_waiting() {
                        return Ok(());
                    }
                    self.has_time(at)?
                }
                // Nobody is bound there any more, or not yet: an ICMP error of an earlier datagram.
                Err(Errno::CONNREFUSED) => return Err(self.link.error("receive on", Errno::CONNREFUSED)),
                Err(errno) => self.wait_for_reply(errno)?,
            };
            if !in_time {
                return self.give_up(0);
            }
        }
    }

    /// Tells the client of the first bytes in the buffer.
    #[inline]
    fn handle(&mut self, bytes: usize, at: Instant) -> Result<()> {
        self.client.handle(0, &self.buffer[..bytes], at).map_err(|what| no_echo(self.link, what))
    }

    /// The time is up: what is there of a reply is looked at, and the rest is lost.
    fn give_up(&mut self, unseen: usize) -> Result<()> {
        let now = clock::now();
        if unseen > 0 {
            self.handle(unseen, now)?;
        }
        self.client.expire(now);
        Ok(())
    }

    /// After a receive that brought nothing: waits for the link, and says whether there is time left.
    #[inline]
    fn wait_for_reply(&mut self, errno: Errno) -> Result<bool> {
        if !matches!(errno, Errno::AGAIN | Errno::INTR) {
            return Err(self.link.error("receive on", errno));
        }
        let now = clock::now();
        if self.interrupt.is_set() {
            self.client.stop(now);
        }
        if !self.has_time(now)? {
            return Ok(false);
        }
        if errno == Errno::AGAIN {
            self.engine.drained(0);
            self.wait(now, false)?;
        }
        Ok(true)
    }

    /// Waits a while for the link to have something, or room.
    fn wait(&mut self, now: Instant, for_room: bool) -> Result<()> {
        let longest = now + LOOK_PERIOD;
        let until = self.client.deadline().map_or(longest, |deadline| deadline.min(longest));
        self.engine
            .wait(Some(until), for_room.then_some(0), &mut self.ready)
            .map_err(|error| self.link.error("wait on", Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Whether there is time for one more receiving call for the same message. The kernel counts each call's time-out
    /// from its beginning, so that of the next one is what is left.
    fn has_time(&mut self, now: Instant) -> Result<bool> {
        let Some(left) = self.client.deadline().map(|deadline| deadline.saturating_since(now)) else { return Ok(true) };
        // Next to nothing has passed while a large reply comes in pieces, and a call for each piece would cost it time.
        if self.blocks && !left.is_zero() && left <= self.usual_timeout - self.usual_timeout / 16 {
            self.shortened = true;
            self.link.set_receive_timeout(Some(left.max(Duration::from_millis(1))))?;
        }
        Ok(!left.is_zero())
    }

    /// What has become of the messages.
    pub(super) fn into_samples(self) -> Samples {
        self.client.into_samples()
    }
}
