//! What `taut watch` takes beside 10,000 open connections: its own processor time, as top(1) has it.
//!
//! Both ends of each connection are on this machine, so there are twice as many sockets as on a server with so many
//! clients. Most are idle. Some are busy, some have something unread for all the time, and new ones come and go.
//! Nothing is lost on the way: what grade 2 counts is few.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::outcome::{Outcome, table};
use super::process::Server;
use super::setting::Setting;

/// Open connections.
const CONNECTIONS: usize = 10_000;
/// Of them, those with a round trip every [`ROUND_TRIP`].
const BUSY: usize = 16;
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// And those in which something waits to be read: they are looked at 50 times a second.
const UNREAD: usize = 8;
/// A new connection comes so often, and ends with the next one.
const NEW: Duration = Duration::from_millis(50);
/// Descriptors of this process besides.
const OTHER_FILES: u64 = 200;

/// In percent of a processor.
const BAR: f64 = 1.0;
/// So long is looked at the watch in each round.
const ROUND: Duration = Duration::from_secs(20);
/// Intervals of the watch in one round.
const INTERVALS: u32 = 10;

/// Exit code of a command whose right is missing.
const MISSING: i32 = 4;

/// The server of this bench, a process of its own: each has descriptors for one end.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Accepts for ever, and says so with a byte. The first connections answer, the next ones are not read, and whatever
/// comes after all of them is read to its end.
pub(crate) fn serve(_: &Args) -> Result<()> {
    allow_files()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    let mut held = Vec::with_capacity(CONNECTIONS);
    for number in 0.. {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(b"!")?;
        match number {
            0..BUSY => drop(thread::spawn(move || answer(stream))),
            BUSY..CONNECTIONS => held.push(stream),
            // It is closed at the other end at once.
            _ => drop(stream.read(&mut [0])),
        }
    }
    Ok(())
}

fn answer(mut stream: TcpStream) {
    let mut request = [0; 64];
    while stream.read_exact(&mut request).is_ok() && stream.write_all(&request).is_ok() {}
}

pub(super) fn run(setting: &Setting) -> Result<Outcome> {
    allow_files()?;
    let mut command = Command::new(std::env::current_exe()?);
    let (_server, line) = Server::start_with_line(command.arg("watched"))?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, line.trim().parse().context("the server names no port")?);
    let mut open = (0..CONNECTIONS).map(|_| connect(address)).collect::<Result<Vec<_>>>()?;
    for stream in &mut open[BUSY..][..UNREAD] {
        stream.write_all(b"unread")?;
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = scope.spawn(|| keep_busy(&open[..BUSY], &is_over));
        let new = scope.spawn(|| come_and_go(address, &is_over));
        let measured = grades(setting);
        is_over.store(true, Ordering::Relaxed);
        for thread in [busy, new] {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the connections panicked"))??;
        }
        Ok(outcome(&measured?))
    })
}

/// Each end of all connections has a descriptor.
fn allow_files() -> Result<()> {
    let needed = CONNECTIONS as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < needed) {
        bail!("{CONNECTIONS} connections need {needed} open files (RLIMIT_NOFILE)");
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })?)
}

/// A connection that the server has accepted, and that leaves nothing in TIME-WAIT.
fn connect(address: SocketAddrV4) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

fn keep_busy(streams: &[TcpStream], is_over: &AtomicBool) -> Result<()> {
    let mut message = [1; 64];
    while !is_over.load(Ordering::Relaxed) {
        for mut stream in streams {
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
        thread::sleep(ROUND_TRIP);
    }
    Ok(())
}

fn come_and_go(address: SocketAddrV4, is_over: &AtomicBool) -> Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        let _open = connect(address)?;
        thread::sleep(NEW);
    }
    Ok(())
}

/// What the watch took in one round, and how it looked.
#[derive(Debug)]
struct Round {
    /// Of a processor, from 0 to 1.
    share: f64,
    connections: f64,
    /// From one look at all to the next one, in seconds.
    period: f64,
    /// The same for those in which something waits.
    suspect_period: f64,
    /// Connections of which is told that something waits in them.
    told: f64,
}

/// Each grade that this user may have, with its rounds.
fn grades(setting: &Setting) -> Result<Vec<(u8, Vec<Round>)>> {
    let mut measured = vec![(1, watch(setting, 1)?)];
    if may_count(setting)? {
        measured.push((2, watch(setting, 2)?));
    }
    Ok(measured)
}

