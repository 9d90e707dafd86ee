//! Network AIO: libtautaio beside poll, beside io_uring as it is, and beside glibc's POSIX AIO; and files, by fio.
//!
//! `taut connections` interleaves the engines itself, and its rounds have new servers and connections.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::comparison::{Bar, Comparison, Ratio, outcome};
use super::outcome::Outcome;
use super::process::capture;
use super::setting::Setting;
use crate::shell;

/// Connections of a crowd.
const CONNECTIONS: &str = "10000";
/// Times as long: glibc with a thread for each connection takes seconds for an exchange.
const CROWD_LIMIT: Duration = Duration::from_secs(1800);

/// What is held against what in a crowd.
struct Crowd {
    ours: &'static str,
    peer: &'static str,
    active: u64,
    quantity: Quantity,
    bar: Bar,
    ratio: Ratio,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Quantity {
    RoundTrip,
    Cpu,
}

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let rounds = setting.rounds.to_string();
    let crowd = |engines: &str, active: &str| {
        let arguments = ["connections", "--engines", engines, "--connections", CONNECTIONS, "--active", active];
        setting.taut.run_anywhere(&[&arguments[..], &["--rounds", &rounds]].concat(), CROWD_LIMIT)
    };
    let main = crowd("poll,uring,aio-signal,aio-wait", "1,10,100,1000")?;
    let glibc = crowd("aio-signal,glibc-aio-threads", "1")?;
    let mut cases = Vec::new();
    for (object, wanted) in [(&main, against_poll_and_uring()), (&glibc, against_glibc())] {
        for crowd in wanted {
            cases.push(crowd.case(object)?);
        }
    }
    cases.extend(files(setting)?);
    Ok(outcome(&cases))
}

fn against_poll_and_uring() -> Vec<Crowd> {
    let mut wanted = Vec::new();
    for (active, bar) in [(1, 40.0), (10, 10.0), (100, 2.0), (1000, 0.9)] {
        let (bar, ratio) = (Bar::AtLeast(bar), Ratio::OfTaut);
        wanted.push(Crowd { ours: "aio-signal", peer: "poll", active, quantity: Quantity::RoundTrip, bar, ratio });
    }
    for ours in ["aio-wait", "aio-signal"] {
        for active in [1, 10, 100] {
            let (bar, ratio) = (Bar::AtMost(1.25), Ratio::OfPeer);
            wanted.push(Crowd { ours, peer: "uring", active, quantity: Quantity::RoundTrip, bar, ratio });
        }
        for active in [1, 10, 100, 1000] {
            let bar = match (ours, active) {
                ("aio-wait", 10) => Bar::None,
                ("aio-wait", 100..) => Bar::AtMost(1.2),
                _ => Bar::AtMost(1.5),
            };
            wanted.push(Crowd { ours, peer: "uring", active, quantity: Quantity::Cpu, bar, ratio: Ratio::OfPeer });
        }
    }
    wanted
}

fn against_glibc() -> Vec<Crowd> {
    [(Quantity::RoundTrip, 20.0), (Quantity::Cpu, 30.0)]
        .map(|(quantity, bar)| Crowd {
            ours: "aio-signal",
            peer: "glibc-aio-threads",
            active: 1,
            quantity,
            bar: Bar::AtLeast(bar),
            ratio: Ratio::OfTaut,
        })
        .into()
}

impl Crowd {
    fn case(&self, object: &Value) -> Result<Comparison> {
        let ours = self.quantity.by_round(object, self.ours, self.active)?;
        let peers = self.quantity.by_round(object, self.peer, self.active)?;
        let (quantity, what) = match self.quantity {
            Quantity::RoundTrip => ("rtt_p50_ns", "round trip"),
            Quantity::Cpu => ("cpu_ns_per_message", "CPU a message"),
        };
        Ok(Comparison {
            case: format!("{}, {what}, {} active", self.ours, self.active),
            peer: self.peer,
            quantity,
            unit: ("µs", 1000.0),
            ratio: self.ratio,
            bar: self.bar,
            rounds: ours.into_iter().zip(peers).collect(),
        })
    }
}

impl Quantity {
    /// What each round gave; NaN, which meets no bar, where links starved.
    fn by_round(self, object: &Value, engine: &str, active: u64) -> Result<Vec<f64>> {
        let key = match self {
            Self::RoundTrip => "p50_ns",
            Self::Cpu => "cpu_ns_per_message",
        };
        let rows = object["results"].as_array().context("taut connections has no results")?;
        let row = rows.iter().find(|row| row["engine"] == engine && row["active"] == active);
        let row = row.with_context(|| format!("taut connections has no row of {engine} with {active} active"))?;
        let rounds = row["rounds"].as_array().filter(|rounds| !rounds.is_empty());
        let rounds = rounds.with_context(|| format!("{engine}: {}", row["why_not"]))?;
        Ok(rounds.iter().map(|round| round[key].as_f64().unwrap_or(f64::NAN)).collect())
    }
}

