//! The client's side of a test: shake hands, agree on clocks, send and recognise messages, ask for the result.

use std::io::{self, ErrorKind};

use rustix::io::Errno;
use taut_time::{Duration, Framing, Instant};

use crate::boot::{boot_identity, is_this_boot};
use crate::clock;
use crate::interrupt::{Interrupt, LOOK_PERIOD};
use crate::numbering::Numbering;
use crate::peer_clock::{self, ClockReading, PeerClock};
use crate::questions::Questions;
use crate::wire::{
    self, Accept, AckPolicy, ArrivalRecord, CONTROL_BYTES, DATA_HEADER_BYTES, Frame, HEADER_BYTES, Hello,
    RECORDS_PER_FETCH, Totals, Work,
};
use crate::{Endpoint, Error, Link, Result, SocketOption};

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The peer.
    pub endpoint: Endpoint,
    /// The work.
    pub work: Work,
    /// How the peer should acknowledge.
    pub acks: AckPolicy,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// How long the work will take, at most.
    pub duration: Duration,
    /// Options of the socket, set after the handshake.
    pub options: Vec<SocketOption>,
    /// No handshake and no header: the peer is any server that echoes, or reads and is silent.
    pub plain: bool,
    /// Longest wait for an answer in the handshake.
    pub timeout: Duration,
    /// Processor that a peer of this host should serve us on.
    pub core: Option<usize>,
}

/// A link on which the peer has agreed to work.
#[derive(Debug)]
pub struct Session {
    link: Link,
    id: u64,
    plain: bool,
    message_bytes: usize,
    timeout: Duration,
    /// Ends the waits for answers, as long as there is no work.
    interrupt: Interrupt,
    peer_clock: PeerClock,
    peer_core: Option<usize>,
    questions: Questions,
}

/// Shortest patience with a peer of datagrams: the longest paths take 2 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a peer that has just challenged us is told its token again, when that has run out on a long path.
const CHALLENGES: u32 = 3;
/// Questions for the peer's clock; the one with the shortest round trip counts. More than the 16
/// segments that a new Linux socket acknowledges at once (`TCP_MAX_QUICKACKS`): where the peer is
/// to delay its acknowledgements, they are used up here and not in the measurement.
const CLOCK_PROBES: usize = 20;
/// After this time the questions asked will do: on a long path more would take longer than the
/// server waits for the start.
const CLOCK_TIME: Duration = Duration::from_secs(1);
/// Longest time for a whole report, on datagrams beside a wait for each question: that of a server
/// for sending one, unless told otherwise.
const REPORT: Duration = Duration::from_secs(30);
/// Most arrivals in a report, 24 bytes each: twice of what a server notes, unless told otherwise.
const MOST_RECORDS: u64 = 4_000_000;

impl Session {
    /// Connects, shakes hands and sets the socket's options.
    ///
    /// # Errors
    /// The peer is not there, is silent, refuses, or does not speak the protocol; an option is refused.
    pub fn open(request: &Request) -> Result<Self> {
        Self::open_unless(request, &Interrupt::default())
    }

    /// As [`open`](Self::open), until the user wants to stop.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Interrupted`].
    pub fn open_unless(request: &Request, interrupt: &Interrupt) -> Result<Self> {
        check_size(request)?;
        let link = Link::open(&request.endpoint, request.plain, request.timeout, interrupt)?;
        let mut session = Self::on(link, request, request.plain, interrupt);
        if !request.plain {
            session.shake_hands(request)?;
        }
        session.link.set_options(&request.options)?;
        // What was done until then is worth its report.
        session.ignore_interrupt();
        Ok(session)
    }

    /// Connects and says hello, no more.
    pub(crate) fn greet(request: &Request, interrupt: &Interrupt) -> Result<(Self, Accept)> {
        let link = Link::connect_unless(&request.endpoint, request.timeout, interrupt)?;
        let mut session = Self::on(link, request, false, interrupt);
        let accept = session.say_hello(request)?;
        Ok((session, accept))
    }