/// Whether `taut` may have programs in the kernel.
fn may_count(setting: &Setting) -> Result<bool> {
    let mut command = Command::new(setting.taut.file());
    // Of a port that nobody has.
    command.args(["watch", "--once", "--json", "--every", "500ms", "--port", "1", "--grade", "2"]);
    let output = command.stdin(Stdio::null()).output().context("cannot run taut")?;
    match output.status.code() {
        Some(0) => Ok(true),
        Some(MISSING) => Ok(false),
        _ => bail!("`taut watch --grade 2`: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
    }
}

fn watch(setting: &Setting, grade: u8) -> Result<Vec<Round>> {
    let every = format!("{}ms", (ROUND / INTERVALS).as_millis());
    let mut command = Command::new(setting.taut.file());
    command.args(["watch", "--json", "--every", &every, "--grade", &grade.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut watch = Watch::start(command)?;
    // It has found all programs and options by then, and what waits is known.
    let mut last = watch.interval()?;
    let mut rounds = Vec::new();
    for _ in 0..setting.rounds {
        let (cpu, from) = (watch.cpu()?, Instant::now());
        let (mut looks, mut suspect_looks, mut span_ns) = (0.0, 0.0, 0.0);
        for _ in 0..INTERVALS {
            last = watch.interval()?;
            let number = |key: &str| last[key].as_f64().with_context(|| format!("an interval has no {key}"));
            looks += number("looks")?;
            suspect_looks += number("suspect_looks")?;
            span_ns += number("span_ns")?;
        }
        let unread = last["losses"].as_array().into_iter().flatten().filter(|loss| loss["cause"] == "unread");
        rounds.push(Round {
            share: (watch.cpu()? - cpu) / from.elapsed().as_secs_f64(),
            connections: last["connections"].as_f64().unwrap_or(0.0),
            period: span_ns / 1e9 / looks,
            suspect_period: span_ns / 1e9 / (looks + suspect_looks),
            told: unread.filter_map(|loss| loss["connections"].as_f64()).sum(),
        });
    }
    Ok(rounds)
}

/// `taut watch`, ended when dropped.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watch {
    fn start(mut command: Command) -> Result<Self> {
        let mut child = command.spawn().context("cannot run taut")?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { child, lines })
    }

    fn interval(&mut self) -> Result<Value> {
        let line = self.lines.next().context("taut watch ended")??;
        serde_json::from_str(&line).with_context(|| format!("taut watch printed no JSON: {line}"))
    }

    /// Its processor time so far, in seconds.
    fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).context("taut watch ended")?;
        let ticks = ticks(&stat).context("/proc/PID/stat has no times")?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

/// User and system time of a process (proc_pid_stat(5)).
fn ticks(stat: &str) -> Option<u64> {
    // Its name may have spaces and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

fn outcome(measured: &[(u8, Vec<Round>)]) -> Outcome {
    let row = |grade: u8, number: usize, round: &Round| {
        vec![
            grade.to_string(),
            (number + 1).to_string(),
            format!("{:.2} %", 100.0 * round.share),
            format!("{:.0}", round.connections),
            if round.period.is_finite() { format!("{:.2} s", round.period) } else { "no look".to_owned() },
            format!("{:.0} ms", 1000.0 * round.suspect_period),
            format!("{:.0} of {UNREAD}", round.told),
        ]
    };
    let header = ["grade", "round", "of a processor", "ends", "all every", "suspects every", "unread"];
    let of_grade = |(grade, rounds): &(u8, Vec<Round>)| -> Vec<Vec<String>> {
        rounds.iter().enumerate().map(|(number, round)| row(*grade, number, round)).collect()
    };
    let mut text = table(&header, &measured.iter().flat_map(of_grade).collect::<Vec<_>>());
    let mut is_met = !measured.is_empty();
    for (grade, rounds) in measured {
        // A look at all is so rare that it is in some rounds and not in others: the time of all of them counts.
        let share = rounds.iter().map(|round| round.share).sum::<f64>() / rounds.len().max(1) as f64;
        let is_told = rounds.iter().all(|round| round.told >= UNREAD as f64);
        let is_kept = !rounds.is_empty() && 100.0 * share <= BAR && is_told;
        is_met &= is_kept;
        text += &format!(
            "\n{CONNECTIONS} connections, both ends here, grade {grade}: {:.2} % of a processor in all; bar <= {BAR} %, \
             and what is unread told: {}",
            100.0 * share,
            if is_kept { "met" } else { "MISSED" }
        );
    }
    if measured.iter().all(|(grade, _)| *grade < 2) {
        text += "\ngrade 2 is left out: it takes root, or CAP_BPF and CAP_PERFMON";
    }
    let all = measured.iter().flat_map(|(grade, rounds)| rounds.iter().map(move |round| (grade, round)));
    let json = all.map(|(grade, round)| {
        json!({
            "grade": grade,
            "processor_share": round.share,
            "ends": round.connections,
            "look_period_s": round.period,
            "suspect_look_period_s": round.suspect_period,
            "unread_connections": round.told,
        })
    });
    Outcome { text, json: json.collect(), met: Some(is_met) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_read_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 90 0 0 0 31 11 5 6 20 0 1 0";
        assert_eq!((ticks(stat), ticks("7 (a) S 1")), (Some(42), None));
    }

    #[test]
    fn all_rounds_together_keep_to_the_bar_and_each_tells_all() {
        let round = |share, told| Round { share, connections: 2e4, period: 5.0, suspect_period: 0.02, told };
        let first = |rounds: Vec<Round>| outcome(&[(1, rounds)]);
        let met = |rounds: Vec<Round>| first(rounds).met;
        assert_eq!(met(vec![round(0.005, 8.0), round(0.014, 8.0)]), Some(true));
        assert_eq!(met(vec![round(0.005, 8.0), round(0.016, 8.0)]), Some(false));
        assert_eq!((met(vec![round(0.005, 8.0), round(0.005, 7.0)]), met(Vec::new())), (Some(false), Some(false)));
        assert!(first(vec![round(0.005, 8.0)]).text.contains("grade 2 is left out"));
        // Each grade keeps to it by itself.
        let both = |of_second| outcome(&[(1, vec![round(0.002, 8.0)]), (2, vec![round(of_second, 8.0)])]);
        assert_eq!((both(0.009).met, both(0.012).met, outcome(&[]).met), (Some(true), Some(false), Some(false)));
        assert!(!both(0.009).text.contains("left out"));
    }
}
