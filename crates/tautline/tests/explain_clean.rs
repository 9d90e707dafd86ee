//! Traffic in which nothing holds data back that should not: of its captures `taut explain` may name who had nothing to
//! send, and what a transfer's own growth takes, and nothing else. `cargo test --test explain_clean -- --nocapture`
//! prints what it says of each.

mod explain_support;
mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use explain_support::traffic::ms;
use explain_support::{Conditions, Path, RECEIVER, SENDER};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;

/// Who talks how.
enum Talk {
    /// What is done with each connection at the server, and what the client does.
    Tcp(fn(TcpStream), fn(SocketAddr)),
    /// What the server does with each datagram.
    Udp(u16, fn(&UdpSocket, &[u8], SocketAddr), fn(SocketAddr)),
    /// What curl is asked for, of nginx.
    Web(&'static [&'static str]),
}

struct Kind {
    name: &'static str,
    /// One way.
    delay: Duration,
    /// What a transfer's own growth takes is no fault.
    grows: bool,
    congestion_control: Option<&'static str>,
    /// Of TCP (RFC 7323): at both ends, or at neither.
    timestamps: bool,
    talk: Talk,
}

const PORT: u16 = 9;
const WEB: u16 = 80;

fn ask(stream: &mut TcpStream, request: usize, answer: usize) {
    stream.write_all(&vec![b'q'; request]).unwrap();
    stream.read_exact(&mut vec![0; answer]).unwrap();
}

/// Answers each request in one write.
fn answer<const REQUEST: usize, const ANSWER: usize, const THINK_MS: u64>(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    while stream.read_exact(&mut [0; REQUEST]).is_ok() {
        sleep(ms(THINK_MS));
        if stream.write_all(&[b'a'; ANSWER]).is_err() {
            return;
        }
    }
}

fn requests<const REQUEST: usize, const ANSWER: usize, const COUNT: u32, const PAUSE_MS: u64>(to: SocketAddr) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    for _ in 0..COUNT {
        ask(&mut stream, REQUEST, ANSWER);
        sleep(ms(PAUSE_MS));
    }
}

fn read_all(mut stream: TcpStream) {
    let mut buffer = vec![0; 256 << 10];
    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
}

const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

/// Three transfers by a congestion control, each short enough that no queue on the way can overflow.
fn transfers<const CONTROL: usize>(to: SocketAddr) {
    for _ in 0..3 {
        let mut stream = TcpStream::connect(to).unwrap();
        sockopt::set_tcp_congestion(&stream, CONTROLS[CONTROL]).unwrap();
        stream.write_all(&vec![b'x'; 800_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Until the other end has closed as well.
        let _ = stream.read(&mut [0]);
    }
}

/// So much at this period, for a second.
fn periodic(mut stream: TcpStream, bytes: usize, period: Duration, nodelay: bool) {
    stream.set_nodelay(nodelay).unwrap();
    let begin = Instant::now();
    for turn in 1.. {
        if begin.elapsed() > ms(1_000) || stream.write_all(&vec![b'p'; bytes]).is_err() {
            return;
        }
        sleep((begin + period * turn).saturating_duration_since(Instant::now()));
    }
}

/// Talks at its own period, while it reads what comes.
fn talks(stream: TcpStream) {
    let other = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| read_all(other));
        periodic(stream.try_clone().unwrap(), 500, ms(15), true);
        stream.shutdown(Shutdown::Write).unwrap();
    });
}

