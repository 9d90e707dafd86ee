//! The file of a mesh: TOML, with nothing unknown in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::error::Error;
use crate::host::Host;
use crate::words::{self, within};
use crate::work::Work;

/// No mesh has more hosts.
pub const MOST_HOSTS: usize = 100_000;
const MOST_WORKS: usize = 16;
/// `taut serve --max-clients`: no server has more sessions at once.
const MOST_SESSIONS: usize = 256;

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

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// With the line, and with what may stand there instead of what is unknown.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let plan = Self::read(text)?;
        if let Some(host) = plan.hosts.iter().find(|host| host.chooses().is_some()) {
            let text = "only agents are chosen by label, with --on: name the hosts";
            return Err(Error::new(format!("mesh.hosts: `{}`: {text}", host.name)));
        }
        plan.check()
    }

    /// Reads a plan whose hosts are agents: a label stands for all that have it, and each agent says itself what its
    /// address is. Hosts that are no agents stay as they are.
    ///
    /// # Errors
    /// As [`Plan::parse`], and for a label that no agent has.
    pub fn parse_among(text: &str, agents: &[Host]) -> Result<Self, Error> {
        let mut plan = Self::read(text)?;
        let named: HashSet<String> = plan.hosts.iter().map(|host| host.name.clone()).collect();
        let of_name: HashMap<&str, &Host> = agents.iter().map(|agent| (agent.name.as_str(), agent)).collect();
        let (mut hosts, mut chosen) = (Vec::new(), HashSet::new());
        for mut host in plan.hosts {
            if let Some((key, value)) = host.chooses() {
                let has = |agent: &&Host| agent.labels.get(key).is_some_and(|label| label == value);
                let mut found = agents.iter().filter(has).peekable();
                if found.peek().is_none() {
                    return Err(Error::new(format!("mesh.hosts: no agent has the label {key}={value}")));
                }
                let new = found.filter(|agent| !named.contains(&agent.name) && chosen.insert(agent.name.clone()));
                hosts.extend(new.cloned());
                continue;
            }
            if let Some(agent) = of_name.get(host.name.as_str()) {
                host.address.clone_from(&agent.address);
                host.rack = host.rack.or_else(|| agent.rack.clone());
            }
            hosts.push(host);
        }
        plan.hosts = hosts;
        plan.check()
    }

    /// Whether a text can be a plan, before it is known which agents are there.
    ///
    /// # Errors
    /// For what [`Plan::parse_among`] refuses whoever is there.
    pub fn look_at(text: &str) -> Result<(), Error> {
        Self::read(text).map(drop)
    }

    fn read(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| Error::new(error.to_string().trim_end()))?;
        Ok(file.mesh)
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
    use crate::figure::Figure;

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

    #[test]
    fn agents_are_chosen_by_label_and_say_their_addresses() {
        let agent = |name: &str, address: &str, site: &str| {
            let labels = [("site", site), ("rack", "r1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
            Host::new(name, Some(address), labels.into()).unwrap()
        };
        let agents = [agent("b", "10.0.0.2", "x"), agent("c", "10.0.0.3", "x"), agent("d", "10.0.0.4", "y")];
        let text = "[mesh]\nhosts = [\"a\", \"c\", \"label:site=x\"]\n[[mesh.work]]\necho = \"udp\"\n";
        let plan = Plan::parse_among(text, &agents).unwrap();
        let found: Vec<(&str, &str, Option<&str>)> =
            plan.hosts.iter().map(|host| (host.name.as_str(), host.address.as_str(), host.rack.as_deref())).collect();
        assert_eq!(found, [("a", "a", None), ("c", "10.0.0.3", Some("r1")), ("b", "10.0.0.2", Some("r1"))]);
        assert!(Plan::parse(text).unwrap_err().to_string().contains("with --on"));
        let none = text.replace("site=x", "site=z");
        assert!(Plan::parse_among(&none, &agents).unwrap_err().to_string().contains("no agent has the label site=z"));
    }
}
