//! The file of a mesh: TOML, with nothing unknown in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::error::Error;
use crate::figure::Figure;
use crate::host::Host;
use crate::warn::Warn;
use crate::words;

/// No mesh has more hosts.
pub const MOST_HOSTS: usize = 100_000;
const MOST_WORKS: usize = 16;
/// `taut serve --max-time`: no session is longer.
const LONGEST_SESSION: Duration = Duration::from_secs(3600);
/// `taut serve --max-clients`: no server has more sessions at once.
const MOST_SESSIONS: usize = 256;
/// `taut serve --idle` is 30 s: who sends less often may be taken for gone.
const LEAST_RATE: f64 = 0.04;
/// Bytes of a datagram: 65,535 less the IPv4 and UDP headers (RFC 768).
const LONGEST_DATAGRAM: usize = 65_507;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mesh: Plan,
}

/// What a mesh measures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The hosts, each with a name of its own.
    pub hosts: Vec<Host>,
    /// Who measures whom.
    #[serde(default)]
    pub pairs: Pairs,
    /// With [`Pairs::Rack`]: peers of a host in other racks.
    #[serde(default = "elsewhere")]
    pub elsewhere: usize,
    /// Whether each pair is measured from both its ends.
    #[serde(default)]
    pub both_ways: bool,
    /// Where servers listen; 0 for one that is free.
    #[serde(default)]
    pub port: u16,
    /// How long a host may take for what should take no time: to be reached, to start something.
    #[serde(default = "patience", deserialize_with = "words::positive")]
    pub patience: Duration,
    /// Measurements at once.
    #[serde(default = "at_once")]
    pub at_once: usize,
    /// Of these on one host.
    #[serde(default = "per_host")]
    pub per_host: usize,
    /// What is measured of each pair, in this order.
    #[serde(default)]
    pub work: Vec<Work>,
}

/// Which pairs of a mesh are measured.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pairs {
    /// All.
    #[default]
    All,
    /// So many peers for each host.
    Peers(usize),
    /// All in a rack, and some peers in other racks.
    Rack,
}

/// One measurement of each pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "WorkTable")]
pub struct Work {
    /// What is measured.
    pub kind: Kind,
    /// Over what.
    pub transport: Transport,
    /// How often. `taut mesh run` does it once; the sums are over this.
    pub every: Duration,
    /// When a pair is named.
    pub warn: Option<Warn>,
    /// Whether the host must be doing nothing else of this mesh meanwhile.
    pub alone_on_host: bool,
    /// The same of all hosts in its rack.
    pub alone_in_rack: bool,
    /// Whether a pair that is named is looked into.
    pub explain: bool,
}

/// A kind of measurement, with what is its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Round trips.
    Echo {
        /// How many messages.
        messages: u64,
        /// Bytes of one.
        size: usize,
        /// Messages per second; without it, each waits for the reply before.
        rate: Option<f64>,
        /// After which a message counts as lost.
        timeout: Duration,
    },
    /// Throughput.
    Stream {
        /// How long.
        time: Duration,
    },
}

impl Kind {
    /// The command that measures it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Echo { .. } => "echo",
            Self::Stream { .. } => "stream",
        }
    }
}

/// A kind of link between hosts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// As it stands in an endpoint.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkTable {
    echo: Option<Transport>,
    stream: Option<Transport>,
    #[serde(default, deserialize_with = "words::maybe_positive")]
    every: Option<Duration>,
    messages: Option<u64>,
    size: Option<usize>,
    rate: Option<f64>,
    #[serde(default, deserialize_with = "words::maybe_positive")]
    timeout: Option<Duration>,
    #[serde(default, deserialize_with = "words::maybe_positive")]
    time: Option<Duration>,
    warn: Option<Warn>,
    alone: Option<Vec<Place>>,
    #[serde(default)]
    explain: bool,
}

#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Place {
    Host,
    Rack,
}

impl TryFrom<WorkTable> for Work {
    type Error = Error;

