//! Known differences: is each found, and with its sign?

use std::cmp::Ordering;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::command::{Alike, Stage};
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

/// What has to find it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum By {
    /// `taut echo` of both, in turn.
    Echo,
    /// `taut report` of a recording of each.
    Report,
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
}

impl By {
    pub(super) const ALL: [Self; 2] = [Self::Echo, Self::Report];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Report => "report",
        }
    }

    /// The command that `--only` names.
    pub(super) const fn command(self) -> Alike {
        match self {
            Self::Echo => Alike::Echo2,
            Self::Report => Alike::Report,
        }
    }

    /// One run with this difference.
    pub(super) fn look(self, effect: Effect, stage: &Stage<'_>) -> Result<Look> {
        match effect {
            Effect::Waits(percent) => {
                let wait = |micros: u64| stage.taut.serve_on(&["tcp://127.0.0.1:0", "--delay", &format!("{micros}us")]);
                let (base, longer) = (wait(WAIT_US)?, wait(WAIT_US * (100 + percent) / 100)?);
                let both = [base.endpoint(Transport::Tcp)?, longer.endpoint(Transport::Tcp)?];
                // At least ten messages a round.
                let times = self.times(stage, both, &["--time", "700ms", "--place", "same-core"])?;
                Ok(times.look(Some(WAIT_US as f64 * 1e3 * percent as f64 / 100.0)))
            }
            Effect::Hop => {
                let both = [stage.tcp()?, stage.pipe(0)];
                Ok(self.times(stage, both, &["--time", "300ms", "--place", "same-core"])?.look(None))
            }
            Effect::Loses => {
                let to = stage.serving.endpoint(Transport::Udp)?;
                let (whole, lossy) = (Relay::start(to, 0)?, Relay::start(to, 100)?);
                let options = ["--count", "1000", "--timeout", "20ms", "--place", "free"];
                self.losses(stage, [&whole.endpoint, &lossy.endpoint], &options)
            }
        }
    }

    /// Round trips of the second held against those of the first.
    fn times(self, stage: &Stage<'_>, [base, other]: [&str; 2], options: &[&str]) -> Result<Times> {
        match self {
            Self::Echo => Times::of_echo(&echo_of(stage, &[base, other], options)?),
            Self::Report => Times::of_report(&report_of(stage, [base, other], options)?),
        }
    }

    /// What the command says of the losses. Without an interval they are plain as soon as there are enough messages.
    fn losses(self, stage: &Stage<'_>, [whole, lossy]: [&str; 2], options: &[&str]) -> Result<Look> {
        let verdict = match self {
            Self::Echo => losses_of_echo(&echo_of(stage, &[whole, lossy], options)?)?,
            Self::Report => losses_of_report(&report_of(stage, [whole, lossy], options)?)?,
        };
        let is = |wanted| verdict == Some(wanted);
        Ok(Look { is_plain: true, is_found: is(Ordering::Greater), is_wrong: is(Ordering::Less) })
    }
}

fn echo_of(stage: &Stage<'_>, endpoints: &[&str], options: &[&str]) -> Result<Value> {
    stage.taut.run(&[&["echo"], endpoints, options].concat(), LIMIT)
}

fn report_of(stage: &Stage<'_>, both: [&str; 2], options: &[&str]) -> Result<Value> {
    let lines = both.map(|endpoint| [&["echo", endpoint], options].concat());
    stage.report([&lines[0], &lines[1]])
}

/// What a command says of two round trips.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Of the base.
    base_ns: f64,
    ratio: f64,
    interval: [f64; 2],
    /// Which is longer, where it tells.
    verdict: Option<Ordering>,
}

impl Times {
    fn of_echo(object: &Value) -> Result<Self> {
        let compared = &object["results"][1]["compared"];
        Ok(Self {
            base_ns: number(object, "/results/0/rtt_ns/p50")?,
            ratio: number(compared, "/p50_ratio")?,
            interval: [number(compared, "/p50_ratio_ci/0")?, number(compared, "/p50_ratio_ci/1")?],
            verdict: verdict(compared),
        })
    }

    fn of_report(object: &Value) -> Result<Self> {
        let compared = figure(object, "round trip p50")?;
        Ok(Self {
            base_ns: number(compared, "/before")?,
            ratio: number(compared, "/ratio")?,
            interval: [number(compared, "/ratio_ci/0")?, number(compared, "/ratio_ci/1")?],
            verdict: verdict(compared),
        })
    }

