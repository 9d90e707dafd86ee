//! The hosts that a site answers for.
//!
//! A page from elsewhere can have its own name lead to this host ("DNS rebinding"), and a browser then
//! takes our answers for that page's. The name stands in `Host`; so requests are answered only for
//! names that we were told. An address needs no telling: whoever has it in `Host` has asked for it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Names that a site answers for, beside `localhost` and all addresses.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Those names too, in letters of either case.
    pub fn named<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Whether a `Host`, that is a name or address and perhaps a port, is one of them. None at all,
    /// or one for every host (an empty one), is a program's and not a page's.
    pub(crate) fn know(&self, host: &str) -> bool {
        if let Some(six) = host.strip_prefix('[') {
            return six.split_once(']').is_some_and(|(six, _)| six.parse::<Ipv6Addr>().is_ok());
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        // With a dot at its end it is the same name.
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_told = |told: &String| told.strip_suffix('.').unwrap_or(told).eq_ignore_ascii_case(name);
        name.is_empty()
            || name.eq_ignore_ascii_case("localhost")
            || name.parse::<Ipv4Addr>().is_ok()
            || self.0.iter().any(is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_were_told_and_addresses_are_all() {
        let hosts = Hosts::named(["sensor.example", "Gateway"]);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "127.0.0.1:8080",
            "192.0.2.7",
            "[::1]:8080",
            "[2001:db8::1]",
            "sensor.example:80",
            "gateway",
            "Sensor.Example.",
            "",
        ] {
            assert!(hosts.know(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "sensor.example.evil",
            "[evil]",
            "[::1",
            "1.2.3",
            "0x7f000001",
        ] {
            assert!(!hosts.know(host), "{host}");
        }
    }
}
