//! The server among clients good and bad.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{Serve, long, parse, run, run_json, taut, text};
use taut_link::wire::{AckPolicy, CONTROL_BYTES, Frame, Hello, Work};

fn hello(work: Work) -> Vec<u8> {
    let hello = Hello {
        work,
        acks: AckPolicy::System,
        message_bytes: 128,
        duration: Duration::from_secs(1),
        nonce: 7,
        token: 0,
        core: None,
        boot: 0,
    };
    Frame::Hello(hello).emit(7)
}

#[test]
fn limits_are_kept_and_named() {
    let server = Serve::start("tcp://127.0.0.1:0 udp://127.0.0.1:0 --max-clients 2 --max-message 1KiB --max-time 5s");
    for endpoint in &server.endpoints {
        for (line, says) in [
            (format!("echo {endpoint} --size 2KiB"), "1024 bytes"),
            (format!("echo {endpoint} --time 10s --place free"), "5 s"),
            (format!("echo {endpoint} --connections 3 --count 100"), "2 clients"),
        ] {
            let output = run(&line);
            assert_eq!(output.status.code(), Some(1), "{line}");
            assert!(text(&output.stderr).contains(says), "{line}: {}", text(&output.stderr));
        }
    }
    let refused = run(&format!("stream {} --direction down --block 500 --time 1s", server.endpoint(1)));
    assert!(text(&refused.stderr).contains("never amplifies"), "{}", text(&refused.stderr));
    let refused = run(&format!("echo {} --peer-ack prompt", server.endpoint(1)));
    assert!(text(&refused.stderr).contains("acknowledge"), "{}", text(&refused.stderr));
}

#[test]
fn a_rate_limit_slows_a_stream_and_drops_datagrams() {
    let server = Serve::start("tcp://127.0.0.1:0 udp://127.0.0.1:0 --max-rate 200");
    let stream = run_json(&format!("echo {} --time 3s --rounds 1 --place free", server.endpoint(0)));
    let sent = stream["results"][0]["sent"].as_u64().unwrap();
    assert!((300..=850).contains(&sent), "{sent} messages in 3 s, with a burst of 200 and 200 a second");
    let datagrams =
        run_json(&format!("echo {} --rate 1000 --time 2s --rounds 1 --timeout 100ms --place free", server.endpoint(1)));
    assert!(datagrams["results"][0]["lost"].as_u64().unwrap() > 800);
}

#[test]
fn places_come_back() {
    let server = Serve::start("tcp://127.0.0.1:0 udp://127.0.0.1:0 --max-clients 10");
    for _ in 0..5 {
        for endpoint in &server.endpoints {
            run_json(&format!("echo {endpoint} --count 50 --connections 8 --rounds 1"));
            run_json(&format!("pace {endpoint} --period 1ms --time 20ms --rounds 2"));
        }
    }
}

/// To an address that has not repeated a token goes nothing but one frame as long as its hello.
#[test]
fn no_amplification() {
    let server = Serve::start("udp://127.0.0.1:0");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.socket_address(0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut buffer = [0; 65536];
    for (datagram, answers) in [
        (hello(Work::Echo), 1),
        (hello(Work::Source), 1),
        (Frame::Bye.emit(7), 0),
        (Frame::Fetch { index: 0 }.emit(7), 0),
        (Frame::Clock { server_ns: 0 }.emit(7), 0),
        (b"hello".to_vec(), 0),
        (vec![], 0),
        (vec![0; 60_000], 0),
    ] {
        socket.send(&datagram).unwrap();
        let mut got = 0;
        while let Ok(length) = socket.recv(&mut buffer) {
            got += 1;
            assert!(length <= datagram.len(), "{length} bytes for {}", datagram.len());
            assert!(matches!(Frame::parse(&buffer[..length]), Ok((_, Frame::Challenge { .. }))));
        }
        assert_eq!(got, answers, "{} bytes", datagram.len());
    }
    let mut data = vec![0; 64];
    taut_link::wire::data_header(&mut data, 7, 0);
    socket.send(&data).unwrap();
    assert!(socket.recv(&mut buffer).is_err(), "an echo without a session");
}

#[test]
fn a_client_of_another_version_is_told_so() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let mut stream = TcpStream::connect(server.socket_address(0)).unwrap();
    let mut bytes = hello(Work::Echo);
    bytes[4] = 99;
    stream.write_all(&bytes).unwrap();
    let mut answer = [0; CONTROL_BYTES];
    stream.read_exact(&mut answer).unwrap();
    let (_, frame) = Frame::parse(&answer).unwrap();
    assert!(format!("{frame:?}").contains("OtherVersion"), "{frame:?}");
}

