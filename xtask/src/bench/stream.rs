//! Throughput of one TCP connection over loopback, `taut stream` beside iperf3.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::comparison::{Bar, Comparison, Ratio, both, outcome};
use super::outcome::Outcome;
use super::process::{Server, Transport, capture, pinned};
use super::setting::Setting;
use super::taut;

/// Times the peer's throughput.
const BAR: Bar = Bar::AtLeast(0.97);

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let mut rounds = Vec::new();
    for round in 0..setting.rounds {
        rounds.push(both(round, || taut_rate(setting), || iperf_rate(setting))?);
    }
    Ok(outcome(&[Comparison {
        case: "tcp, one connection".to_owned(),
        peer: "iperf3",
        quantity: "throughput_bps",
        unit: ("Gbit/s", 1e9),
        ratio: Ratio::OfPeer,
        bar: BAR,
        rounds,
    }]))
}

fn taut_rate(setting: &Setting) -> Result<f64> {
    let serving = setting.taut.serve()?;
    let time = format!("{}ms", setting.time.as_millis());
    let arguments = ["stream", serving.endpoint(Transport::Tcp)?, "--time", &time, "--rounds", "1", "--place", "free"];
    let object = setting.taut.run(&arguments, setting.time + Duration::from_secs(30))?;
    taut::number(&object, "/results/0/throughput_bps")
}

fn iperf_rate(setting: &Setting) -> Result<f64> {
    let port = Transport::Tcp.free_port()?;
    let number = port.to_string();
    let mut server = pinned(setting.cores.server, "iperf3");
    let server = server.args(["-s", "-1", "-B", "127.0.0.1", "-p", &number]);
    let _server = Server::start(server, Transport::Tcp, port)?;
    let mut client = pinned(setting.cores.client, "iperf3");
    // Whole seconds are all that it takes.
    let seconds = setting.time.as_secs().max(1).to_string();
    client.args(["-c", "127.0.0.1", "-p", &number, "-t", &seconds, "-J"]);
    received_rate(&capture(&mut client, setting.time + Duration::from_secs(30))?)
}

/// What the receiver counted, in bit/s.
fn received_rate(text: &str) -> Result<f64> {
    let object: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    let rate = object.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    rate.context("iperf3 names no received rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_rate_counts() {
        let text = r#"{"end": {"sum_sent": {"bits_per_second": 9.0}, "sum_received": {"bits_per_second": 8.5}}}"#;
        assert_eq!(received_rate(text).unwrap(), 8.5);
        assert!(received_rate(r#"{"error": "unable to connect to server"}"#).is_err());
    }
}
