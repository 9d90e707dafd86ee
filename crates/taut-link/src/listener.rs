use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{RecvFlags, SendFlags, SocketAddrAny};
use socket2::{Socket, Type};
use taut_time::{Duration, Framing, Instant};

use crate::broker::Channel;
use crate::clock::RealtimeOffset;
use crate::{Endpoint, Error, Interrupt, Link, Result, SocketFile, bluetooth, endpoint, keep_alive};

/// A bound socket: accepts links on a stream endpoint, exchanges datagrams on the others. Its
/// socket file, if it has one, goes when the listener goes.
#[derive(Debug)]
pub struct Listener {
    /// Goes before the socket does, while nobody else can have its place.
    _file: Option<SocketFile>,
    socket: Socket,
    endpoint: Endpoint,
    radio: Option<Radio>,
    /// What carries messages over a broker.
    channel: Option<Box<Channel>>,
}

/// What a Bluetooth listener has beside its socket.
#[derive(Debug)]
struct Radio {
    observer: Option<bluetooth::AdapterObserver>,
    /// Number of the adapter.
    adapter: u16,
    /// `SO_RCVBUF` for the links that are accepted; 0 leaves it alone.
    receive_buffer: AtomicU32,
    /// For as long as peers may come.
    _confirming: Option<bluetooth::Confirming>,
}

/// L2CAP_DEFAULT_MTU (l2cap.h), in bytes.
const DEFAULT_MTU: u16 = 672;

/// How long a broker may take to let a listener in.
const LOGIN: Duration = Duration::from_secs(5);

/// Where a datagram came from, and where its answer goes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PeerAddress(Peer);

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Peer {
    Socket(SocketAddrAny),
    /// The name that an asker has taken below the topic of a broker.
    Asker(String),
}

impl Listener {
    /// Binds to `endpoint`. Port 0 lets the kernel pick one; [`endpoint`](Self::endpoint) tells which.
    ///
    /// A socket file that nobody listens on any more is replaced; any other file in the way is an error.
    ///
    /// # Errors
    /// The name does not resolve, or the address is in use or not ours.
    pub fn bind(endpoint: &Endpoint) -> Result<Self> {
        Self::bind_unless(endpoint, &Interrupt::default())
    }

    /// As [`bind`](Self::bind); the wish to stop ends the wait for a broker.
    ///
    /// # Errors
    /// As [`bind`](Self::bind), and [`Error::Interrupted`].
    pub fn bind_unless(endpoint: &Endpoint, interrupt: &Interrupt) -> Result<Self> {
        if let Some((protocol, address)) = endpoint.bluetooth() {
            let listening = bluetooth::listen(endpoint, protocol, address)?;
            let bluetooth::Listening { socket, observer, adapter, confirming } = listening;
            let bound = socket.local_addr().map_err(|source| Error::io("listen on", endpoint, source))?;
            let radio = Some(Radio { observer, adapter, receive_buffer: AtomicU32::new(0), _confirming: confirming });
            return Ok(Self {
                socket,
                endpoint: endpoint.with_bound_address(&bound),
                _file: None,
                radio,
                channel: None,
            });
        }
        if endpoint.has_broker() {
            let (socket, channel) = Link::to_broker(endpoint, LOGIN, interrupt)?;
            keep_alive(&socket).map_err(|source| Error::io("listen on", endpoint, source))?;
            return Ok(Self { socket, endpoint: endpoint.clone(), _file: None, radio: None, channel });
        }
        let address = endpoint.resolve()?.swap_remove(0);
        let fail = |source: io::Error| Error::io("listen on", endpoint, source);
        let socket = Socket::new(endpoint::domain(&address), endpoint.socket_type().cloexec(), None).map_err(fail)?;
        if address.as_socket().is_some_and(|inet| inet.is_ipv6()) {
            socket.set_only_v6(true).map_err(fail)?;
        }
        if endpoint.socket_type() == Type::STREAM && address.as_socket().is_some() {
            socket.set_reuse_address(true).map_err(fail)?;
        }
        match socket.bind(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && makes_way(endpoint) => socket.bind(&address),
            result => result,
        }
        .map_err(fail)?;
        if endpoint.framing() == Framing::Stream {
            socket.listen(1024).map_err(fail)?;
        }
        let bound = socket.local_addr().map_err(fail)?;
        let endpoint = endpoint.with_bound_address(&bound);
        let file = endpoint.socket_file().cloned().map(SocketFile::of);
        Ok(Self { socket, endpoint, _file: file, radio: None, channel: None })
    }

