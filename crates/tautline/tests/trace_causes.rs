//! The truth table of `taut trace`: eleven causes, each staged by a program that has it, beside the same program cured;
//! and one without any. Nearly all of what is held is held by the one that was staged. It runs on this host and, by
//! `xtask/tests/lab_causes.rs`, on stock kernels. Where the kernel lets nobody trace, it is skipped.
#![expect(unsafe_code, reason = "rustix has no wrapper for SO_MAX_PACING_RATE and sched_setscheduler")]

mod explain_support;
#[path = "trace_support/road.rs"]
mod road;
#[path = "support/mod.rs"]
mod support;
mod trace_support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_reuseaddr, set_socket_send_buffer_size, set_tcp_cork,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use explain_support::inside;
use road::{Road, Way};
use support::{has, is_root, parse, skip, taut, text};
use trace_support::{adds_up, has_gap, may_trace};

const ROLE: &str = "TAUT_STAGED";
const PORT: u16 = 7900;
/// Less than a first congestion window of 40 segments of 1,448 bytes, and than the first receive window.
const LOAD: usize = 57_000;

/// A staged program, sick or cured.
struct Case {
    name: &'static str,
    /// The cause that is found in the sick one and not in the other, and in which direction.
    cause: Option<&'static str>,
    is_outgoing: bool,
    /// Who holds the data there.
    holders: &'static [&'static str],
    /// What lies between the ends of the sick one, and of the cured one.
    ways: [Way; 2],
    play: fn(&Stage),
}

const FAR: Way = Way::Far { ms: 20, first_window: None, is_lossy: false };
const WIDE: Way = Way::Far { ms: 20, first_window: Some(60), is_lossy: false };
const LOSSY: Way = Way::Far { ms: 5, first_window: None, is_lossy: true };
const CLEAN: Way = Way::Far { ms: 5, first_window: None, is_lossy: false };

const fn sent(name: &'static str, cause: &'static str, holders: &'static [&'static str], play: fn(&Stage)) -> Case {
    Case { name, cause: Some(cause), is_outgoing: true, holders, ways: [Way::Near; 2], play }
}

const CASES: [Case; 12] = [
    sent("Nagle and delayed ACK", "nagle_delayed_ack", &["nagle"], two_writes),
    sent("cork", "cork", &["cork"], corked),
    // With a first congestion window for all of it nothing is left to be found once these are cured.
    Case { ways: [WIDE; 2], ..sent("receive window", "receive_window", &["receive_window"], into_window) },
    Case { ways: [WIDE; 2], ..sent("send buffer, blocking", "send_buffer", &["send_buffer"], from_buffer) },
    Case { ways: [WIDE; 2], ..sent("send buffer, EAGAIN", "send_buffer", &["send_buffer"], from_buffer_in_turns) },
    Case {
        ways: [FAR, WIDE],
        ..sent("congestion window", "congestion_window", &["slow_start", "congestion_window"], at_once)
    },
    Case {
        ways: [LOSSY, CLEAN],
        ..sent("loss", "loss", &["loss_recovery", "tail_loss_probe", "retransmission_timeout"], requests)
    },
    sent("pacing", "pacing", &["pacing"], paced),
    Case {
        ways: [Way::Narrow(1_000), Way::Near],
        ..sent("device's queue", "device_queue", &["device_queue"], at_once)
    },
    Case { is_outgoing: false, ..sent("slow reader", "receiving_program", &["receiving_program"], read_late) },
    Case { is_outgoing: false, ..sent("reader without a processor", "processor", &["processor"], beside_another) },
    Case { cause: None, ..sent("nothing", "", &[], requests) },
];

/// What a staged program is told.
struct Stage {
    spaces: [String; 2],
    receiver: Ipv4Addr,
    is_sick: bool,
}

/// Not a test of its own: what the other one starts and traces.
#[test]
fn the_part_that_is_traced() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split('/').collect();
    let [name, how, near, far, receiver] = words[..] else { panic!("{role}") };
    let stage =
        Stage { spaces: [near, far].map(str::to_owned), receiver: receiver.parse().unwrap(), is_sick: how == "sick" };
    (CASES.iter().find(|case| case.name == name).unwrap().play)(&stage);
}

impl Stage {
    /// Both ends of a connection, each on a thread in its place.
    fn play(&self, receive_buffer: Option<usize>, serve: fn(&TcpStream, bool), ask: fn(&TcpStream, bool)) {
        let ready = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                inside(&self.spaces[1], || {
                    let listener = listen(receive_buffer);
                    ready.wait();
                    serve(&listener.accept().unwrap().0, self.is_sick);
                });
            });
            ready.wait();
            inside(&self.spaces[0], || ask(&self.connect(), self.is_sick));
        });
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect((self.receiver, PORT)).unwrap()
    }
}

