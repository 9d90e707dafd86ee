//! Round trips of 32 B through a broker and back to the same connection: `taut echo --plain` beside frames that are
//! there before they are sent, over a bare socket, and beside the clients that programs in Rust use. Mosquitto with
//! quality of service 1, and nats-server; Nagle's algorithm is off at both ends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::comparison::{Bar, Comparison, Ratio, outcome};
use super::outcome::Outcome;
use super::process::{Server, Transport, capture, pinned};
use super::setting::Setting;
use super::taut;
use crate::shell;

/// Times what the same frames take over a bare socket.
const OWN_COST: Bar = Bar::AtMost(1.1);
/// Times another client's median.
const BESIDE: Bar = Bar::AtMost(1.0);
const SIZE: &str = "32";

/// A broker, and those who are held beside `taut` with it.
#[derive(Clone, Copy)]
struct Broker {
    case: &'static str,
    bare: &'static str,
    library: &'static str,
}

const MQTT: Broker = Broker { case: "MQTT, QoS 1", bare: "bare-mqtt", library: "rumqttc" };
const NATS: Broker = Broker { case: "core NATS", bare: "bare-nats", library: "async-nats" };

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let clients = build()?;
    let mut cases = Vec::new();
    for broker in [MQTT, NATS] {
        let (mut own, mut beside) = (Vec::new(), Vec::new());
        for round in 0..setting.rounds {
            let running = start(setting, broker)?;
            let by_client = |client: &str| other_rtt(setting, &clients, client, running.port);
            let taut = || taut_rtt(setting, broker, running.port);
            // Each of the three is first in its turn, and none has always the same one before it.
            let [taut, bare, library] =
                in_turn(round, [&taut, &|| by_client(broker.bare), &|| by_client(broker.library)])?;
            own.push((taut, bare));
            beside.push((taut, library));
        }
        let comparison = |peer, bar, rounds| Comparison {
            case: format!("{} {SIZE} B", broker.case),
            peer,
            quantity: "rtt_p50_ns",
            unit: ("µs", 1000.0),
            ratio: Ratio::OfPeer,
            bar,
            rounds,
        };
        cases.push(comparison("bare frames", OWN_COST, own));
        cases.push(comparison(broker.library, BESIDE, beside));
    }
    Ok(outcome(&cases))
}

/// Measures all of a round, another one first each time, and backwards in every second one.
fn in_turn<const N: usize>(round: u32, measures: [&dyn Fn() -> Result<f64>; N]) -> Result<[f64; N]> {
    let mut values = [f64::NAN; N];
    for place in 0..N {
        let step = if round.is_multiple_of(2) { place } else { N - 1 - place };
        let index = (step + round as usize) % N;
        values[index] = measures[index]()?;
    }
    Ok(values)
}

struct Running {
    port: u16,
    _server: Server,
    _directory: tempfile::TempDir,
}

fn start(setting: &Setting, broker: Broker) -> Result<Running> {
    let port = Transport::Tcp.free_port()?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let mut command = if broker.case == MQTT.case {
        let file = directory.path().join("mosquitto.conf");
        // Root becomes the user `mosquitto` unless told otherwise, and could not read the directory then.
        let lines = format!("listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nuser root\n");
        std::fs::write(&file, lines)?;
        let mut command = pinned(setting.cores.server, program("mosquitto")?);
        command.arg("-c").arg(file);
        command
    } else {
        let mut command = pinned(setting.cores.server, program("nats-server")?);
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
        command
    };
    let server = Server::start(&mut command, Transport::Tcp, port)?;
    Ok(Running { port, _server: server, _directory: directory })
}

/// Brokers are where programs of administrators are, which need not be in the path.
fn program(name: &str) -> Result<PathBuf> {
    let beside = Some(PathBuf::from("/usr/sbin").join(name)).filter(|file| file.is_file());
    shell::find(name).or(beside).with_context(|| format!("there is no {name}"))
}

fn taut_rtt(setting: &Setting, broker: Broker, port: u16) -> Result<f64> {
    let endpoint = if broker.case == MQTT.case {
        // The version that the others speak, too: a packet of MQTT 5 is another one.
        format!("mqtt://127.0.0.1:{port}/taut?qos=1&v=3")
    } else {
        format!("nats://127.0.0.1:{port}/taut")
    };
    let time = format!("{}ms", setting.time.as_millis());
    let arguments = ["echo", &endpoint, "--plain", "--opt", "nodelay", "--size", SIZE, "--time", &time];
    let arguments = [&arguments[..], &["--rounds", "1", "--place", "free"]].concat();
    let object = setting.taut.run(&arguments, setting.time + Duration::from_secs(30))?;
    taut::number(&object, "/results/0/rtt_ns/p50")
}

fn other_rtt(setting: &Setting, clients: &PathBuf, client: &str, port: u16) -> Result<f64> {
    let mut command = pinned(setting.cores.client, clients);
    command.args([client, &format!("127.0.0.1:{port}"), &setting.time.as_millis().to_string()]);
    let text = capture(&mut command, setting.time + Duration::from_secs(30))?;
    median(&text).with_context(|| format!("{client} printed no median: {text}"))
}

/// The median in ns, before the number of round trips.
fn median(text: &str) -> Option<f64> {
    text.split_once(' ')?.0.parse().ok()
}

/// Builds the other clients, apart from this workspace as fuzz targets are.
fn build() -> Result<PathBuf> {
    eprintln!("building the other clients");
    let directory = shell::target_dir()?.join("broker-clients");
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--locked", "--manifest-path", "xtask/broker-clients/Cargo.toml"]);
    shell::run(cargo.arg("--target-dir").arg(&directory))?;
    Ok(directory.join("release/broker-clients"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_is_first_in_its_turn_and_keeps_its_place_in_the_answer() {
        let mut orders = Vec::new();
        for round in 0..6 {
            let order = RefCell::new(String::new());
            let say = |name, value| {
                order.borrow_mut().push(name);
                Ok(value)
            };
            let values = in_turn(round, [&|| say('t', 1.0), &|| say('b', 2.0), &|| say('l', 3.0)]).unwrap();
            assert_eq!(values, [1.0, 2.0, 3.0]);
            orders.push(order.into_inner());
        }
        assert_eq!(orders, ["tbl", "tlb", "ltb", "lbt", "blt", "btl"]);
    }

    #[test]
    fn a_median_is_read() {
        assert_eq!(median("48210 41000\n"), Some(48_210.0));
        assert_eq!(median(""), None);
    }
}
