//! Known differences: is each found, and with its sign?

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::command::Stage;
use crate::bench::process::Transport;
use crate::bench::taut::number;

/// A difference that is made on purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    /// A server waits longer before each answer, by so many percent of 5 ms.
    Waits(u64),
    /// One of a hundred datagrams is thrown away on the way back.
    Loses,
    /// A `taut pipe` stands between.
    Hop,
}

/// What one run says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The difference is at least twice as wide as the interval that is printed.
    pub(super) is_plain: bool,
    pub(super) is_found: bool,
    /// The opposite was found.
    pub(super) is_wrong: bool,
}

const WAIT_US: u64 = 5000;
const LIMIT: Duration = Duration::from_secs(120);

impl Effect {
    pub(super) const ALL: [Self; 5] = [Self::Waits(2), Self::Waits(5), Self::Waits(20), Self::Loses, Self::Hop];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Waits(2) => "a server waits 2 % longer",
            Self::Waits(5) => "a server waits 5 % longer",
            Self::Waits(_) => "a server waits 20 % longer",
            Self::Loses => "1 % of the datagrams lost",
            Self::Hop => "one more hop (taut pipe)",
        }
    }

    pub(super) fn look(self, stage: &Stage<'_>) -> Result<Look> {
        match self {
            Self::Waits(percent) => {
                let wait = |micros: u64| stage.taut.serve_on(&["tcp://127.0.0.1:0", "--delay", &format!("{micros}us")]);
                let (base, longer) = (wait(WAIT_US)?, wait(WAIT_US * (100 + percent) / 100)?);
                let [base, longer] = [base.endpoint(Transport::Tcp)?, longer.endpoint(Transport::Tcp)?];
                // At least ten messages a round.
                let object =
                    stage.taut.run(&["echo", base, longer, "--time", "700ms", "--place", "same-core"], LIMIT)?;
                let p50 = number(&object, "/results/0/rtt_ns/p50")?;
                let made = WAIT_US as f64 * 1e3 * percent as f64 / 100.0 / p50;
                times(&object, Some(made))
            }
            Self::Hop => {
                let object = stage
                    .taut
                    .run(&["echo", stage.tcp()?, stage.pipe(0), "--time", "300ms", "--place", "same-core"], LIMIT)?;
                times(&object, None)
            }
            Self::Loses => {
                let to = stage.serving.endpoint(Transport::Udp)?;
                let (whole, lossy) = (Relay::start(to, 0)?, Relay::start(to, 100)?);
                let line = [
                    "echo",
                    &whole.endpoint,
                    &lossy.endpoint,
                    "--count",
                    "1000",
                    "--timeout",
                    "20ms",
                    "--place",
                    "free",
                ];
                losses(&stage.taut.run(&line, LIMIT)?)
            }
        }
    }
}

/// The second is longer, by `made` (0.02 for 2 %) or, where that is not known, by as much as was measured.
fn times(object: &Value, made: Option<f64>) -> Result<Look> {
    let compared = &object["results"][1]["compared"];
    let ratio = number(compared, "/p50_ratio")?;
    let (low, high) = (number(compared, "/p50_ratio_ci/0")?, number(compared, "/p50_ratio_ci/1")?);
    let effect = made.unwrap_or(ratio - 1.0);
    let verdict = compared["verdict"].as_str().unwrap_or_default();
    Ok(Look { is_plain: effect >= 2.0 * (high - low), is_found: verdict == "longer", is_wrong: verdict == "shorter" })
}

/// The second loses, the first does not. Without an interval, it is plain as soon as there are enough messages.
fn losses(object: &Value) -> Result<Look> {
    let lost = |row: usize| number(object, &format!("/results/{row}/lost"));
    let (whole, lossy) = (lost(0)?, lost(1)?);
    Ok(Look { is_plain: true, is_found: lossy > whole, is_wrong: whole > lossy })
}

/// Datagrams there and back through this process, without one of so many of those that come back.
struct Relay {
    endpoint: String,
    stop: Arc<AtomicBool>,
}

