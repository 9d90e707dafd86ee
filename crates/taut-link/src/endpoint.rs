use std::ffi::OsStr;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::str::FromStr;

use socket2::{Domain, SockAddr, Type};
use taut_time::Framing;

use crate::bluetooth::{self, BluetoothAddress, Protocol};
use crate::broker::{BrokerAddress, MqttAddress, NatsAddress};
use crate::inet_address::InetAddress;
use crate::{Error, Result};

/// The address of one end of a path.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Endpoint {
    /// `tcp://HOST:PORT`
    Tcp(InetAddress),
    /// `udp://HOST:PORT`
    Udp(InetAddress),
    /// `unix:PATH` or `unix:@NAME` (abstract): a stream socket.
    Unix(UnixAddress),
    /// `unix-dgram:PATH` or `unix-dgram:@NAME`: a datagram socket.
    UnixDgram(UnixAddress),
    /// `l2cap://ADDR/PSM`: an L2CAP channel; LE with credits unless `type=bredr` is said.
    L2cap(BluetoothAddress),
    /// `rfcomm://ADDR/CHANNEL`: a serial line over BR/EDR.
    Rfcomm(BluetoothAddress),
    /// `mqtt://HOST:PORT/TOPIC`, or `mqtts://` with TLS: messages over a broker.
    Mqtt(MqttAddress),
    /// `nats://HOST:PORT/SUBJECT`: messages over a NATS server.
    Nats(NatsAddress),
}

/// Name of a Unix socket.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum UnixAddress {
    /// A file.
    Path(PathBuf),
    /// A name in the abstract namespace (unix(7)), without its leading NUL.
    Abstract(String),
}

/// Port of `taut serve`, and of an endpoint that is a host alone.
const SERVER_PORT: u16 = 9100;

/// Kinds of endpoints that are written with two slashes.
const KINDS: [&str; 7] = ["tcp", "udp", "l2cap", "rfcomm", "mqtt", "mqtts", "nats"];

const FORMS: &str = "write tcp://HOST:PORT, udp://HOST:PORT, unix:PATH, unix-dgram:PATH (unix:@NAME for an abstract name), \
                     l2cap://ADDR/PSM, rfcomm://ADDR/CHANNEL, mqtt://HOST/TOPIC (mqtts:// with TLS) or nats://HOST/SUBJECT";

