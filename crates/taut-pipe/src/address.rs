//! What stands for one end of a pipe on the command line and in a configuration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use taut_link::{Endpoint, Error, Result};

use crate::hint;
use crate::tty::TtySettings;
use crate::words;

/// One of the two ends as written: an address, and whether it is waited at or gone to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Side {
    /// `listen:` stood before it.
    pub listens: bool,
    /// The address.
    pub address: Address,
}

/// Where one end of a pipe leads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// A socket, by one of the endpoints that all commands know.
    Link(Endpoint),
    /// `tls://HOST:PORT`: TLS 1.2 or 1.3 over TCP.
    Tls {
        /// Host name or address, as the certificate names it.
        host: String,
        /// Where that is.
        endpoint: Endpoint,
    },
    /// `tty:PATH`, a serial line or other terminal.
    Tty {
        /// Its device.
        path: PathBuf,
        /// What is set on it for as long as the pipe lives.
        settings: TtySettings,
    },
    /// `exec:COMMAND`, a program with the pipe as its stdin and stdout.
    Exec {
        /// Program and arguments.
        words: Vec<String>,
        /// Whether these are a terminal (`exec-pty:`).
        pty: bool,
    },
    /// `stdio:`, our own stdin and stdout.
    Stdio,
    /// `file:PATH`: read from its beginning as the first end of a pipe, appended to as the second.
    File(PathBuf),
}

const FORMS: &str = "an end of a pipe is tcp://HOST:PORT, udp://HOST:PORT, tls://HOST:PORT, unix:PATH, unix-dgram:PATH \
                     (unix:@NAME for an abstract name), l2cap://ADDR/PSM, rfcomm://ADDR/CHANNEL, tty:PATH?baud=115200, \
                     exec:COMMAND, exec-pty:COMMAND, stdio:, file:PATH, mqtt://HOST/TOPIC, mqtts://HOST/TOPIC or nats://HOST/SUBJECT; listen: before a socket's waits for clients";

impl Address {
    /// Whether it can be waited at.
    const fn can_listen(&self) -> bool {
        matches!(self, Self::Link(_) | Self::Tls { .. }) && !self.has_broker()
    }

    /// Whether a broker is there.
    pub const fn has_broker(&self) -> bool {
        matches!(self, Self::Link(endpoint) if endpoint.has_broker())
    }
}