/// A question (RFC 1035, section 4.1) of a name of its own.
fn question(number: u8) -> Vec<u8> {
    [&[0, number, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a' + number % 26][..], b"\x07example\x03com\0\0\x01\0\x01"]
        .concat()
}

fn datagrams(to: SocketAddr, count: u8, period: Duration, waits: bool, datagram: fn(u8) -> Vec<u8>) {
    let socket = UdpSocket::bind((SENDER, 0)).unwrap();
    socket.connect(to).unwrap();
    let begin = Instant::now();
    for number in 0..count {
        socket.send(&datagram(number)).unwrap();
        if waits {
            socket.recv(&mut [0; 2048]).unwrap();
        }
        sleep((begin + period * (u32::from(number) + 1)).saturating_duration_since(Instant::now()));
    }
}

fn kinds() -> Vec<Kind> {
    let kind = |name, delay, talk| Kind {
        name,
        delay: ms(delay),
        grows: false,
        congestion_control: None,
        timestamps: true,
        talk,
    };
    let grows = |kind: Kind| Kind { grows: true, ..kind };
    let bulk = |name, control: usize, call: fn(SocketAddr)| Kind {
        congestion_control: Some(CONTROLS[control]),
        ..grows(kind(name, 5, Talk::Tcp(read_all, call)))
    };
    let one_write = |to| {
        let mut stream = TcpStream::connect(to).unwrap();
        (0..40).for_each(|_| ask(&mut stream, 200, 300));
    };
    let under_way = |to| {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut answers = stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || answers.read_exact(&mut [0; 200 * 300]).unwrap());
            for _ in 0..200 {
                (&stream).write_all(&[b'u'; 200]).unwrap();
                sleep(ms(4));
            }
        });
    };
    let idle = |to| {
        let mut stream = TcpStream::connect(to).unwrap();
        sockopt::set_socket_keepalive(&stream, true).unwrap();
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(1)).unwrap();
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1)).unwrap();
        for pause in [2_200, 0] {
            ask(&mut stream, 200, 300);
            sleep(ms(pause));
        }
    };
    let quiet = |to| {
        let mut stream = TcpStream::connect(to).unwrap();
        for pause in [1_200, 100] {
            ask(&mut stream, 200, 300);
            sleep(ms(pause));
        }
    };
    let short = |to| (0..40).for_each(|_| ask(&mut TcpStream::connect(to).unwrap(), 200, 300));
    let four =
        |to| thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(move || requests::<200, 300, 40, 5>(to)))));
    let half_closed = |to| {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(&[b'h'; 5_000]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
    };
    let to_the_end = |mut stream: TcpStream| {
        stream.read_to_end(&mut Vec::new()).unwrap();
        stream.write_all(&[b'e'; 5_000]).unwrap();
    };
    let echo = |socket: &UdpSocket, datagram: &[u8], from| drop(socket.send_to(datagram, from));
    let resolve = |socket: &UdpSocket, question: &[u8], from| {
        let mut answer = question.to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        drop(socket.send_to(&answer, from));
    };
    vec![
        kind("requests", 5, Talk::Tcp(answer::<200, 300, 0>, requests::<200, 300, 40, 10>)),
        kind("requests on a long path", 60, Talk::Tcp(answer::<200, 300, 0>, requests::<200, 300, 8, 10>)),
        kind("requests on a short path", 0, Talk::Tcp(answer::<200, 300, 0>, requests::<200, 300, 100, 5>)),
        kind("requests without a pause", 2, Talk::Tcp(answer::<200, 300, 0>, requests::<200, 300, 150, 0>)),
        Kind {
            timestamps: false,
            ..kind("the same, no timestamps", 2, Talk::Tcp(answer::<200, 300, 0>, requests::<200, 300, 150, 0>))
        },
        kind("several requests under way", 10, Talk::Tcp(answer::<200, 300, 0>, under_way)),
        kind("server thinks 20 ms", 5, Talk::Tcp(answer::<200, 300, 20>, requests::<200, 300, 30, 0>)),
        kind("requests in one write, Nagle on", 5, Talk::Tcp(answer::<200, 300, 0>, one_write)),
        grows(kind("answers of 60 kB", 5, Talk::Tcp(answer::<200, 60_000, 0>, requests::<200, 60_000, 20, 0>))),
        grows(kind("requests of 60 kB", 5, Talk::Tcp(answer::<60_000, 200, 0>, requests::<60_000, 200, 20, 0>))),
        bulk("transfers, cubic", 0, transfers::<0>),
        bulk("transfers, reno", 1, transfers::<1>),
        bulk("transfers, bbr", 2, transfers::<2>),
        Kind { timestamps: false, ..bulk("the same, no timestamps", 2, transfers::<2>) },
        kind("HTTP, one connection", 5, Talk::Web(&["http://10.99.0.2/page?[1-30]"])),
        kind("HTTP, new connections", 5, Talk::Web(&["-H", "Connection: close", "http://10.99.0.2/page?[1-15]"])),
        grows(kind("HTTP, files of 400 kB", 5, Talk::Web(&["http://10.99.0.2/file?[1-3]"]))),
        kind("idle", 5, Talk::Tcp(answer::<200, 300, 0>, quiet)),
        kind("idle, with probes (SO_KEEPALIVE)", 5, Talk::Tcp(answer::<200, 300, 0>, idle)),
        kind("short connections", 2, Talk::Tcp(answer::<200, 300, 0>, short)),
        kind("four connections at once", 5, Talk::Tcp(answer::<200, 300, 0>, four)),
        kind("half-closed connections", 2, Talk::Tcp(to_the_end, half_closed)),
        kind(
            "stream, 1.2 kB each 10 ms",
            5,
            Talk::Tcp(read_all, |to| {
                periodic(TcpStream::connect(to).unwrap(), 1_200, ms(10), true);
            }),
        ),
        grows(kind(
            "stream, 20 kB each 25 ms",
            5,
            Talk::Tcp(read_all, |to| {
                periodic(TcpStream::connect(to).unwrap(), 20_000, ms(25), true);
            }),
        )),
        kind(
            "stream, 300 B each 100 ms, Nagle on",
            5,
            Talk::Tcp(read_all, |to| {
                periodic(TcpStream::connect(to).unwrap(), 300, ms(100), false);
            }),
        ),
        grows(kind(
            "stream, 64 kB each 100 ms, Nagle on",
            5,
            Talk::Tcp(read_all, |to| {
                periodic(TcpStream::connect(to).unwrap(), 64_000, ms(100), false);
            }),
        )),
        kind(
            "events from the server",
            5,
            Talk::Tcp(
                |stream| periodic(stream, 700, ms(30), true),
                |to| {
                    read_all(TcpStream::connect(to).unwrap());
                },
            ),
        ),
        kind("both talk", 5, Talk::Tcp(talks, |to| talks(TcpStream::connect(to).unwrap()))),
        kind("UDP, requests", 5, Talk::Udp(PORT, echo, |to| datagrams(to, 60, ms(0), true, |n| vec![n; 100]))),
        kind(
            "UDP, a voice each way",
            5,
            Talk::Udp(PORT, echo, |to| datagrams(to, 50, ms(20), false, |n| vec![n; 160])),
        ),
        kind("DNS", 5, Talk::Udp(53, resolve, |to| datagrams(to, 30, ms(20), true, question))),
    ]
}

