use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::{Socket, Type};
use taut_time::{Duration, Instant, SendQueue};

use crate::bluetooth::{Agreed, CreditRule, LinkObserver};
use crate::broker::{self, Channel, Part};
use crate::interrupt::{Interrupt, LOOK_PERIOD};
use crate::wire::Accept;
use crate::{Endpoint, Error, Result, TcpInfo, bluetooth, clock, endpoint, keep_alive, sys};

/// An open channel to an endpoint; the same calls for every kind.
///
/// A link blocks until [`set_nonblocking`](Self::set_nonblocking) says otherwise. Sending never raises `SIGPIPE`.
#[derive(Debug)]
pub struct Link {
    socket: Socket,
    endpoint: Endpoint,
    /// Most bytes that one write may have, where the kernel takes no more at once.
    write_limit: usize,
    /// Hears of an LE link.
    observer: Option<LinkObserver>,
    /// What the server of a Bluetooth link has told of its end.
    peer: Vec<String>,
    /// What carries messages over a broker.
    channel: Option<Box<Channel>>,
}

impl Link {
    /// Opens a channel to `endpoint`, trying its addresses in turn, each for at most `timeout`.
    ///
    /// # Errors
    /// The name does not resolve, or none of its addresses answers.
    pub fn connect(endpoint: &Endpoint, timeout: Duration) -> Result<Self> {
        Self::connect_unless(endpoint, timeout, &Interrupt::default())
    }

    /// As [`connect`](Self::connect), until the user wants to stop; that is not looked at while a
    /// name is resolved or a radio link is set up.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`Error::Interrupted`].
    pub fn connect_unless(endpoint: &Endpoint, timeout: Duration, interrupt: &Interrupt) -> Result<Self> {
        Self::open(endpoint, false, timeout, interrupt)
    }

    /// As [`connect_unless`](Self::connect_unless), to `taut serve` or to a `plain` peer; over a broker the latter is
    /// its own subscription.
    pub(crate) fn open(endpoint: &Endpoint, plain: bool, timeout: Duration, interrupt: &Interrupt) -> Result<Self> {
        if let Some((protocol, address)) = endpoint.bluetooth() {
            let opened = bluetooth::connect(endpoint, protocol, address, timeout)?;
            return Ok(Self {
                socket: opened.socket,
                endpoint: endpoint.clone(),
                write_limit: opened.write_limit,
                observer: opened.observer,
                peer: Vec::new(),
                channel: None,
            });
        }
        let mut last = None;
        for address in endpoint.resolve()? {
            match Self::connect_to(endpoint, &address, timeout, interrupt) {
                Ok(link) => {
                    let part = if plain { Part::Alone } else { Part::Asker };
                    return link.log_in(part, timeout, interrupt);
                }
                Err(error @ Error::Interrupted { .. }) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Input(format!("{endpoint}: the name has no address"))))
    }