/// 200 clients at once on one server, echo and stream mixed: all are served, nobody starves, memory stays flat.
#[test]
fn two_hundred_clients_at_once() {
    let seconds = if long() { 20 } else { 4 };
    let (server, _directory) = Serve::on_all();
    let start = |line: String| -> Child {
        let mut command = taut();
        command.args(line.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // Six processes: 20 links each of echo over every transport, and 40 + 40 of streams.
    let mut clients: Vec<Child> = server
        .endpoints
        .iter()
        .map(|endpoint| {
            start(format!(
                "echo {endpoint} --connections 20 --rate 400 --time {seconds}s --rounds 1 --timeout 5s --json"
            ))
        })
        .collect();
    for (index, direction) in [(0, "up"), (4, "up")] {
        let endpoint = server.endpoint(index);
        clients.push(start(format!(
            "stream {endpoint} --connections 40 --direction {direction} --time {seconds}s --rounds 1 --json"
        )));
    }
    thread::sleep(Duration::from_secs(seconds / 4 + 1));
    let early = server.memory_kib();
    thread::sleep(Duration::from_secs(seconds / 2));
    let late = server.memory_kib();
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let row = &parse(&output)["results"][0];
        if row["workload"] == "echo" {
            assert_eq!(row["sent"].as_u64(), Some(400 * seconds), "{row:#}");
            let lost = row["lost"].as_u64().unwrap();
            assert_eq!(lost, 0, "{} lost {lost}", row["endpoint"]);
        } else {
            assert!(row["bytes"].as_u64().unwrap() > 100_000_000, "{row:#}");
        }
    }
    assert!(late <= early + early / 10 + 1024, "memory grew from {early} to {late} KiB");
}

/// Bytes from a seed (splitmix64), so that a failure can be repeated.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Bad input: nothing, noise, a frame cut short, a frame with a flipped byte, a frame too long, or several at once.
    fn badness(&mut self) -> Vec<u8> {
        let frames = [
            hello(Work::Echo),
            hello(Work::Collect),
            hello(Work::Sink),
            hello(Work::Source),
            hello(Work::Duplex),
            Frame::Start.emit(7),
            Frame::Bye.emit(7),
            Frame::Clock { server_ns: 1 }.emit(7),
            Frame::Fetch { index: self.next() }.emit(7),
        ];
        let mut bytes = frames[self.below(frames.len() as u64) as usize].clone();
        match self.below(7) {
            0 => bytes.clear(),
            1 => bytes = (0..self.below(300)).map(|_| self.next() as u8).collect(),
            2 => bytes.truncate(self.below(64) as usize),
            3 => {
                let at = self.below(bytes.len() as u64) as usize;
                bytes[at] = self.next() as u8;
            }
            4 => bytes.resize(bytes.len() + self.below(60_000) as usize, 0xEE),
            5 => bytes.extend(Frame::Start.emit(7)),
            _ => {}
        }
        bytes
    }
}

