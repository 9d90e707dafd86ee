//! What an agent does not do, whatever a plan says.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::error::Error;
use crate::task::LOOK;
use crate::work::{Kind, Work};

/// A kind of work that an agent does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allowed {
    /// Round trips.
    Echo,
    /// Looks into pairs.
    Pace,
    /// Throughput.
    Stream,
}

/// An agent's own limits. They win over any plan.
#[derive(Clone, Debug)]
pub struct Own {
    /// Kinds of work that it does.
    pub allow: Vec<Allowed>,
    /// Messages a second that it sends to one peer. With it, a work without a rate is refused.
    pub max_rate: Option<f64>,
    /// How long one measurement may be meant to take.
    pub max_time: Duration,
    /// When it measures.
    pub hours: Option<Hours>,
    /// Networks whose addresses it asks; all where there is none.
    pub peers: Vec<Network>,
    /// Measurements at once, at least one.
    pub at_once: usize,
}

/// A part of each day, in UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hours {
    from: u32,
    to: u32,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

impl Allowed {
    const ALL: [Self; 3] = [Self::Echo, Self::Pace, Self::Stream];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Pace => "pace",
            Self::Stream => "stream",
        }
    }
}

impl FromStr for Allowed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| Error::new(format!("`{text}`: write echo, pace or stream")))
    }
}

impl Own {
    /// Why it does not do that work, or with `look` that look of so many messages a second; `now` in minutes of the day
    /// in UTC.
    pub(super) fn refuses(&self, work: &Work, look: Option<f64>, now: u32) -> Option<String> {
        let kind = match (look, work.kind) {
            (Some(_), _) => Allowed::Pace,
            (None, Kind::Echo { .. }) => Allowed::Echo,
            (None, Kind::Stream { .. }) => Allowed::Stream,
        };
        if !self.allow.contains(&kind) {
            let allowed: Vec<&str> = self.allow.iter().map(|one| one.name()).collect();
            return Some(format!("{} is not among what this agent allows ({})", kind.name(), allowed.join(", ")));
        }
        let rate = match (look, work.kind) {
            (Some(rate), _) => Some(Some(rate)),
            (None, Kind::Echo { rate, .. }) => Some(rate),
            (None, Kind::Stream { .. }) => None,
        };
        match (self.max_rate, rate) {
            (Some(most), Some(Some(rate))) if rate > most => {
                return Some(format!("{rate} messages a second are more than this agent sends ({most})"));
            }
            (Some(most), Some(None)) => {
                return Some(format!("this agent sends at most {most} messages a second: give the work a `rate`"));
            }
            _ => {}
        }
        let expected = if look.is_some() { LOOK } else { work.expected() };
        if expected > self.max_time {
            return Some(format!("it takes {expected:?}, and this agent measures for {:?}", self.max_time));
        }
        self.rests(now)
    }

    /// Why it measures nothing at all at this minute of the day in UTC.
    pub(super) fn rests(&self, now: u32) -> Option<String> {
        let hours = self.hours.filter(|hours| !hours.has(now))?;
        let clock = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        Some(format!("this agent measures from {} to {} UTC only", clock(hours.from), clock(hours.to)))
    }

    /// Whether it asks that address. Names are not asked where networks are given.
    pub(super) fn may_ask(&self, address: &str) -> bool {
        self.peers.is_empty()
            || address.parse().is_ok_and(|address| self.peers.iter().any(|network| network.has(address)))
    }
}

impl Hours {
    const fn has(self, now: u32) -> bool {
        if self.from <= self.to { self.from <= now && now < self.to } else { now < self.to || self.from <= now }
    }
}

impl FromStr for Hours {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new(format!("`{text}`: write hours of the day in UTC, such as 22:00-06:00"));
        let minutes = |text: &str| {
            let (hours, minutes) = text.split_once(':')?;
            let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number(hours) || !is_number(minutes) {
                return None;
            }
            let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
            (minutes < 60 && hours * 60 + minutes <= 24 * 60).then_some(hours * 60 + minutes)
        };
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (minutes(from).ok_or_else(wrong)?, minutes(to).ok_or_else(wrong)?);
        if from == to { Err(wrong()) } else { Ok(Self { from, to }) }
    }
}

impl Network {
    fn has(self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => (32_u32, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let ((kind, one), (other_kind, other)) = (bits(self.address), bits(address));
        // A shift by all bits is none.
        kind == other_kind && (one ^ other).checked_shr(128 - u32::from(self.length)).unwrap_or(0) == 0
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new(format!("`{text}`: write a network such as 10.0.0.0/8, or an address"));
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), |length| length.parse::<u8>()).map_err(|_| wrong())?;
        if length > most { Err(wrong()) } else { Ok(Self { address, length }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(text: &str) -> Work {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn limits_win() {
        let own = Own {
            allow: vec![Allowed::Echo],
            max_rate: Some(100.0),
            max_time: Duration::from_secs(5),
            hours: None,
            peers: Vec::new(),
            at_once: 4,
        };
        let refused = |text: &str| own.refuses(&work(text), None, 0).unwrap_or_default();
        assert_eq!(refused("echo = \"udp\"\nrate = 100.0"), "");
        assert!(refused("echo = \"udp\"\nrate = 101.0").contains("more than this agent sends (100)"));
        assert!(refused("echo = \"udp\"").contains("give the work a `rate`"));
        assert!(refused("echo = \"udp\"\nrate = 10.0").contains("measures for 5s"));
        assert!(refused("stream = \"tcp\"").contains("stream is not among what this agent allows (echo)"));
        let look = own.refuses(&work("echo = \"udp\""), Some(100.0), 0).unwrap();
        assert!(look.contains("pace is not among"));
        let short = Own { allow: vec![Allowed::Pace], max_rate: None, max_time: Duration::from_secs(2), ..own.clone() };
        let look = short.refuses(&work("echo = \"udp\""), Some(100.0), 0).unwrap();
        assert!(look.contains("it takes 3s, and this agent measures for 2s"), "{look}");
        let at_night = Own { hours: Some("22:00-06:00".parse().unwrap()), max_rate: None, ..own };
        let refused = |now: u32| at_night.refuses(&work("echo = \"udp\""), None, now);
        assert!(refused(22 * 60).is_none() && refused(0).is_none() && refused(359).is_none());
        assert!(refused(360).is_some() && refused(22 * 60 - 1).unwrap().contains("from 22:00 to 06:00 UTC"));
    }

    #[test]
    fn hours_and_networks_are_read() {
        for wrong in ["", "22:00", "22-06", "25:00-26:00", "24:01-01:00", "10:00-10:00", "+1:00-02:00", "10:60-11:00"] {
            assert!(wrong.parse::<Hours>().is_err(), "{wrong}");
        }
        assert!("08:00-24:00".parse::<Hours>().unwrap().has(1439));
        let network = |text: &str| text.parse::<Network>().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(network("10.0.0.0/8").has(address("10.255.0.1")) && !network("10.0.0.0/8").has(address("11.0.0.1")));
        assert!(network("0.0.0.0/0").has(address("1.2.3.4")) && !network("0.0.0.0/0").has(address("::1")));
        assert!(network("10.0.0.1").has(address("::ffff:10.0.0.1")) && !network("10.0.0.1").has(address("10.0.0.2")));
        assert!(network("fe80::/10").has(address("febf::1")) && !network("fe80::/10").has(address("fec0::1")));
        for wrong in ["", "10.0.0.0/33", "x/8", "10.0.0.0/-1", "::/129"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
