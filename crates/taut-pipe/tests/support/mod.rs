//! An engine in a thread of its own, and what stands at the far sides of its ends.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod far;
pub(crate) mod tls;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use taut_link::Endpoint;
use taut_pipe::{Engine, Observer, Options, PipeReport, Plan};

pub(crate) struct Running {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) ended: Receiver<PipeReport>,
    pub(crate) notes: Receiver<String>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

struct Teller(mpsc::Sender<PipeReport>, mpsc::Sender<String>);

impl Observer for Teller {
    fn ended(&mut self, summary: PipeReport) {
        let _ = self.0.send(summary);
    }

    fn note(&mut self, text: &str) {
        let _ = self.1.send(text.to_owned());
    }
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn plan(a: &str, b: &str, options: Options) -> Plan {
    let side = |text: &str| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    Plan { name: "test".to_owned(), sides: [side(a), side(b)], options }
}

impl Running {
    pub(crate) fn start(a: &str, b: &str, options: Options) -> Self {
        let plan = plan(a, b, options);
        let (tell_endpoints, endpoints) = mpsc::channel();
        let ((tell, ended), (note, notes)) = (mpsc::channel(), mpsc::channel());
        let (stop, signalled) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut engine = Engine::new(vec![plan], Vec::new()).unwrap();
            tell_endpoints.send(engine.listening()).unwrap();
            engine.run(&OwnedFd::from(signalled), &mut Teller(tell, note)).unwrap();
        });
        let endpoints = endpoints.recv_timeout(PATIENCE).expect("the engine starts");
        Self { endpoints, ended, notes, stop, thread: Some(thread) }
    }

    /// The account of the next pipe that ends.
    pub(crate) fn next(&self) -> PipeReport {
        self.ended.recv_timeout(PATIENCE).expect("a pipe ends")
    }

    /// As a signal does.
    pub(crate) fn ask_to_stop(&self) {
        let _ = (&self.stop).write_all(b"x");
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.stop.write_all(b"x");
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.write_all(b"x");
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the engine panicked");
        }
    }
}

/// xorshift64*: the same numbers from the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

pub(crate) fn read_exact(from: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).expect("all bytes come");
    bytes
}

pub(crate) fn port(endpoint: &Endpoint) -> String {
    endpoint.to_string().trim_start_matches("tcp://").trim_start_matches("udp://").to_owned()
}