fn attack_stream(mut stream: impl Read + Write, noise: &mut Noise) {
    for _ in 0..noise.below(4) {
        let bytes = noise.badness();
        if noise.below(5) == 0 {
            // A slow-loris: byte by byte.
            for byte in bytes.iter().take(12) {
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(2));
            }
        } else if stream.write_all(&bytes).is_err() {
            return;
        }
        if noise.below(2) == 0 {
            let _ = stream.read(&mut [0; 4096]);
        }
    }
}

/// The server survives a fuzzer on every endpoint, and keeps serving good clients meanwhile.
#[test]
fn the_server_survives_a_fuzzer_and_serves_on() {
    let seconds = if long() { 60 } else { 8 };
    let (mut server, directory) = Serve::on_all();
    let stop = AtomicBool::new(false);
    let (tcp, udp) = (server.socket_address(0), server.socket_address(1));
    let (stream_path, datagram_path) = (directory.path().join("s"), directory.path().join("d"));
    let seed = 0x5EED;
    let mut good = 0;
    let before = server.memory_kib();
    let timeout = Some(Duration::from_millis(20));
    let running = || !stop.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut noise = Noise(seed);
            let mut half_open = Vec::new();
            while running() {
                let Ok(stream) = TcpStream::connect(tcp) else { continue };
                stream.set_read_timeout(timeout).unwrap();
                stream.set_write_timeout(timeout).unwrap();
                match noise.below(10) {
                    // Left open without a word.
                    0 if half_open.len() < 100 => half_open.push(stream),
                    1 => drop(stream.shutdown(Shutdown::Write)),
                    _ => attack_stream(stream, &mut noise),
                }
                if noise.below(200) == 0 {
                    half_open.clear();
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            let mut noise = Noise(seed + 1);
            while running() {
                let Ok(stream) = UnixStream::connect(&stream_path) else { continue };
                stream.set_read_timeout(timeout).unwrap();
                stream.set_write_timeout(timeout).unwrap();
                attack_stream(stream, &mut noise);
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            let mut noise = Noise(seed + 2);
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let unix = UnixDatagram::unbound().unwrap();
            unix.set_write_timeout(timeout).unwrap();
            while running() {
                let bytes = noise.badness();
                let _ = socket.send_to(&bytes, udp);
                let _ = unix.send_to(&bytes, &datagram_path);
                thread::sleep(Duration::from_micros(500));
            }
        });
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            let line = format!("echo {} --count 200 --rounds 1", server.endpoints.join(" "));
            let document = run_json(&line);
            for row in document["results"].as_array().unwrap() {
                assert_eq!(row["lost"], 0, "seed {seed:#x}: {row:#}");
            }
            good += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(server.is_running(), "the server died, seed {seed:#x}");
    assert!(good >= 3, "{good} good clients were served");
    let after = server.memory_kib();
    assert!(after < before + 64 * 1024, "memory grew from {before} to {after} KiB");
}

#[test]
fn a_socket_file_that_nobody_serves_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let endpoint = format!("unix:{}", path.display());
    let mut first = Serve::start(&endpoint);
    let second = run(&format!("serve {endpoint}"));
    assert_eq!(second.status.code(), Some(1), "{}", text(&second.stderr));
    first.kill();
    assert!(path.exists(), "killed, so it could not tidy up");
    let mut third = Serve::start(&endpoint);
    run_json(&format!("echo {} --count 10", third.endpoint(0)));
    // One that took its place keeps it.
    std::fs::remove_file(&path).unwrap();
    let fourth = Serve::start(&endpoint);
    let pid = rustix::process::Pid::from_raw(third.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    while third.is_running() {
        thread::sleep(Duration::from_millis(5));
    }
    run_json(&format!("echo {} --count 10", fourth.endpoint(0)));
}

/// To connect to it is refused as to a socket whose server was killed.
#[test]
fn a_file_that_is_no_socket_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, "x").unwrap();
    for scheme in ["unix", "unix-dgram"] {
        let output = run(&format!("serve {scheme}:{}", path.display()));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
    }
}
