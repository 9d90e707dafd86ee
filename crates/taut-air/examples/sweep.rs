//! `cargo run --release -p taut-air --example sweep -- FILE SECONDS [NAME=VALUE…] [-- CI…]`: a
//! scenario at several intervals.

use std::error::Error;
use std::time::Instant;

use taut_air::{Scenario, Simulation};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file?")?;
    let seconds: u64 = arguments.next().ok_or("how many seconds?")?.parse()?;
    let mut scenario =
        Scenario::from_toml(&std::fs::read_to_string(&file)?).map_err(|error| format!("{file}: {error}"))?;
    let mut intervals =
        vec!["112.5ms", "50ms", "25ms", "12.5ms", "7.5ms"].into_iter().map(String::from).collect::<Vec<_>>();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            intervals = arguments.by_ref().collect();
            break;
        }
        let (name, value) = argument.split_once('=').ok_or("NAME=VALUE")?;
        scenario.set(name, value)?;
    }
    let (mut events, begun) = (0, Instant::now());
    for ci in intervals {
        scenario.set("ci", &ci)?;
        let mut simulation = Simulation::new(&scenario, 7)?;
        let outcome = simulation.run(seconds * 1_000_000_000, &mut ());
        events += outcome.connection_events;
        assert_eq!(outcome.ledger.total(), outcome.duration_ns);
        println!(
            "{ci:>8}: {:8.1} kb/s of {:.1} ({:.1} quantised), {} events, {:?}, damaged {}, disconnected {:?}",
            outcome.throughput_bps / 1e3,
            outcome.limit_bps / 1e3,
            outcome.quantised_limit_bps / 1e3,
            outcome.connection_events,
            outcome.negotiated,
            outcome.counters.sdus_damaged,
            outcome.disconnected,
        );
        let total = outcome.duration_ns as f64;
        let shares = outcome.ledger.iter().filter(|(_, nanos)| *nanos > 0);
        let shares: Vec<_> = shares
            .map(|(category, nanos)| format!("{} {:.1}%", category.name(), nanos as f64 * 100.0 / total))
            .collect();
        println!("          {}", shares.join(", "));
        println!("          PDUs per event {:?}", &outcome.events_by_data_pdus[..8]);
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{events} connection events in {took:.3} s: {:.0} a second", events as f64 / took);
    Ok(())
}
