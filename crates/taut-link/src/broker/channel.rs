//! A client of a broker over its socket.

use std::fmt::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;
use taut_time::Duration;

use super::address::BrokerAddress;
use super::client::{Client, Message};
use super::part::Part;
use crate::interrupt::{Interrupt, LOOK_PERIOD};
use crate::{Error, Result, clock};

/// What a link or a listener has beside its socket when a broker is at the other end.
#[derive(Debug)]
pub(crate) struct Channel {
    client: Mutex<Box<dyn Client>>,
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
/// Ends of the topics on which is asked and answered.
const ASKED: &str = "req";
const ANSWERED: &str = "rep";

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
            Part::Alone => (topic.to_owned(), topic.to_owned()),
            Part::About => Default::default(),
        };
        let client = address.client(endpoint, format!("taut-{name}"), part, filter)?;
        let channel = Self {
            client: Mutex::new(client),
            input: Mutex::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            topic: topic.to_owned(),
            separator,
            publish_to,
            acknowledge_at_once: AtomicBool::new(false),
        };
        channel.log_in(socket, endpoint, timeout, interrupt)?;
        Ok(channel)
    }

    fn log_in(
        &self,
        socket: &Socket,
        endpoint: &impl std::fmt::Display,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let fail = |source| Error::io("log in to", endpoint, source);
        socket.set_tcp_nodelay(true).map_err(fail)?;
        socket.set_read_timeout(Some(LOOK_PERIOD)).map_err(fail)?;
        let give_up = clock::now() + timeout;
        while !self.client().is_ready() {
            let read = self.flush(socket, SendFlags::empty()).and_then(|()| self.read(socket, RecvFlags::empty()));
            if let Some(why) = self.failure() {
                return Err(Error::Broker { endpoint: endpoint.to_string(), what: why });
            }
            match read {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(fail(errno.into())),
            }
            if interrupt.is_set() {
                return Err(Error::Interrupted { endpoint: endpoint.to_string() });
            }
            if clock::now() > give_up {
                let after_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Silent { endpoint: endpoint.to_string(), to: "the broker's CONNECT", after_ms });
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
        for is_second in [false, true] {
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
                Ok(false) if !is_second => {
                    drop(client);
                    // Acknowledgements may be there already.
                    match self.read(socket, RecvFlags::DONTWAIT) {
                        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                Ok(false) => return Err(Errno::AGAIN),
                Err(why) => {
                    client.fail(&why);
                    return Err(Errno::PROTO);
                }
            }
        }
        Err(Errno::AGAIN)
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
                self.client().fail("closed the connection");
                return Err(Errno::CONNRESET);
            }
            result => result?.0,
        };
        if self.acknowledge_at_once.load(Ordering::Relaxed) {
            // Refused, it is as if it had not been asked for.
            let _ = rustix::net::sockopt::set_tcp_quickack(socket.as_fd(), true);
        }
        self.client().handle(&input[..bytes]);
        self.flush_now(socket)?;
        let mut client = self.client();
        if client.output().len() > MOST_WAITING {
            client.fail("does not read what it is sent");
        }
        if client.failure().is_some() { Err(Errno::PROTO) } else { Ok(()) }
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
        while !client.output().is_empty() {
            match rustix::net::send(socket, client.output(), flags | SendFlags::NOSIGNAL) {
                Ok(bytes) => client.wrote(bytes),
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    // Why, the broker may have said in what is still to be read.
                    let mut rest = [0; 4096];
                    while let Ok((bytes @ 1.., _)) = rustix::net::recv(socket, &mut rest, RecvFlags::DONTWAIT) {
                        client.handle(&rest[..bytes]);
                    }
                    client.fail("closed the connection");
                    return Err(Errno::CONNRESET);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
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

    fn client(&self) -> MutexGuard<'_, Box<dyn Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn copy(message: &Message, buffer: &mut [u8]) -> usize {
    let payload = message.payload();
    let bytes = payload.len().min(buffer.len());
    buffer[..bytes].copy_from_slice(&payload[..bytes]);
    bytes
}
