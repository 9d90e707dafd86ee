//! `cargo run -p taut-air --example trace -- FILE MILLISECONDS [NAME=VALUE…]`: every event of a run, a line each.

use std::error::Error;

use taut_air::{AirEvent, Scenario, Simulation};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file?")?;
    let millis: u64 = arguments.next().ok_or("how many milliseconds?")?.parse()?;
    let mut scenario =
        Scenario::from_toml(&std::fs::read_to_string(&file)?).map_err(|error| format!("{file}: {error}"))?;
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("NAME=VALUE")?;
        scenario.set(name, value)?;
    }
    let mut observer = |event: &AirEvent<'_>| {
        println!("{:>12.3} ms link {} {:?}", event.at.as_nanos() as f64 / 1e6, event.link, event.what)
    };
    println!("{:#?}", Simulation::new(&scenario, 7)?.run(millis * 1_000_000, &mut observer).counters);
    Ok(())
}
