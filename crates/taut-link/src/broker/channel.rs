//! A client of a broker over its socket.

use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;
use taut_time::{Duration, Instant};

use super::address::{BrokerAddress, Topics};
use super::client::{Client, MOST_BYTES, Message};
use super::part::Part;
use super::secured::{CLOSED, CUT, Secured};
use crate::interrupt::{Interrupt, LOOK_PERIOD};
use crate::{Error, Result, clock, message};

/// What a link or a listener has beside its socket when a broker is at the other end.
#[derive(Debug)]
pub(crate) struct Channel {
    client: Mutex<Box<dyn Client>>,
    /// Between the client and the socket, where there is TLS. Not to be locked before the client.
    secured: Option<Mutex<Secured>>,
    /// Room for one read. Held while reading and until what was read has been taken in, so that bytes stay in order.
    input: Mutex<Box<[u8]>>,
    topic: String,
    /// What stands between the levels of a topic.
    separator: char,
    /// Where a link's own messages go.
    publish_to: String,
    /// Whether each read is followed by `TCP_QUICKACK`, which the kernel takes back by itself (tcp(7)).
    acknowledge_at_once: AtomicBool,
    /// Bytes that the kernel has taken for the broker, those of TLS too.
    sent: AtomicU64,
    /// When what has been read came.
    arrivals: Arrivals,
    /// Bytes that were read while messages waited here to be taken, and how many may be before no more are read for
    /// the sake of an answer.
    ahead: AtomicUsize,
    most_ahead: usize,
}

/// When the kernel took in the last of what a read brought.
#[derive(Debug, Default)]
struct Arrivals {
    /// Whether reads ask.
    asked: AtomicBool,
    /// Of the messages that have come, where they came with one read: nanoseconds of `CLOCK_REALTIME`, or 0.
    at: AtomicU64,
}

const INPUT_BYTES: usize = 64 * 1024;
/// Bytes that may wait for a broker which sends and does not read: of a message of the largest size nothing need have
/// gone yet, and that is no fault of the broker's.
const MOST_WAITING: usize = (1 << 20) + MOST_BYTES;
/// Bytes of questions that are kept while an answer waits: a broker that sends on and does not read has no end of them.
const MOST_AHEAD: usize = 8 << 20;
/// Reads without a message in what they bring, after which the caller is asked whether to go on.
const MOST_EMPTY_READS: usize = 1000;
/// Longest wait for an acknowledgement that lets the next message go, where the socket has no time-out.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// For a read that waits for ever.
const UNBOUNDED_WAIT: Duration = Duration::from_hours(24);
/// Longest wait of an answer for room, or for acknowledgements that let it go. The broker reads, and acknowledges, what
/// was published before; what came from askers meanwhile is kept.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Ends of the topics on which is asked and answered, and of that of one who is alone.
const ASKED: &str = "req";
const ANSWERED: &str = "rep";
const OWN: &str = "own";

impl Channel {
    /// Logs in over a socket that is connected to the broker, and subscribes; waits for at most `timeout`.
    pub(crate) fn open(
        socket: &Socket,
        endpoint: &impl std::fmt::Display,
        address: BrokerAddress<'_>,
        part: Part,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let id = clock::now().as_nanos() ^ u64::from(std::process::id()).rotate_left(40);
        let (topic, separator, any) = (address.topic(), address.separator(), address.any());
        let level = |name: &str, end: &str| format!("{topic}{separator}{name}{separator}{end}");
        let name = format!("{id:016x}");
        let (filter, publish_to) = match part {
            Part::Asker => (level(&name, ANSWERED), level(&name, ASKED)),
            Part::Responder => (level(&any.to_string(), ASKED), String::new()),
            // Of its own as well: of two such clients neither is to hear the other.
            Part::Alone => (level(&name, OWN), level(&name, OWN)),
            Part::About => Default::default(),
        };
        let kept = [level(&any.to_string(), ASKED), level(&any.to_string(), OWN)];
        let client =
            address.client(endpoint, format!("taut-{name}"), part, Topics { filter, publish_to: &publish_to, kept })?;
        let mut channel = Self {
            client: Mutex::new(client),
            secured: None,
            input: Mutex::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            topic: topic.to_owned(),
            separator,
            publish_to,
            acknowledge_at_once: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            arrivals: Arrivals::default(),
            ahead: AtomicUsize::new(0),
            most_ahead: if part == Part::Responder { MOST_AHEAD } else { usize::MAX },
        };
        channel.log_in(socket, endpoint, address, timeout, interrupt)?;
        Ok(channel)
    }