/// One file of 64 MiB, blocks of 4 KiB at random, 16 of them under way.
fn files(setting: &Setting) -> Result<Vec<Comparison>> {
    shell::run(shell::cargo().args(["build", "--release", "--locked", "--package", "tautaio", "--lib"]))?;
    let library = shell::target_dir()?.join("release/libtautaio.so");
    // In the target directory: a temporary one may be in memory.
    let directory = tempfile::Builder::new().prefix("fio-").tempdir_in(shell::target_dir()?)?;
    let file = directory.path().join("file");
    let mut cases = Vec::new();
    for (work, direct) in [("randread", true), ("randread", false), ("randwrite", true), ("randwrite", false)] {
        let how = if direct { "direct" } else { "buffered" };
        let fio = |engine: Fio| engine.run(setting, &file, work, direct);
        let (mut with_glibc, mut with_uring) = (Vec::new(), Vec::new());
        for round in 0..setting.rounds {
            // Each begins in turn, so that none always has the warmer machine.
            let mut engines = [Fio::Ours(library.clone()), Fio::Glibc, Fio::Uring];
            engines.rotate_left(round as usize % 3);
            let mut ours = 0.0;
            let mut glibc = 0.0;
            let mut uring = 0.0;
            for engine in engines {
                match engine {
                    Fio::Ours(_) => ours = fio(engine)?,
                    Fio::Glibc => glibc = fio(engine)?,
                    Fio::Uring => uring = fio(engine)?,
                }
            }
            with_glibc.push((ours, glibc));
            with_uring.push((ours, uring));
        }
        let bar = if work == "randread" && direct { Bar::AtLeast(1.8) } else { Bar::None };
        for (peer, bar, rounds) in [("glibc", bar, with_glibc), ("io_uring", Bar::None, with_uring)] {
            cases.push(Comparison {
                case: format!("fio posixaio, {work} {how}"),
                peer,
                quantity: "operations_per_second",
                unit: ("k/s", 1000.0),
                ratio: Ratio::OfPeer,
                bar,
                rounds,
            });
        }
    }
    Ok(cases)
}

/// Who carries fio's operations out.
#[derive(Clone)]
enum Fio {
    /// fio's posixaio with this library.
    Ours(PathBuf),
    /// fio's posixaio with the C library.
    Glibc,
    /// fio's own engine.
    Uring,
}

impl Fio {
    /// Operations a second.
    fn run(&self, setting: &Setting, file: &Path, work: &str, direct: bool) -> Result<f64> {
        let engine = if matches!(self, Self::Uring) { "io_uring" } else { "posixaio" };
        let mut command = Command::new("fio");
        command
            .args(["--name=bench", "--bs=4k", "--size=64m", "--iodepth=16", "--time_based", "--output-format=json"])
            .arg(format!("--runtime={}ms", setting.time.as_millis()))
            .arg(format!("--ioengine={engine}"))
            .arg(format!("--rw={work}"))
            .arg(format!("--direct={}", u8::from(direct)))
            .arg(format!("--filename={}", file.display()))
            .env_remove("LD_PRELOAD");
        if let Self::Ours(library) = self {
            command.env("LD_PRELOAD", library);
        }
        let text = capture(&mut command, setting.time + Duration::from_secs(60))?;
        rate(&text, if work == "randread" { "read" } else { "write" })
    }
}

fn rate(text: &str, kind: &str) -> Result<f64> {
    // fio says other things in front of it.
    let object = text.get(text.find('{').context("fio printed no JSON")?..).unwrap_or_default();
    let object: Value = serde_json::from_str(object).context("fio printed no JSON")?;
    let job = &object["jobs"][0];
    anyhow::ensure!(job["error"] == 0, "fio: error {}", job["error"]);
    job[kind]["iops"].as_f64().context("fio names no rate")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rounds_are_found_by_engine_and_active() {
        let object = json!({"results": [
            {"engine": "poll", "active": 1, "rounds": [{"p50_ns": 4_000_000, "cpu_ns_per_message": 3.5e6}]},
            {"engine": "aio-signal", "active": 1, "rounds": [{"p50_ns": 20_000, "cpu_ns_per_message": 1.8e4}]},
            {"engine": "aio-signal", "active": 10, "rounds": [], "why_not": "no room"},
        ]});
        let crowd = |active| Crowd {
            ours: "aio-signal",
            peer: "poll",
            active,
            quantity: Quantity::RoundTrip,
            bar: Bar::AtLeast(40.0),
            ratio: Ratio::OfTaut,
        };
        assert_eq!(outcome(&[crowd(1).case(&object).unwrap()]).met, Some(true));
        assert!(crowd(10).case(&object).is_err());
        assert!(crowd(100).case(&object).is_err());
    }

    #[test]
    fn starved_links_meet_no_bar() {
        let object = json!({"results": [{"engine": "poll", "active": 1, "rounds": [{"p50_ns": null}]}]});
        assert!(Quantity::RoundTrip.by_round(&object, "poll", 1).unwrap()[0].is_nan());
    }

    #[test]
    fn fios_rate_is_that_of_its_work() {
        let text = r#"note: both iodepth >= 1
{"jobs": [{"error": 0, "read": {"iops": 57100.5}, "write": {"iops": 0.0}}]}"#;
        assert_eq!(rate(text, "read").unwrap(), 57100.5);
        assert!(rate("fio: failed", "read").is_err());
    }
}
