//! A client of a broker over its socket.

use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;
use taut_time::{Duration, Instant};

use super::address::{BrokerAddress, Topics};
use super::client::{Client, Message};
use super::part::Part;
use super::secured::Secured;
use crate::interrupt::{Interrupt, LOOK_PERIOD};
use crate::{Error, Result, clock};

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
}

const INPUT_BYTES: usize = 64 * 1024;
/// Bytes that may wait for a broker which sends and does not read.
const MOST_WAITING: usize = 1 << 20;
const CLOSED: &str = "closed the connection";
const CUT: &str = "closed the connection without TLS' own end: what it sent may have been cut off";
/// Longest wait for an acknowledgement that lets the next message go, where the socket has no time-out.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
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
        socket.set_read_timeout(None).map_err(fail)
    }

    /// Publishes a message of the link's own.
    pub(crate) fn send(&self, socket: &Socket, bytes: &[u8], flags: SendFlags) -> rustix::io::Result<usize> {
        self.publish(socket, &self.publish_to, bytes, flags)
    }

    /// Publishes an answer to the asker of that name.
    pub(crate) fn answer(&self, socket: &Socket, asker: &str, bytes: &[u8]) -> rustix::io::Result<usize> {
        let mut topic = String::with_capacity(self.topic.len() + asker.len() + 5);
        let _ = write!(topic, "{}{separator}{asker}{separator}{ANSWERED}", self.topic, separator = self.separator);
        self.publish(socket, &topic, bytes, SendFlags::DONTWAIT)
    }

    fn publish(&self, socket: &Socket, topic: &str, bytes: &[u8], flags: SendFlags) -> rustix::io::Result<usize> {
        let mut give_up = None;
        loop {
            self.flush(socket, flags)?;
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
                    if give_up.is_some_and(|until| clock::now() > until) {
                        return Err(Errno::AGAIN);
                    }
                    let until = *give_up.get_or_insert_with(|| patience(socket, flags));
                    // Acknowledgements may be there already.
                    match self.read(socket, RecvFlags::DONTWAIT) {
                        Ok(()) => {}
                        Err(Errno::AGAIN | Errno::INTR) => wait_readable(socket, until)?,
                        Err(errno) => return Err(errno),
                    }
                }
                Err(why) => {
                    client.fail(&why);
                    return Err(Errno::PROTO);
                }
            }
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
        loop {
            if let Some(message) = self.client().next_message() {
                return Ok(message);
            }
            self.flush_now(socket)?;
            self.read(socket, flags)?;
        }
    }

    /// Takes in what the broker has sent, and writes what that calls for.
    fn read(&self, socket: &Socket, flags: RecvFlags) -> rustix::io::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        if self.client().failure().is_some() {
            return Err(Errno::CONNRESET);
        }
        let bytes = match rustix::net::recv(socket, &mut input[..], flags) {
            Ok((0, _)) | Err(Errno::CONNRESET) => {
                let how = self.how_it_closed();
                self.client().fail(how);
                return Err(Errno::CONNRESET);
            }
            result => result?.0,
        };
        if self.acknowledge_at_once.load(Ordering::Relaxed) {
            // Refused, it is as if it had not been asked for.
            let _ = rustix::net::sockopt::set_tcp_quickack(socket.as_fd(), true);
        }
        self.take_in(&input[..bytes]);
        self.flush_now(socket)?;
        let mut client = self.client();
        if client.output().len() > MOST_WAITING {
            client.fail("does not read what it is sent");
        }
        if client.failure().is_some() { Err(Errno::PROTO) } else { Ok(()) }
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
            Some(mut secured) => secured.flush(socket, &mut **client, flags),
            None => flush_plain(socket, &mut **client, flags),
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

fn flush_plain(socket: &Socket, client: &mut dyn Client, flags: SendFlags) -> rustix::io::Result<()> {
    while !client.output().is_empty() {
        let sent = rustix::net::send(socket, client.output(), flags | SendFlags::NOSIGNAL)?;
        client.wrote(sent);
    }
    Ok(())
}

/// Until when a sending call on the socket waits: now, where it must not.
fn patience(socket: &Socket, flags: SendFlags) -> Instant {
    let now = clock::now();
    let waits = !flags.contains(SendFlags::DONTWAIT)
        && fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    if !waits {
        return now;
    }
    now + socket.write_timeout().ok().flatten().unwrap_or(LONGEST_WAIT)
}

/// Waits until something has come, or for that long.
fn wait_readable(socket: &Socket, until: Instant) -> rustix::io::Result<()> {
    let left = until.saturating_since(clock::now());
    if left.is_zero() {
        return Err(Errno::AGAIN);
    }
    let left = left.try_into().map_err(|_| Errno::INVAL)?;
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)).map(drop)
}

fn copy(message: &Message, buffer: &mut [u8]) -> usize {
    let payload = message.payload();
    let bytes = payload.len().min(buffer.len());
    buffer[..bytes].copy_from_slice(&payload[..bytes]);
    bytes
}