    /// Takes over a socket that was bound, and set to listen where it is one of streams, by
    /// somebody else, as a service manager does. Its socket file stays when the listener goes.
    ///
    /// # Errors
    /// [`Error::Input`] when the socket is not one of the endpoint's kind; else as getsockname(2).
    pub fn adopt(endpoint: &Endpoint, socket: OwnedFd) -> Result<Self> {
        if endpoint.has_broker() {
            return Err(Error::Input(format!("{endpoint}: a connection to a broker can't be handed over")));
        }
        let socket = Socket::from(socket);
        let fail = |source: io::Error| Error::io("take over the socket of", endpoint, source);
        let bound = socket.local_addr().map_err(fail)?;
        let is_unix = matches!(endpoint, Endpoint::Unix(_) | Endpoint::UnixDgram(_));
        let is_of_the_kind = match endpoint.bluetooth() {
            Some(_) => i32::from(bound.family()) == libc::AF_BLUETOOTH,
            None => bound.is_unix() == is_unix && bound.as_socket().is_some() != is_unix,
        };
        if !is_of_the_kind || socket.r#type().map_err(fail)? != endpoint.socket_type() {
            return Err(Error::Input(format!("{endpoint}: the socket handed over is not of this kind")));
        }
        if endpoint.framing() == Framing::Stream && !socket.is_listener().map_err(fail)? {
            return Err(Error::Input(format!("{endpoint}: the socket handed over does not listen")));
        }
        Ok(Self { endpoint: endpoint.with_bound_address(&bound), socket, _file: None, radio: None, channel: None })
    }

    /// Whether calls return `EAGAIN` instead of waiting.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        self.socket.set_nonblocking(nonblocking).map_err(|source| Error::io("prepare", &self.endpoint, source))
    }

    /// The address bound to, with the port that the kernel picked.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Takes over a stream socket that listens already, as a service manager passes it. Its socket
    /// file, if it has one, stays when the listener goes.
    ///
    /// # Errors
    /// [`Error::Input`] when it is no listening stream socket of TCP or of the Unix domain.
    pub(crate) fn passed(socket: OwnedFd) -> Result<Self> {
        let socket = Socket::from(socket);
        let refuse = |why: &str| Err(Error::Input(format!("a socket that was passed {why}")));
        let fits = socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
        if !fits || !socket.is_listener().unwrap_or(false) {
            return refuse("is no listening stream socket: write ListenStream= into its unit");
        }
        let Ok(bound) = socket.local_addr() else { return refuse("has no address") };
        match Endpoint::of_stream(&bound) {
            Some(endpoint) => Self::adopt(&endpoint, socket.into()),
            None => refuse("is neither of TCP nor of the Unix domain"),
        }
    }

    /// Accepts the next link of a stream endpoint.
    ///
    /// # Errors
    /// As accept(2).
    pub fn accept(&self) -> io::Result<Link> {
        self.accept_from().map(|(link, _)| link)
    }

    /// As [`accept`](Self::accept), with the host that the link comes from, where it comes from one.
    ///
    /// # Errors
    /// As accept(2).
    pub fn accept_from(&self) -> io::Result<(Link, Option<IpAddr>)> {
        let (socket, from) = self.socket.accept()?;
        let write_limit = match self.endpoint.bluetooth() {
            Some((protocol, address)) => bluetooth::apply_to_accepted(&socket, protocol, address)?,
            None => usize::MAX,
        };
        let mut observer = None;
        if let Some(radio) = &self.radio {
            observer = radio.observer.as_ref().and_then(|observer| observer.of(&socket, &from));
            match radio.receive_buffer.load(Ordering::Relaxed) {
                0 => {}
                bytes => socket.set_recv_buffer_size(bytes as usize)?,
            }
        }
        let link = Link::accepted(socket, self.endpoint.clone(), write_limit).observed_by(observer);
        Ok((link, from.as_socket().map(|address| address.ip())))
    }

    /// The adapter of an LE listener, whose links can be [shaped](Self::shape).
    pub fn shapeable(&self) -> Option<u16> {
        self.radio.as_ref().filter(|radio| radio.observer.is_some()).map(|radio| radio.adapter)
    }

    /// Has the LE links accepted from now on receive with another MTU (`BT_RCVMTU`, 23 bytes at least)
    /// and another `SO_RCVBUF`, which the kernel doubles; `None` goes back to what the endpoint says.
    ///
    /// # Errors
    /// [`Error::Input`] where there are no such links; [`Error::Io`] when the kernel refuses a value.
    pub fn shape(&self, mtu: Option<u16>, receive_buffer: Option<u32>) -> Result<()> {
        let (Some(radio), Some((_, address))) = (self.radio.as_ref(), self.endpoint.bluetooth()) else {
            return Err(Error::Input(format!("{}: only links of Bluetooth LE are shaped", self.endpoint)));
        };
        let mtu = mtu.or(address.mtu).unwrap_or(DEFAULT_MTU);
        bluetooth::set_mtu_of(&self.socket, address, mtu)
            .map_err(|source| Error::io("set the MTU of", &self.endpoint, source))?;
        radio.receive_buffer.store(receive_buffer.unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }

    /// Receives a datagram and the address that it came from. Longer datagrams are cut to the buffer.
    ///
    /// # Errors
    /// As recvfrom(2); `EAGAIN` when the time-out passes; `EINTR` also when what came is from a Unix sender
    /// without a name, which can't be answered: the caller looks whether it should stop, and calls again.
    #[inline]
    pub fn receive_from(&self, buffer: &mut [u8]) -> rustix::io::Result<(usize, PeerAddress)> {
        if let Some(channel) = &self.channel {
            return channel.hear(&self.socket, buffer).map(|(bytes, asker)| (bytes, PeerAddress(Peer::Asker(asker))));
        }
        let (bytes, _, address) = rustix::net::recvfrom(&self.socket, buffer, RecvFlags::empty())?;
        address.map(|address| (bytes, PeerAddress(Peer::Socket(address)))).ok_or(rustix::io::Errno::INTR)
    }

    /// Sends a datagram to an address, without waiting for room.
    ///
    /// # Errors
    /// As sendto(2); `EAGAIN` when there is no room.
    #[inline]
    pub fn send_to(&self, bytes: &[u8], address: &PeerAddress) -> rustix::io::Result<usize> {
        match (&address.0, &self.channel) {
            (Peer::Socket(address), _) => {
                rustix::net::sendto(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT, address)
            }
            (Peer::Asker(asker), Some(channel)) => channel.answer(&self.socket, asker, bytes),
            (Peer::Asker(_), None) => Err(rustix::io::Errno::DESTADDRREQ),
        }
    }

    /// Why the broker is gone, where there was one: nothing comes any more, and a new listener has to take over.
    pub fn lost(&self) -> Option<String> {
        self.channel.as_ref()?.failure()
    }

    /// Most bytes of a message that the broker takes, where there is one that has said so.
    pub fn broker_limit(&self) -> Option<u64> {
        self.channel.as_ref()?.most_bytes()
    }

    /// Has each read over a broker followed by an acknowledgement, or not.
    pub fn acknowledge_at_once(&self, on: bool) {
        if let Some(channel) = &self.channel {
            channel.acknowledge_at_once(on);
        }
    }

    /// Has reads over a broker ask the kernel when messages came, or not. Elsewhere it does nothing.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn stamp_arrivals(&self, on: bool) -> io::Result<()> {
        self.channel.as_ref().map_or(Ok(()), |channel| channel.stamp_arrivals(&self.socket, on))
    }

    /// When the kernel had the last of the read with which the message came that was received last, if
    /// [asked](Self::stamp_arrivals). Messages that came with one read have one time.
    pub fn arrival(&self, offset: RealtimeOffset) -> Option<Instant> {
        let (seconds, nanoseconds) = self.channel.as_ref()?.arrival()?;
        Some(offset.to_monotonic(seconds, nanoseconds))
    }

    /// Whether a datagram says that it comes from this very socket. None does by itself: its sender
    /// was made up, so that the answer comes back here, for ever.
    pub fn is_own(&self, peer: &PeerAddress) -> bool {
        let own = self.socket.local_addr().ok().and_then(|own| own.as_socket());
        let Peer::Socket(peer) = &peer.0 else { return false };
        let (Some(own), Ok(peer)) = (own, SocketAddr::try_from(peer.clone())) else { return false };
        // Bound to no address it has all of this host's, which are those that can be bound to.
        let is_ours = || peer.ip().is_loopback() || std::net::UdpSocket::bind((peer.ip(), 0)).is_ok();
        peer.port() == own.port() && (peer.ip() == own.ip() || own.ip().is_unspecified() && is_ours())
    }

    /// Longest wait of one receiving or accepting call.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.socket.set_read_timeout(timeout).map_err(|source| Error::io("prepare", &self.endpoint, source))
    }
}

/// Address and port; of a Unix socket its name.
impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = match &self.0 {
            Peer::Socket(socket) => socket,
            Peer::Asker(name) => return f.write_str(name),
        };
        if let Ok(address) = SocketAddr::try_from(socket.clone()) {
            return write!(f, "{address}");
        }
        match rustix::net::SocketAddrUnix::try_from(socket.clone()) {
            Ok(address) => match (address.abstract_name(), address.path()) {
                (Some(name), _) => write!(f, "@{}", name.escape_ascii()),
                (None, Some(path)) => write!(f, "{}", path.to_bytes().escape_ascii()),
                (None, None) => f.write_str("unnamed"),
            },
            Err(_) => f.write_str("unnamed"),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the endpoint's socket file was in the way, and is not any more.
fn makes_way(endpoint: &Endpoint) -> bool {
    endpoint.socket_file().is_some_and(|file| SocketFile::remove_dead(file, endpoint.socket_type()).unwrap_or(false))
}
