//! Scenarios of the radio: built in or from files, with what the command line sets in them.

use std::path::Path;

use taut_link::Error;
use taut_measure::air::{AirPlan, Scenario, ScenarioError};
use taut_record::AirSetting;
use taut_time::Duration;

use crate::input;

/// The scenario that is run when none is named.
pub(crate) const DEFAULT: &str = "paper-000";

/// Where chance begins unless told otherwise.
pub(crate) const SEED: u64 = 7;

/// The scenarios that are built in, by name.
const BUILT_IN: [(&str, &str); 3] = [
    ("paper-000", include_str!("../../../scenarios/paper-000.toml")),
    ("saturate", include_str!("../../../scenarios/saturate.toml")),
    ("two-nodes", include_str!("../../../scenarios/two-nodes.toml")),
];

/// A plan for a scenario, a file or else one that is built in, with parameters set in it.
pub(crate) fn plan(file: &str, set: &[(String, String)], time: Duration, seed: u64) -> anyhow::Result<AirPlan> {
    let plan = AirPlan { file: file.to_owned(), scenario: read(file)?, set: Vec::new(), time, seed };
    let set: Vec<AirSetting> =
        set.iter().map(|(name, value)| AirSetting { name: name.clone(), value: value.clone() }).collect();
    plan.with(&set).map_err(|error| wrong("--set", &error))
}

/// A scenario whose parameters are wrong, as an error of whoever wrote them.
pub(crate) fn wrong(place: &str, error: &ScenarioError) -> anyhow::Error {
    let place = match (error.line(), error.column()) {
        (Some(line), Some(column)) => format!("{place}:{line}:{column}"),
        _ => place.to_owned(),
    };
    Error::Input(format!("{place}: {}", error.message())).into()
}

fn read(file: &str) -> anyhow::Result<Scenario> {
    let path = Path::new(file);
    let built_in = BUILT_IN.iter().find(|(name, _)| *name == file).filter(|_| !path.exists());
    let text = match built_in {
        Some((_, text)) => (*text).to_owned(),
        None => input::text_of(path).map_err(|error| {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            Error::Input(format!("read the scenario {file} (built in are: {}): {error}", names.join(", ")))
        })?,
    };
    Scenario::from_toml(&text).map_err(|error| wrong(file, &error))
}
