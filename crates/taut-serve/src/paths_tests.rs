//! The handshake and the report over paths that delay, double and reorder: a relay of datagrams in this process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Request, Session};
use taut_time::Duration;

use super::{Server, ServerConfig};

/// What a path does to each datagram.
#[derive(Clone, Copy)]
struct Path {
    /// One way, at least.
    delay: Duration,
    /// More for each datagram, up to so much, by chance: later ones overtake.
    jitter: Duration,
    /// How often each arrives.
    copies: u32,
}

/// A relay between one client and a server, which ends when it is dropped.
struct Relay {
    endpoint: Endpoint,
    stop: Arc<AtomicBool>,
    from_client: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn start(server: &Endpoint, path: Path) -> Self {
        let address = server.to_string().split_once("://").unwrap().1.to_owned();
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        back.connect(address).unwrap();
        let endpoint = format!("udp://{}", front.local_addr().unwrap()).parse().unwrap();
        let (stop, from_client) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&from_client));
        for socket in [&front, &back] {
            socket.set_nonblocking(true).unwrap();
        }
        let thread = thread::spawn(move || relay(&front, &back, path, &stopped, &counted));
        Self { endpoint, stop, from_client, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn relay(front: &UdpSocket, back: &UdpSocket, path: Path, stop: &AtomicBool, from_client: &AtomicU64) {
    let mut waiting = BinaryHeap::new();
    let (mut client, mut buffer, mut order, mut chance) = (None, vec![0; 65_536], 0_u64, 7_u64);
    let mut later = |jitter: Duration| {
        // An LCG of Knuth's, seeded: the same path in each run.
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        jitter.mul_f64((chance >> 33) as f64 / f64::from(1_u32 << 31))
    };
    while !stop.load(Ordering::Relaxed) {
        for to_server in [true, false] {
            let bytes = if to_server {
                let Ok((bytes, from)) = front.recv_from(&mut buffer) else { continue };
                // Tests beside this one ask on ports that others had before; none of them gets the client's answers.
                if *client.get_or_insert(from) != from {
                    continue;
                }
                from_client.fetch_add(1, Ordering::Relaxed);
                bytes
            } else {
                let Ok(bytes) = back.recv(&mut buffer) else { continue };
                bytes
            };
            for _ in 0..path.copies {
                order += 1;
                let due = Instant::now() + path.delay + later(path.jitter);
                waiting.push(Reverse((due, order, to_server, buffer[..bytes].to_vec())));
            }
        }
        while waiting.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
            let Reverse((_, _, to_server, bytes)) = waiting.pop().unwrap();
            // A full socket loses it, as a path may.
            let _ = if to_server { back.send(&bytes) } else { front.send_to(&bytes, client.unwrap()) };
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn request(endpoint: &Endpoint, work: Work) -> Request {
    Request {
        endpoint: endpoint.clone(),
        work,
        acks: AckPolicy::System,
        message_bytes: 64,
        duration: Duration::from_secs(30),
        options: Vec::new(),
        plain: false,
        timeout: Duration::from_secs(2),
        core: None,
    }
}

fn server() -> Server {
    Server::start(&["udp://127.0.0.1:0".parse().unwrap()], ServerConfig::default()).unwrap()
}

/// A session from hello to report over that path: messages that arrived, and records of them.
fn session(path: Path, messages: u64) -> (u64, usize, u64) {
    let server = server();
    let relay = Relay::start(&server.endpoints()[0], path);
    let session = Session::open(&request(&relay.endpoint, Work::Collect)).unwrap();
    let mut message = vec![7; 64];
    for sequence in 0..messages {
        session.mark(&mut message, sequence);
        session.link().send(&message).unwrap();
        thread::sleep(Duration::from_micros(100));
    }
    // What is still under way belongs to the report as well.
    thread::sleep(path.delay + path.jitter + Duration::from_millis(300));
    let (summary, records) = session.finish(messages * 64).unwrap().unwrap();
    (summary.messages, records.len(), relay.from_client.load(Ordering::Relaxed))
}

/// The longest paths take two seconds, and a busy machine adds to that. A server forgot a session that was over after
/// just two, so that the question for its arrivals met nobody.
#[test]
fn a_session_works_at_a_round_trip_of_more_than_two_seconds() {
    let path = Path { delay: Duration::from_millis(1_200), jitter: Duration::ZERO, copies: 1 };
    let (messages, records, sent) = session(path, 10);
    assert_eq!((messages, records), (10, 10));
    // Five questions; the first is repeated three times until its answer is there, the others wait
    // longer than that takes. A machine that is busy for half a second adds one here and there.
    assert!(sent <= 10 + 5 + 3 + 6, "{sent} datagrams");
}

#[test]
fn a_session_works_when_every_packet_is_doubled_and_overtaken() {
    let path = Path { delay: Duration::from_millis(5), jitter: Duration::from_millis(40), copies: 2 };
    let (messages, records, _) = session(path, 120);
    assert_eq!((messages, records), (240, 240));
}

/// Of doubled answers that come late, none is taken for the answer to a later question: then its
/// round trip would look short and the clock wrong by the delay.
#[test]
fn a_late_clock_is_never_paired_with_a_later_question() {
    let server = server();
    for jitter in [0, 60] {
        let path = Path { delay: Duration::from_millis(30), jitter: Duration::from_millis(jitter), copies: 2 };
        let relay = Relay::start(&server.endpoints()[0], path);
        let reading = Session::read_clock(&request(&relay.endpoint, Work::Echo)).unwrap();
        // It is one clock, so that any distance is an error.
        assert!(reading.ahead_ns.unsigned_abs() <= reading.uncertainty_ns, "{reading:?}");
        assert!(reading.uncertainty_ns >= 30_000_000, "no round trip is shorter than the path's: {reading:?}");
    }
}
