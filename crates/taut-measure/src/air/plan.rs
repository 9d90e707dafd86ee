use taut_air::{Scenario, ScenarioError};
use taut_time::Duration;

use taut_record::AirSetting;

/// A run to be made.
#[derive(Clone, Debug)]
pub struct AirPlan {
    /// What the scenario was read from, as on the command line.
    pub file: String,
    /// The scenario, with `set` in force.
    pub scenario: Scenario,
    /// What was set in it, in order.
    pub set: Vec<AirSetting>,
    /// Virtual time.
    pub time: Duration,
    /// Where chance begins.
    pub seed: u64,
}

impl AirPlan {
    /// The plan with further parameters set; those set before keep their place.
    ///
    /// # Errors
    ///
    /// When a name or value is not known, or the parameters do not fit each other.
    pub fn with(&self, set: &[AirSetting]) -> Result<Self, ScenarioError> {
        let mut plan = self.clone();
        for setting in set {
            plan.scenario.set(&setting.name, &setting.value)?;
            match plan.set.iter_mut().find(|earlier| earlier.name == setting.name) {
                Some(earlier) => earlier.value.clone_from(&setting.value),
                None => plan.set.push(setting.clone()),
            }
        }
        plan.scenario.check()?;
        Ok(plan)
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        let mut command = format!("taut air run {}", quoted(&self.file));
        for AirSetting { name, value } in &self.set {
            command.push_str(&format!(" --set {}", quoted(&format!("{name}={value}"))));
        }
        command.push_str(&format!(" --time {} --seed {}", seconds(self.time), self.seed));
        command
    }

    /// The link as an endpoint: `air:paper-000?ci=15ms&seed=7`.
    pub fn endpoint(&self) -> String {
        let set: String = self.set.iter().map(|set| format!("{}={}&", set.name, set.value)).collect();
        format!("air:{}?{set}seed={}", self.file, self.seed)
    }

    pub(super) fn time_ns(&self) -> u64 {
        u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn seconds(time: Duration) -> String {
    let nanos = time.as_nanos();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanos.is_multiple_of(unit) {
            return format!("{}{name}", nanos / unit);
        }
    }
    format!("{nanos}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, value: &str) -> AirSetting {
        AirSetting { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn a_later_value_takes_the_place_of_an_earlier_one() {
        let plan = AirPlan {
            file: "my file.toml".to_owned(),
            scenario: Scenario::default(),
            set: Vec::new(),
            time: Duration::from_millis(2500),
            seed: 7,
        };
        let plan = plan.with(&[setting("ci", "15ms"), setting("receiver.credits", "window(9)")]).unwrap();
        let plan = plan.with(&[setting("ci", "30ms")]).unwrap();
        assert_eq!(plan.scenario.ci, 30_000_000);
        assert_eq!(
            plan.command(),
            "taut air run 'my file.toml' --set ci=30ms --set 'receiver.credits=window(9)' --time 2500ms --seed 7"
        );
        assert!(plan.with(&[setting("ci", "31ns")]).is_err() && plan.with(&[setting("speed", "1")]).is_err());
    }
}