    /// The second is longer, by `made_ns` or, where that is not known, by as much as was measured.
    fn look(self, made_ns: Option<f64>) -> Look {
        let effect = made_ns.map_or(self.ratio - 1.0, |made| made / self.base_ns);
        let [low, high] = self.interval;
        Look {
            is_plain: effect >= 2.0 * (high - low),
            is_found: self.verdict == Some(Ordering::Greater),
            is_wrong: self.verdict == Some(Ordering::Less),
        }
    }
}

fn verdict(compared: &Value) -> Option<Ordering> {
    match compared["verdict"].as_str()? {
        "longer" | "more" => Some(Ordering::Greater),
        "shorter" | "less" => Some(Ordering::Less),
        _ => None,
    }
}

/// A figure of the only row of a report.
fn figure<'a>(object: &'a Value, name: &str) -> Result<&'a Value> {
    let figures = object["results"][0]["figures"].as_array().context("taut report compares nothing")?;
    figures.iter().find(|figure| figure["figure"] == name).with_context(|| format!("taut report has no {name}"))
}

fn losses_of_echo(object: &Value) -> Result<Option<Ordering>> {
    let compared = &object["results"][1]["loss_compared"];
    let (mine, other) = (number(compared, "/lost_share")?, number(compared, "/lost_share_of_other")?);
    Ok(mine.partial_cmp(&other).filter(|_| compared["differs"] == true))
}

fn losses_of_report(object: &Value) -> Result<Option<Ordering>> {
    Ok(verdict(figure(object, "lost")?))
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
        self.stop.store(true, Relaxed);
    }
}

/// For clients one after another, each with a socket of its own towards the server.
fn relay(near: &UdpSocket, to: &str, drop_every: u64, is_over: &Arc<AtomicBool>) {
    let mut clients: Vec<(std::net::SocketAddr, UdpSocket)> = Vec::new();
    let mut buffer = vec![0; 65_536];
    while !is_over.load(Relaxed) {
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
    while !is_over.load(Relaxed) {
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

    fn echo(ratio: f64, interval: [f64; 2], verdict: &str) -> Times {
        let compared = json!({"p50_ratio": ratio, "p50_ratio_ci": interval, "verdict": verdict});
        Times::of_echo(&json!({"results": [{"rtt_ns": {"p50": 5e6}}, {"compared": compared}]})).unwrap()
    }

    fn report(ratio: f64, interval: [f64; 2], verdict: &str) -> Times {
        let p50 = json!({"figure": "round trip p50", "before": 5e6, "ratio": ratio, "ratio_ci": interval, "verdict": verdict});
        Times::of_report(&json!({"results": [{"figures": [{"figure": "lost"}, p50]}]})).unwrap()
    }

    #[test]
    fn a_difference_is_plain_when_the_interval_is_half_of_it() {
        for (times, longer, shorter) in [(echo as fn(_, _, _) -> _, "longer", "shorter"), (report, "more", "less")] {
            let look = times(1.02, [1.016, 1.024], longer).look(Some(1e5));
            assert!(look.is_plain && look.is_found && !look.is_wrong);
            let look = times(1.02, [1.0, 1.04], "cannot_tell_apart").look(Some(1e5));
            assert!(!look.is_plain && !look.is_found && !look.is_wrong);
            assert!(times(0.98, [0.97, 0.99], shorter).look(Some(1e5)).is_wrong);
            // Where nobody knows how much was made, what was measured counts.
            assert!(times(1.3, [1.2, 1.34], longer).look(None).is_plain);
        }
    }

    #[test]
    fn losses_are_found_by_what_the_command_says_of_them() {
        let echo = |mine: f64, other: f64, differs: bool| {
            let compared = json!({"lost_share": mine, "lost_share_of_other": other, "differs": differs});
            losses_of_echo(&json!({"results": [{}, {"loss_compared": compared}]})).unwrap()
        };
        assert_eq!(echo(0.01, 0.0, true), Some(Ordering::Greater));
        assert_eq!((echo(0.01, 0.008, false), echo(0.0, 0.01, true)), (None, Some(Ordering::Less)));
        assert!(losses_of_echo(&json!({"results": [{}, {"loss_compared": null}]})).is_err());
        let report = |verdict: &str| {
            let lost = json!({"figure": "lost", "verdict": verdict});
            losses_of_report(&json!({"results": [{"figures": [lost]}]})).unwrap()
        };
        assert_eq!((report("more"), report("cannot_tell_apart")), (Some(Ordering::Greater), None));
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
        // Lost is what has not come when the last answer has, however late that is; all together,
        // they have room in a socket.
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