    fn try_from(table: WorkTable) -> Result<Self, Error> {
        let foreign = |there: bool, key: &str, of: &str| {
            if there { Err(Error::new(format!("`{key}` is of {of}, and this work is none"))) } else { Ok(()) }
        };
        let (kind, transport, every) = match (table.echo, table.stream) {
            (Some(transport), None) => {
                foreign(table.time.is_some(), "time", "a stream")?;
                let size = table.size.unwrap_or(32);
                let kind = Kind::Echo {
                    messages: within("messages", table.messages.unwrap_or(100), 1, 1_000_000)?,
                    size: match transport {
                        Transport::Udp => within("size of a datagram", size, 1, LONGEST_DATAGRAM)?,
                        Transport::Tcp => within("size", size, 1, 1 << 20)?,
                    },
                    rate: table.rate.map(|rate| within("rate", rate, LEAST_RATE, 1e6)).transpose()?,
                    timeout: table.timeout.unwrap_or(Duration::from_secs(1)),
                };
                (kind, transport, Duration::from_secs(60))
            }
            (None, Some(transport)) => {
                for (there, key) in [
                    (table.messages.is_some(), "messages"),
                    (table.size.is_some(), "size"),
                    (table.rate.is_some(), "rate"),
                    (table.timeout.is_some(), "timeout"),
                ] {
                    foreign(there, key, "an echo")?;
                }
                let kind = Kind::Stream { time: table.time.unwrap_or(Duration::from_secs(10)) };
                (kind, transport, Duration::from_secs(21_600))
            }
            _ => {
                return Err(Error::new(
                    "a work is either `echo = \"udp\"` or `stream = \"tcp\"` (udp and tcp in both)",
                ));
            }
        };
        // Two streams at once would each have a part of the link.
        let alone = table.alone.unwrap_or_else(|| if kind.name() == "stream" { vec![Place::Host] } else { Vec::new() });
        let work = Self {
            kind,
            transport,
            every: table.every.unwrap_or(every),
            warn: table.warn,
            alone_on_host: !alone.is_empty(),
            alone_in_rack: alone.contains(&Place::Rack),
            explain: table.explain,
        };
        work.check()?;
        Ok(work)
    }
}

fn within<T: PartialOrd + fmt::Display>(key: &str, value: T, least: T, most: T) -> Result<T, Error> {
    if value >= least && value <= most {
        Ok(value)
    } else {
        Err(Error::new(format!("{key} = {value}: from {least} to {most}")))
    }
}

impl Work {
    /// Its figures are those that its thresholds are on.
    fn check(&self) -> Result<(), Error> {
        if self.expected() > LONGEST_SESSION {
            let name = self.kind.name();
            return Err(Error::new(format!(
                "this {name} takes {:?} for each pair, and a server ends a session after {LONGEST_SESSION:?}",
                self.expected()
            )));
        }
        for term in self.warn.iter().flat_map(Warn::terms) {
            let is_rate = term.figure == Figure::Throughput;
            match &self.kind {
                Kind::Echo { .. } if is_rate => {
                    return Err(Error::new(
                        "`throughput` is of a stream: an echo has min, mean, p50 … p9999, max, lost",
                    ));
                }
                Kind::Stream { .. } if !is_rate => {
                    return Err(Error::new(format!("`{}` is of an echo: a stream has throughput", term.figure)));
                }
                Kind::Echo { messages, .. } => {
                    let least = term.figure.percentile().map_or(1, |percentile| percentile.least_messages());
                    if *messages < least {
                        let text = format!("{} takes {least} messages, and messages = {messages}", term.figure);
                        return Err(Error::new(text));
                    }
                }
                Kind::Stream { .. } => {}
            }
        }
        if self.explain && self.warn.is_none() {
            return Err(Error::new("explain = true needs a `warn` that says which pairs are explained"));
        }
        Ok(())
    }

    /// What stands for a pair in a matrix: what its threshold looks at first.
    pub fn figure(&self) -> Figure {
        let of_kind = || if matches!(self.kind, Kind::Echo { .. }) { Figure::P50 } else { Figure::Throughput };
        // A loss is a mark in the matrix anyway.
        let looked_at = self.warn.iter().flat_map(Warn::terms).map(|term| term.figure);
        looked_at.into_iter().find(|figure| *figure != Figure::Lost).unwrap_or_else(of_kind)
    }

    /// How long one measurement takes if all goes well.
    pub fn expected(&self) -> Duration {
        match self.kind {
            Kind::Echo { messages, rate: Some(rate), .. } => Duration::from_secs_f64(messages as f64 / rate),
            Kind::Echo { .. } => Duration::ZERO,
            Kind::Stream { time } => time,
        }
    }

