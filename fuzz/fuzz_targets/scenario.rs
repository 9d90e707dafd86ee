//! Any text is a scenario whose values are read back the same, or is refused at a place that exists.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_air::{PARAMETERS, Scenario, Simulation};

fuzz_target!(|text: &str| {
    let scenario = match Scenario::from_toml(text) {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(error.line().is_none_or(|line| line <= text.matches('\n').count() + 1), "{error}");
            return;
        }
    };
    let mut again = Scenario { name: scenario.name.clone(), ..Scenario::default() };
    for side in ["central.", "peripheral."] {
        for parameter in PARAMETERS {
            let qualified = format!("{side}{}", parameter.name);
            let name = if scenario.get(&qualified).is_ok() { &qualified } else { parameter.name };
            let value = scenario.get(name).expect("a listed parameter");
            again.set(name, &value).expect("a value as it is printed");
        }
    }
    assert_eq!(again, scenario);
    assert!(Simulation::new(&scenario, 1).is_ok());
});
