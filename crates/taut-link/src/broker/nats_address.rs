use std::fmt;
use std::path::PathBuf;

use super::carry::Carriage;
use super::stream_settings::StreamSettings;
use super::tls_settings::TlsSettings;
use super::{secret, stream_settings, tls_settings};
use crate::inet_address::InetAddress;
use crate::{Error, Result};

/// `HOST[:PORT]/SUBJECT?user=…&password-file=…&nagle=on`: a subject of a NATS server, and how it is used.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct NatsAddress {
    pub(crate) inet: InetAddress,
    /// Subject below which the tests' messages are published.
    pub(crate) subject: String,
    pub(crate) user: Option<String>,
    /// A file, since a password in an address would be in every recording. Without a user, what is in it is a token.
    pub(crate) password_file: Option<PathBuf>,
    /// Whether a server leaves Nagle's algorithm on (RFC 896).
    pub(crate) nagle: bool,
    /// `tls=on`: nothing is said to the server before TLS has begun, not even where it does not ask for it.
    pub(crate) tls_on: bool,
    pub(crate) tls: Option<Box<TlsSettings>>,
    /// The stream of JetStream that keeps the messages.
    pub(crate) stream: Option<Box<StreamSettings>>,
    /// How messages are carried.
    pub(crate) carriage: Box<Carriage>,
}

/// Port of NATS servers without TLS, by the server's default.
const PORT: u16 = 4222;
/// Most bytes of a subject. A server's lines end at 4096 (`max_control_line`); there is room for what is added to it.
const MOST_SUBJECT_BYTES: usize = 1024;
const FORM: &str = "write nats://HOST:PORT/SUBJECT?user=NAME&password-file=PATH&nagle=on&tls=on (for taut pipe \
                    and taut route also &buffer=N&envelope=off)";

impl NatsAddress {
    /// Reads what stands after `nats://`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let (tls, stream) = (tls_settings::FORM, stream_settings::FORM);
            Error::Input(format!("`nats://{rest}`: {why}; {FORM}&{tls}, and for JetStream {stream}"))
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, subject) = place.split_once('/').ok_or_else(|| wrong("the subject is missing"))?;
        if subject.is_empty() || subject.len() > MOST_SUBJECT_BYTES {
            return Err(wrong("a subject has 1 to 1,024 bytes"));
        }
        let is_sound = |token: &str| {
            !token.is_empty()
                && !token.contains(['*', '>', '/'])
                && token.chars().all(|c| !c.is_whitespace() && c > ' ')
        };
        if subject.starts_with('$') || !subject.split('.').all(is_sound) {
            return Err(wrong(
                "a subject to publish to is NAME.NAME…: names without *, >, / and spaces, and none begins with $",
            ));
        }
        let inet = InetAddress::parse_with(host, PORT).map_err(|why| wrong(&why))?;
        let mut address = Self {
            inet,
            subject: subject.to_owned(),
            user: None,
            password_file: None,
            nagle: false,
            tls_on: false,
            tls: None,
            stream: None,
            carriage: Box::default(),
        };
        let (mut tls, mut stream) = (TlsSettings::default(), StreamSettings::default());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').ok_or_else(|| wrong("a setting is NAME=VALUE"))? {
                ("user", name) if !name.is_empty() => address.user = Some(name.to_owned()),
                ("password-file", path) if !path.is_empty() => address.password_file = Some(path.into()),
                ("nagle", "on") => address.nagle = true,
                ("nagle", "off") => address.nagle = false,
                ("tls", "on") => address.tls_on = true,
                (name, value) if tls.set(name, value) || stream.set(name, value) => {}
                (name, value) if name != "session" && address.carriage.take(name, value) => {}
                (name, value) => return Err(wrong(&format!("there is no setting {name}={value}"))),
            }
        }
        tls.check().map_err(wrong)?;
        address.tls = tls.is_given().then(|| Box::new(tls));
        address.stream = stream.checked().map_err(wrong)?.map(Box::new);
        Ok(address)
    }

    /// Whether there has to be TLS, whatever the server says. Certificates that are given are meant to be used.
    pub(super) const fn insists_on_tls(&self) -> bool {
        self.tls_on || self.tls.is_some()
    }

    /// The password or token, without the end of its line.
    pub(crate) fn password(&self) -> Result<Option<String>> {
        let Some(path) = &self.password_file else { return Ok(None) };
        let password = secret::read(&format!("nats://{self}"), path)?;
        let text = String::from_utf8(password);
        text.map(Some).map_err(|_| Error::Input(format!("nats://{self}: its password file is no text (UTF-8)")))
    }
}

impl fmt::Display for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.inet, self.subject)?;
        let settings = [
            self.user.as_ref().map(|name| format!("user={name}")),
            self.password_file.as_ref().map(|path| format!("password-file={}", path.display())),
            self.nagle.then(|| "nagle=on".to_owned()),
            self.tls_on.then(|| "tls=on".to_owned()),
        ];
        let stream = self.stream.iter().flat_map(|stream| stream.shown());
        let tls = self.tls.iter().flat_map(|tls| tls.shown());
        let settings = settings.into_iter().flatten().chain(tls).chain(stream).chain(self.carriage.words());
        for (index, setting) in settings.enumerate() {
            write!(f, "{}{setting}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}