    fn log_in(
        &mut self,
        socket: &Socket,
        endpoint: &impl std::fmt::Display,
        address: BrokerAddress<'_>,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let fail = |source| Error::io("log in to", endpoint, source);
        socket.set_tcp_nodelay(true).map_err(fail)?;
        socket.set_read_timeout(Some(LOOK_PERIOD)).map_err(fail)?;
        // A broker may ask and ask, and read no answer.
        socket.set_write_timeout(Some(LOOK_PERIOD)).map_err(fail)?;
        let give_up = clock::now() + timeout;
        let secure = |channel: &mut Self| {
            let tls = address.tls(endpoint)?;
            let secured = Secured::begin(tls, socket, endpoint, (give_up, timeout), interrupt)?;
            channel.secured = Some(Mutex::new(secured));
            channel.client().secured();
            // What may have come with the last of it.
            channel.take_in(&[]);
            Ok::<_, Error>(())
        };
        if address.begins_with_tls() {
            secure(self)?;
        }
        while !self.client().is_ready() {
            let read = self.flush(socket, SendFlags::empty()).and_then(|()| self.read(socket, RecvFlags::empty()));
            if let Some(reason) = self.secured().and_then(|secured| secured.failure().map(str::to_owned)) {
                return Err(Error::Unsecured { endpoint: endpoint.to_string(), reason });
            }
            if let Some(why) = self.failure() {
                return Err(Error::Broker { endpoint: endpoint.to_string(), what: why });
            }
            match read {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(fail(errno.into())),
            }
            if self.client().wants_tls() {
                secure(self)?;
            }
            if interrupt.is_set() {
                return Err(Error::Interrupted { endpoint: endpoint.to_string() });
            }
            if clock::now() > give_up {
                let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                let to = self.client().waits_for();
                return Err(Error::Silent { endpoint: endpoint.to_string(), to, after_ms });
            }
        }
        socket.set_write_timeout(None).map_err(fail)?;
        socket.set_read_timeout(None).map_err(fail)
    }

    /// Publishes a message of the link's own.
    pub(crate) fn send(&self, socket: &Socket, bytes: &[u8], flags: SendFlags) -> rustix::io::Result<usize> {
        self.publish(socket, &self.publish_to, bytes, flags, || patience(socket, flags))
    }

    /// Publishes an answer to the asker of that name.
    pub(crate) fn answer(&self, socket: &Socket, asker: &str, bytes: &[u8]) -> rustix::io::Result<usize> {
        let mut topic = String::with_capacity(self.topic.len() + asker.len() + 5);
        let _ = write!(topic, "{}{separator}{asker}{separator}{ANSWERED}", self.topic, separator = self.separator);
        self.publish(socket, &topic, bytes, SendFlags::DONTWAIT, || clock::now() + ANSWER_WAIT)
    }

    /// Publishes a message; waits until `patience` for acknowledgements that let it go, and where the call itself does
    /// not wait, for room as well.
    fn publish(
        &self,
        socket: &Socket,
        topic: &str,
        bytes: &[u8],
        flags: SendFlags,
        patience: impl Fn() -> Instant,
    ) -> rustix::io::Result<usize> {
        let mut give_up = None;
        loop {
            match self.flush(socket, flags) {
                Err(Errno::AGAIN) if flags.contains(SendFlags::DONTWAIT) => {
                    self.wait(socket, PollFlags::IN | PollFlags::OUT, &mut give_up, &patience)?;
                    continue;
                }
                flushed => flushed?,
            }
            let mut client = self.client();
            match client.publish(topic, bytes) {
                Ok(true) => {
                    drop(client);
                    // Taken is taken: what the kernel has no room for goes with the next call.
                    return match self.flush(socket, flags) {
                        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(bytes.len()),
                        Err(errno) => Err(errno),
                    };
                }
                Ok(false) => {
                    drop(client);
                    self.wait(socket, PollFlags::IN, &mut give_up, &patience)?;
                }
                Err(why) => {
                    client.fail(&why);
                    return Err(Errno::PROTO);
                }
            }
        }
    }

