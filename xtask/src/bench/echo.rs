//! Round trips of 32 B over loopback, `taut echo` beside sockperf.

use std::time::Duration;

use anyhow::{Context, Result};

use super::comparison::{Bar, Comparison, Ratio, both, outcome};
use super::outcome::Outcome;
use super::process::{Server, Transport, capture, pinned};
use super::setting::Setting;
use super::taut;

/// Times the peer's median round trip.
const BAR: Bar = Bar::AtMost(1.05);
const SIZE: &str = "32";

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let case = |transport: Transport| Comparison {
        case: format!("{} {SIZE} B", transport.name()),
        peer: "sockperf",
        quantity: "rtt_p50_ns",
        unit: ("µs", 1000.0),
        ratio: Ratio::OfPeer,
        bar: BAR,
        rounds: Vec::new(),
    };
    let mut cases = [Transport::Tcp, Transport::Udp].map(|transport| (transport, case(transport)));
    for round in 0..setting.rounds {
        for (transport, case) in &mut cases {
            let pair = both(round, || taut_rtt(setting, *transport), || sockperf_rtt(setting, *transport))?;
            case.rounds.push(pair);
        }
    }
    Ok(outcome(&cases.map(|(_, case)| case)))
}

fn taut_rtt(setting: &Setting, transport: Transport) -> Result<f64> {
    let serving = setting.taut.serve()?;
    let time = format!("{}ms", setting.time.as_millis());
    let endpoint = serving.endpoint(transport)?;
    let arguments = ["echo", endpoint, "--size", SIZE, "--time", &time, "--rounds", "1", "--place", "free"];
    let object = setting.taut.run(&arguments, setting.time + Duration::from_secs(30))?;
    taut::number(&object, "/results/0/rtt_ns/p50")
}

fn sockperf_rtt(setting: &Setting, transport: Transport) -> Result<f64> {
    let port = transport.free_port()?;
    let address = ["-i", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
    let tcp: &[&str] = if transport == Transport::Tcp { &["--tcp"] } else { &[] };
    let mut server = pinned(setting.cores.server, "sockperf");
    let _server = Server::start(server.arg("server").args(&address).args(tcp), transport, port)?;
    let mut client = pinned(setting.cores.client, "sockperf");
    // Whole seconds are all that it takes.
    let seconds = setting.time.as_secs().max(1);
    client.arg("ping-pong").args(&address).args(tcp).args(["--msg-size", SIZE, "-t", &seconds.to_string()]);
    let text = capture(&mut client, setting.time + Duration::from_secs(30))?;
    median_rtt(&text).context("sockperf printed no median")
}

/// The median round trip in ns. sockperf prints half of the round trip, in µs.
fn median_rtt(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("percentile 50.000"))?;
    let half_us: f64 = line.rsplit_once('=')?.1.trim().parse().ok()?;
    Some(half_us * 2.0 * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_round_trip_is_doubled() {
        let text = "sockperf: ---> percentile 75.000 =    2.700\nsockperf: ---> percentile 50.000 =    2.654\n";
        assert_eq!(median_rtt(text), Some(5308.0));
        assert_eq!(median_rtt("sockperf: No messages were received"), None);
    }
}
