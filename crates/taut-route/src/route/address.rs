//! Where events come from and where they go, as users write it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use taut_link::Endpoint;

use super::line::{self, GpioEdges, GpioLine, InputEvents, Serial};
use crate::condition::{Field, Layout};

/// Where events come from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// `udp://ADDRESS:PORT`: each datagram to that address is an event.
    Udp(SocketAddr),
    /// `unix-dgram:PATH`: each datagram is an event.
    UnixDgram(PathBuf),
    /// `tcp://ADDRESS:PORT`: each line that a client sends is an event.
    Tcp(SocketAddr),
    /// `unix:PATH`: the same on a Unix socket.
    Unix(PathBuf),
    /// `lines:PATH`: each line of a file or a serial device is an event; `lines:-` reads stdin.
    Lines(PathBuf),
    /// `timer:PERIOD`: an event each period.
    Timer(Duration),
    /// `gpio:LABEL/OFFSET`: each edge is an event; `value` is the level after it.
    Gpio(GpioEdges),
    /// `input:NAME/TYPE/CODE`: each such event of an input device; `value` is the event's own.
    Input(InputEvents),
    /// `tty:PATH`: each line of a serial line is an event.
    Tty(Serial),
    /// `l2cap://any/PSM`, `rfcomm://any/CHANNEL`: each line that a client sends over Bluetooth is an event.
    Bluetooth(Endpoint),
}

/// Where what passes goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// `reply`: back to the sender of the datagram.
    Reply,
    /// `udp://ADDRESS:PORT`: a datagram.
    Udp(SocketAddr),
    /// `unix-dgram:PATH`: a datagram.
    UnixDgram(PathBuf),
    /// `tcp://ADDRESS:PORT`: a line on a connection that is kept open.
    Tcp(SocketAddr),
    /// `unix:PATH`: the same on a Unix socket.
    Unix(PathBuf),
    /// `file:PATH`: a line at the end of a file or to a device; `file:-` writes to stdout.
    File(PathBuf),
    /// `gpio:LABEL/OFFSET`: 0 makes the line inactive, any other number active. It begins inactive.
    Gpio(GpioLine),
    /// `led:NAME`: 0 switches the LED off, any other number fully on.
    Led(String),
    /// `tty:PATH`: a line to a serial line.
    Tty(Serial),
    /// `l2cap://ADDR/PSM`, `rfcomm://ADDR/CHANNEL`: a line over Bluetooth, on a connection that is kept open.
    Bluetooth(Endpoint),
    /// `mqtt://HOST/TOPIC`, `mqtts://` with TLS, `nats://HOST/SUBJECT`: a message published to a broker.
    Broker(Endpoint),
}

/// The forms of a source, for messages.
pub const SOURCES: &str = "gpio:LABEL/OFFSET, input:NAME/TYPE/CODE, udp://ADDRESS:PORT, unix-dgram:PATH, tcp://ADDRESS:PORT, unix:PATH, \
                           lines:PATH, tty:PATH, l2cap://any/PSM, rfcomm://any/CHANNEL or timer:PERIOD";
/// The forms of a sink, for messages.
pub const TARGETS: &str = "gpio:LABEL/OFFSET, led:NAME, reply, udp://ADDRESS:PORT, unix-dgram:PATH, tcp://ADDRESS:PORT, unix:PATH, \
                           l2cap://ADDR/PSM, rfcomm://ADDR/CHANNEL, tty:PATH, file:PATH, mqtt://HOST/TOPIC, \
                           mqtts://HOST/TOPIC or nats://HOST/SUBJECT";