    /// Takes in what is there, or waits for it, or for room; until `give_up`, which `patience` says the first time.
    fn wait(
        &self,
        socket: &Socket,
        events: PollFlags,
        give_up: &mut Option<Instant>,
        patience: impl FnOnce() -> Instant,
    ) -> rustix::io::Result<()> {
        // A broker that goes on to send does not put that off.
        if give_up.is_some_and(|until| clock::now() > until) {
            return Err(Errno::AGAIN);
        }
        let until = *give_up.get_or_insert_with(patience);
        if self.ahead.load(Ordering::Relaxed) >= self.most_ahead && self.client().has_message() {
            // Acknowledgements would stand behind what is not read.
            if !events.contains(PollFlags::OUT) {
                return Err(Errno::AGAIN);
            }
            return wait_for(socket, PollFlags::OUT, until);
        }
        // Acknowledgements may be there already.
        let read = self.read(socket, RecvFlags::DONTWAIT);
        // Messages of earlier reads may wait still.
        self.arrivals.at.store(0, Ordering::Relaxed);
        match read {
            Err(Errno::AGAIN | Errno::INTR) => wait_for(socket, events, until),
            read => read,
        }
    }

    /// Receives the next message; one that is longer than the buffer is cut.
    pub(crate) fn receive(&self, socket: &Socket, buffer: &mut [u8], flags: RecvFlags) -> rustix::io::Result<usize> {
        self.next(socket, flags).map(|message| copy(&message, buffer))
    }

    /// Receives what the next asker asks, and its name.
    pub(crate) fn hear(&self, socket: &Socket, buffer: &mut [u8]) -> rustix::io::Result<(usize, String)> {
        let message = self.next(socket, RecvFlags::empty())?;
        // The broker may send what was never subscribed to.
        let separator = self.separator;
        let below = message.topic.strip_prefix(&self.topic).and_then(|rest| rest.strip_prefix(separator));
        let asker = below.and_then(|rest| rest.strip_suffix(ASKED)).and_then(|rest| rest.strip_suffix(separator));
        let asker = asker.filter(|asker| !asker.is_empty() && !asker.contains(separator)).ok_or(Errno::INTR)?;
        Ok((copy(&message, buffer), asker.to_owned()))
    }

    fn next(&self, socket: &Socket, flags: RecvFlags) -> rustix::io::Result<Message> {
        let mut give_up = None;
        let patience = || clock::now() + socket.read_timeout().ok().flatten().unwrap_or(UNBOUNDED_WAIT);
        for _ in 0..MOST_EMPTY_READS {
            if let Some(message) = self.client().next_message() {
                return Ok(message);
            }
            self.flush_now(socket)?;
            if self.bytes_sent().is_none() && !flags.contains(RecvFlags::DONTWAIT) && is_blocking(socket) {
                // What waits for room has to go out meanwhile: no answer comes to what the broker has not.
                self.wait(socket, PollFlags::IN | PollFlags::OUT, &mut give_up, patience)?;
                continue;
            }
            self.read(socket, flags)?;
        }
        // Each read has a time-out of its own, and a broker may send what is no message for ever.
        self.client().next_message().ok_or(Errno::INTR)
    }

