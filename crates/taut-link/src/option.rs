use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;

use crate::{Endpoint, Error, Link, Result, sys};

/// A socket option that can shorten (or lengthen) a path, by the name under which the command line knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SocketOption {
    /// `nodelay`: send small segments at once, RFC 896 off (`TCP_NODELAY`).
    Nodelay(bool),
    /// `cork`: hold partial segments, up to 200 ms (`TCP_CORK`).
    Cork(bool),
    /// `quickack`: acknowledge at once until the kernel changes its mind (`TCP_QUICKACK`); to a broker after each read.
    Quickack(bool),
    /// `notsent_lowat=BYTES`: not writable while more than this waits unsent (`TCP_NOTSENT_LOWAT`).
    NotsentLowat(u32),
    /// `delack_max_us=µs`: longest delay of an acknowledgement, 8,000 to 200,000 (`TCP_DELACK_MAX_US`, Linux 6.15).
    DelackMaxUs(u32),
    /// `busy_poll=µs`: poll the device queue before sleeping (`SO_BUSY_POLL`).
    BusyPoll(u32),
    /// `sndbuf=BYTES` (`SO_SNDBUF`; the kernel doubles it).
    SendBuffer(u32),
    /// `rcvbuf=BYTES` (`SO_RCVBUF`; the kernel doubles it).
    ReceiveBuffer(u32),
    /// `priority=N` (`SO_PRIORITY`).
    Priority(u32),
}

/// linux/tcp.h; newer than the libc crate's list.
const TCP_DELACK_MAX_US: libc::c_int = 46;

const NAMES: &str = "nodelay, cork, quickack, notsent_lowat=BYTES, delack_max_us=US, busy_poll=US, sndbuf=BYTES, \
                     rcvbuf=BYTES, priority=N";

impl SocketOption {
    /// The name before the `=`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Nodelay(_) => "nodelay",
            Self::Cork(_) => "cork",
            Self::Quickack(_) => "quickack",
            Self::NotsentLowat(_) => "notsent_lowat",
            Self::DelackMaxUs(_) => "delack_max_us",
            Self::BusyPoll(_) => "busy_poll",
            Self::SendBuffer(_) => "sndbuf",
            Self::ReceiveBuffer(_) => "rcvbuf",
            Self::Priority(_) => "priority",
        }
    }

    /// The line of C that sets it.
    pub fn line_of_code(&self) -> String {
        let (level, name) = match self.level() {
            libc::IPPROTO_TCP => ("IPPROTO_TCP", "TCP_"),
            _ => ("SOL_SOCKET", "SO_"),
        };
        let name = format!("{name}{}", self.name().to_uppercase());
        format!("setsockopt(fd, {level}, {name}, &(int){{{}}}, sizeof(int));", self.value())
    }

    /// Whether sockets of this kind have the option.
    pub fn applies_to(&self, endpoint: &Endpoint) -> bool {
        self.level() != libc::IPPROTO_TCP || endpoint.is_over_tcp()
    }

    /// Sets the option on a socket.
    ///
    /// # Errors
    /// [`Error::Input`] when the transport has no such option, [`Error::Io`] when the kernel refuses the value.
    pub fn apply(&self, link: &Link) -> Result<()> {
        if !self.applies_to(link.endpoint()) {
            return Err(Error::Input(format!("{}: the option `{self}` is one of TCP", link.endpoint())));
        }
        if let Self::Quickack(on) = self {
            link.acknowledge_at_once(*on);
        }
        sys::set_option(link.as_fd(), self.level(), self.number(), self.value())
            .map_err(|source| Error::io("set an option on", link.endpoint(), source))
    }

    /// The options in force on a socket, read back from the kernel, as `name=value`; on Bluetooth
    /// with what was negotiated.
    pub fn in_force(link: &Link) -> Vec<String> {
        let probes = [
            Self::Nodelay(true),
            Self::Cork(true),
            Self::NotsentLowat(0),
            Self::DelackMaxUs(0),
            Self::BusyPoll(0),
            Self::SendBuffer(0),
            Self::ReceiveBuffer(0),
        ];
        probes
            .iter()
            .filter(|probe| probe.applies_to(link.endpoint()))
            .filter_map(|probe| {
                let value = sys::option(link.as_fd(), probe.level(), probe.number()).ok()?;
                Some(format!("{}={}", probe.name(), value as u32))
            })
            .chain(link.bluetooth_facts())
            .collect()
    }

    const fn level(&self) -> libc::c_int {
        match self {
            Self::Nodelay(_) | Self::Cork(_) | Self::Quickack(_) | Self::NotsentLowat(_) | Self::DelackMaxUs(_) => {
                libc::IPPROTO_TCP
            }
            Self::BusyPoll(_) | Self::SendBuffer(_) | Self::ReceiveBuffer(_) | Self::Priority(_) => libc::SOL_SOCKET,
        }
    }

    const fn number(&self) -> libc::c_int {
        match self {
            Self::Nodelay(_) => libc::TCP_NODELAY,
            Self::Cork(_) => libc::TCP_CORK,
            Self::Quickack(_) => libc::TCP_QUICKACK,
            Self::NotsentLowat(_) => libc::TCP_NOTSENT_LOWAT,
            Self::DelackMaxUs(_) => TCP_DELACK_MAX_US,
            Self::BusyPoll(_) => libc::SO_BUSY_POLL,
            Self::SendBuffer(_) => libc::SO_SNDBUF,
            Self::ReceiveBuffer(_) => libc::SO_RCVBUF,
            Self::Priority(_) => libc::SO_PRIORITY,
        }
    }

    /// The value that the kernel is given; of switches 0 or 1.
    pub fn value(&self) -> i32 {
        match *self {
            Self::Nodelay(on) | Self::Cork(on) | Self::Quickack(on) => on.into(),
            Self::NotsentLowat(value)
            | Self::DelackMaxUs(value)
            | Self::BusyPoll(value)
            | Self::SendBuffer(value)
            | Self::ReceiveBuffer(value)
            | Self::Priority(value) => libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX),
        }
    }
}