    /// How long it may take: in a closed loop each message may be lost. The server ends it in any case.
    pub(crate) fn longest(&self) -> Duration {
        let timeouts = |messages: u64, timeout: Duration| {
            // Some more for the warm-up, of which the last one begun may be lost.
            timeout.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX).saturating_add(2))
        };
        let longest = match self.kind {
            Kind::Echo { messages, rate: None, timeout, .. } => timeouts(messages, timeout),
            // Sent late where there is no room.
            Kind::Echo { messages, rate: Some(_), timeout, .. } => {
                self.expected().saturating_add(timeouts(messages / 10, timeout))
            }
            Kind::Stream { time } => time,
        };
        longest.min(LONGEST_SESSION)
    }
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// With the line, and with what may stand there instead of what is unknown.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| Error::new(error.to_string().trim_end()))?;
        file.mesh.check()
    }

    fn check(self) -> Result<Self, Error> {
        let hosts = self.hosts.len();
        if !(2..=MOST_HOSTS).contains(&hosts) {
            return Err(Error::new(format!(
                "mesh.hosts: a mesh has from 2 to {MOST_HOSTS} hosts, and there are {hosts}"
            )));
        }
        let mut names = HashSet::new();
        if let Some(twice) = self.hosts.iter().find(|host| !names.insert(host.name.as_str())) {
            return Err(Error::new(format!("mesh.hosts: `{}` is there twice", twice.name)));
        }
        let mut addresses = HashMap::new();
        for host in &self.hosts {
            // One address may be written in several ways.
            let address = match host.address.parse::<IpAddr>() {
                Ok(address) => address.to_canonical().to_string(),
                Err(_) => host.address.to_ascii_lowercase(),
            };
            if let Some(other) = addresses.insert(address, host.name.as_str()) {
                let text = "they would measure one host, or that host itself: leave one of them out";
                return Err(Error::new(format!(
                    "mesh.hosts: {other} and {} have one address, {}: {text}",
                    host.name, host.address
                )));
            }
        }
        if self.work.is_empty() || self.work.len() > MOST_WORKS {
            return Err(Error::new(format!("write 1 to {MOST_WORKS} [[mesh.work]]")));
        }
        let needs_racks = self.pairs == Pairs::Rack || self.work.iter().any(|work| work.alone_in_rack);
        if needs_racks && let Some(host) = self.hosts.iter().find(|host| host.rack.is_none()) {
            let text = "`pairs = \"rack\"` and `alone = [\"rack\"]` need a rack of each host";
            return Err(Error::new(format!("{text}, and {} has none: write {{ name = …, rack = … }}", host.name)));
        }
        within("mesh.at_once", self.at_once, 1, 1000)?;
        within("mesh.per_host", self.per_host, 1, MOST_SESSIONS)?;
        within("mesh.elsewhere", self.elsewhere, 0, MOST_HOSTS)?;
        Ok(self)
    }

    /// The number of each host's rack, counted in the order of their names.
    pub fn racks(&self) -> Vec<Option<usize>> {
        let named = || self.hosts.iter().filter_map(|host| host.rack.as_deref());
        let numbers: BTreeMap<&str, usize> = named()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .enumerate()
            .map(|(n, name)| (name, n))
            .collect();
        self.hosts.iter().map(|host| numbers.get(host.rack.as_deref()?).copied()).collect()
    }
}

impl FromStr for Pairs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::new(format!("`{text}`: write \"all\", \"rack\", or \"k=8\" for 8 peers of each host"));
        match text {
            "all" => Ok(Self::All),
            "rack" => Ok(Self::Rack),
            _ => {
                let peers = text.strip_prefix("k=").and_then(|number| number.trim().parse().ok());
                peers.filter(|peers| (1..MOST_HOSTS).contains(peers)).map(Self::Peers).ok_or_else(wrong)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Peers(peers) => write!(f, "k={peers}"),
            Self::Rack => f.write_str("rack"),
        }
    }
}

const fn elsewhere() -> usize {
    16
}

const fn patience() -> Duration {
    Duration::from_secs(20)
}

const fn at_once() -> usize {
    16
}

