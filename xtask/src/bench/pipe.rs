//! `taut pipe` beside socat: bulk and small messages between two TCP connections, and the memory of many clients.
//!
//! The pipe under test is pinned to one core, all that feeds and drains it to another. CPU time is
//! the scheduler's account of the process (`/proc/PID/task/*/schedstat`), memory its proportional
//! share (`smaps_rollup`), with all its children.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::comparison::{Bar, Comparison, Ratio, outcome};
use super::outcome::{Outcome, median};
use super::process::{Server, Transport, pinned};
use super::relay::Design;
use super::setting::Setting;

/// Connections at once, where memory is measured.
const CLIENTS: usize = 1000;
/// Connections at once, where each has a message under way.
const TALKERS: usize = 64;
/// Longest wait for bytes that should come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What joins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tool {
    Taut,
    Socat,
    /// With a buffer of 64 KiB in place of its 8 KiB.
    SocatLarge,
    /// What is left of a pipe when all is taken away that is not needed here.
    Bare(Design),
}

const BULK: [Tool; 3] = [Tool::Taut, Tool::Socat, Tool::SocatLarge];
const SMALL: [Tool; 5] =
    [Tool::Taut, Tool::Socat, Tool::Bare(Design::Turns), Tool::Bare(Design::Threads), Tool::Bare(Design::Uring)];
const CROWD: [Tool; 2] = [Tool::Taut, Tool::Socat];

/// A run's figures.
#[derive(Clone, Copy, Debug)]
struct Bulk {
    bits_per_second: f64,
    cpu_ns_per_gb: f64,
}

#[derive(Clone, Copy, Debug)]
struct Small {
    round_trip_ns: f64,
    messages_per_cpu_second: f64,
}

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let cases = thread::scope(|scope| {
        // The feeding threads inherit the core of the one that starts them.
        let all = scope.spawn(|| {
            let mut cores = rustix::thread::CpuSet::new();
            cores.set(setting.cores.client);
            rustix::thread::sched_setaffinity(None, &cores).context("stay on a core")?;
            cases(setting)
        });
        all.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the bench panicked")))
    })?;
    Ok(outcome(&cases))
}

fn cases(setting: &Setting) -> Result<Vec<Comparison>> {
    let bulk = rounds(setting, BULK, |tool| bulk(setting, tool))?;
    let small = rounds(setting, SMALL, |tool| small(setting, tool))?;
    let crowd = rounds(setting, CROWD, |tool| crowd(setting, tool))?;
    let memory = rounds(setting, CROWD, |tool| memory_of_clients(setting, tool))?;
    let case = |case: &str, peer, quantity, unit, bar, rounds| Comparison {
        case: case.to_owned(),
        peer,
        quantity,
        unit,
        ratio: Ratio::OfPeer,
        bar,
        rounds,
    };
    let rate = |peer| beside(&bulk, peer, |run| run.bits_per_second);
    let cost = |peer| beside(&bulk, peer, |run| run.cpu_ns_per_gb);
    let worth = |peer| beside(&small, peer, |run| run.messages_per_cpu_second);
    let (least, none) = (Bar::AtLeast, Bar::None);
    const BULK_RATE: &str = "tcp to tcp, bulk: rate";
    const BULK_CPU: &str = "tcp to tcp, bulk: CPU";
    const LARGE: &str = "socat -b 65536";
    const SMALL_TIME: &str = "64 B there and back: time";
    const SMALL_WORTH: &str = "64 B there and back: worth";
    let (bps, per_gb) = (("Gbit/s", 1e9), ("s/GB", 1e9));
    let (time, per_s) = (("µs", 1e3), ("k/s", 1e3));
    let trip = beside(&small, 1, |run| run.round_trip_ns);
    let of_crowd = beside(&crowd, 1, |run| *run);
    Ok(vec![
        case(BULK_RATE, "socat", "throughput_bps", bps, least(1.3), rate(1)),
        case(BULK_CPU, "socat", "cpu_ns_per_gb", per_gb, Bar::AtMost(0.6), cost(1)),
        case(BULK_RATE, LARGE, "throughput_bps", bps, none, rate(2)),
        case(BULK_CPU, LARGE, "cpu_ns_per_gb", per_gb, none, cost(2)),
        case(SMALL_TIME, "socat", "rtt_ns", time, Bar::AtMost(1.0), trip),
        case(SMALL_WORTH, "socat", "messages_per_cpu_s", per_s, least(1.5), worth(1)),
        case(SMALL_WORTH, "bare turns", "messages_per_cpu_s", per_s, none, worth(2)),
        case(SMALL_WORTH, "bare threads", "messages_per_cpu_s", per_s, none, worth(3)),
        case(SMALL_WORTH, "bare io_uring", "messages_per_cpu_s", per_s, none, worth(4)),
        case("the same, 64 clients: worth", "socat with fork", "messages_per_cpu_s", per_s, least(1.5), of_crowd),
        case(
            "1000 clients: memory",
            "socat with fork",
            "memory_bytes",
            ("MiB", 1_048_576.0),
            Bar::AtMost(0.2),
            beside(&memory, 1, |bytes| *bytes),
        ),
    ])
}

