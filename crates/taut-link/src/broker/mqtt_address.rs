use std::fmt;
use std::path::PathBuf;

use super::carry::Carriage;
use super::tls_settings::TlsSettings;
use super::{secret, tls_settings};
use crate::inet_address::InetAddress;
use crate::{Error, Result};

/// `HOST[:PORT]/TOPIC?qos=…&v=…&user=…&password-file=…&nagle=on`: a topic of an MQTT broker, and how it is used.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MqttAddress {
    pub(crate) inet: InetAddress,
    /// Topic below which the tests' messages are published.
    pub(crate) topic: String,
    /// Quality of service of what is published and subscribed to: 0, 1 or 2.
    pub(crate) qos: u8,
    pub(crate) version: MqttVersion,
    pub(crate) user: Option<String>,
    /// A file, since a password in an address would be in every recording.
    pub(crate) password_file: Option<PathBuf>,
    /// Whether a server leaves Nagle's algorithm on (RFC 896), as many clients do.
    pub(crate) nagle: bool,
    /// `mqtts://`: over TLS.
    pub(crate) tls: Option<Box<TlsSettings>>,
    /// How messages are carried.
    pub(crate) carriage: Box<Carriage>,
}

/// Version of the protocol.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MqttVersion {
    /// MQTT 3.1.1 (`v=3`).
    #[default]
    V3,
    /// MQTT 5.0 (`v=5`).
    V5,
}

/// Ports of brokers without TLS and with it, as registered with IANA.
const PORT: u16 = 1883;
const TLS_PORT: u16 = 8883;
/// Most bytes of a topic, of 65,535 (MQTT 5.0, section 1.5.4): room for what is added to it.
const MOST_TOPIC_BYTES: usize = 60_000;
const FORM: &str = "write mqtt://HOST:PORT/TOPIC?qos=0|1|2&v=3|5&user=NAME&password-file=PATH&nagle=on (for taut pipe \
                    and taut route also &session=NAME&buffer=N&envelope=off)";

impl MqttAddress {
    /// Reads what stands after `mqtt://`, or `mqtts://` with TLS.
    pub(crate) fn parse(rest: &str, with_tls: bool) -> Result<Self> {
        let scheme = if with_tls { "mqtts" } else { "mqtt" };
        let wrong = |why: &str| {
            let more = tls_settings::FORM;
            Error::Input(format!("`{scheme}://{rest}`: {why}; {FORM}, or mqtts:// with the same and {more}"))
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, topic) = place.split_once('/').ok_or_else(|| wrong("the topic is missing"))?;
        if topic.is_empty() || topic.len() > MOST_TOPIC_BYTES {
            return Err(wrong("a topic has 1 to 60,000 bytes"));
        }
        if topic.starts_with('$') || topic.contains(['+', '#', '\0']) {
            return Err(wrong("messages are published to the topic: it has no +, # or NUL, and begins with no $"));
        }
        let inet = InetAddress::parse_with(host, if with_tls { TLS_PORT } else { PORT }).map_err(|why| wrong(&why))?;
        let topic = topic.to_owned();
        let version = MqttVersion::default();
        let (carriage, tls) = (Box::<Carriage>::default(), None);
        let mut address =
            Self { inet, topic, qos: 0, version, user: None, password_file: None, nagle: false, tls, carriage };
        let mut tls = TlsSettings::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').ok_or_else(|| wrong("a setting is NAME=VALUE"))? {
                ("qos", "0") => address.qos = 0,
                ("qos", "1") => address.qos = 1,
                ("qos", "2") => address.qos = 2,
                ("v", "3") => address.version = MqttVersion::V3,
                ("v", "5") => address.version = MqttVersion::V5,
                ("user", name) if !name.is_empty() => address.user = Some(name.to_owned()),
                ("password-file", path) if !path.is_empty() => address.password_file = Some(path.into()),
                ("nagle", "on") => address.nagle = true,
                ("nagle", "off") => address.nagle = false,
                (name, value) if tls.set(name, value) || address.carriage.take(name, value) => {}
                (name, value) => return Err(wrong(&format!("there is no setting {name}={value}"))),
            }
        }
        if !with_tls && tls.is_given() {
            return Err(wrong("certificates go with mqtts://"));
        }
        tls.check().map_err(wrong)?;
        address.tls = with_tls.then(|| Box::new(tls));
        if address.password_file.is_some() && address.user.is_none() {
            return Err(wrong("a password goes with user=NAME (MQTT 3.1.1, section 3.1.2.9)"));
        }
        Ok(address)
    }

    /// What stands before `://`.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "mqtts" } else { "mqtt" }
    }

    /// The password, without the end of its line.
    pub(crate) fn password(&self) -> Result<Option<Vec<u8>>> {
        self.password_file.as_ref().map(|path| secret::read(&format!("{}://{self}", self.scheme()), path)).transpose()
    }
}

impl fmt::Display for MqttAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.inet, self.topic)?;
        let settings = [
            (self.qos > 0).then(|| format!("qos={}", self.qos)),
            (self.version == MqttVersion::V5).then(|| "v=5".to_owned()),
            self.user.as_ref().map(|name| format!("user={name}")),
            self.password_file.as_ref().map(|path| format!("password-file={}", path.display())),
            self.nagle.then(|| "nagle=on".to_owned()),
        ];
        let tls = self.tls.iter().flat_map(|tls| tls.shown());
        for (index, setting) in settings.into_iter().flatten().chain(tls).chain(self.carriage.words()).enumerate() {
            write!(f, "{}{setting}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl MqttVersion {
    /// As it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V3 => "3.1.1",
            Self::V5 => "5",
        }
    }

    /// What to write for the other one.
    pub(crate) const fn other(self) -> &'static str {
        match self {
            Self::V3 => "v=5",
            Self::V5 => "v=3",
        }
    }
}