impl FromStr for Side {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (listens, rest) = text.strip_prefix("listen:").map_or((false, text), |rest| (true, rest));
        let address: Address = rest.parse()?;
        if listens && !address.can_listen() {
            return Err(Error::Input(format!(
                "`{text}`: only sockets can be listened on: tcp, udp, tls, unix, unix-dgram, l2cap, rfcomm"
            )));
        }
        Ok(Self { listens, address })
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::Input(format!("`{text}`: {why}"));
        let unknown = |why: &str| match hint::instead_of(text) {
            Some(right) => Error::Input(format!("`{text}`: {why}; write {right}")),
            None => Error::Input(format!("`{text}`: {why}; {FORMS}")),
        };
        let path = |rest: &str| match rest {
            "" => Err(wrong("the path is missing after the colon")),
            _ if rest.contains('\0') => Err(wrong("a path has no NUL")),
            _ => Ok(PathBuf::from(rest)),
        };
        let (kind, rest) = text.split_once(':').ok_or_else(|| unknown("the kind is missing"))?;
        match kind {
            "tcp" | "udp" | "mqtt" | "mqtts" | "nats" if !rest.starts_with("//") => Err(unknown("// is missing")),
            "tcp" | "udp" | "unix" | "unix-dgram" | "l2cap" | "rfcomm" | "mqtt" | "mqtts" | "nats" => {
                text.parse().map(Self::Link)
            }
            "tls" => {
                let rest = rest.strip_prefix("//").ok_or_else(|| unknown("// is missing"))?;
                let endpoint: Endpoint = format!("tcp://{rest}")
                    .parse()
                    .map_err(|_| wrong("there is no host and port; write tls://HOST:PORT"))?;
                // The endpoint has looked at it.
                let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
                Ok(Self::Tls { host: host.trim_matches(['[', ']']).to_owned(), endpoint })
            }
            "tty" => {
                let (device, settings) =
                    rest.rsplit_once('?').map_or((rest, ""), |(device, settings)| (device, settings));
                Ok(Self::Tty { path: path(device)?, settings: settings.parse().map_err(|why: String| wrong(&why))? })
            }
            "exec" | "exec-pty" => {
                let words = words::split(rest).map_err(&wrong)?;
                if words.first().is_none_or(String::is_empty) || rest.contains('\0') {
                    return Err(wrong("the command is missing; write exec:COMMAND"));
                }
                Ok(Self::Exec { words, pty: kind == "exec-pty" })
            }
            "stdio" if rest.is_empty() => Ok(Self::Stdio),
            "stdio" => Err(wrong("nothing stands after it; write stdio:")),
            "file" => path(rest).map(Self::File),
            "listen" => Err(unknown("listen: stands once, before a socket's address")),
            _ => Err(unknown("there is no such kind")),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.listens { "listen:" } else { "" }, self.address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(endpoint) => write!(f, "{endpoint}"),
            Self::Tls { endpoint, .. } => write!(f, "tls{}", endpoint.to_string().trim_start_matches("tcp")),
            // Settings are what stands after the last question mark, which a path may have too.
            Self::Tty { path, settings } => match (settings.to_string(), path.display().to_string()) {
                (settings, path) if settings.is_empty() && !path.contains('?') => write!(f, "tty:{path}"),
                (settings, path) => write!(f, "tty:{path}?{settings}"),
            },
            Self::Exec { words, pty } => {
                write!(f, "{}:{}", if *pty { "exec-pty" } else { "exec" }, words::join(words))
            }
            Self::Stdio => f.write_str("stdio:"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_needs_escaping() {
        let side: Side = "exec:l2cat connect --raw E4:5F:01:2B:04:38 225".parse().unwrap();
        let Address::Exec { words, pty: false } = side.address else { panic!("{side}") };
        assert_eq!(words, ["l2cat", "connect", "--raw", "E4:5F:01:2B:04:38", "225"]);
        let odd = "file:/tmp/a b,c:d?e=f\"g'h";
        assert_eq!(odd.parse::<Address>().unwrap(), Address::File("/tmp/a b,c:d?e=f\"g'h".into()));
    }

    #[test]
    fn every_kind_is_printed_as_it_can_be_read_again() {
        for text in [
            "listen:tcp://127.0.0.1:80",
            "tls://[::1]:443",
            "listen:unix:@x",
            "tty:/dev/ttyS0?baud=9600&parity=even&stop=2&flow=rtscts",
            "tty:/dev/ttyS0",
            "exec:sh -c 'echo \"a b\"; exit 3'",
            "exec-pty:vi",
            "stdio:",
            "file:/a",
            "listen:udp://127.0.0.1:53",
            "mqtt://h:1883/a/b?qos=1&v=5&session=n&buffer=5&envelope=off",
            "mqtts://h:8883/a?ca=/ca.pem&session=n",
            "nats://h:4222/a.b?ca=/ca.pem&stream=S&reader=r",
            "nats://h:4222/a.b?buffer=7",
        ] {
            let side: Side = text.parse().unwrap();
            assert_eq!(side.to_string().parse::<Side>().unwrap(), side, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_right() {
        for (text, hint) in [
            ("", "tcp://HOST:PORT"),
            ("tcp:1", "write tcp://1"),
            ("tcp://h", "tcp://HOST:PORT"),
            ("tls:h:1", "write tls://h:1"),
            ("tls://h", "tls://HOST:PORT"),
            ("tty:", "the path is missing"),
            ("tty:/dev/x?baud=12", "baud=9600"),
            ("tty:/dev/x?speed=9600", "baud, bits, parity, stop and flow"),
            ("exec:", "exec:COMMAND"),
            ("exec:'a", "not closed"),
            ("exec:''", "exec:COMMAND"),
            ("stdio:x", "write stdio:"),
            ("file:", "the path is missing"),
            ("listen:stdio:", "only sockets"),
            ("listen:listen:tcp://h:1", "tcp://HOST:PORT"),
            ("listen:exec:cat", "only sockets"),
            ("mqtt://h", "the topic is missing"),
            ("mqtt://h/t?buffer=0", "no setting buffer=0"),
            ("nats://h/t?session=x", "no setting session=x"),
            ("nats:h/t", "// is missing"),
            ("listen:mqtt://h/t", "only sockets"),
            ("http://x:1", "tcp://HOST:PORT"),
        ] {
            let message = text.parse::<Side>().unwrap_err().to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            kind in "(listen:)?(tcp://|tls://|tty:|exec:|exec-pty:|file:|stdio:|unix:)?", rest in "\\PC{0,30}",
        ) {
            if let Ok(side) = format!("{kind}{rest}").parse::<Side>() {
                prop_assert_eq!(side.to_string().parse::<Side>().unwrap(), side);
            }
        }
    }
}
