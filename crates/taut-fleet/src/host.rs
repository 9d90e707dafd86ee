use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Deserializer, de};

use crate::error::Error;

/// A host of a mesh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// What stands for `{host}`, and in all that is printed.
    pub name: String,
    /// What the others dial: a name or an IP address. The name where it is left out.
    pub address: String,
    /// Where its server listens: the address if that is an IP address, and all of IPv4 (0.0.0.0) otherwise.
    pub listen: IpAddr,
    /// Where it stands; hosts of one rack share what leads out of it.
    pub rack: Option<String>,
    /// What else is known of it.
    pub labels: BTreeMap<String, String>,
}

/// What a name begins with that stands for all agents with a label.
const LABEL: &str = "label:";

impl Host {
    /// A host that says of itself what it is called and what others dial.
    ///
    /// # Errors
    /// For names and addresses that no plan could have.
    pub fn new(name: &str, address: Option<&str>, labels: BTreeMap<String, String>) -> Result<Self, Error> {
        if name.starts_with(LABEL) {
            return Err(Error::new(format!("`{}`: no host is called {LABEL}…", taut_event::printable(name))));
        }
        Table { address: address.map(str::to_owned), labels, ..Table::named(name) }.host()
    }

    /// What stands in a plan for all hosts with a label.
    fn choosing(name: String, has_more: bool) -> Result<Self, Error> {
        let is_sound =
            name[LABEL.len()..].split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty());
        if !is_sound || has_more || name.chars().any(taut_event::steers) {
            let name = taut_event::printable(&name);
            return Err(Error::new(format!("`{name}`: write \"label:site=x\" for all agents with that label")));
        }
        let (address, listen) = (String::new(), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Ok(Self { name, address, listen, rack: None, labels: BTreeMap::new() })
    }

    /// The label by which it stands for others: its name and value.
    pub(crate) fn chooses(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix(LABEL)?.split_once('=')
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    address: Option<String>,
    listen: Option<IpAddr>,
    rack: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Table {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), address: None, listen: None, rack: None, labels: BTreeMap::new() }
    }

    fn host(self) -> Result<Host, Error> {
        let Self { name, address, listen, rack, labels } = self;
        if name.starts_with(LABEL) {
            return Host::choosing(name, address.is_some() || listen.is_some() || rack.is_some() || !labels.is_empty());
        }
        // It becomes a word of a command, where it must not be taken for an option; and it is printed in tables.
        if name.is_empty() || name.starts_with('-') || name.chars().any(taut_event::steers) || name.len() > 253 {
            let name = taut_event::printable(&name);
            let text = "a host's name has 1 to 253 bytes, does not begin with -, and has no control characters";
            return Err(Error::new(format!("`{name}`: {text}")));
        }
        let address = address.unwrap_or_else(|| name.clone());
        if !is_address(&address) {
            let address = taut_event::printable(&address);
            let text = "an address is an IP address or a name of letters, digits, `-`, `_` and `.`; write address = …";
            return Err(Error::new(format!("`{address}` of {name}: {text}")));
        }
        let listen = listen.or_else(|| address.parse().ok()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let rack = rack.or_else(|| labels.get("rack").cloned());
        if let Some(bad) =
            rack.iter().chain(labels.values()).find(|text| text.is_empty() || text.chars().any(taut_event::steers))
        {
            let bad = taut_event::printable(bad);
            return Err(Error::new(format!(
                "`{bad}` of {name}: a rack or label is not empty and has no control characters"
            )));
        }
        Ok(Host { name, address, listen, rack, labels })
    }
}

/// Words of a command that no shell takes for anything else: ssh(1) hands them to one over there.
fn is_address(text: &str) -> bool {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.len() <= 253
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    text.parse::<IpAddr>().is_ok() || is_name(text)
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Host;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a host's name, or a table with its name, address, listen, rack and labels")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Host, E> {
                Table::named(name).host().map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Host, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                table.host().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_data_and_addresses_are_checked() {
        let host = |name: &str, address: Option<&str>| {
            Table { address: address.map(str::to_owned), ..Table::named(name) }
                .host()
                .map_err(|error| error.to_string())
        };
        let odd = host("a b;$(x)'\"", Some("10.0.0.1")).unwrap();
        assert_eq!((odd.name.as_str(), odd.listen.to_string().as_str()), ("a b;$(x)'\"", "10.0.0.1"));
        assert_eq!(host("h1.example", None).unwrap().listen.to_string(), "0.0.0.0");
        assert_eq!(host("six", Some("fe80::1")).unwrap().listen.to_string(), "fe80::1");
        assert!(host("-oProxyCommand=x", Some("10.0.0.1")).unwrap_err().contains("does not begin with -"));
        assert!(host("a b", None).unwrap_err().contains("write address"));
        assert!(host("a", Some("$(x)")).is_err() && host("", None).is_err() && host("a\u{1b}", None).is_err());
        assert_eq!(host("label:site=x", None).unwrap().chooses(), Some(("site", "x")));
        assert!(host("label:site", None).is_err() && host("label:site=x", Some("10.0.0.1")).is_err());
        assert!(Host::new("label:site=x", Some("10.0.0.1"), BTreeMap::new()).is_err());
    }
}
