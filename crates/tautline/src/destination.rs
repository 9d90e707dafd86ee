//! Where a workload goes: to a real endpoint, or over a simulated link (`air:paper-000?ci=15ms&seed=7`).

use std::fmt;
use std::str::FromStr;

use taut_link::{Endpoint, Error};
use taut_measure::air::AirPlan;
use taut_time::Duration;

use crate::scenario;

/// What may stand for an ENDPOINT in commands that also run in virtual time.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// Sockets of this host.
    Endpoint(Endpoint),
    /// A simulated link: scenario, parameters set in it, and seed.
    Air { file: String, set: Vec<(String, String)>, seed: u64 },
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("air:") else {
            return text.parse().map(Self::Endpoint).map_err(|error: Error| error.to_string());
        };
        let hint = || format!("`{text}`: write air:SCENARIO?NAME=VALUE&…&seed=N, such as air:paper-000?ci=15ms");
        let (file, query) = rest.split_once('?').unwrap_or((rest, ""));
        let file = if file.is_empty() { scenario::DEFAULT } else { file }.to_owned();
        let (mut set, mut seed) = (Vec::new(), scenario::SEED);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').ok_or_else(hint)? {
                ("seed", value) => seed = value.parse().map_err(|_| hint())?,
                (name, value) => set.push((name.to_owned(), value.to_owned())),
            }
        }
        Ok(Self::Air { file, set, seed })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint) => endpoint.fmt(f),
            Self::Air { file, .. } => write!(f, "air:{file}"),
        }
    }
}

impl Destination {
    /// The real endpoint, if it is one.
    pub(crate) const fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            Self::Air { .. } => None,
        }
    }

    /// The simulated link, if it is one.
    pub(crate) fn air(&self) -> anyhow::Result<Option<AirPlan>> {
        match self {
            Self::Endpoint(_) => Ok(None),
            Self::Air { file, set, seed } => scenario::plan(file, set, Duration::ZERO, *seed).map(Some),
        }
    }
}

/// Options that mean nothing in virtual time, by name, with whether each was given.
pub(crate) fn refuse_in_virtual_time(given: &[(&str, bool)]) -> anyhow::Result<()> {
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Error::Input(format!("{name} means nothing on an air: endpoint: leave it out")).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_link_has_a_scenario_parameters_and_a_seed() {
        let Ok(Destination::Air { file, set, seed }) =
            "air:paper-000?ci=15ms&receiver.credits=batch(8,2)&seed=9".parse()
        else {
            panic!("not air")
        };
        assert_eq!((file.as_str(), seed), ("paper-000", 9));
        assert_eq!(set[1], ("receiver.credits".to_owned(), "batch(8,2)".to_owned()));
        assert!(matches!("air:".parse(), Ok(Destination::Air { file, .. }) if file == scenario::DEFAULT));
        assert!(matches!("tcp://127.0.0.1:1".parse(), Ok(Destination::Endpoint(_))));
        assert!("air:x?ci".parse::<Destination>().is_err() && "air:x?seed=y".parse::<Destination>().is_err());
        // A host alone has the usual port of TCP.
        assert!(matches!("127.0.0.1".parse(), Ok(Destination::Endpoint(_))));
    }
}