impl Endpoint {
    /// Short name of the transport, as it stands in the address.
    pub const fn transport(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::Unix(_) => "unix",
            Self::UnixDgram(_) => "unix-dgram",
            Self::L2cap(_) => Protocol::L2cap.name(),
            Self::Rfcomm(_) => Protocol::Rfcomm.name(),
            Self::Mqtt(address) => address.scheme(),
            Self::Nats(_) => "nats",
        }
    }

    /// How the transport treats the edges of writes.
    pub const fn framing(&self) -> Framing {
        match self {
            Self::Tcp(_) | Self::Unix(_) | Self::L2cap(_) | Self::Rfcomm(_) => Framing::Stream,
            Self::Udp(_) | Self::UnixDgram(_) | Self::Mqtt(_) | Self::Nats(_) => Framing::Datagram,
        }
    }

    /// Largest message in bytes that one datagram, or one message of a broker, carries; `None` on a stream.
    pub const fn datagram_limit(&self) -> Option<usize> {
        match self {
            // 65,535 less the IPv4 and UDP headers (RFC 768).
            Self::Udp(_) => Some(65_507),
            // Below the default net.core.wmem_default of 212,992, which bounds a Unix datagram.
            Self::UnixDgram(_) => Some(131_072),
            // Ours: MQTT takes 256 MiB, and each message is held whole. As `taut serve --max-message` has it.
            // It is a NATS server's own default (`max_payload`).
            Self::Mqtt(_) | Self::Nats(_) => Some(1 << 20),
            Self::Tcp(_) | Self::Unix(_) | Self::L2cap(_) | Self::Rfcomm(_) => None,
        }
    }

    /// Whether the transport acknowledges bytes, and so may hold small writes back (RFC 896) and choose when to
    /// acknowledge.
    pub const fn acknowledges(&self) -> bool {
        self.is_over_tcp()
    }

    /// Whether the socket is one of TCP.
    pub const fn is_over_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Mqtt(_) | Self::Nats(_))
    }

    /// Whether a broker takes the messages and passes them on.
    pub const fn has_broker(&self) -> bool {
        self.broker().is_some()
    }

    /// Why others may read the user name and password on their way to the broker, and what to do about it. `None` where
    /// there are none, or they go over TLS, or not out of this host.
    pub fn open_login(&self) -> Option<String> {
        let cure = self.broker()?.cure_of_open_login()?;
        let is_loopback = |address: &SockAddr| address.as_socket().is_some_and(|address| address.ip().is_loopback());
        let stays = self.resolve().is_ok_and(|addresses| addresses.iter().all(is_loopback));
        (!stays).then(|| format!("{self}: others may read its user name and password on the way; {cure}"))
    }

    /// The broker's address and topic.
    pub(crate) const fn broker(&self) -> Option<BrokerAddress<'_>> {
        match self {
            Self::Mqtt(address) => Some(BrokerAddress::Mqtt(address)),
            Self::Nats(address) => Some(BrokerAddress::Nats(address)),
            _ => None,
        }
    }

    /// Whether an end can say that it sends no more and go on receiving. Where it can't, closing is for both directions
    /// and at once, and the end of what is sent has to be told in it.
    pub const fn closes_by_halves(&self) -> bool {
        !matches!(self, Self::L2cap(_) | Self::Rfcomm(_) | Self::Mqtt(_) | Self::Nats(_))
    }

    /// Whether a radio link is below it whose interval, PHY and lengths can be chosen
    /// ([`crate::bluetooth::LinkChoice`]).
    pub const fn has_radio(&self) -> bool {
        matches!(self, Self::L2cap(address) if address.is_le())
    }

    /// Where a crowd started by the server at this endpoint listens: on the same host at port
    /// `number`, or under its own name with `.number` after it.
    ///
    /// # Errors
    /// [`Error::Input`] on a datagram endpoint, and when the name becomes too long or the number is no port.
    pub fn crowd_place(&self, number: u32) -> Result<Self> {
        let place = match self {
            Self::Tcp(inet) => {
                let port = u16::try_from(number).map_err(|_| Error::Input(format!("{number} is no port")))?;
                return Ok(Self::Tcp(InetAddress { host: inet.host.clone(), port }));
            }
            Self::Unix(address) => format!("unix:{address}.{number}"),
            Self::Udp(_) | Self::UnixDgram(_) | Self::L2cap(_) | Self::Rfcomm(_) | Self::Mqtt(_) | Self::Nats(_) => {
                return Err(Error::no_crowd(self));
            }
        };
        place.parse()
    }

    /// Removes the socket file that a listener of this endpoint left behind when it was killed; there may be none.
    pub fn remove_socket_file(&self) {
        let is_socket = |file: &&PathBuf| std::fs::symlink_metadata(file).is_ok_and(|at| at.file_type().is_socket());
        if let Some(file) = self.socket_file().filter(is_socket) {
            let _ = std::fs::remove_file(file);
        }
    }

    /// An IPv4 or IPv6 address and port as an endpoint of TCP.
    pub fn of_tcp(address: SocketAddr) -> Self {
        Self::Tcp(address.into())
    }

    /// The endpoint of a bound stream socket of TCP or of the Unix domain.
    pub(crate) fn of_stream(bound: &SockAddr) -> Option<Self> {
        if let Some(address) = bound.as_socket() {
            return Some(Self::of_tcp(address));
        }
        if let Some(path) = bound.as_pathname() {
            return Some(Self::Unix(UnixAddress::Path(path.to_owned())));
        }
        let name = bound.as_abstract_namespace()?;
        Some(Self::Unix(UnixAddress::Abstract(String::from_utf8_lossy(name).into_owned())))
    }

    /// The endpoint of a socket that was bound, from its local address.
    pub(crate) fn with_bound_address(&self, bound: &SockAddr) -> Self {
        if let Some((protocol, address)) = self.bluetooth() {
            return Self::of_bluetooth(protocol, bluetooth::bound(protocol, address, bound));
        }
        match (self, bound.as_socket()) {
            (Self::Tcp(_), Some(socket)) => Self::of_tcp(socket),
            (Self::Udp(_), Some(socket)) => Self::Udp(socket.into()),
            _ => self.clone(),
        }
    }

    /// The socket addresses that the endpoint stands for, in the resolver's order.
    pub(crate) fn resolve(&self) -> Result<Vec<SockAddr>> {
        match self {
            Self::Tcp(inet)
            | Self::Udp(inet)
            | Self::Mqtt(MqttAddress { inet, .. })
            | Self::Nats(NatsAddress { inet, .. }) => {
                let addresses: Vec<SockAddr> = (inet.host.as_str(), inet.port)
                    .to_socket_addrs()
                    .map_err(|source| Error::io("resolve", self, source))?
                    .map(SockAddr::from)
                    .collect();
                if addresses.is_empty() {
                    return Err(Error::Input(format!("{self}: the name has no address")));
                }
                Ok(addresses)
            }
            // The adapter belongs to the address, so these connect in a way of their own.
            Self::L2cap(_) | Self::Rfcomm(_) => Ok(Vec::new()),
            Self::Unix(address) | Self::UnixDgram(address) => {
                Ok(vec![address.to_sock_addr().map_err(|source| Error::io("use the name of", self, source))?])
            }
        }
    }

    /// Whether the peer is of this host, as far as its address tells: a Unix socket, or an address
    /// that a socket here can have. A port that is forwarded looks the same.
    pub fn is_of_this_host(&self) -> bool {
        if matches!(self, Self::Unix(_) | Self::UnixDgram(_)) {
            return true;
        }
        let is_ours = |address: &SockAddr| {
            address.as_socket().is_some_and(|address| std::net::UdpSocket::bind((address.ip(), 0)).is_ok())
        };
        self.bluetooth().is_none()
            && self.resolve().is_ok_and(|addresses| !addresses.is_empty() && addresses.iter().all(is_ours))
    }

    /// What a Bluetooth endpoint stands for.
    pub(crate) const fn bluetooth(&self) -> Option<(Protocol, &BluetoothAddress)> {
        match self {
            Self::L2cap(address) => Some((Protocol::L2cap, address)),
            Self::Rfcomm(address) => Some((Protocol::Rfcomm, address)),
            _ => None,
        }
    }

    const fn of_bluetooth(protocol: Protocol, address: BluetoothAddress) -> Self {
        match protocol {
            Protocol::L2cap => Self::L2cap(address),
            Protocol::Rfcomm => Self::Rfcomm(address),
        }
    }

    pub(crate) fn socket_type(&self) -> Type {
        match self.framing() {
            Framing::Datagram if !self.is_over_tcp() => Type::DGRAM,
            Framing::Stream | Framing::Datagram => Type::STREAM,
        }
    }

    /// The file that a Unix endpoint leaves behind when its listener is gone.
    pub(crate) fn socket_file(&self) -> Option<&PathBuf> {
        match self {
            Self::Unix(UnixAddress::Path(path)) | Self::UnixDgram(UnixAddress::Path(path)) => Some(path),
            _ => None,
        }
    }
}