    fn on(link: Link, request: &Request, plain: bool, interrupt: &Interrupt) -> Self {
        Self {
            link,
            id: 0,
            plain,
            message_bytes: request.message_bytes,
            timeout: request.timeout,
            interrupt: interrupt.clone(),
            peer_clock: PeerClock::Same,
            peer_core: None,
            questions: Questions::default(),
        }
    }

    /// Compares the clocks over a link of its own, for what a stream that has carried its work can't be asked any more.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read_clock(request: &Request) -> Result<ClockReading> {
        let (session, accept) = Self::greet(request, &Interrupt::default())?;
        session.compare_clocks(accept.boot)
    }

    /// Asks where the peer would serve us, without any work: on the processor asked for, on another one that
    /// it is bound to, or anywhere (`None`): a peer of another host, or one that knows of no such wish.
    ///
    /// # Errors
    /// As [`open_unless`](Self::open_unless).
    pub fn ask_core(request: &Request, interrupt: &Interrupt) -> Result<Option<usize>> {
        let (_session, accept) = Self::greet(request, interrupt)?;
        Ok(accept.core.filter(|_| is_this_boot(accept.boot)).map(usize::from))
    }

    fn shake_hands(&mut self, request: &Request) -> Result<()> {
        let may_hold = self.link.endpoint().acknowledges();
        let accept = self.say_hello(request)?;
        let one_clock = is_this_boot(accept.boot);
        self.peer_core = accept.core.filter(|_| one_clock).map(usize::from);
        if !one_clock || matches!(request.acks, AckPolicy::Delayed | AckPolicy::DelayedAtMost(_)) {
            let compared = self.compare_clocks(accept.boot)?;
            if !one_clock {
                self.peer_clock = PeerClock::Compared { before: compared, after: None };
            }
        }
        if self.ask(&Frame::Start, "the start")? != Frame::Ready {
            return Err(self.broke_protocol("the peer was not ready"));
        }
        if may_hold {
            SocketOption::Nodelay(false).apply(&self.link)?;
        }
        self.link.set_receive_timeout(None)
    }

    fn say_hello(&mut self, request: &Request) -> Result<Accept> {
        if self.link.endpoint().acknowledges() {
            SocketOption::Nodelay(true).apply(&self.link)?;
        }
        self.id = clock::now().as_nanos() ^ u64::from(std::process::id()).rotate_left(40);
        let mut hello = Hello {
            work: request.work,
            acks: request.acks,
            message_bytes: u32::try_from(request.message_bytes).unwrap_or(u32::MAX),
            duration: request.duration,
            nonce: self.id,
            token: 0,
            core: request.core.and_then(|core| u16::try_from(core).ok()),
            boot: if request.core.is_some() { boot_identity() } else { 0 },
        };
        let name = if self.link.endpoint().has_broker() {
            "the hello (is there a `taut serve` with this broker and topic?)"
        } else {
            "the hello (is it `taut serve`? for any other echo server use --plain)"
        };
        let mut answer = self.ask(&Frame::Hello(hello), name).map_err(|error| self.at_hello(error))?;
        for _ in 0..CHALLENGES {
            let Frame::Challenge { token } = answer else { break };
            hello.token = token;
            answer = self.ask(&Frame::Hello(hello), name)?;
        }
        let Frame::Accept(accept) = answer else {
            return Err(self.broke_protocol("the answer to the hello is neither yes nor no"));
        };
        self.link.note_peer(&accept);
        Ok(accept)
    }

    /// One that ends the connection at the hello does not know what that is.
    fn at_hello(&self, error: Error) -> Error {
        let is_broken = |error: &io::Error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        match error {
            _ if self.link.endpoint().has_broker() => error,
            Error::Closed { .. } => self.broke_protocol("the peer closed the connection at the hello"),
            Error::Io { ref error, .. } if is_broken(error) => {
                self.broke_protocol("the peer broke the connection off at the hello")
            }
            _ => error,
        }
    }

    fn compare_clocks(&self, boot: u64) -> Result<ClockReading> {
        let mut readings = Vec::with_capacity(CLOCK_PROBES);
        let began = clock::now();
        while readings.len() < CLOCK_PROBES && clock::now().saturating_since(began) < CLOCK_TIME {
            let asked = clock::now();
            let Frame::Clock { server_ns } = self.ask(&Frame::Clock { server_ns: 0 }, "the question for its clock")?
            else {
                return Err(self.broke_protocol("the peer did not tell its clock"));
            };
            readings.push(ClockReading::new(asked, clock::now(), server_ns, boot));
        }
        peer_clock::best(readings).ok_or_else(|| self.silent("the question for its clock", self.patience()))
    }

    /// Waits longer for answers, or less long.
    pub(crate) const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// From now on every answer is waited for, whatever the user wants.
    pub(crate) fn ignore_interrupt(&mut self) {
        self.interrupt = Interrupt::default();
    }

    /// The link underneath.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// The peer's clock against ours, as it was before the work.
    pub const fn peer_clock(&self) -> PeerClock {
        self.peer_clock
    }

    /// The processor on which the peer serves us, where it is of this host and bound to one.
    pub const fn peer_core(&self) -> Option<usize> {
        self.peer_core
    }

    /// Writes what makes a message of this flow recognisable into its first bytes; a stream needs nothing.
    #[inline]
    pub fn mark(&self, message: &mut [u8], sequence: u64) {
        self.numbering().mark(message, sequence);
    }

    /// How its messages are numbered.
    #[inline]
    pub fn numbering(&self) -> Numbering {
        let framing = self.link.endpoint().framing();
        if self.plain { Numbering::plain(framing) } else { Numbering::of_session(framing, self.id) }
    }

    /// Says that the work is done and asks what it came to: the summary, and when bytes arrived (`Work::Collect`),
    /// on the peer's clock. A plain peer has nothing to tell, and none has to tell of more than the `sent` bytes.
    ///
    /// # Errors
    /// The peer went away or broke the protocol; its report can't be true, or does not end.
    pub fn finish(&self, sent: u64) -> Result<Option<(Totals, Vec<ArrivalRecord>)>> {
        if self.plain {
            return Ok(None);
        }
        self.link.set_nonblocking(false)?;
        match self.link.endpoint().framing() {
            Framing::Stream => {
                self.end_sending()?;
                self.read_report(sent).map(Some)
            }
            Framing::Datagram => self.fetch_report(sent).map(Some),
        }
    }

    /// Says on a stream that no more data comes: by closing that half, or in the data where halves can't be closed.
    ///
    /// # Errors
    /// The peer went away.
    pub fn end_sending(&self) -> Result<()> {
        if self.plain || self.link.endpoint().closes_by_halves() {
            return self.link.finish_sending();
        }
        self.link.set_nonblocking(false)?;
        self.link.send_all(&Frame::Bye.emit(self.id))
    }

    /// The summary in the last bytes of a stream, `None` when they are something else.
    pub fn summary_in(&self, tail: &[u8]) -> Option<Totals> {
        match Frame::parse(tail) {
            Ok((session, Frame::Summary(summary))) if session == self.id => Some(summary),
            _ => None,
        }
    }

    fn read_report(&self, sent: u64) -> Result<(Totals, Vec<ArrivalRecord>)> {
        let patience = self.timeout.max(PATIENCE);
        let give_up = clock::now() + REPORT.max(patience);
        let mut records: Vec<ArrivalRecord> = Vec::new();
        self.link.set_receive_timeout(Some(LOOK_PERIOD))?;
        loop {
            match self.receive_frame("the report", patience, give_up)? {
                Frame::Records { index, records: more } => {
                    // Every read brought something.
                    let mut last = records.last().map_or(0, |record| record.end);
                    if !more.iter().all(|record| std::mem::replace(&mut last, record.end) < record.end) {
                        return Err(self.broke_protocol("arrivals of a stream that bring nothing"));
                    }
                    self.add_records(&mut records, index, more, sent)?;
                }
                Frame::Summary(summary) => return Ok((summary, records)),
                _ => return Err(self.broke_protocol("the report is not one")),
            }
        }
    }

    fn fetch_report(&self, sent: u64) -> Result<(Totals, Vec<ArrivalRecord>)> {
        let Frame::Summary(summary) = self.ask(&Frame::Bye, "the end of the work")? else {
            return Err(self.broke_protocol("the summary is not one"));
        };
        let mut records: Vec<ArrivalRecord> = Vec::new();
        let expected = summary.messages.saturating_sub(summary.records_dropped.into());
        if expected > MOST_RECORDS {
            return Err(self.broke_protocol(&format!("a report of {expected} arrivals")));
        }
        let questions = sent.div_ceil(self.message_bytes.max(1) as u64).div_ceil(RECORDS_PER_FETCH as u64);
        let questions = u32::try_from(questions).unwrap_or(u32::MAX);
        let give_up = clock::now() + REPORT.saturating_add(self.questions.first_wait().saturating_mul(questions));
        while (records.len() as u64) < expected {
            if clock::now() > give_up {
                return Err(self.broke_protocol("its report does not end"));
            }
            let index = records.len() as u64;
            match self.ask(&Frame::Fetch { index }, "the question for arrivals")? {
                Frame::Records { index, records: more } if !more.is_empty() => {
                    self.add_records(&mut records, index, more, sent)?;
                }
                // Nothing is recorded for this kind of work.
                Frame::Records { .. } => break,
                _ => return Err(self.broke_protocol("the arrivals are not arrivals")),
            }
        }
        Ok((summary, records))
    }

    /// Adds the next part of a report, if it is that and can be true.
    fn add_records(
        &self,
        records: &mut Vec<ArrivalRecord>,
        index: u64,
        more: Vec<ArrivalRecord>,
        sent: u64,
    ) -> Result<()> {
        let known = records.len() as u64;
        let what = if index != known {
            format!("a part of its report is out of place: arrivals from {index} on instead of {known}")
        } else if let Some(record) = more.iter().find(|record| record.end > sent) {
            format!("the peer says that {} bytes arrived, and {sent} were sent", record.end)
        } else if known + more.len() as u64 > MOST_RECORDS {
            format!("a report of more than {MOST_RECORDS} arrivals")
        } else {
            records.extend(more);
            return Ok(());
        };
        Err(self.broke_protocol(&what))
    }

    /// Sends a frame and waits for its answer; a datagram is repeated, ever more rarely.
    pub(crate) fn ask(&self, question: &Frame, name: &'static str) -> Result<Frame> {
        let mut bytes = question.emit(self.id);
        if self.link.endpoint().framing() == Framing::Stream {
            self.link.set_receive_timeout(Some(LOOK_PERIOD))?;
            self.link.send_all(&bytes)?;
            return self.receive_frame(name, self.timeout, clock::now() + self.timeout);
        }
        let number = self.questions.number();
        wire::set_number(&mut bytes, number);
        let asked = clock::now();
        let give_up = asked + self.patience();
        let mut wait = self.questions.first_wait().min(self.patience() / 2);
        while clock::now() < give_up {
            match self.link.send(&bytes) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(self.link.error("send on", errno)),
            }
            if let Some(answer) = self.receive_answer(question, number, give_up.min(clock::now() + wait))? {
                self.questions.note_answer(clock::now().saturating_since(asked));
                return Ok(answer);
            }
            wait *= 2;
        }
        Err(self.silent(name, self.patience()))
    }

    /// How long an answer may take.
    fn patience(&self) -> Duration {
        match self.link.endpoint().framing() {
            Framing::Stream => self.timeout,
            Framing::Datagram => self.timeout.max(PATIENCE),
        }
    }

    /// Reads one frame of a stream, which takes that long at most and is there by then. The link
    /// gives up each read after [`LOOK_PERIOD`].
    fn receive_frame(&self, name: &'static str, patience: Duration, give_up: Instant) -> Result<Frame> {
        let until = give_up.min(clock::now() + patience);
        let mut bytes = vec![0; HEADER_BYTES];
        let mut filled = 0;
        loop {
            match self.link.receive(&mut bytes[filled..]) {
                Ok(0) => {
                    let endpoint = self.link.endpoint().to_string();
                    return Err(Error::Closed { endpoint, when: "in the middle of the test" });
                }
                Ok(more) => filled += more,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(self.link.error("receive on", errno)),
            }
            if filled == HEADER_BYTES && bytes.len() == HEADER_BYTES {
                let length = wire::frame_length(&bytes).map_err(|error| self.broke_protocol(&error.to_string()))?;
                bytes.resize(length, 0);
            }
            if filled == bytes.len() {
                return self.parse(&bytes);
            }
            self.check_interrupt()?;
            if clock::now() >= until {
                return Err(self.silent(name, patience));
            }
        }
    }

    fn check_interrupt(&self) -> Result<()> {
        if self.interrupt.is_set() {
            return Err(Error::Interrupted { endpoint: self.link.endpoint().to_string() });
        }
        Ok(())
    }

    /// Waits until then for the answer to a question, passing over all else that is still under way.
    fn receive_answer(&self, question: &Frame, number: u32, until: Instant) -> Result<Option<Frame>> {
        let mut buffer = vec![0; wire::FETCH_BYTES.max(CONTROL_BYTES)];
        loop {
            let left = until.saturating_since(clock::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.check_interrupt()?;
            // The kernel counts in ticks, and none at all would be for ever.
            self.link.set_receive_timeout(Some(left.clamp(Duration::from_millis(1), LOOK_PERIOD)))?;
            let datagram = match self.link.receive(&mut buffer) {
                Ok(length) => &buffer[..length],
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(errno) => return Err(self.link.error("receive on", errno)),
            };
            if wire::data_sequence(datagram).is_some() {
                continue;
            }
            match Frame::parse(datagram) {
                Ok((_, frame)) if !self.questions.is_answer(question, number, datagram, &frame) => {}
                Ok((_, Frame::Refuse(_))) => return self.parse(datagram).map(Some),
                // Of an earlier session between the same addresses.
                Ok((session, _)) if session != self.id => {}
                Ok((_, frame)) => return Ok(Some(frame)),
                // A stranger's scrap is no answer of a server that is known to be one.
                Err(_) if self.questions.is_answered() => {}
                Err(error) => return Err(self.broke_protocol(&error.to_string())),
            }
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Frame> {
        match Frame::parse(bytes) {
            Ok((_, Frame::Refuse(refusal))) => {
                Err(Error::Refused { endpoint: self.link.endpoint().to_string(), reason: refusal.to_string() })
            }
            Ok((session, _)) if session != self.id => Err(self.broke_protocol("an answer to somebody else")),
            Ok((_, frame)) => Ok(frame),
            Err(error) => Err(self.broke_protocol(&error.to_string())),
        }
    }

    pub(crate) fn broke_protocol(&self, what: &str) -> Error {
        Error::Protocol { endpoint: self.link.endpoint().to_string(), what: what.to_owned() }
    }

    fn silent(&self, to: &'static str, patience: Duration) -> Error {
        let after_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        Error::Silent { endpoint: self.link.endpoint().to_string(), to, after_ms }
    }
}

impl Drop for Session {
    /// Gives a datagram server the place back; a stream's end says it by itself.
    fn drop(&mut self) {
        if !self.plain && self.link.endpoint().framing() == Framing::Datagram {
            let _ = self.link.send(&Frame::Done.emit(self.id));
        }
    }
}

fn check_size(request: &Request) -> Result<()> {
    let Request { endpoint, message_bytes, plain, .. } = request;
    let least = match (endpoint.framing(), plain) {
        (Framing::Datagram, false) => DATA_HEADER_BYTES,
        (Framing::Datagram, true) | (Framing::Stream, _) => 1,
    };
    let most = endpoint.datagram_limit().unwrap_or(u32::MAX as usize);
    if (least..=most).contains(message_bytes) {
        return Ok(());
    }
    Err(Error::Input(format!("{endpoint}: a message here has {least} to {most} bytes, not {message_bytes}")))
}