impl Link {
    /// Sets options in turn.
    ///
    /// # Errors
    /// As [`SocketOption::apply`].
    pub fn set_options(&self, options: &[SocketOption]) -> Result<()> {
        options.iter().try_for_each(|option| option.apply(self))
    }
}

impl FromStr for SocketOption {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let switch = || match value {
            None | Some("on" | "1" | "true") => Ok(true),
            Some("off" | "0" | "false") => Ok(false),
            Some(other) => Err(Error::Input(format!("option `{name}`: `{other}` is neither on nor off"))),
        };
        let number = || {
            value
                .ok_or_else(|| Error::Input(format!("option `{name}` needs a value: {name}=N")))?
                .parse::<u32>()
                .ok()
                .filter(|&value| i32::try_from(value).is_ok())
                .ok_or_else(|| Error::Input(format!("option `{text}`: the value is no whole number below 2^31")))
        };
        match name {
            "nodelay" => switch().map(Self::Nodelay),
            "cork" => switch().map(Self::Cork),
            "quickack" => switch().map(Self::Quickack),
            "notsent_lowat" => number().map(Self::NotsentLowat),
            "delack_max_us" => number().map(Self::DelackMaxUs),
            "busy_poll" => number().map(Self::BusyPoll),
            "sndbuf" => number().map(Self::SendBuffer),
            "rcvbuf" => number().map(Self::ReceiveBuffer),
            "priority" => number().map(Self::Priority),
            _ => Err(Error::Input(format!("there is no option `{name}`; there are {NAMES}"))),
        }
    }
}

impl fmt::Display for SocketOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodelay(on) | Self::Cork(on) | Self::Quickack(on) => {
                write!(f, "{}={}", self.name(), if *on { "on" } else { "off" })
            }
            _ => write!(f, "{}={}", self.name(), self.value()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_printed_as_it_is_written() {
        for text in ["nodelay=on", "cork=off", "quickack=on", "notsent_lowat=4096", "delack_max_us=8000", "sndbuf=1"] {
            assert_eq!(text.parse::<SocketOption>().unwrap().to_string(), text);
        }
        assert_eq!("nodelay".parse::<SocketOption>().unwrap(), SocketOption::Nodelay(true));
    }

    #[test]
    fn errors_name_the_options_there_are() {
        assert!("nagle".parse::<SocketOption>().unwrap_err().to_string().contains("notsent_lowat=BYTES"));
        assert!("sndbuf".parse::<SocketOption>().is_err());
        assert!("cork=maybe".parse::<SocketOption>().is_err());
    }

    #[test]
    fn the_line_of_code_names_level_option_and_value() {
        let line = SocketOption::Nodelay(true).line_of_code();
        assert_eq!(line, "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));");
    }
}
