//! Files over HTTP on loopback, `taut web` beside busybox httpd, with curl as the client of both.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::comparison::{Bar, Comparison, Ratio, both, outcome};
use super::outcome::Outcome;
use super::process::{Server, Transport, capture, pinned};
use super::setting::Setting;
use crate::shell;

/// The large file, in bytes.
const LARGE: usize = 256 << 20;
/// Requests of a small file in a row, each over a connection of its own, which is all that the peer knows.
const REQUESTS: usize = 500;
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let site = tempfile::tempdir().context("cannot make a directory")?;
    fs::write(site.path().join("large"), vec![7; LARGE])?;
    fs::write(site.path().join("small"), vec![7; 1000])?;
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for round in 0..setting.rounds {
        large.push(both(round, || with_taut(setting, site.path(), rate), || with_peer(setting, site.path(), rate))?);
        small.push(both(
            round,
            || with_taut(setting, site.path(), requests),
            || with_peer(setting, site.path(), requests),
        )?);
    }
    let comparison = |case: &str, quantity, unit, rounds| Comparison {
        case: case.to_owned(),
        peer: "busybox httpd",
        quantity,
        unit,
        ratio: Ratio::OfPeer,
        bar: Bar::None,
        rounds,
    };
    Ok(outcome(&[
        comparison("one file of 256 MiB", "bytes_per_s", ("GB/s", 1e9), large),
        comparison("files of 1 kB, one after another", "requests_per_s", ("/s", 1.0), small),
    ]))
}

fn with_taut(setting: &Setting, site: &Path, measure: Measure) -> Result<f64> {
    let port = Transport::Tcp.free_port()?;
    let mut server = pinned(setting.cores.server, setting.taut.file());
    server.arg("web").arg(site).args(["--quiet", "--on", &format!("tcp://127.0.0.1:{port}")]);
    let _server = Server::start(&mut server, Transport::Tcp, port)?;
    measure(setting, port)
}

fn with_peer(setting: &Setting, site: &Path, measure: Measure) -> Result<f64> {
    let port = Transport::Tcp.free_port()?;
    let program = shell::find("busybox").context("there is no busybox: install busybox-static")?;
    let mut server = pinned(setting.cores.server, program);
    server.args(["httpd", "-f", "-p", &format!("127.0.0.1:{port}"), "-h"]).arg(site);
    let _server = Server::start(&mut server, Transport::Tcp, port)?;
    measure(setting, port)
}

type Measure = fn(&Setting, u16) -> Result<f64>;

/// Bytes per second of the large file, as curl has it.
fn rate(setting: &Setting, port: u16) -> Result<f64> {
    let mut client = pinned(setting.cores.client, "curl");
    client.args(["-sS", "--fail", "-o", "/dev/null", "-w", "%{size_download} %{speed_download}"]);
    let told = capture(client.arg(format!("http://127.0.0.1:{port}/large")), LIMIT)?;
    let (size, speed) = told.split_once(' ').context("curl names no speed")?;
    ensure!(size == LARGE.to_string(), "curl got {size} bytes of {LARGE}");
    speed.trim().parse().with_context(|| format!("curl names no speed: {told}"))
}

/// Requests per second, with the start of the client.
fn requests(setting: &Setting, port: u16) -> Result<f64> {
    let mut client = pinned(setting.cores.client, "curl");
    client.args(["-sS", "--fail", "-H", "Connection: close", "-o", "/dev/null", "-w", "%{size_download}\n"]);
    client.arg(format!("http://127.0.0.1:{port}/small?[1-{REQUESTS}]"));
    let begin = Instant::now();
    let told = capture(&mut client, LIMIT)?;
    let elapsed = begin.elapsed();
    let got = told.lines().filter(|line| *line == "1000").count();
    ensure!(got == REQUESTS, "curl got {got} of {REQUESTS} files");
    Ok(REQUESTS as f64 / elapsed.as_secs_f64())
}