impl UnixAddress {
    fn to_sock_addr(&self) -> std::io::Result<SockAddr> {
        match self {
            Self::Path(path) => SockAddr::unix(path),
            Self::Abstract(name) => {
                let mut bytes = vec![0];
                bytes.extend_from_slice(name.as_bytes());
                SockAddr::unix(OsStr::from_bytes(&bytes))
            }
        }
    }
}

/// An address without a name, so that the kernel picks one (autobind, unix(7)).
pub(crate) fn unnamed_unix() -> std::io::Result<SockAddr> {
    SockAddr::unix("")
}

pub(crate) fn domain(address: &SockAddr) -> Domain {
    address.domain()
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("tcp://") {
            return Ok(Self::Tcp(inet(text, rest)?));
        }
        if let Some(rest) = text.strip_prefix("udp://") {
            return Ok(Self::Udp(inet(text, rest)?));
        }
        if let Some(rest) = text.strip_prefix("mqtt://") {
            return Ok(Self::Mqtt(MqttAddress::parse(rest, false)?));
        }
        if let Some(rest) = text.strip_prefix("mqtts://") {
            return Ok(Self::Mqtt(MqttAddress::parse(rest, true)?));
        }
        if let Some(rest) = text.strip_prefix("nats://") {
            return Ok(Self::Nats(NatsAddress::parse(rest)?));
        }
        if let Some(rest) = text.strip_prefix("unix-dgram:") {
            return Ok(Self::UnixDgram(unix(text, rest)?));
        }
        if let Some(rest) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(unix(text, rest)?));
        }
        for protocol in [Protocol::L2cap, Protocol::Rfcomm] {
            if let Some(rest) = text.strip_prefix(protocol.name()).and_then(|rest| rest.strip_prefix("://")) {
                return Ok(Self::of_bluetooth(protocol, BluetoothAddress::parse(protocol, rest)?));
            }
        }
        without_scheme(text)
    }
}