    /// A connection to a broker, for a listener.
    pub(crate) fn to_broker(
        endpoint: &Endpoint,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<(Socket, Option<Box<Channel>>)> {
        let mut last = None;
        for address in endpoint.resolve()? {
            match Self::connect_to(endpoint, &address, timeout, interrupt) {
                Ok(link) => {
                    let Self { socket, channel, .. } = link.log_in(Part::Responder, timeout, interrupt)?;
                    return Ok((socket, channel));
                }
                Err(error @ Error::Interrupted { .. }) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Input(format!("{endpoint}: the name has no address"))))
    }

    /// Logs in to the broker at the other end, where there is one.
    fn log_in(mut self, part: Part, timeout: Duration, interrupt: &Interrupt) -> Result<Self> {
        if let Some(address) = self.endpoint.broker() {
            let channel = Channel::open(&self.socket, &self.endpoint, address, part, timeout, interrupt)?;
            // As a program that sets nothing; only a server answers at once, unless it is asked not to.
            let nodelay = part == Part::Responder && !address.nagle();
            let set = self.socket.set_tcp_nodelay(nodelay);
            set.map_err(|source| Error::io("set an option on", &self.endpoint, source))?;
            self.channel = Some(Box::new(channel));
        }
        Ok(self)
    }

    /// What the broker of an endpoint says that it is, where it has one that says so within half a second: as it lets
    /// clients in, or by a message.
    pub fn broker_of(endpoint: &Endpoint) -> Option<String> {
        const PATIENCE: Duration = Duration::from_millis(500);
        endpoint.broker()?;
        let interrupt = Interrupt::default();
        let connect = |address| Self::connect_to(endpoint, &address, PATIENCE, &interrupt).ok();
        let link = endpoint.resolve().ok()?.into_iter().find_map(connect)?;
        let link = link.log_in(Part::About, PATIENCE, &interrupt).ok()?;
        if let Some(about) = link.channel.as_ref().and_then(|channel| channel.about()) {
            return Some(about);
        }
        link.set_receive_timeout(Some(PATIENCE)).ok()?;
        let mut name = [0; 80];
        let bytes = link.receive(&mut name).ok()?;
        let printable = |letter: &char| letter.is_ascii_graphic() || *letter == ' ';
        Some(String::from_utf8_lossy(&name[..bytes]).chars().filter(printable).collect())
    }

    /// Has each read over a broker followed by an acknowledgement, or not; elsewhere the caller has to.
    pub(crate) fn acknowledge_at_once(&self, on: bool) {
        if let Some(channel) = &self.channel {
            channel.acknowledge_at_once(on);
        }
    }

    fn connect_to(
        endpoint: &Endpoint,
        address: &socket2::SockAddr,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let fail = |source: io::Error| Error::io("connect to", endpoint, source);
        let socket = Socket::new(endpoint::domain(address), endpoint.socket_type().cloexec(), None).map_err(fail)?;
        if matches!(endpoint, Endpoint::UnixDgram(_)) {
            // The server answers to a name: let the kernel pick one.
            socket.bind(&endpoint::unnamed_unix().map_err(fail)?).map_err(fail)?;
        }
        if endpoint.socket_type() == Type::STREAM && address.as_socket().is_some() {
            socket.set_nonblocking(true).map_err(fail)?;
            match socket.connect(address) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {
                    if !is_connected(&socket, timeout, interrupt).map_err(fail)? {
                        return Err(Error::Interrupted { endpoint: endpoint.to_string() });
                    }
                }
                result => result.map_err(fail)?,
            }
            socket.set_nonblocking(false).map_err(fail)?;
        } else if matches!(endpoint, Endpoint::Unix(_)) {
            // One with as many who wait as it takes makes others wait (unix(7)).
            let give_up = clock::now() + timeout;
            socket.set_write_timeout(Some(LOOK_PERIOD)).map_err(fail)?;
            while let Err(error) = socket.connect(address) {
                match error.kind() {
                    _ if interrupt.is_set() => return Err(Error::Interrupted { endpoint: endpoint.to_string() }),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted if clock::now() < give_up => {}
                    io::ErrorKind::WouldBlock => return Err(fail(io::ErrorKind::TimedOut.into())),
                    _ => return Err(fail(error)),
                }
            }
            socket.set_write_timeout(None).map_err(fail)?;
        } else {
            socket.connect(address).map_err(fail)?;
        }
        Ok(Self::accepted(socket, endpoint.clone(), usize::MAX))
    }

    pub(crate) const fn accepted(socket: Socket, endpoint: Endpoint, write_limit: usize) -> Self {
        Self { socket, endpoint, write_limit, observer: None, peer: Vec::new(), channel: None }
    }