/// taut's figures, which come first in a round, beside those of another tool.
fn beside<T, const N: usize>(rounds: &[[T; N]], peer: usize, figure: impl Fn(&T) -> f64) -> Vec<(f64, f64)> {
    rounds.iter().map(|row| (figure(&row[0]), figure(&row[peer]))).collect()
}

/// All tools in each round, another one first each time.
fn rounds<T: Copy, const N: usize>(
    setting: &Setting,
    tools: [Tool; N],
    run: impl Fn(Tool) -> Result<T>,
) -> Result<Vec<[T; N]>> {
    (0..setting.rounds as usize)
        .map(|round| {
            let mut row = [None; N];
            for turn in 0..N {
                let which = (round + turn) % N;
                row[which] = Some(run(tools[which])?);
            }
            ensure!(row.iter().all(Option::is_some), "a run is missing");
            Ok(row.map(|run| run.unwrap_or_else(|| unreachable!("each has had its turn"))))
        })
        .collect()
}

/// Starts a pipe from a port to another.
fn start(setting: &Setting, tool: Tool, to: u16, forks: bool) -> Result<(Server, u16)> {
    let port = Transport::Tcp.free_port()?;
    let mut command = match tool {
        Tool::Taut => {
            let mut command = pinned(setting.cores.server, setting.taut.file());
            command.args([
                "pipe",
                "--quiet",
                &format!("listen:tcp://127.0.0.1:{port}"),
                &format!("tcp://127.0.0.1:{to}"),
            ]);
            command
        }
        Tool::Socat | Tool::SocatLarge => {
            let mut command = pinned(setting.cores.server, "socat");
            if tool == Tool::SocatLarge {
                command.args(["-b", "65536"]);
            }
            let fork = if forks { ",fork" } else { "" };
            command.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,nodelay,backlog=1024{fork}"));
            command.arg(format!("TCP:127.0.0.1:{to},nodelay"));
            command
        }
        Tool::Bare(design) => {
            let mut command = pinned(setting.cores.server, std::env::current_exe()?);
            command.args(["relay", design.name(), &port.to_string(), &to.to_string()]);
            command
        }
    };
    Ok((Server::start(&mut command, Transport::Tcp, port)?, port))
}

/// Both ends of a connection through a pipe.
fn joined(setting: &Setting, tool: Tool) -> Result<(Server, TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (server, port) = start(setting, tool, listener.local_addr()?.port(), false)?;
    let mut near = TcpStream::connect(("127.0.0.1", port))?;
    let (mut far, _) = listener.accept()?;
    for socket in [&near, &far] {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
    }
    // The pipe is at work when something has come through it, there and back.
    near.write_all(b"x")?;
    far.read_exact(&mut [0])?;
    far.write_all(b"x")?;
    near.read_exact(&mut [0])?;
    Ok((server, near, far))
}

fn bulk(setting: &Setting, tool: Tool) -> Result<Bulk> {
    let (server, mut near, mut far) = joined(setting, tool)?;
    let time = setting.time;
    let (sent, to_measure) = mpsc::channel::<()>();
    let writer = thread::spawn(move || {
        let block = vec![0x55; 256 << 10];
        let mut bytes = 0_u64;
        while to_measure.try_recv() == Err(mpsc::TryRecvError::Empty) {
            near.write_all(&block)?;
            bytes += block.len() as u64;
        }
        std::io::Result::Ok(bytes)
    });
    let mut buffer = vec![0; 256 << 10];
    let mut take = |until: Duration| -> Result<u64> {
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed() < until {
            let read = far.read(&mut buffer)?;
            ensure!(read > 0, "{tool:?} closed in the middle");
            bytes += read as u64;
        }
        Ok(bytes)
    };
    // Windows and the tool's own switches have settled by then.
    take(Duration::from_millis(300))?;
    let (cpu, begin) = (cpu_ns(server.pid())?, Instant::now());
    let bytes = take(time)? as f64;
    let (cpu, seconds) = (cpu_ns(server.pid())? - cpu, begin.elapsed().as_secs_f64());
    drop(sent);
    // The writer ends at its next block, which nobody reads: closed sockets wake it.
    drop(server);
    drop(far);
    let _ = writer.join();
    Ok(Bulk { bits_per_second: bytes * 8.0 / seconds, cpu_ns_per_gb: cpu as f64 / bytes * 1e9 })
}

