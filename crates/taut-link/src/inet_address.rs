use std::fmt;
use std::net::SocketAddr;

/// Host name or address with a port.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct InetAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl InetAddress {
    /// Reads `HOST:PORT`; an IPv6 address stands in brackets. Else what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("the port is missing (taut serve listens on 9100)")?;
        let number = port.parse().ok().filter(|_| !port.starts_with('+'));
        let port = number.ok_or_else(|| format!("`{port}` is no port (0 to 65535)"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or("the `[` is not closed")?,
            None if host.contains(':') => return Err("an IPv6 address stands in brackets, [::1]".to_owned()),
            None => host,
        };
        if host.is_empty() || host.contains(['/', '[', ']', '\0']) {
            return Err("the host is missing or not a host".to_owned());
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// The same, where a host alone is at `port`.
    pub(crate) fn parse_with(text: &str, port: u16) -> Result<Self, String> {
        let has_port = text.rsplit_once(']').map_or(text, |(_, after)| after).contains(':');
        if has_port { Self::parse(text) } else { Self::parse(&format!("{text}:{port}")) }
    }
}

impl From<SocketAddr> for InetAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for InetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