    pub(crate) fn observed_by(self, observer: Option<LinkObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Number of the adapter by which an LE endpoint is connected to: 0 is hci0.
    ///
    /// # Errors
    /// [`Error::Input`] for another endpoint; else as [`connect`](Self::connect).
    pub fn adapter_of(endpoint: &Endpoint) -> Result<u16> {
        match endpoint.bluetooth() {
            Some((_, address)) => bluetooth::adapter_of(address),
            None => Err(Error::Input(format!("{endpoint}: that has no adapter"))),
        }
    }

    /// Keeps what the server told of its end, for the facts of the link.
    pub(crate) fn note_peer(&mut self, accept: &Accept) {
        let buffer = Some(accept.receive_buffer).filter(|bytes| *bytes > 0);
        let told = [
            buffer.map(|bytes| format!("peer_rcvbuf={bytes}")),
            accept.credit_rule.map(|rule| format!("peer_credit_rule={rule}")),
        ];
        self.peer = told.into_iter().flatten().collect();
        if let Some(observer) = &self.observer {
            observer.merge_peer_report(accept.agreed.from_the_other_side());
        }
    }

    /// What the controllers of the link agreed on, as far as it was heard; Bluetooth LE only.
    pub fn agreed(&self) -> Agreed {
        self.observer.as_ref().map_or_else(Agreed::default, LinkObserver::agreed)
    }

    /// `SO_RCVBUF` as the kernel has it, in bytes.
    pub fn receive_buffer(&self) -> Option<u32> {
        u32::try_from(self.socket.recv_buffer_size().ok()?).ok()
    }

    /// By which rule this kernel gives credits on the link; `None` where there are none, or it can't be seen.
    pub fn credit_rule(&self) -> Option<CreditRule> {
        let (_, address) = self.endpoint.bluetooth()?;
        (self.endpoint.transport() == "l2cap" && address.is_le()).then(CreditRule::of_this_kernel).flatten()
    }

    /// The address of the other end, or of the listener that accepted this link.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Has the kernel find out when the peer is gone, as [`keep_alive()`] does; other links than
    /// TCP need it not, or have their own.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn keep_alive(&self) -> Result<()> {
        if !self.endpoint.is_over_tcp() {
            return Ok(());
        }
        keep_alive(&self.socket).map_err(|error| Error::io("set an option on", &self.endpoint, error))
    }

    /// Most bytes that one write should have: the peer's MTU on L2CAP, what the send buffer takes
    /// on RFCOMM; `usize::MAX` where there is no such limit.
    pub const fn write_limit(&self) -> usize {
        self.write_limit
    }

    /// Whether small writes may be held back by the transport (TCP with neither `TCP_NODELAY` nor anything else that
    /// switches RFC 896 off).
    pub fn holds_small_writes(&self) -> bool {
        self.endpoint.is_over_tcp() && !self.socket.tcp_nodelay().unwrap_or(true)
    }

    /// Local port, where the transport has ports.
    pub fn local_port(&self) -> Option<u16> {
        self.local_address().map(|address| address.port())
    }