/// `HOST`, `HOST:PORT`, `[::1]:PORT`, `::1`: TCP, and the port of `taut serve`.
fn without_scheme(text: &str) -> Result<Endpoint> {
    let wrong = |why: &str| Error::Input(format!("`{text}` is no endpoint{why}: {FORMS}"));
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    if matches!(scheme, Some("http" | "https" | "ws" | "wss")) {
        return Err(wrong(
            ", since taut needs its own server (`taut serve`) or one that sends back what it gets at the other end; \
             `taut watch`, `taut trace` and `taut explain` tell what holds up a web server. For an endpoint",
        ));
    }
    if let Some(scheme) = scheme {
        return Err(wrong(&format!(", since there is no {scheme}://")));
    }
    if let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| KINDS.contains(kind))
        && let Some(rest) = rest.strip_prefix('/')
    {
        return Err(wrong(&format!("; with two slashes it would be {kind}://{rest}")));
    }
    if text.contains('/') {
        return Err(wrong(&format!("; a Unix socket would be unix:{text}")));
    }
    let is_host =
        |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let alone = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if alone.parse::<Ipv6Addr>().is_ok() || is_host(text) {
        return Ok(Endpoint::Tcp(InetAddress { host: alone.to_owned(), port: SERVER_PORT }));
    }
    match text.rsplit_once(':') {
        Some((host, _)) if is_host(host) || host.starts_with('[') => Ok(Endpoint::Tcp(inet(text, text)?)),
        _ => Err(wrong("")),
    }
}

fn inet(whole: &str, rest: &str) -> Result<InetAddress> {
    InetAddress::parse(rest).map_err(|why| Error::Input(format!("`{whole}`: {why}; {FORMS}")))
}

