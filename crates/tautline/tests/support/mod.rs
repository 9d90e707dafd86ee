//! What the tests of the command line share: starting `taut`, a server beside it, and skipping what can't run here.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod brokers;
pub(crate) mod go;
pub(crate) mod piped;
pub(crate) mod relay;
pub(crate) mod ssh;
pub(crate) mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;
use serde_json::Value;

/// `TAUT_PROGRAM`: another one than that of this build, such as a guest's.
pub(crate) fn taut() -> Command {
    let program = std::env::var_os("TAUT_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_taut").into());
    let mut command = Command::new(program);
    // The width of help would follow a terminal there.
    command.stdin(Stdio::null());
    command
}

/// `taut` on the first processor that it may have, before all others who want it (`SCHED_FIFO`), so that a busy
/// machine does not disturb it and it need not wake up another processor; where that is not allowed, as it is.
pub(crate) fn undisturbed() -> Command {
    static PLACE: OnceLock<Option<String>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let allowed =
            Command::new("chrt").args(["--fifo", "10", "true"]).output().is_ok_and(|tried| tried.status.success());
        let processors = rustix::thread::sched_getaffinity(None).ok()?;
        (0..CpuSet::MAX_CPU).find(|&cpu| allowed && processors.is_set(cpu)).map(|cpu| cpu.to_string())
    });
    let Some(processor) = place else { return taut() };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processor, "chrt", "--fifo", "10", env!("CARGO_BIN_EXE_taut")]).stdin(Stdio::null());
    command
}

/// Runs `taut` with a line of arguments.
pub(crate) fn run(line: &str) -> Output {
    taut().args(words(line)).output().expect("taut starts")
}

/// Runs `taut` and parses the one JSON object on its stdout.
pub(crate) fn run_json(line: &str) -> Value {
    let output = run(&format!("{line} --json"));
    assert!(output.status.success(), "taut {line}: {:?}\n{}", output.status, text(&output.stderr));
    parse(&output)
}

pub(crate) fn parse(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("no JSON object on stdout ({error}): {}\n{}", text(&output.stdout), text(&output.stderr))
    })
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The slices of a trace by track, each as its begin and its end in nanoseconds.
pub(crate) fn tracks(trace: &Value) -> std::collections::BTreeMap<u64, Vec<(u64, u64)>> {
    let mut tracks = std::collections::BTreeMap::<u64, Vec<(u64, u64)>>::new();
    for slice in trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X") {
        let ns = |key: &str| (slice[key].as_f64().unwrap() * 1000.0).round() as u64;
        tracks.entry(slice["tid"].as_u64().unwrap()).or_default().push((ns("ts"), ns("ts") + ns("dur")));
    }
    tracks
}

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub(crate) fn causes(document: &Value) -> Vec<&str> {
    document["findings"].as_array().unwrap().iter().filter_map(|finding| finding["cause"].as_str()).collect()
}

/// A `taut serve`, ended when dropped.
pub(crate) struct Serve {
    child: Child,
    pub(crate) endpoints: Vec<String>,
}

impl Serve {
    pub(crate) fn start(line: &str) -> Self {
        Self::start_with(taut(), line)
    }

    /// As `start`, but through another program that ends in a call of `taut`.
    pub(crate) fn start_with(mut command: Command, line: &str) -> Self {
        let mut child = command
            .args(["serve", "--json", "--while-stdin-open"])
            .args(words(line))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("taut serve starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let value: Value = serde_json::from_str(&first).unwrap_or_else(|error| panic!("`{first}`: {error}"));
        let endpoints = value["listening"].as_array().unwrap().iter().map(|e| e.as_str().unwrap().to_owned()).collect();
        Self { child, endpoints }
    }

    pub(crate) fn on_all() -> (Self, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        let server = Self::start(&format!(
            "tcp://127.0.0.1:0 udp://127.0.0.1:0 tcp://[::1]:0 udp://[::1]:0 unix:{path}/s unix-dgram:{path}/d"
        ));
        (server, directory)
    }

    pub(crate) fn endpoint(&self, index: usize) -> &str {
        &self.endpoints[index]
    }

    pub(crate) fn socket_address(&self, index: usize) -> SocketAddr {
        self.endpoints[index].split_once("://").unwrap().1.parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a TCP server accepts, as one just started may not yet.
pub(crate) fn wait_for_tcp(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nobody listens on {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first port that [`free_port`] gives.
const FIRST_OWN_PORT: u16 = 20_000;

/// A port of loopback at which nobody listens. Tests run at once, in many processes, and a server may take its time to
/// start: until this process ends no other call has the port. The kernel gives it to nobody either who asks for any
/// port, since it is below those.
pub(crate) fn free_port() -> u16 {
    static KEPT: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let given = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first_given = given.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let own = FIRST_OWN_PORT..first_given;
    // Processes begin at places of their own, so that few try the same ports.
    let begin = (std::process::id() as usize).wrapping_mul(61) % own.len().max(1);
    for port in own.clone().cycle().skip(begin).take(own.len()) {
        // A name of this network, as the port is, which goes with the process.
        let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("taut-test-port-{port}")).unwrap();
        let Ok(kept) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            KEPT.lock().unwrap().push(kept);
            return port;
        }
    }
    // Where the kernel gives all ports, this one was free a moment ago.
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Whether a program is there.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).is_file())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where tools are kept that tests build or fetch, in the user's cache.
pub(crate) fn tools() -> PathBuf {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).join("tautline/tools")
}

/// What a process has started, by each process's own word. The kernel's lists by thread miss children whose thread ends
/// while they are read, and those of an agent's runtime end whenever they are idle.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let parent_of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may contain anything, come the state and the parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    pids.filter(|pid| parent_of(pid) == Some(parent)).collect()
}

/// Notes loudly that a test can't run here.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    if let Some(path) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        log.write_all(format!("tautline {test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// Whether the long forms of tests are wanted (`cargo xtask test` without `--quick`).
pub(crate) fn long() -> bool {
    let is_long = std::env::var_os("TAUT_TEST_LONG").is_some();
    if !is_long && let Some(path) = std::env::var_os("TAUT_SHORT_LOG") {
        std::fs::write(path, "short\n").unwrap();
    }
    is_long
}
