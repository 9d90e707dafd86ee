//! `taut pipe` beside socat: bulk and small messages between two TCP connections, and the memory of many clients.
//!
//! The pipe under test is pinned to one core, all that feeds and drains it to another. CPU time is the scheduler's account of the
//! process (`/proc/PID/task/*/schedstat`), memory its proportional share (`smaps_rollup`), with all its children.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::comparison::{Bar, Comparison, Ratio, outcome};
use super::process::{Server, Transport, pinned};
use super::{Outcome, Setting, median};

/// Connections at once, where memory is measured.
const CLIENTS: usize = 1000;
/// Longest wait for bytes that should come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What joins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tool {
    Taut,
    Socat,
    /// With a buffer of 64 KiB in place of its 8 KiB.
    SocatLarge,
}

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
    let bulk = rounds(setting, |tool| bulk(setting, tool))?;
    let small = rounds(setting, |tool| small(setting, tool))?;
    let mut memory = Vec::new();
    for round in 0..setting.rounds {
        let order = if round.is_multiple_of(2) { [Tool::Taut, Tool::Socat] } else { [Tool::Socat, Tool::Taut] };
        let [first, second] = order.map(|tool| memory_of_clients(setting, tool));
        let (first, second) = (first?, second?);
        memory.push(if order[0] == Tool::Taut { (first, second) } else { (second, first) });
    }
    let of = |rows: &[[f64; 3]], peer: usize| rows.iter().map(|row| (row[0], row[peer])).collect::<Vec<_>>();
    let rate: Vec<[f64; 3]> = bulk.iter().map(|row| row.map(|run| run.bits_per_second)).collect();
    let cost: Vec<[f64; 3]> = bulk.iter().map(|row| row.map(|run| run.cpu_ns_per_gb)).collect();
    let trip: Vec<[f64; 3]> = small.iter().map(|row| row.map(|run| run.round_trip_ns)).collect();
    let worth: Vec<[f64; 3]> = small.iter().map(|row| row.map(|run| run.messages_per_cpu_second)).collect();
    let case = |case: &str, peer, quantity, unit, bar, rounds| Comparison {
        case: case.to_owned(),
        peer,
        quantity,
        unit,
        ratio: Ratio::OfPeer,
        bar,
        rounds,
    };
    const LARGE: &str = "socat -b 65536";
    Ok(vec![
        case("tcp to tcp, bulk: rate", "socat", "throughput_bps", ("Gbit/s", 1e9), Bar::AtLeast(1.3), of(&rate, 1)),
        case("tcp to tcp, bulk: CPU", "socat", "cpu_ns_per_gb", ("s/GB", 1e9), Bar::AtMost(0.6), of(&cost, 1)),
        case("tcp to tcp, bulk: rate", LARGE, "throughput_bps", ("Gbit/s", 1e9), Bar::None, of(&rate, 2)),
        case("tcp to tcp, bulk: CPU", LARGE, "cpu_ns_per_gb", ("s/GB", 1e9), Bar::None, of(&cost, 2)),
        case("64 B there and back: time", "socat", "rtt_ns", ("µs", 1e3), Bar::AtMost(1.0), of(&trip, 1)),
        case(
            "64 B there and back: worth",
            "socat",
            "messages_per_cpu_s",
            ("k/s", 1e3),
            Bar::AtLeast(1.5),
            of(&worth, 1),
        ),
        case("1000 clients: memory", "socat with fork", "memory_bytes", ("MiB", 1_048_576.0), Bar::AtMost(0.2), memory),
    ])
}

/// All tools in each round, another one first each time.
fn rounds<T: Copy>(setting: &Setting, run: impl Fn(Tool) -> Result<T>) -> Result<Vec<[T; 3]>> {
    (0..setting.rounds as usize)
        .map(|round| {
            let mut row = [None; 3];
            for turn in 0..3 {
                let which = (round + turn) % 3;
                row[which] = Some(run([Tool::Taut, Tool::Socat, Tool::SocatLarge][which])?);
            }
            let [Some(taut), Some(socat), Some(large)] = row else { anyhow::bail!("a run is missing") };
            Ok([taut, socat, large])
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
    // The pipe is at work when something has come through it.
    near.write_all(b"x")?;
    far.read_exact(&mut [0])?;
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

fn memory_of_clients(setting: &Setting, tool: Tool) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (server, port) = start(setting, tool, listener.local_addr()?.port(), true)?;
    let mut pairs = Vec::new();
    for _ in 0..CLIENTS {
        let mut near = TcpStream::connect(("127.0.0.1", port))?;
        let (mut far, _) = listener.accept()?;
        far.set_read_timeout(Some(PATIENCE))?;
        near.set_read_timeout(Some(PATIENCE))?;
        // Each is used both ways.
        near.write_all(&[1; 64])?;
        far.read_exact(&mut [0; 64])?;
        far.write_all(&[2; 64])?;
        near.read_exact(&mut [0; 64])?;
        pairs.push((near, far));
    }
    let bytes = family(server.pid())?.into_iter().map(memory_bytes).sum::<Result<u64>>()?;
    Ok(bytes as f64)
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
