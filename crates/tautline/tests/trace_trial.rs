//! `taut trace --try` whose end comes early: of the tracer, and of the connection that it changes. Where the kernel
//! does not let this user trace, or set the options of others, these are skipped.

mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{is_root, parse, skip, taut, text};
use trace_support::may_trace;

fn can_run(test: &str) -> bool {
    if !is_root() {
        skip(test, "root sets the options of others");
        return false;
    }
    may_trace(test)
}

/// A client that writes twice and reads, until the other end is closed.
struct Client {
    /// The same socket, to look at.
    socket: TcpStream,
    /// The other end, which answers until there is no more.
    serving: JoinHandle<()>,
    asking: JoinHandle<()>,
}

impl Client {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut client = socket.try_clone().unwrap();
        let serving = thread::spawn(move || {
            let mut request = [0; 64];
            while server.read_exact(&mut request).is_ok() && server.write_all(b"answered").is_ok() {}
        });
        let asking = thread::spawn(move || {
            let parts: [&[u8]; 2] = [&[1; 16], &[2; 48]];
            while parts.iter().all(|part| client.write_all(part).is_ok()) && client.read_exact(&mut [0; 8]).is_ok() {
                sleep(Duration::from_millis(2));
            }
        });
        Self { socket, serving, asking }
    }

    /// A trial at the moment at which it has set the option.
    fn under_trial(&self) -> Child {
        let port = self.socket.local_addr().unwrap().port().to_string();
        let mut trace = taut();
        trace.args(["trace", "--port", &port, "--json", "--try", "nodelay", "--for", "12s"]);
        let trace = trace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !self.socket.nodelay().unwrap() {
            assert!(Instant::now() < until, "the option is never set");
            sleep(Duration::from_millis(5));
        }
        trace
    }

    fn stop(self) {
        // It may be closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        self.serving.join().unwrap();
        self.asking.join().unwrap();
    }
}

#[test]
fn a_trial_that_is_interrupted_puts_the_option_back() {
    const NAME: &str = "a_trial_that_is_interrupted_puts_the_option_back";
    if !can_run(NAME) {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let client = Client::start();
        let trace = client.under_trial();
        kill(Pid::from_raw(trace.id() as i32), signal).unwrap();
        let output = trace.wait_with_output().unwrap();
        let is_off = !client.socket.nodelay().unwrap();
        client.stop();
        assert_eq!((output.status.code(), is_off), (Some(130), true), "{signal}: {}", text(&output.stderr));
        // A span that was not to its end counts for nothing.
        let trial = &parse(&output)["trial"];
        assert_eq!(
            (trial["outcome"].as_str(), trial["pairs"].to_string()),
            (Some("too_few"), "[]".into()),
            "{trial:#}"
        );
    }
}

/// `taut` keeps no descriptor meanwhile: that would keep the connection open at the other end.
#[test]
fn a_program_closes_its_connection_during_a_trial_as_always() {
    const NAME: &str = "a_program_closes_its_connection_during_a_trial_as_always";
    if !can_run(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let client = Client { socket, serving: thread::spawn(|| {}), asking: thread::spawn(|| {}) };
    let trace = client.under_trial();
    let begin = Instant::now();
    drop(client);
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    let took = begin.elapsed();
    kill(Pid::from_raw(trace.id() as i32), Signal::SIGINT).unwrap();
    trace.wait_with_output().unwrap();
    // A span takes a second, and at its end the option is put back.
    assert!(took < Duration::from_millis(500), "{took:?}");
}
