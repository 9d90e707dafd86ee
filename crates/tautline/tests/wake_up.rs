//! The work of one wake-up of an AIO server does not depend on how many connections wait:
//! instructions are counted, not seconds. The server runs one instruction at a time under
//! ptrace(2), as virtual machines seldom have a counter of them.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const FEW: usize = 100;
const SOME: usize = 1000;
const MANY: usize = 10_000;
/// Connections with a message at once.
const ACTIVE: usize = 10;
const MESSAGE: usize = 32;
/// Exchanges that are counted, and that go before.
const EXCHANGES: usize = 6;
const WARM_UP: usize = 30;
/// Something is wrong when one takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// How much the work may grow from FEW to MANY.
const GROWTH: f64 = 1.05;

#[test]
fn a_wake_up_by_aio_signal_costs_the_same_among_many() {
    assert_flat("a_wake_up_by_aio_signal_costs_the_same_among_many", "aio-signal");
}

#[test]
fn a_wake_up_by_aio_wait_costs_the_same_among_many() {
    assert_flat("a_wake_up_by_aio_wait_costs_the_same_among_many", "aio-wait");
}

/// That the count shows it where it isn't so.
#[test]
fn a_wake_up_by_poll_costs_more_among_many() {
    let test = "a_wake_up_by_poll_costs_more_among_many";
    let Some([few, many]) = count_both(test, "poll", SOME) else { return };
    assert!(many[0] > few[EXCHANGES - 1] * 3.0, "{few:?} instructions among {FEW}, {many:?} among {SOME}");
}

fn assert_flat(test: &str, engine: &str) {
    let Some([few, many]) = count_both(test, engine, MANY) else { return };
    let growth = growth(&few, &many);
    println!("{engine}: {few:?} instructions an exchange among {FEW}, {many:?} among {MANY}: {growth:.4}");
    assert!(growth < GROWTH, "{few:?} instructions among {FEW}, {many:?} among {MANY}");
}

/// The library's timer of 10 ms ends within an exchange or after it, as the steps are slow or fast, and that is a
/// third more or less: so the two counts that are most alike are compared. Work that grows moves all of them.
fn growth(few: &[f64], many: &[f64]) -> f64 {
    let pairs = few.iter().flat_map(|few| many.iter().map(move |many| many / few));
    pairs.min_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs())).unwrap()
}

#[test]
fn counts_with_and_without_the_timer_are_not_mixed() {
    let few = [54_632.0, 77_802.0];
    assert!((growth(&few, &[57_751.0, 77_816.0]) - 1.0).abs() < 0.001);
    let grown = growth(&few, &few.map(|count| count * 1.06));
    assert!((grown - 1.06).abs() < 0.001, "{grown}");
}

/// There are descriptors for one crowd at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn count_both(test: &str, engine: &str, many: usize) -> Option<[Vec<f64>; 2]> {
    let _only = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(reason) = make_room(many) {
        support::skip(test, &reason);
        return None;
    }
    let mut counts = [Vec::new(), Vec::new()];
    for (connections, count) in [FEW, many].into_iter().zip(&mut counts) {
        let mut host = Host::start(engine, connections);
        host.exchange_with_all();
        for _ in 0..WARM_UP {
            host.exchange();
        }
        match host.count() {
            Ok(instructions) => *count = instructions,
            Err(reason) => {
                support::skip(test, &reason);
                return None;
            }
        }
    }
    Some(counts)
}