    /// Writes bytes, as many as the kernel takes now; on a datagram link all or none, on L2CAP one SDU.
    ///
    /// # Errors
    /// As send(2).
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        if let Some(channel) = &self.channel {
            return channel.send(&self.socket, bytes, SendFlags::empty());
        }
        let taken = bytes.len().min(self.write_limit);
        rustix::net::send(&self.socket, &bytes[..taken], SendFlags::NOSIGNAL)
    }

    /// As [`send`](Self::send), but never waits.
    ///
    /// # Errors
    /// As send(2); `EAGAIN` when there is no room, or no credit of the peer's.
    #[inline]
    pub fn send_now(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        if let Some(channel) = &self.channel {
            return channel.send(&self.socket, bytes, SendFlags::DONTWAIT);
        }
        let taken = bytes.len().min(self.write_limit);
        rustix::net::send(&self.socket, &bytes[..taken], self.flags_of_send_now())
    }

    /// The flags with which send(2) on this link never waits.
    ///
    /// A socket of Bluetooth whose peer has given no credit waits for one in spite of `MSG_DONTWAIT` and
    /// `O_NONBLOCK` in older kernels, Linux 5.10 among them: `bt_sock_wait_ready()` (net/bluetooth/af_bluetooth.c)
    /// looks for the bit of `O_NONBLOCK` among the flags of the call. `MSG_CONFIRM` has that bit on most
    /// architectures, x86 and ARM among them, and no other meaning to these sockets.
    pub const fn flags_of_send_now(&self) -> SendFlags {
        let flags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
        if self.endpoint.bluetooth().is_some() { flags.union(SendFlags::CONFIRM) } else { flags }
    }

    /// Whether the kernel throws away what comes while the receive buffer is full, and has the peer
    /// send on: by the older rule of credits they come back with each SDU, whether it found room or
    /// not (`l2cap_ecred_recv()`, net/bluetooth/l2cap_core.c).
    pub fn loses_what_finds_no_room(&self) -> bool {
        self.credit_rule() == Some(CreditRule::Sdu)
    }

    /// Writes two pieces with one call (writev), or the first alone where they are too long for one.
    ///
    /// # Errors
    /// As writev(2).
    pub fn send_two(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if first.len().saturating_add(second.len()) > self.write_limit {
            return self.send(first).map_err(io::Error::from);
        }
        if self.channel.is_some() {
            return self.send(&[first, second].concat()).map_err(io::Error::from);
        }
        let pieces = [io::IoSlice::new(first), io::IoSlice::new(second)];
        self.socket.send_vectored_with_flags(&pieces, libc::MSG_NOSIGNAL)
    }

    /// Writes pieces with one call (writev), as many bytes as the kernel takes now. Only where no limit of writes
    /// ([`write_limit`](Self::write_limit)) is in the way.
    ///
    /// # Errors
    /// As writev(2).
    pub fn send_vectored(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        if self.channel.is_some() {
            let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            return self.send(&whole).map_err(io::Error::from);
        }
        self.socket.send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL)
    }

    /// Writes all bytes, waiting for room.
    ///
    /// # Errors
    /// As send(2); [`Error::Silent`] when a send time-out is set and no room came.
    pub fn send_all(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.send(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("send on", errno)),
            }
        }
        Ok(())
    }

    /// Reads what is there, at most `buffer.len()` bytes; 0 is the end of a stream.
    ///
    /// # Errors
    /// As recv(2).
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        if let Some(channel) = &self.channel {
            return channel.receive(&self.socket, buffer, RecvFlags::empty());
        }
        rustix::net::recv(&self.socket, buffer, RecvFlags::empty()).map(|(bytes, _)| bytes)
    }

    /// As [`receive`](Self::receive), but never waits.
    ///
    /// # Errors
    /// As recv(2); `EAGAIN` when nothing is there.
    #[inline]
    pub fn receive_now(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        if let Some(channel) = &self.channel {
            return channel.receive(&self.socket, buffer, RecvFlags::DONTWAIT);
        }
        rustix::net::recv(&self.socket, buffer, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
    }

    /// Reads until `buffer` is full.
    ///
    /// # Errors
    /// [`Error::Closed`] at the end of the stream, else as recv(2).
    pub fn receive_exact(&self, buffer: &mut [u8], when: &'static str) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.receive(&mut buffer[filled..]) {
                Ok(0) => return Err(Error::Closed { endpoint: self.endpoint.to_string(), when }),
                Ok(bytes) => filled += bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("receive on", errno)),
            }
        }
        Ok(())
    }

    /// Whether calls return `EAGAIN` instead of waiting.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.socket.set_nonblocking(nonblocking).map_err(|source| Error::io("prepare", &self.endpoint, source))
    }

    /// Longest wait of one receiving call; `None` waits for ever.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.socket.set_read_timeout(timeout).map_err(|source| Error::io("prepare", &self.endpoint, source))
    }

    /// Longest wait of one sending call; `None` waits for ever.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_send_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.socket.set_write_timeout(timeout).map_err(|source| Error::io("prepare", &self.endpoint, source))
    }

    /// Tells the peer that no more data comes; receiving goes on. Does nothing where that can't be told
    /// ([`Endpoint::closes_by_halves`]).
    ///
    /// # Errors
    /// As shutdown(2).
    pub fn finish_sending(&self) -> Result<()> {
        if !self.endpoint.closes_by_halves() {
            return Ok(());
        }
        self.socket.shutdown(Shutdown::Write).map_err(|source| Error::io("finish sending on", &self.endpoint, source))
    }

    /// Has a later close abort a TCP connection (RST), so that neither end keeps it in `TIME_WAIT`.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn reset_on_close(&self) -> Result<()> {
        let linger = Some(Duration::ZERO).filter(|_| self.endpoint.acknowledges());
        self.socket.set_linger(linger).map_err(|source| Error::io("prepare", &self.endpoint, source))
    }

    /// Address of the other end, where it has a host and a port.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()?.as_socket()
    }

    /// Address of this end, where it has a host and a port.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// What the kernel tells of the connection; `None` where the transport is not TCP.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        self.endpoint.is_over_tcp().then(|| TcpInfo::read(self.as_fd()).ok())?
    }

    /// What both ends of a Bluetooth link agreed on and what the kernel tells of it, as `name=value`.
    pub(crate) fn bluetooth_facts(&self) -> Vec<String> {
        let Some((protocol, address)) = self.endpoint.bluetooth() else { return Vec::new() };
        let told = bluetooth::facts(&self.socket, protocol, address);
        let agreed = self.observer.as_ref().map(LinkObserver::facts).unwrap_or_default();
        // Where both tell the same thing, what was heard counts: Linux 5.10 knows of a PHY only when it has changed.
        let name = |fact: &str| fact.split_once('=').map(|(name, _)| name.to_owned());
        let told =
            told.into_iter().filter(|fact| !agreed.iter().any(|heard| name(heard) == name(fact))).collect::<Vec<_>>();
        let facts: Vec<String> = agreed.into_iter().chain(told).collect();
        let unheard = self.observer.as_ref().map(|observer| observer.unheard(&facts)).unwrap_or_default();
        facts.into_iter().chain(unheard).chain(self.peer.iter().cloned()).collect()
    }

    /// State of the send queue when something waits in it unsent, `None` when nothing does or the transport keeps none.
    ///
    /// Costs a system call, and two more when something waits.
    #[inline]
    pub fn waiting_to_send(&self) -> Option<SendQueue> {
        if !self.endpoint.is_over_tcp() {
            return None;
        }
        match sys::unsent_bytes(self.as_fd()) {
            Ok(0) | Err(_) => None,
            Ok(unsent) => {
                let unacknowledged = sys::unacknowledged_bytes(self.as_fd()).ok()?;
                Some(TcpInfo::read(self.as_fd()).ok()?.send_queue(unsent, unacknowledged))
            }
        }
    }

    /// Bytes that the kernel has taken for the broker on the connection to it, with those of its protocol and of TLS;
    /// `None` where there is no broker, or some wait for room.
    pub(crate) fn broker_bytes_sent(&self) -> Option<u64> {
        self.channel.as_ref()?.bytes_sent()
    }

    /// Waits until something has come; `EAGAIN` when nothing has by then.
    ///
    /// # Errors
    /// As poll(2).
    pub fn wait_readable(&self, until: Instant) -> rustix::io::Result<()> {
        broker::wait_readable(&self.socket, until)
    }

    /// The error of a failed call on this link.
    pub fn error(&self, operation: &'static str, errno: Errno) -> Error {
        if let Some(what) = self.channel.as_ref().and_then(|channel| channel.failure()) {
            return Error::Broker { endpoint: self.endpoint.to_string(), what };
        }
        Error::io(operation, &self.endpoint, errno)
    }
}

