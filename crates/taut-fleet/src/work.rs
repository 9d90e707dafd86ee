//! One work of a plan: what is measured of each pair.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::figure::Figure;
use crate::warn::Warn;
use crate::words::{self, within};

/// `taut serve --max-time`: no session is longer.
const LONGEST_SESSION: Duration = Duration::from_secs(3600);
/// `taut serve --idle` is 30 s: who sends less often may be taken for gone.
const LEAST_RATE: f64 = 0.04;
/// Bytes of a datagram: 65,535 less the IPv4 and UDP headers (RFC 768).
const LONGEST_DATAGRAM: usize = 65_507;

/// One measurement of each pair.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "WorkTable", into = "WorkTable")]
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
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
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

/// As it stands in a plan, and in what is sent to agents.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct WorkTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    echo: Option<Transport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<Transport>,
    #[serde(with = "words::maybe", skip_serializing_if = "Option::is_none")]
    every: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    #[serde(with = "words::maybe", skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
    #[serde(with = "words::maybe", skip_serializing_if = "Option::is_none")]
    time: Option<Duration>,
    #[serde(skip_serializing)]
    warn: Option<Warn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alone: Option<Vec<Place>>,
    #[serde(skip_serializing)]
    explain: bool,
}

#[derive(Clone, Copy, Deserialize, Eq, PartialEq, Serialize)]
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

/// Without thresholds, which are for those who gather.
impl From<Work> for WorkTable {
    fn from(work: Work) -> Self {
        let place = |there: bool, place: Place| there.then_some(place);
        let alone = [place(work.alone_on_host, Place::Host), place(work.alone_in_rack, Place::Rack)];
        let every = Some(work.every);
        let table = Self { every, alone: Some(alone.into_iter().flatten().collect()), ..Self::default() };
        match work.kind {
            Kind::Echo { messages, size, rate, timeout } => Self {
                echo: Some(work.transport),
                messages: Some(messages),
                size: Some(size),
                rate,
                timeout: Some(timeout),
                ..table
            },
            Kind::Stream { time } => Self { stream: Some(work.transport), time: Some(time), ..table },
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_an_agent_is_the_same_work() {
        for text in [
            "echo = \"udp\"\nmessages = 7\nsize = 100\nrate = 2.5\ntimeout = \"1.5s\"\nevery = \"90s\"",
            "stream = \"tcp\"\ntime = \"250ms\"\nalone = [\"rack\"]",
            "echo = \"tcp\"\nalone = []",
        ] {
            let work: Work = toml::from_str(text).unwrap();
            let sent = serde_json::to_string(&work).unwrap();
            let read: Work = serde_json::from_str(&sent).unwrap();
            let of = |work: &Work| (work.kind, work.transport, work.every, work.alone_on_host, work.alone_in_rack);
            assert_eq!(of(&read), of(&work), "{sent}");
        }
        let error = serde_json::from_str::<Work>(r#"{"echo":"udp","run":"rm"}"#).unwrap_err().to_string();
        assert!(error.contains("`run`"), "{error}");
    }
}