    /// Takes in what the broker has sent, and writes what that calls for.
    fn read(&self, socket: &Socket, flags: RecvFlags) -> rustix::io::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        if self.client().failure().is_some() {
            return Err(Errno::CONNRESET);
        }
        let bytes = match self.receive_bytes(socket, &mut input, flags) {
            Ok(0) | Err(Errno::CONNRESET) => {
                let how = self.how_it_closed();
                self.client().fail(how);
                return Err(Errno::CONNRESET);
            }
            result => result?,
        };
        if self.acknowledge_at_once.load(Ordering::Relaxed) {
            // Refused, it is as if it had not been asked for.
            let _ = rustix::net::sockopt::set_tcp_quickack(socket.as_fd(), true);
        }
        let ahead = if self.client().has_message() { self.ahead.load(Ordering::Relaxed) } else { 0 };
        self.ahead.store(ahead.saturating_add(bytes), Ordering::Relaxed);
        self.take_in(&input[..bytes]);
        self.flush_now(socket)?;
        let mut client = self.client();
        if client.output().len() > MOST_WAITING {
            client.fail("does not read what it is sent");
        }
        if client.failure().is_some() { Err(Errno::PROTO) } else { Ok(()) }
    }

    /// Reads, and notes when that came if it is asked for.
    fn receive_bytes(&self, socket: &Socket, input: &mut [u8], flags: RecvFlags) -> rustix::io::Result<usize> {
        if !self.arrivals.asked.load(Ordering::Relaxed) {
            return rustix::net::recv(socket, input, flags).map(|(bytes, _)| bytes);
        }
        let received = message::receive(socket.as_fd(), input, flags.bits().cast_signed());
        let received = received.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let at = received.stamp.map_or(0, |(seconds, nanoseconds)| {
            seconds.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(nanoseconds.cast_unsigned())
        });
        self.arrivals.at.store(at, Ordering::Relaxed);
        Ok(received.bytes)
    }

    /// Has reads ask the kernel when the last of what they bring came, or not.
    pub(crate) fn stamp_arrivals(&self, socket: &Socket, on: bool) -> std::io::Result<()> {
        if self.arrivals.asked.swap(on, Ordering::Relaxed) == on {
            return Ok(());
        }
        self.arrivals.at.store(0, Ordering::Relaxed);
        message::stamp_arrivals(socket.as_fd(), on)
    }

    /// When the last of the read came with which the message came that was given out last, seconds and nanoseconds of
    /// `CLOCK_REALTIME`.
    pub(crate) fn arrival(&self) -> Option<(i64, i64)> {
        let at = self.arrivals.at.load(Ordering::Relaxed);
        (at > 0).then(|| ((at / 1_000_000_000).cast_signed(), (at % 1_000_000_000).cast_signed()))
    }

    /// Bytes of the connection that the kernel has taken; `None` while some wait for room.
    pub(crate) fn bytes_sent(&self) -> Option<u64> {
        let waits = !self.client().output().is_empty();
        (!waits).then(|| self.sent.load(Ordering::Relaxed))
    }

    /// Hands the client what the socket has brought.
    fn take_in(&self, bytes: &[u8]) {
        let Some(plain) = self.secured().map(|mut secured| secured.take(bytes)) else {
            return self.client().handle(bytes);
        };
        match plain {
            Ok(Some(plain)) => self.client().handle(&plain),
            Ok(None) => self.client().fail(CLOSED),
            Err(why) => self.client().fail(&why),
        }
    }

    /// Writes what there is room for; the rest goes with the next call.
    fn flush_now(&self, socket: &Socket) -> rustix::io::Result<()> {
        match self.flush(socket, SendFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            result => result,
        }
    }

    /// Writes what waits for the broker.
    fn flush(&self, socket: &Socket, flags: SendFlags) -> rustix::io::Result<()> {
        let mut client = self.client();
        let flushed = match self.secured() {
            Some(mut secured) => secured.flush(socket, &mut **client, flags, &self.sent),
            None => flush_plain(socket, &mut **client, flags, &self.sent),
        };
        if !matches!(flushed, Err(Errno::PIPE | Errno::CONNRESET)) {
            return flushed;
        }
        drop(client);
        // Why, the broker may have said in what is still to be read.
        let mut rest = [0; 4096];
        while let Ok((bytes @ 1.., _)) = rustix::net::recv(socket, &mut rest, RecvFlags::DONTWAIT) {
            self.take_in(&rest[..bytes]);
        }
        let how = self.how_it_closed();
        self.client().fail(how);
        Err(Errno::CONNRESET)
    }

    /// The end of the connection in words: one with TLS is to end with what TLS has for it.
    fn how_it_closed(&self) -> &'static str {
        if self.secured().is_some_and(|secured| !secured.has_ended()) { CUT } else { CLOSED }
    }

    /// What the broker has said that it is, as it let us in.
    pub(crate) fn about(&self) -> Option<String> {
        self.client().about()
    }

    /// Why the connection is over.
    pub(crate) fn failure(&self) -> Option<String> {
        self.client().failure().map(str::to_owned)
    }

    /// Has each read followed by an acknowledgement, or not.
    pub(crate) fn acknowledge_at_once(&self, on: bool) {
        self.acknowledge_at_once.store(on, Ordering::Relaxed);
    }

    /// Most bytes of a message that the broker takes, as far as it has said so.
    pub(crate) fn most_bytes(&self) -> Option<u64> {
        self.client().most_bytes()
    }

    fn client(&self) -> MutexGuard<'_, Box<dyn Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn secured(&self) -> Option<MutexGuard<'_, Secured>> {
        self.secured.as_ref().map(|secured| secured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn flush_plain(
    socket: &Socket,
    client: &mut dyn Client,
    flags: SendFlags,
    count: &AtomicU64,
) -> rustix::io::Result<()> {
    while !client.output().is_empty() {
        let sent = rustix::net::send(socket, client.output(), flags | SendFlags::NOSIGNAL)?;
        count.fetch_add(sent as u64, Ordering::Relaxed);
        client.wrote(sent);
    }
    Ok(())
}

fn is_blocking(socket: &Socket) -> bool {
    fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// Until when a sending call on the socket waits: now, where it must not.
fn patience(socket: &Socket, flags: SendFlags) -> Instant {
    let now = clock::now();
    if flags.contains(SendFlags::DONTWAIT) || !is_blocking(socket) {
        return now;
    }
    now + socket.write_timeout().ok().flatten().unwrap_or(LONGEST_WAIT)
}

/// Waits until something has come, or for that long.
pub(crate) fn wait_readable(socket: &Socket, until: Instant) -> rustix::io::Result<()> {
    wait_for(socket, PollFlags::IN, until)
}

fn wait_for(socket: &Socket, events: PollFlags, until: Instant) -> rustix::io::Result<()> {
    let left = until.saturating_since(clock::now());
    if left.is_zero() {
        return Err(Errno::AGAIN);
    }
    let left = left.try_into().map_err(|_| Errno::INVAL)?;
    poll(&mut [PollFd::new(socket, events)], Some(&left)).map(drop)
}

fn copy(message: &Message, buffer: &mut [u8]) -> usize {
    let payload = message.payload();
    let bytes = payload.len().min(buffer.len());
    buffer[..bytes].copy_from_slice(&payload[..bytes]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::broker::nats_client::{NatsClient, NatsLogin};

    /// A server's channel that is let in, its socket, and the broker's end of that.
    fn channel() -> (Channel, Socket, UnixStream) {
        let mut client = NatsClient::new(NatsLogin { filter: Some("t.*.req".to_owned()), ..NatsLogin::default() });
        client.handle(b"INFO {}\r\nPONG\r\n");
        assert!(client.is_ready());
        client.wrote(usize::MAX);
        let (ours, broker) = UnixStream::pair().unwrap();
        let channel = Channel {
            client: Mutex::new(Box::new(client)),
            secured: None,
            input: Mutex::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            topic: "t".to_owned(),
            separator: '.',
            publish_to: String::new(),
            acknowledge_at_once: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            arrivals: Arrivals::default(),
            ahead: AtomicUsize::new(0),
            most_ahead: MOST_AHEAD,
        };
        (channel, Socket::from(OwnedFd::from(ours)), broker)
    }

    /// Until the kernel has room for nothing more.
    fn fill(socket: &Socket) {
        while rustix::net::send(socket, &[0; 1 << 16], SendFlags::DONTWAIT).is_ok() {}
        while rustix::net::send(socket, &[0], SendFlags::DONTWAIT).is_ok() {}
    }

    #[test]
    fn an_answer_waits_no_longer_and_keeps_no_more_for_a_broker_that_sends_on_and_does_not_read() {
        let (channel, socket, mut broker) = channel();
        fill(&socket);
        let sending = thread::spawn(move || {
            let question = [&b"MSG t.a.req 1 1000\r\n"[..], &[b'x'; 1000], b"\r\n"].concat();
            while broker.write_all(&question).is_ok() {}
        });
        // Taken is taken; the next one has no room.
        assert_eq!(channel.answer(&socket, "a", b"first"), Ok(5));
        let begin = clock::now();
        assert_eq!(channel.answer(&socket, "a", b"second"), Err(Errno::AGAIN));
        let waited = clock::now().saturating_since(begin);
        assert!(ANSWER_WAIT <= waited && waited < 10 * ANSWER_WAIT, "{waited:?}");
        assert!(channel.ahead.load(Ordering::Relaxed) < MOST_AHEAD + INPUT_BYTES);
        // What was asked meanwhile is kept.
        let mut buffer = [0; 2000];
        let (bytes, asker) = channel.hear(&socket, &mut buffer).unwrap();
        assert_eq!((bytes, asker.as_str(), channel.failure()), (1000, "a", None));
        drop(socket);
        sending.join().unwrap();
    }

    #[test]
    fn a_large_answer_that_waits_for_room_is_no_fault_of_the_broker() {
        let (channel, socket, mut broker) = channel();
        fill(&socket);
        let answer = vec![0; 1 << 20];
        assert_eq!(channel.answer(&socket, "a", &answer), Ok(answer.len()));
        broker.write_all(b"PING\r\n").unwrap();
        assert_eq!((channel.read(&socket, RecvFlags::DONTWAIT), channel.failure()), (Ok(()), None));
    }

    #[test]
    fn who_hears_is_asked_whether_to_go_on_while_a_broker_sends_what_is_no_message() {
        let (channel, socket, mut broker) = channel();
        let sending = thread::spawn(move || while broker.write_all(b"+OK\r\n").is_ok() {});
        assert_eq!(channel.receive(&socket, &mut [0; 8], RecvFlags::empty()), Err(Errno::INTR));
        drop(socket);
        sending.join().unwrap();
    }
}