const fn per_host() -> usize {
    4
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
[mesh]
hosts = ["a", { name = "b", address = "10.0.0.2", rack = "r", labels = { site = "x" } }]
pairs = "k=1"
patience = "5s"

[[mesh.work]]
echo = "udp"
every = "60s"
messages = 100
warn = "p99 > 2ms or > 3 * usual"

[[mesh.work]]
stream = "tcp"
time = "10s"
"#;

    fn refused(change: impl FnOnce(&str) -> String) -> String {
        Plan::parse(&change(WHOLE)).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_is_read() {
        let plan = Plan::parse(WHOLE).unwrap();
        assert_eq!(
            (plan.pairs, plan.hosts[1].address.as_str(), plan.patience.as_secs()),
            (Pairs::Peers(1), "10.0.0.2", 5)
        );
        assert_eq!(plan.racks(), [None, Some(0)]);
        assert_eq!((plan.work[0].figure(), plan.work[1].figure()), (Figure::P99, Figure::Throughput));
        assert!(!plan.work[0].alone_on_host && plan.work[1].alone_on_host && !plan.work[1].alone_in_rack);
        assert_eq!(plan.work[1].every.as_secs(), 21_600);
        // In a closed loop each of its messages, and the warm-up, may take a time-out.
        assert_eq!((plan.work[0].longest().as_secs(), plan.work[1].longest().as_secs()), (102, 10));
    }

    #[test]
    fn what_is_unknown_is_refused_with_what_is_allowed() {
        let text = refused(|plan| plan.replace("patience", "patence"));
        assert!(text.contains("line 5") && text.contains("`patence`") && text.contains("`patience`"), "{text}");
        let text = refused(|plan| plan.replace("messages", "mesages"));
        assert!(text.contains("`mesages`") && text.contains("`messages`"), "{text}");
        let text = refused(|plan| plan.replace("address", "adress"));
        assert!(text.contains("`adress`") && text.contains("`address`"), "{text}");
        assert!(refused(|plan| format!("{plan}\n[other]\n")).contains("`other`"));
        assert!(refused(|plan| plan.replace("\"udp\"", "\"sctp\"")).contains("`tcp`"));
        assert!(refused(|plan| plan.replace("k=1", "k=0")).contains("k=8"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (from, to, said) in [
            ("\"a\"", "\"b\"", "twice"),
            ("messages = 100", "messages = 99", "p99 takes 100 messages"),
            ("messages = 100", "time = \"1s\"", "`time` is of a stream"),
            ("time = \"10s\"", "messages = 3", "`messages` is of an echo"),
            ("time = \"10s\"", "warn = \"p99 > 1s\"", "a stream has throughput"),
            ("p99 > 2ms", "throughput < 1Mbit/s", "is of a stream"),
            ("echo = \"udp\"", "echo = \"udp\"\nstream = \"tcp\"", "either"),
            ("k=1", "rack", "a has none"),
            ("time = \"10s\"", "explain = true", "needs a `warn`"),
            ("\"60s\"", "\"0s\"", "more than zero"),
            ("patience = \"5s\"", "at_once = 0", "from 1 to 1000"),
            ("patience = \"5s\"", "per_host = 257", "from 1 to 256"),
            ("messages = 100", "messages = 100\nsize = 65508", "from 1 to 65507"),
            ("messages = 100", "messages = 100\nrate = 0.03", "rate = 0.03: from 0.04"),
            ("messages = 100", "messages = 3601\nrate = 1.0", "a server ends a session after 3600s"),
            ("time = \"10s\"", "time = \"61min\"", "a server ends a session after 3600s"),
            ("\"a\"", "{ name = \"a\", address = \"::ffff:10.0.0.2\" }", "a and b have one address, 10.0.0.2"),
        ] {
            let text = refused(|plan| plan.replacen(from, to, 1));
            assert!(text.contains(said), "{from} > {to}: {text}");
        }
        assert!(Plan::parse("[mesh]\nhosts = [\"a\"]\n").unwrap_err().to_string().contains("2 to"));
        assert!(Plan::parse("[mesh]\nhosts = [\"a\", \"b\"]\n").unwrap_err().to_string().contains("[[mesh.work]]"));
        assert!(Plan::parse("[mesh]\nhosts = [3]\n").unwrap_err().to_string().contains("a host's name"));
    }
}