/// Waits until a connection that is under way is there; `false` when the user wants to stop.
fn is_connected(socket: &Socket, timeout: Duration, interrupt: &Interrupt) -> io::Result<bool> {
    let until = clock::now() + timeout;
    while !interrupt.is_set() {
        let left = until.saturating_since(clock::now());
        let wait = left.min(LOOK_PERIOD).try_into().map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&wait)) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return socket.take_error()?.map_or(Ok(true), Err),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(false)
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<Link> for OwnedFd {
    fn from(link: Link) -> Self {
        link.socket.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener whose queue is full answers nobody.
    #[test]
    fn a_connection_that_does_not_come_about_ends_with_its_time_or_with_the_users_patience() {
        let listener = Socket::new(socket2::Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let endpoint: Endpoint = format!("tcp://{address}").parse().unwrap();
        let mut queue = Vec::new();
        let error = loop {
            match Link::connect(&endpoint, Duration::from_millis(500)) {
                Ok(link) => queue.push(link),
                Err(error) => break error,
            }
            assert!(queue.len() < 100, "a queue without an end");
        };
        assert!(matches!(&error, Error::Io { error, .. } if error.kind() == io::ErrorKind::TimedOut), "{error}");

        let interrupt = Interrupt::default();
        let user = interrupt.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            user.flag().store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let began = clock::now();
        let error = Link::connect_unless(&endpoint, Duration::from_secs(30), &interrupt).unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        assert!(clock::now().saturating_since(began) < Duration::from_secs(15));

        // Where nobody listens that is told at once.
        drop((listener, queue));
        let error = Link::connect(&endpoint, Duration::from_secs(30)).unwrap_err();
        assert!(
            matches!(&error, Error::Io { error, .. } if error.kind() == io::ErrorKind::ConnectionRefused),
            "{error}"
        );
    }
}