impl Relay {
    /// `drop_every` 0 drops none.
    fn start(to: &str, drop_every: u64) -> Result<Self> {
        let to = to.strip_prefix("udp://").context("no UDP endpoint")?.to_owned();
        let near = UdpSocket::bind("127.0.0.1:0")?;
        near.set_read_timeout(Some(Duration::from_millis(100)))?;
        let endpoint = format!("udp://{}", near.local_addr()?);
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        thread::spawn(move || relay(&near, &to, drop_every, &is_over));
        Ok(Self { endpoint, stop })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// For clients one after another, each with a socket of its own towards the server.
fn relay(near: &UdpSocket, to: &str, drop_every: u64, is_over: &Arc<AtomicBool>) {
    let mut clients: Vec<(std::net::SocketAddr, UdpSocket)> = Vec::new();
    let mut buffer = vec![0; 65_536];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((length, from)) = near.recv_from(&mut buffer) else { continue };
        if !clients.iter().any(|(client, _)| *client == from) {
            let (Ok(far), Ok(back)) = (UdpSocket::bind("127.0.0.1:0"), near.try_clone()) else { continue };
            let (Ok(()), Ok(reader)) = (far.connect(to), far.try_clone()) else { continue };
            let is_over = Arc::clone(is_over);
            thread::spawn(move || answers(&reader, &back, from, drop_every, &is_over));
            clients.push((from, far));
        }
        if let Some((_, far)) = clients.iter().find(|(client, _)| *client == from) {
            let _ = far.send(&buffer[..length]);
        }
    }
}

fn answers(far: &UdpSocket, near: &UdpSocket, client: std::net::SocketAddr, drop_every: u64, is_over: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    let mut answered = 0u64;
    let _ = far.set_read_timeout(Some(Duration::from_millis(100)));
    while !is_over.load(Ordering::Relaxed) {
        let Ok(length) = far.recv(&mut buffer) else { continue };
        answered += 1;
        if drop_every == 0 || answered % drop_every != drop_every / 2 {
            let _ = near.send_to(&buffer[..length], client);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compared(ratio: f64, interval: [f64; 2], verdict: &str) -> Value {
        json!({"results": [{}, {"compared": {"p50_ratio": ratio, "p50_ratio_ci": interval, "verdict": verdict}}]})
    }

    #[test]
    fn a_difference_is_plain_when_the_interval_is_half_of_it() {
        let look = times(&compared(1.02, [1.016, 1.024], "longer"), Some(0.02)).unwrap();
        assert!(look.is_plain && look.is_found && !look.is_wrong);
        let look = times(&compared(1.02, [1.0, 1.04], "cannot_tell_apart"), Some(0.02)).unwrap();
        assert!(!look.is_plain && !look.is_found && !look.is_wrong);
        assert!(times(&compared(0.98, [0.97, 0.99], "shorter"), Some(0.02)).unwrap().is_wrong);
    }

    #[test]
    fn losses_speak_for_themselves() {
        let rows = |whole, lossy| json!({"results": [{"lost": whole}, {"lost": lossy}]});
        assert!(losses(&rows(0, 9)).unwrap().is_found);
        assert!(losses(&rows(3, 0)).unwrap().is_wrong);
    }

    #[test]
    fn the_relay_drops_one_of_a_hundred_answers() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&buffer[..length], from);
            }
        });
        let relay = Relay::start(&format!("udp://{address}"), 100).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(relay.endpoint.strip_prefix("udp://").unwrap()).unwrap();
        // Lost is what has not come when the last answer has, however late that is; all together, they have room in a socket.
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let last = 200;
        for number in 0..=last {
            client.send(&[number]).unwrap();
        }
        let mut answer = [0; 8];
        let mut came = Vec::new();
        while came.last() != Some(&last) {
            client.recv(&mut answer).unwrap();
            came.push(answer[0]);
        }
        let lost: Vec<u8> = (0..=last).filter(|number| !came.contains(number)).collect();
        assert!(matches!(lost[..], [one, other] if other - one == 100), "{lost:?}");
    }
}