/// Raises the limit of descriptors.
fn make_room(connections: usize) -> Result<(), String> {
    let needed = connections as u64 + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < needed) {
        return Err(format!("the hard limit of descriptors is below {needed}"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).map_err(|e| e.to_string())
}

/// A server of `taut connections` with its connections.
struct Host {
    child: Child,
    links: Vec<TcpStream>,
    draw: u64,
    /// Those that run by steps.
    traced: Vec<Pid>,
}

impl Host {
    fn start(engine: &str, connections: usize) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_taut"))
            .args(["crowd-host", "--engine", engine, "--connections", &connections.to_string()])
            .args(["--listen", "tcp://127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.next().unwrap().strip_prefix("listening tcp://").unwrap().to_owned();
        let links = (0..connections).map(|_| TcpStream::connect(&address).unwrap()).collect();
        assert_eq!(lines.next().as_deref(), Some("ready"));
        let host = Self { child, links, draw: 1, traced: Vec::new() };
        for link in &host.links {
            link.set_nodelay(true).unwrap();
        }
        host
    }

    /// Sends a message on some connections; gives which.
    fn send(&mut self) -> Vec<usize> {
        let mut active: Vec<usize> = Vec::new();
        while active.len() < ACTIVE {
            // Numerical Recipes' generator; its upper bits are good.
            self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = (self.draw >> 33) as usize % self.links.len();
            if !active.contains(&place) {
                active.push(place);
            }
        }
        for &place in &active {
            self.links[place].write_all(&[place as u8; MESSAGE]).unwrap();
        }
        active
    }

    fn exchange(&mut self) {
        for place in self.send() {
            self.receive(place);
        }
    }

    /// One message on each connection: the library has more work with a descriptor's first requests than with others.
    fn exchange_with_all(&self) {
        for (place, mut link) in self.links.iter().enumerate() {
            link.write_all(&[place as u8; MESSAGE]).unwrap();
            self.receive(place);
        }
    }

    fn receive(&self, place: usize) {
        let mut reply = [0; MESSAGE];
        (&self.links[place]).read_exact(&mut reply).unwrap();
        assert_eq!(reply, [place as u8; MESSAGE]);
    }

    /// Instructions of each exchange in user space, all threads; the least first.
    fn count(&mut self) -> Result<Vec<f64>, String> {
        let process = self.child.id();
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let threads: Vec<Pid> = threads
            .map(|thread| Pid::from_raw(thread.unwrap().file_name().to_str().unwrap().parse().unwrap()))
            .collect();
        for &thread in &threads {
            ptrace::seize(thread, Options::empty()).map_err(|error| format!("ptrace is refused: {error}"))?;
            self.traced.push(thread);
        }
        let mut counts: Vec<f64> = (0..EXCHANGES).map(|_| self.count_exchange(&threads) as f64).collect();
        counts.sort_unstable_by(f64::total_cmp);
        Ok(counts)
    }

    fn count_exchange(&mut self, threads: &[Pid]) -> u64 {
        // All stand still until all messages are there: so it is one wake-up.
        for &thread in threads {
            ptrace::interrupt(thread).unwrap();
            let stop = waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
            // By the interruption, or by the step that was to end in a system call.
            assert!(matches!(stop, WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(_, Signal::SIGTRAP)), "{stop:?}");
        }
        let waiting = self.send();
        for &thread in threads {
            ptrace::step(thread, None).unwrap();
        }
        // One at a time, each until it sleeps: so the count does not depend on who is faster.
        let mut instructions = 0;
        loop {
            let before = instructions;
            instructions += threads.iter().map(|&thread| self.run_until_asleep(thread)).sum::<u64>();
            if instructions == before {
                break;
            }
        }
        assert!(waiting.into_iter().all(|place| self.has_reply(place)), "a message without an answer");
        instructions
    }

    /// Runs a thread that isn't asleep, by single steps; gives how many.
    fn run_until_asleep(&self, thread: Pid) -> u64 {
        let state = format!("/proc/{}/task/{thread}/stat", self.child.id());
        let begin = Instant::now();
        let (mut steps, mut looks) = (0, 0);
        loop {
            match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)).unwrap() {
                WaitStatus::Stopped(_, signal) => {
                    (steps, looks) = (steps + 1, 0);
                    // Anything but the step's own stop is the program's.
                    ptrace::step(thread, (signal != Signal::SIGTRAP).then_some(signal)).unwrap();
                }
                WaitStatus::PtraceEvent(..) => ptrace::step(thread, None).unwrap(),
                WaitStatus::StillAlive if looks < 20 => {
                    looks += 1;
                    std::thread::yield_now();
                }
                // proc_pid_stat(5): the state follows the name, which stands in brackets.
                WaitStatus::StillAlive => {
                    let stat = fs::read_to_string(&state).unwrap();
                    if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')) {
                        return steps;
                    }
                    assert!(begin.elapsed() < LIMIT, "a thread of the server does not come to rest: {stat}");
                    std::thread::yield_now();
                }
                other => panic!("the server: {other:?}"),
            }
        }
    }

    fn has_reply(&self, place: usize) -> bool {
        let mut link = &self.links[place];
        link.set_nonblocking(true).unwrap();
        let mut reply = [0; MESSAGE];
        let read = link.read(&mut reply);
        link.set_nonblocking(false).unwrap();
        match read {
            Ok(count) => {
                assert_eq!((count, reply), (MESSAGE, [place as u8; MESSAGE]), "a reply");
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A traced thread isn't gone before its end was seen, and the first thread's is the last.
        for &thread in &self.traced[1.min(self.traced.len())..] {
            while waitpid(thread, Some(WaitPidFlag::__WALL)).is_ok() {}
        }
        let _ = self.child.wait();
    }
}