fn small(setting: &Setting, tool: Tool) -> Result<Small> {
    let (server, mut near, mut far) = joined(setting, tool)?;
    let echo = thread::spawn(move || {
        let mut message = [0; 64];
        while far.read_exact(&mut message).and_then(|()| far.write_all(&message)).is_ok() {}
    });
    let mut trips = Vec::new();
    let mut message = [0; 64];
    let (mut cpu, mut begin) = (cpu_ns(server.pid())?, Instant::now());
    let mut warm = false;
    loop {
        let sent = Instant::now();
        near.write_all(&message)?;
        near.read_exact(&mut message)?;
        trips.push(sent.elapsed().as_nanos() as f64);
        if !warm && begin.elapsed() > Duration::from_millis(200) {
            (cpu, begin, warm) = (cpu_ns(server.pid())?, Instant::now(), true);
            trips.clear();
        } else if warm && begin.elapsed() >= setting.time {
            break;
        }
    }
    let cpu = cpu_ns(server.pid())? - cpu;
    drop(near);
    drop(server);
    let _ = echo.join();
    // Each trip is two messages for the pipe.
    let messages = 2.0 * trips.len() as f64;
    Ok(Small { round_trip_ns: median(&trips), messages_per_cpu_second: messages / (cpu as f64 / 1e9) })
}

/// Messages for a second of CPU, when each of many clients has one under way.
fn crowd(setting: &Setting, tool: Tool) -> Result<f64> {
    let (server, pairs) = many(setting, tool, TALKERS)?;
    let (mut near, mut far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let echo = thread::spawn(move || {
        let mut message = [0; 64];
        while far.iter_mut().all(|far| far.read_exact(&mut message).and_then(|()| far.write_all(&message)).is_ok()) {}
    });
    let mut message = [0; 64];
    let mut turn = || -> Result<()> {
        near.iter_mut().try_for_each(|near| near.write_all(&[7; 64]))?;
        Ok(near.iter_mut().try_for_each(|near| near.read_exact(&mut message))?)
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) {
        turn()?;
    }
    let cpu = || family(server.pid())?.into_iter().map(cpu_ns).sum::<Result<u64>>();
    let (before, begin, mut turns) = (cpu()?, Instant::now(), 0_u64);
    while begin.elapsed() < setting.time {
        turn()?;
        turns += 1;
    }
    let cpu = cpu()? - before;
    drop((near, server));
    let _ = echo.join();
    Ok((turns * 2 * TALKERS as u64) as f64 / (cpu as f64 / 1e9))
}

/// Memory of a pipe with many clients, of which each has used it both ways.
fn memory_of_clients(setting: &Setting, tool: Tool) -> Result<f64> {
    let (server, _pairs) = many(setting, tool, CLIENTS)?;
    let bytes = family(server.pid())?.into_iter().map(memory_bytes).sum::<Result<u64>>()?;
    Ok(bytes as f64)
}

/// Both ends of many connections through one pipe, each used both ways.
fn many(setting: &Setting, tool: Tool, clients: usize) -> Result<(Server, Vec<(TcpStream, TcpStream)>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (server, port) = start(setting, tool, listener.local_addr()?.port(), true)?;
    let pairs = (0..clients).map(|_| {
        let mut near = TcpStream::connect(("127.0.0.1", port))?;
        let (mut far, _) = listener.accept()?;
        for socket in [&near, &far] {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        near.write_all(&[1; 64])?;
        far.read_exact(&mut [0; 64])?;
        far.write_all(&[2; 64])?;
        near.read_exact(&mut [0; 64])?;
        Ok((near, far))
    });
    let pairs = pairs.collect::<Result<_>>()?;
    Ok((server, pairs))
}

/// A process and its children.
fn family(pid: u32) -> Result<Vec<u32>> {
    let mut list = vec![pid];
    for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let children = fs::read_to_string(entry.path().join("children")).context("the kernel doesn't tell children")?;
        list.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    Ok(list)
}

fn memory_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss in smaps_rollup")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

fn cpu_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // A thread may end meanwhile; those that do have done next to nothing.
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
        sum += text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0);
    }
    ensure!(sum > 0, "the kernel keeps no account of CPU time (schedstat)");
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_this_process() {
        let pid = std::process::id();
        assert!(memory_bytes(pid).unwrap() > 100_000);
        assert!(cpu_ns(pid).unwrap() > 0);
        assert!(family(pid).unwrap().contains(&pid));
    }
}