/// Takes connections until it is told to stop.
fn take_connections(serve: fn(TcpStream), stop: &AtomicBool, ready: &mpsc::Sender<()>) {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    ready.send(()).unwrap();
    let look = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            if rustix::event::poll(&mut fds, Some(&look)).is_ok_and(|ready| ready > 0) {
                let (stream, _) = listener.accept().unwrap();
                scope.spawn(move || serve(stream));
            }
        }
    });
}

fn take_datagrams(port: u16, serve: fn(&UdpSocket, &[u8], SocketAddr), stop: &AtomicBool, ready: &mpsc::Sender<()>) {
    let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    socket.set_read_timeout(Some(ms(20))).unwrap();
    ready.send(()).unwrap();
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            serve(&socket, &buffer[..length], from);
        }
    }
}

/// nginx at one end, curl at the other.
fn browse(path: &Path, asked: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let root = directory.path().display();
    std::fs::write(directory.path().join("page"), vec![b'x'; 2_000]).unwrap();
    std::fs::write(directory.path().join("file"), vec![b'x'; 400_000]).unwrap();
    let settings = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/errors; events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}/1; proxy_temp_path {root}/2; fastcgi_temp_path {root}/3; \
         uwsgi_temp_path {root}/4; scgi_temp_path {root}/5; server {{ listen {RECEIVER}:{WEB}; root {root}; }} }}"
    );
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, settings).unwrap();
    let mut server = path.command(1, "nginx");
    let mut server = server.args(["-e", "stderr", "-c"]).arg(&file).stderr(Stdio::null()).spawn().unwrap();
    // From its own side of the path, so that nothing of it is captured.
    let listens = path.spawn(1, || {
        let begin = Instant::now();
        while TcpStream::connect((RECEIVER, WEB)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "nginx does not listen");
            sleep(ms(20));
        }
    });
    listens.join().unwrap();
    let output = path.command(0, "curl").args(["-sf", "-o", "/dev/null"]).args(asked).output().unwrap();
    let _ = server.kill();
    let _ = server.wait();
    assert!(output.status.success(), "curl: {output:?}");
}