fn unix(whole: &str, rest: &str) -> Result<UnixAddress> {
    // sun_path holds 108 bytes with its final NUL (unix(7)).
    // `unix://` is a habit from other schemes; what is left is a path as it stands.
    let rest = if rest.starts_with("///") { rest.trim_start_matches("//") } else { rest };
    let address = match rest.strip_prefix('@') {
        Some(name) => UnixAddress::Abstract(name.to_owned()),
        None => UnixAddress::Path(PathBuf::from(rest)),
    };
    let length = match &address {
        UnixAddress::Path(path) => path.as_os_str().len(),
        UnixAddress::Abstract(name) => name.len(),
    };
    if length == 0 || length > 107 || rest.contains('\0') {
        return Err(Error::Input(format!("`{whole}`: a Unix socket's name has 1 to 107 bytes and no NUL; {FORMS}")));
    }
    Ok(address)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(inet) => write!(f, "tcp://{inet}"),
            Self::Udp(inet) => write!(f, "udp://{inet}"),
            Self::Unix(unix) => write!(f, "unix:{unix}"),
            Self::UnixDgram(unix) => write!(f, "unix-dgram:{unix}"),
            Self::L2cap(address) => write!(f, "l2cap://{address}"),
            // The type is the only one there.
            Self::Rfcomm(address) => write!(f, "rfcomm://{}", address.without_type()),
            Self::Mqtt(address) => write!(f, "{}://{address}", address.scheme()),
            Self::Nats(address) => write!(f, "nats://{address}"),
        }
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_printed_as_it_was_written() {
        for text in [
            "tcp://127.0.0.1:9000",
            "udp://[::1]:0",
            "tcp://localhost:1",
            "unix:/run/x.sock",
            "unix:@name",
            "unix-dgram:rel/x",
            "l2cap://00:AA:01:00:00:2F/129",
            "l2cap://any/0?adapter=hci1",
            "l2cap://00:AA:01:00:00:2F/4097?type=bredr&mtu=1024",
            "l2cap://C0:AA:01:00:00:2F/128?adapter=hci0&type=random&mtu=2048&rcvbuf=65536&phy=2m&interval=7.5ms&length=251&security=medium",
            "rfcomm://00:AA:01:00:00:2F/3",
            "rfcomm://any/0?adapter=hci1&rcvbuf=65536&security=high",
            "mqtt://127.0.0.1:1883/taut",
            "mqtt://[::1]:18830/plant/line 2?qos=2&v=5&user=ann&password-file=/run/secret&nagle=on",
            "nats://127.0.0.1:4222/taut",
            "nats://[::1]:4/plant.line-2?user=ann&password-file=/run/secret&nagle=on",
            "mqtts://b:8883/t?qos=1&user=ann&password-file=/p&ca=/c/ca.pem&cert=/c/me.pem&key=/c/me.key&server-name=b.lan",
            "nats://b:4222/t?tls=on&ca=/c/ca.pem&stream=S&reader=r-1&create=memory",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_host_alone_is_tcp_at_the_port_of_the_server() {
        for (text, expected) in [
            ("127.0.0.1", "tcp://127.0.0.1:9100"),
            ("127.0.0.1:7", "tcp://127.0.0.1:7"),
            ("gateway.local", "tcp://gateway.local:9100"),
            ("localhost:80", "tcp://localhost:80"),
            ("::1", "tcp://[::1]:9100"),
            ("[::1]", "tcp://[::1]:9100"),
            ("[fe80::1]:5", "tcp://[fe80::1]:5"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), expected);
        }
        for (text, part) in [
            ("https://example.org/", "taut watch"),
            ("/run/x.sock", "unix:/run/x.sock"),
            ("localhost:http", "`http` is no port"),
            ("localhost:+80", "`+80` is no port"),
            ("tpc://localhost:80", "there is no tpc://"),
            ("tpc://localhost", "there is no tpc://"),
            ("udp:/localhost:80", "it would be udp://localhost:80"),
            ("two words", "is no endpoint"),
            ("host:", "`` is no port"),
        ] {
            let message = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("tcp://HOST:PORT"), "{text}: {message}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for text in
            ["", "tcp://", "tcp://::1:9", "tcp://[::1:9", "udp://h:70000", "unix:", "http://x:1", "tcp://:5", "unix:@"]
        {
            let message = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(message.contains("tcp://HOST:PORT"), "{text}: {message}");
        }
    }

    #[test]
    fn an_address_of_a_broker_has_its_usual_port_and_a_topic_to_publish_to() {
        for (text, expected) in [
            ("mqtt://b/taut", "mqtt://b:1883/taut"),
            ("mqtt://[::1]/a/b?v=3&qos=0&nagle=off", "mqtt://[::1]:1883/a/b"),
            ("mqtt://b:1/t?qos=1", "mqtt://b:1/t?qos=1"),
            ("mqtts://b/t", "mqtts://b:8883/t"),
            ("nats://b/taut", "nats://b:4222/taut"),
            ("nats://[::1]/a.b?nagle=off", "nats://[::1]:4222/a.b"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), expected);
        }
        for (text, part) in [
            ("mqtt://b", "the topic is missing"),
            ("mqtt://b/", "1 to 60,000 bytes"),
            ("mqtt://b/a/+/c", "no +, # or NUL"),
            ("mqtt://b/$SYS/x", "begins with no $"),
            ("mqtt://b/t?qos=3", "no setting qos=3"),
            ("mqtt://b/t?qos", "NAME=VALUE"),
            ("mqtt://b/t?password-file=/x", "goes with user=NAME"),
            ("mqtt://b:x/t", "is no port"),
            ("mqtt://b/t?ca=/x", "certificates go with mqtts://"),
            ("mqtts://b/t?cert=/x", "both cert=PATH and key=PATH"),
        ] {
            let message = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("mqtt://HOST:PORT/TOPIC"), "{text}: {message}");
        }
        for (text, part) in [
            ("nats://b", "the subject is missing"),
            ("nats://b/", "1 to 1,024 bytes"),
            ("nats://b/a.*.c", "without *, >"),
            ("nats://b/a..c", "without *, >"),
            ("nats://b/a b", "without *, >"),
            ("nats://b/$SYS.x", "none begins with $"),
            ("nats://b/t?qos=1", "no setting qos=1"),
            ("nats://b:x/t", "is no port"),
            ("nats://b/t?key=/x", "both cert=PATH and key=PATH"),
            ("nats://b/t?reader=r", "go with stream=NAME"),
            ("nats://b/t?stream=a.b", "no setting stream=a.b"),
            ("nats://b/t?stream=S&create=disk", "no setting create=disk"),
        ] {
            let message = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("nats://HOST:PORT/SUBJECT"), "{text}: {message}");
        }
    }

    #[test]
    fn a_login_is_open_without_tls_on_the_way_out_of_this_host() {
        for (text, cure) in [
            ("mqtt://192.0.2.1/t?user=ann", Some("write mqtts://")),
            ("mqtt://192.0.2.1/t?user=ann&password-file=/p", Some("write mqtts://")),
            ("nats://[2001:db8::1]/t?password-file=/p", Some("write tls=on")),
            ("mqtts://192.0.2.1/t?user=ann", None),
            ("nats://192.0.2.1/t?user=ann&tls=on", None),
            ("nats://192.0.2.1/t?user=ann&ca=/c", None),
            ("mqtt://127.0.0.1/t?user=ann&password-file=/p", None),
            ("nats://[::1]/t?user=ann", None),
            ("mqtt://192.0.2.1/t", None),
            ("tcp://192.0.2.1:7", None),
        ] {
            let told = text.parse::<Endpoint>().unwrap().open_login();
            assert_eq!(told.is_some(), cure.is_some(), "{text}: {told:?}");
            assert!(cure.is_none_or(|cure| told.is_some_and(|told| told.ends_with(cure))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_address_of_a_broker_is_parsed_or_refused(
            scheme in "(mqtts?|nats)", host in "[a-z0-9:\\[\\]]{0,8}", topic in "[a-z/+$.]{0,6}",
            list in "(\\?|)((qos|v)=[0-6]&|(user|ca|stream|create)=[a-z]{0,3}&|tls=on&|password-file=[a-z/]{0,3}&|nagle=(on|off)&|[a-z=&]{0,6}){0,4}",
        ) {
            if let Ok(endpoint) = format!("{scheme}://{host}/{topic}{list}").parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }

        #[test]
        fn any_bluetooth_address_is_parsed_or_refused(
            scheme in "(l2cap|rfcomm)", device in "(any|00:AA:01:00:00:2[0-9]|[0-9A:]{0,17})", number in "[0-9x]{0,5}",
            list in "(\\?|)(adapter=hci[0-9]&|mtu=[0-9]{0,5}&|type=(bredr|random)&|phy=2m&|security=low&|[a-z=&]{0,8}){0,4}(rcvbuf=1|)",
        ) {
            if let Ok(endpoint) = format!("{scheme}://{device}/{number}{list}").parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }

        #[test]
        fn any_tail_is_parsed_or_refused(scheme in "(tcp://|udp://|unix:|unix-dgram:)", tail in "[@:/a-z0-9\\[\\]]{0,120}") {
            if let Ok(endpoint) = format!("{scheme}{tail}").parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }
    }
}