fn listen(receive_buffer: Option<usize>) -> TcpListener {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    if let Some(bytes) = receive_buffer {
        set_socket_recv_buffer_size(&socket, bytes).unwrap();
    }
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    rustix::net::listen(&socket, 4).unwrap();
    TcpListener::from(socket)
}

/// Answers each 64 bytes.
fn answer(mut stream: &TcpStream, _: bool) {
    let mut request = [0; 64];
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(b"answered").unwrap();
    }
}

fn drain(mut stream: &TcpStream, _: bool) {
    let mut buffer = [0; 16 << 10];
    while stream.read(&mut buffer).unwrap() > 0 {}
}

/// Sends no more, and waits until the other end has all.
fn wait_for_end(mut stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

fn two_writes(stage: &Stage) {
    stage.play(None, answer, |mut stream, is_sick| {
        stream.set_nodelay(!is_sick).unwrap();
        for _ in 0..25 {
            stream.write_all(&[1; 16]).unwrap();
            stream.write_all(&[2; 48]).unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
        }
    });
}

fn corked(stage: &Stage) {
    stage.play(None, answer, |mut stream, is_sick| {
        for _ in 0..5 {
            set_tcp_cork(stream, true).unwrap();
            stream.write_all(&[1; 16]).unwrap();
            stream.write_all(&[2; 48]).unwrap();
            if !is_sick {
                set_tcp_cork(stream, false).unwrap();
            }
            stream.read_exact(&mut [0; 8]).unwrap();
            // A message takes a part of the time, as is usual: what a cork holds until its end is no stall.
            sleep(Duration::from_millis(5));
        }
    });
}

/// All at once, on a new connection.
fn send_load(mut stream: &TcpStream, _: bool) {
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[0; LOAD]).unwrap();
    wait_for_end(stream);
}

fn into_window(stage: &Stage) {
    stage.play(stage.is_sick.then_some(8 << 10), drain, send_load);
}

fn at_once(stage: &Stage) {
    for _ in 0..3 {
        stage.play(None, drain, send_load);
    }
}

fn small_buffer(stream: &TcpStream, is_sick: bool) {
    stream.set_nodelay(true).unwrap();
    if is_sick {
        set_socket_send_buffer_size(stream, 4 << 10).unwrap();
    }
}

fn from_buffer(stage: &Stage) {
    stage.play(None, drain, |stream, is_sick| {
        small_buffer(stream, is_sick);
        send_load(stream, is_sick);
    });
}

fn from_buffer_in_turns(stage: &Stage) {
    stage.play(None, drain, |mut stream, is_sick| {
        small_buffer(stream, is_sick);
        stream.set_nonblocking(true).unwrap();
        let mut left = LOAD;
        while left > 0 {
            match stream.write(&[0; LOAD][..left]) {
                Ok(written) => left -= written,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    poll(&mut [PollFd::new(stream, PollFlags::OUT)], None).unwrap();
                }
            }
        }
        stream.set_nonblocking(false).unwrap();
        wait_for_end(stream);
    });
}

fn requests(stage: &Stage) {
    stage.play(None, answer, |mut stream, _| {
        stream.set_nodelay(true).unwrap();
        // The kernel draws which packets are lost, and where they are those that were sent again, timers double.
        let begin = Instant::now();
        for _ in 0..40 {
            stream.write_all(&[1; 64]).unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
            sleep(Duration::from_millis(5));
            if begin.elapsed() > Duration::from_secs(3) {
                break;
            }
        }
    });
}

fn paced(stage: &Stage) {
    stage.play(None, drain, |stream, is_sick| {
        let rate: u32 = if is_sick { 200_000 } else { u32::MAX };
        let size = size_of_val(&rate) as libc::socklen_t;
        // SAFETY: the value is a number of 32 bits that lives longer than the call, and its size is given.
        let result = unsafe {
            let value = (&raw const rate).cast();
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value, size)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        send_load(stream, is_sick);
    });
}

fn read_late(stage: &Stage) {
    let serve = |mut stream: &TcpStream, is_sick| {
        let mut buffer = [0; 16 << 10];
        while stream.read(&mut buffer).unwrap() > 0 {
            if is_sick {
                sleep(Duration::from_millis(20));
            }
        }
    };
    stage.play(None, serve, |mut stream, _| {
        stream.set_nodelay(true).unwrap();
        for _ in 0..30 {
            stream.write_all(&[0; 8 << 10]).unwrap();
            sleep(Duration::from_millis(5));
        }
        wait_for_end(stream);
    });
}