impl Kind {
    /// The captures at both ends.
    fn captures(&self) -> Result<[Vec<u8>; 2], String> {
        let path = Path::start(&Conditions { delay: delay_of(self), ..Conditions::default() })?;
        if !self.timestamps {
            for end in 0..2 {
                let set = || std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0");
                path.spawn(end, set).join().unwrap().map_err(|error| format!("tcp_timestamps: {error}"))?;
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let (serving, stopped) = (Arc::clone(&stop), stop);
        let (server, call, port) = match self.talk {
            Talk::Web(asked) => {
                browse(&path, asked);
                sleep(ms(50));
                return Ok(path.finish());
            }
            Talk::Tcp(serve, call) => (path.spawn(1, move || take_connections(serve, &serving, &ready)), call, PORT),
            Talk::Udp(port, serve, call) => {
                (path.spawn(1, move || take_datagrams(port, serve, &serving, &ready)), call, port)
            }
        };
        is_ready.recv().unwrap();
        let to = SocketAddr::new(RECEIVER.parse().unwrap(), port);
        let called = path.spawn(0, move || call(to)).join();
        // What is on its way arrives.
        sleep(ms(50));
        stopped.store(true, Ordering::Relaxed);
        server.join().unwrap();
        called.unwrap();
        Ok(path.finish())
    }
}

/// `TAUT_DELAY_MS` is another one for all.
fn delay_of(kind: &Kind) -> Duration {
    std::env::var("TAUT_DELAY_MS").map_or(kind.delay, |delay| ms(delay.parse().unwrap()))
}

const WINDOW_GROWS: &str = "receive_window, still growing";

/// The causes found in any direction, but for what programs do by their own will.
fn found(capture: &[u8]) -> (u64, BTreeSet<String>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let document = support::run_json(&format!("explain --top 1000 {}", file.path().display()));
    let worst = document["files"][0]["worst"].as_array().unwrap();
    let verdicts = worst.iter().flat_map(|direction| direction["verdicts"].as_array().unwrap());
    let found = verdicts.filter(|on| on["verdict"] == "found").map(|on| {
        let (cause, summary) = (on["cause"].as_str().unwrap(), on["summary"].as_str().unwrap());
        // The receiver's part of a transfer's growth.
        if cause == "receive_window" && summary.contains("still growing") { WINDOW_GROWS } else { cause }
    });
    let of_programs = ["sending_program", "peer_turn"];
    let found = found.filter(|cause| !of_programs.contains(cause)).map(str::to_owned).collect();
    (worst.len() as u64, found)
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    const TEST: &str = "nothing_is_found_where_nothing_is_wrong";
    if !support::is_root() || !support::has("ip") {
        return support::skip(TEST, "needs root and ip, for two network namespaces");
    }
    let kept = std::env::var_os("TAUT_KEEP");
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let (mut wrong, mut clean) = (Vec::new(), 0);
    for (number, kind) in kinds().iter().enumerate() {
        let lacks = match (&kind.talk, kind.congestion_control) {
            (Talk::Web(_), _) => !support::has("nginx") || !support::has("curl"),
            (_, Some(name)) => !known.split_whitespace().any(|has| has == name),
            _ => false,
        };
        if lacks {
            println!("{:34} needs nginx, curl or a congestion control that is not here", kind.name);
            continue;
        }
        let captures = match kind.captures() {
            Ok(captures) => captures,
            Err(error) => return support::skip(TEST, &error),
        };
        clean += 1;
        for (place, capture) in ["sender", "receiver"].into_iter().zip(captures) {
            if let Some(directory) = &kept {
                std::fs::write(std::path::Path::new(directory).join(format!("{number}-{place}.pcap")), &capture)
                    .unwrap();
            }
            let (directions, found) = found(&capture);
            println!("{:34} {place:8} {directions:3} directions: {found:?}", kind.name);
            assert!(directions > 0, "{}: nothing was captured", kind.name);
            let growth = ["slow_start", "congestion_window", WINDOW_GROWS];
            let false_ones: Vec<_> =
                found.iter().filter(|cause| !kind.grows || !growth.contains(&cause.as_str())).collect();
            if !false_ones.is_empty() {
                wrong.push(format!("{}, at the {place}: {false_ones:?}", kind.name));
            }
        }
    }
    assert!(clean >= 20, "{clean} kinds of traffic could run");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
