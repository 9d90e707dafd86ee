use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use rustix::net::Shutdown;
use taut_link::wire::AckPolicy;
use taut_link::{Error, Result};
use taut_time::Duration;

use super::plan::{EchoPlan, EchoSubject, RunLength, WriteStyle};
use super::run;
use crate::engine::EngineKind;
use crate::interrupt::Interrupt;
use taut_record::ObserverCost;
use taut_record::stats::LEAST_ROUNDS;

/// How much longer a round trip over loopback takes when the writes are observed, for workloads
/// that can't be run without that: measured in turn, in about a fifth of a second.
///
/// # Errors
/// There is no loopback.
pub fn observer_cost(interrupt: &Interrupt) -> Result<Option<ObserverCost>> {
    let fail = |error| Error::Host { what: "measure what observing costs".to_owned(), error };
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    let ending = listener.try_clone().map_err(fail)?;
    // Two links a round, one after the other.
    let echoing = thread::spawn(move || {
        for stream in listener.incoming().take(2 * LEAST_ROUNDS) {
            let Ok(mut stream) = stream else { continue };
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        }
    });
    let plan = EchoPlan {
        rounds: LEAST_ROUNDS,
        limit: RunLength::Time(Duration::from_millis(100)),
        rate_hz: None,
        timeout: Duration::from_secs(1),
        exceed: Vec::new(),
        message_bytes: 32,
        connections: 1,
        plain: true,
    };
    let subject = EchoSubject {
        endpoint: format!("tcp://{address}").parse()?,
        engine: EngineKind::Blocking,
        options: Vec::new(),
        acks: AckPolicy::System,
        writes: WriteStyle::One,
        spot: crate::placement::Spot::default(),
        observe: true,
        command: String::new(),
    };
    let outcome = run(&plan, &[subject], interrupt, &mut |_, _| {});
    // It leaves no thread behind, whatever became of the links that it waits for: no accept(2) waits after this.
    let ended = rustix::net::shutdown(&ending, Shutdown::Both).is_ok() && echoing.join().is_ok();
    debug_assert!(ended, "a listening socket can be shut down, and its thread does not panic");
    let outcome = outcome?;
    Ok(outcome.rows.into_iter().flatten().find_map(|row| row.observer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_observer_has_a_cost_with_an_interval() {
        let cost = observer_cost(&Interrupt::default()).unwrap().unwrap();
        assert!(cost.rounds == LEAST_ROUNDS && cost.p50_ci.is_some(), "{cost:?}");
    }
}