/// This thread runs on the first processor that it may have, with a priority of `SCHED_FIFO` unless that is 0.
fn pinned(priority: u8) {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
    if priority > 0 {
        let parameters = libc::sched_param { sched_priority: priority.into() };
        // SAFETY: the parameters live longer than the call, which is about this thread.
        let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

/// A reader that comes after, or before, another thread that has its processor for 8 ms out of 16.
fn beside_another(stage: &Stage) {
    let is_over = AtomicBool::new(false);
    // The connection is open, and all have their priorities, before anything is sent.
    let (listens, ready) = (Barrier::new(2), Barrier::new(3));
    let (is_over, listens, ready, space) = (&is_over, &listens, &ready, &stage.spaces[0]);
    thread::scope(|scope| {
        scope.spawn(move || {
            pinned(20);
            ready.wait();
            while !is_over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(8) {
                    std::hint::spin_loop();
                }
                sleep(Duration::from_millis(8));
            }
        });
        let reader = scope.spawn(move || {
            inside(space, || {
                let listener = listen(None);
                listens.wait();
                let mut stream = listener.accept().unwrap().0;
                pinned(if stage.is_sick { 0 } else { 30 });
                ready.wait();
                stream.read_exact(&mut [0]).unwrap();
                stream.write_all(&[1]).unwrap();
                drain(&stream, false);
            });
        });
        scope.spawn(move || {
            inside(space, || {
                listens.wait();
                let mut stream = stage.connect();
                stream.set_nodelay(true).unwrap();
                pinned(40);
                ready.wait();
                // The reader waits by then; and whoever has read once is known as the reader.
                sleep(Duration::from_millis(20));
                stream.write_all(&[1]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                // Many: once in some hundred the other one comes between the reader's turn and its read, and that time
                // is the reader's.
                for _ in 0..160 {
                    stream.write_all(&[1; 8]).unwrap();
                    sleep(Duration::from_millis(10));
                }
            });
        });
        reader.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
}

/// What a trace of the staged program says of its connections, and how long that took from its beginning.
fn traced(case: &Case, is_sick: bool) -> Result<(Vec<Value>, Duration), String> {
    let road = Road::build(case.ways[usize::from(!is_sick)])?;
    let how = if is_sick { "sick" } else { "cured" };
    let role = [case.name, how, &road.spaces[0], &road.spaces[1], road.receiver].join("/");
    let mut command = taut();
    command.env(ROLE, role).args(["trace", "--json", "--top", "50", "--"]).arg(std::env::current_exe().unwrap());
    let begin = Instant::now();
    let output = command.args(["--exact", "the_part_that_is_traced"]).output().unwrap();
    let took = begin.elapsed();
    assert!(output.status.success(), "{}: {}", case.name, text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["lost_records"], 0, "{document:#}");
    adds_up(&document);
    let tcp = document["worst"].as_array().unwrap().iter().filter(|one| one["transport"] == "tcp");
    Ok((tcp.cloned().collect(), took))
}

/// Time in ns over all directions that somebody of these holds.
fn held(directions: &[Value], is_one: impl Fn(&str) -> bool) -> f64 {
    let rows = directions.iter().flat_map(|direction| direction["breakdown"].as_array().unwrap());
    let held = rows.filter(|row| is_one(row["holder"].as_str().unwrap()));
    held.map(held_ns).sum::<u64>() as f64
}

/// Who holds how much in ms, and whether events were missed, in a line.
fn rows(directions: &[Value]) -> String {
    let of_one = |direction: &Value| {
        let rows = direction["breakdown"].as_array().unwrap().iter();
        let row = |row: &Value| format!("{} {:.3}", row["holder"].as_str().unwrap(), held_ns(row) as f64 / 1e6);
        let gap = if has_gap(direction) { ", with a gap" } else { "" };
        rows.map(row).collect::<Vec<_>>().join(", ") + gap
    };
    directions.iter().map(of_one).collect::<Vec<_>>().join("; ")
}

fn held_ns(row: &Value) -> u64 {
    row["held_ns"].as_u64().unwrap()
}

/// Nobody holds what is not written yet, or is on its way.
const FREE: [&str; 4] = ["sending_program", "peer_turn", "delivery", "handshake"];
/// From the beginning of a trace to the name of what is wrong.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// Whoever else runs on this machine may have the processor.
const OF_OTHERS: &str = "processor";

impl Case {
    fn is_ours(&self, holder: &str) -> bool {
        self.holders.contains(&holder)
    }

    fn is_held(&self, holder: &str) -> bool {
        self.is_ours(holder) || holder != OF_OTHERS && !FREE.contains(&holder)
    }

    /// Of all directions those that the case is about.
    fn its_own(&self, all: &[Value]) -> Vec<Value> {
        let end = format!(":{PORT}");
        let to = |one: &Value| one["to"].as_str().is_some_and(|to| to.ends_with(&end));
        let is_own = |one: &&Value| one["is_outgoing"] == self.is_outgoing && to(one) || self.cause.is_none();
        let own: Vec<Value> = all.iter().filter(is_own).cloned().collect();
        assert!(!own.is_empty(), "{}: {all:#?}", self.name);
        own
    }
}

/// Time in ns that is in findings, but for those that whoever else runs here may cause.
fn found_ns(directions: &[Value]) -> f64 {
    let verdicts = directions.iter().flat_map(|direction| direction["verdicts"].as_array().unwrap());
    let found = verdicts.filter(|on| on["verdict"] == "found" && on["cause"] != OF_OTHERS);
    found.map(|on| on["cost"]["held_ns"].as_u64().unwrap()).sum::<u64>() as f64
}

/// How many of the longest stretches that somebody has are as long as this.
fn as_long(directions: &[Value], holder: &str, least: Duration) -> usize {
    let rows = directions.iter().flat_map(|direction| direction["breakdown"].as_array().unwrap());
    let stretches = rows.filter(|row| row["holder"] == holder).flat_map(|row| row["longest"].as_array().unwrap());
    stretches.filter(|stretch| u128::from(held_ns(stretch)) >= least.as_nanos()).count()
}

fn found(directions: &[Value]) -> Vec<&str> {
    let verdicts = directions.iter().flat_map(|direction| direction["verdicts"].as_array().unwrap());
    verdicts.filter(|on| on["verdict"] == "found").map(|on| on["cause"].as_str().unwrap()).collect()
}

/// What is wrong with a case, if anything; a line about it is printed.
fn judge(case: &Case) -> Result<Vec<String>, String> {
    let (all_cured, _) = traced(case, false)?;
    let cured = case.its_own(&all_cured);
    let Some(cause) = case.cause else {
        let mut found = found(&cured);
        found.retain(|cause| *cause != OF_OTHERS);
        println!("{:28} nothing held, {} found", case.name, found.len());
        return Ok(if found.is_empty() { Vec::new() } else { vec![format!("{}: {cured:#?}", case.name)] });
    };
    let (all_sick, took) = traced(case, true)?;
    let sick = case.its_own(&all_sick);
    let ours = |holder: &str| case.is_ours(holder);
    // What a gap of the trace makes not known is told as such, and is held by nobody else.
    let is_gap = |holder: &str| holder == "not_known" && sick.iter().any(has_gap);
    let all_held = held(&sick, |holder| case.is_held(holder) && !is_gap(holder));
    let (of_held, of_time) = (held(&sick, ours) / all_held.max(1.0), held(&cured, ours) / held(&cured, |_| true));
    println!(
        "{:28} {:6.2} % of {:8.3} ms held; cured {:6.3} %",
        case.name,
        of_held * 100.0,
        all_held / 1e6,
        of_time * 100.0
    );
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: &str, directions: &[Value]| {
        if !holds {
            // The rows come first: of a long text a summary has the beginning.
            let rows = rows(directions);
            wrong.push(format!("{}: {what}: {rows}: {directions:#?}", case.name));
        }
    };
    check(found(&sick).contains(&cause), "not found", &sick);
    check(of_held >= 0.95, "held by another one", &sick);
    check(!found(&cured).contains(&cause), "found where it is cured", &cured);
    check(of_time < 0.01, "held where it is cured", &cured);
    // In a cured one that is over in a millisecond, moments are a share that is told.
    check(found_ns(&all_cured) < 0.01 * all_held, "another cause is found where it is cured", &all_cured);
    check(took < NAMED_WITHIN, "named late", &sick);
    // The wait for the timer that sends something again is no delivery: this path takes 10 ms to and fro.
    if case.ways[0] == LOSSY {
        check(as_long(&sick, "delivery", Duration::from_millis(100)) == 0, "delivered late", &sick);
    }
    // The cured ones may be over in a millisecond, in which the moments between a write and its sending are much.
    // There are kernels that do not show all of their interrupts.
    let not_known = held(&sick, |holder| holder == "not_known") / held(&sick, |_| true);
    check(not_known < 0.02 || sick.iter().any(has_gap), "not known", &sick);
    Ok(wrong)
}

#[test]
fn each_cause_holds_what_it_is_said_to_hold_and_nothing_once_it_is_cured() {
    const NAME: &str = "each_cause_holds_what_it_is_said_to_hold_and_nothing_once_it_is_cured";
    if !may_trace(NAME) {
        return;
    }
    if !is_root() || !["ip", "tc"].into_iter().all(has) {
        return skip(NAME, "takes root, ip and tc, for namespaces with a path between them");
    }
    let mut wrong = Vec::new();
    for case in &CASES {
        match judge(case) {
            Ok(found) => wrong.extend(found),
            Err(error) => skip(NAME, &format!("{} can't be staged: {error}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