fn socket(text: &str, whole: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{whole}`: write an IP address and a port, such as 10.0.0.2:9000 or [::1]:9000"))
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    text.parse().map_err(|error: taut_link::Error| error.to_string())
}

fn path(text: &str, whole: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        Err(format!("`{whole}`: the path is missing"))
    } else {
        Ok(text.into())
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("udp://") {
            return socket(rest, text).map(Self::Udp);
        }
        if let Some(rest) = text.strip_prefix("tcp://") {
            return socket(rest, text).map(Self::Tcp);
        }
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "unix-dgram" => path(rest, text).map(Self::UnixDgram),
            "unix" => path(rest, text).map(Self::Unix),
            "lines" => path(rest, text).map(Self::Lines),
            "timer" => period(rest)
                .map(Self::Timer)
                .ok_or_else(|| format!("`{text}`: write a period from 10us to 1h with its unit, such as timer:100ms")),
            "gpio" => GpioEdges::parse(text).map(Self::Gpio),
            "input" => InputEvents::parse(text).map(Self::Input),
            "tty" => Serial::parse(text).map(Self::Tty),
            "l2cap" | "rfcomm" => endpoint(text).map(Self::Bluetooth),
            "mqtt" | "mqtts" | "nats" => Err(format!(
                "`{text}`: a broker is no source of a route, but taut pipe brings its messages as lines: \
                 taut pipe '{text}' stdio: --framing line | taut route run --from lines:-"
            )),
            _ => Err(format!("`{text}` is no source: write {SOURCES}")),
        }
    }
}

fn period(text: &str) -> Option<Duration> {
    line::duration(text).filter(|period| (Duration::from_micros(10)..=Duration::from_hours(1)).contains(period))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "reply" {
            return Ok(Self::Reply);
        }
        if let Some(rest) = text.strip_prefix("udp://") {
            return socket(rest, text).and_then(addressed).map(Self::Udp);
        }
        if let Some(rest) = text.strip_prefix("tcp://") {
            return socket(rest, text).and_then(addressed).map(Self::Tcp);
        }
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "unix-dgram" => path(rest, text).map(Self::UnixDgram),
            "unix" => path(rest, text).map(Self::Unix),
            "file" => path(rest, text).map(Self::File),
            "gpio" => GpioLine::parse(text).map(Self::Gpio),
            "led" => line::led(text).map(Self::Led),
            "tty" => Serial::parse(text).map(Self::Tty),
            "l2cap" | "rfcomm" => endpoint(text).map(Self::Bluetooth),
            "mqtt" | "mqtts" | "nats" if rest.starts_with("//") => endpoint(text).map(Self::Broker),
            _ => Err(format!("`{text}` is no sink: write {TARGETS}")),
        }
    }
}

fn addressed(address: SocketAddr) -> Result<SocketAddr, String> {
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(format!("`{address}`: nothing can be sent there; write the address and port of a receiver"));
    }
    Ok(address)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::UnixDgram(path) => write!(f, "unix-dgram:{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Lines(path) => write!(f, "lines:{}", path.display()),
            Self::Timer(period) => write!(f, "timer:{}us", period.as_micros()),
            Self::Gpio(edges) => edges.fmt(f),
            Self::Input(events) => events.fmt(f),
            Self::Tty(serial) => serial.fmt(f),
            Self::Bluetooth(endpoint) => endpoint.fmt(f),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply => f.write_str("reply"),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::UnixDgram(path) => write!(f, "unix-dgram:{}", path.display()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Gpio(line) => line.fmt(f),
            Self::Led(name) => write!(f, "led:{name}"),
            Self::Tty(serial) => serial.fmt(f),
            Self::Bluetooth(endpoint) | Self::Broker(endpoint) => endpoint.fmt(f),
        }
    }
}

impl Source {
    /// What two routes can't both take from; none for what is made anew for each.
    pub(super) fn place(&self) -> Option<String> {
        match self {
            // Any number may listen to an input device.
            Self::Timer(_) | Self::Input(_) => None,
            Self::Gpio(edges) => Some(edges.line.place()),
            Self::Tty(serial) => Some(format!("tty:{}", serial.path.display())),
            other => Some(other.to_string()),
        }
    }

    /// Whether it can be left unread for a while: what it reads from is a stream, whose sender
    /// waits with it, or a file.
    pub(crate) const fn waits(&self) -> bool {
        match self {
            Self::Lines(_) | Self::Tcp(_) | Self::Unix(_) | Self::UnixDgram(_) | Self::Bluetooth(_) => true,
            Self::Udp(_) | Self::Tty(_) | Self::Gpio(_) | Self::Input(_) | Self::Timer(_) => false,
        }
    }

    /// Whether its events are datagrams with a layout of the user's.
    pub const fn has_datagrams(&self) -> bool {
        matches!(self, Self::Udp(_) | Self::UnixDgram(_))
    }

    /// The fields that its events have without being declared: `value`, in datagrams the first 8 bytes in
    /// network byte order; else 8 bytes in the host's byte order: the level after the edge, the input event's
    /// value, the number on the line, or how many periods of the timer have gone by since the event before.
    pub fn layout(&self) -> Layout {
        let value = if self.has_datagrams() || cfg!(target_endian = "big") { "i64be@0" } else { "i64le@0" };
        let mut layout = Layout::default();
        let declared = value.parse::<Field>().and_then(|field| layout.declare("value", field));
        debug_assert_eq!(declared, Ok(()));
        layout
    }
}

impl Target {
    /// Whether a datagram can be sent on as it came; else all that is sent is a number.
    pub const fn takes_datagrams(&self) -> bool {
        matches!(self, Self::Reply | Self::Udp(_) | Self::UnixDgram(_) | Self::Broker(_))
    }
}
