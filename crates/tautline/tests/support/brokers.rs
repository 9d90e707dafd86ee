//! Brokers of a test's own on loopback ports, their certificates, and what stands in their way.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

use super::{free_port, has, skip, wait_for_tcp};

/// A Mosquitto; ended when dropped.
pub(crate) struct Mosquitto {
    child: Child,
    pub(crate) port: u16,
    _kept: Option<Port>,
    _directory: tempfile::TempDir,
}

/// For all, and without Nagle's algorithm.
pub(crate) const OPEN: &str = "allow_anonymous true\nset_tcp_nodelay true";

impl Mosquitto {
    /// With these lines in its configuration; `None`, and the test counted as skipped, where there is none.
    pub(crate) fn start(test: &str, lines: &str) -> Option<Self> {
        Self::start_at(test, free_port(), |_| lines.to_owned())
    }

    pub(crate) fn start_at(test: &str, port: u16, lines: impl Fn(&Path) -> String) -> Option<Self> {
        if !has("mosquitto") {
            skip(test, "mosquitto is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mosquitto.conf");
        // Root becomes the user `mosquitto` unless told otherwise, and could not read the directory then.
        let lines = format!("listener {port} 127.0.0.1\nuser root\n{}\n", lines(directory.path()));
        std::fs::write(&path, lines).unwrap();
        let mut command = with_system_programs("mosquitto");
        command.arg("-c").arg(&path);
        let kept = Port::at(port);
        let child = command.spawn().unwrap();
        let broker = Self { child, port, _kept: kept, _directory: directory };
        wait_for_tcp(([127, 0, 0, 1], port).into());
        Some(broker)
    }

    pub(crate) fn topic(&self, rest: &str) -> String {
        format!("mqtt://127.0.0.1:{}/{rest}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stock client that hears a broker's messages, and tells how long each is; ended when dropped. It takes the programs
/// of mosquitto-clients.
pub(crate) struct Listener {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listener {
    /// Its subscription is there: it has heard a message at `sign`, a topic of the filter, that the broker had kept.
    pub(crate) fn start(broker: &Mosquitto, filter: &str, sign: &str) -> Self {
        let port = broker.port.to_string();
        let there = ["-h", "127.0.0.1", "-p", port.as_str()];
        let mut keep = Command::new("mosquitto_pub");
        assert!(keep.args(there).args(["-q", "1", "-r", "-t", sign, "-m", "now"]).status().unwrap().success());
        let mut hear = Command::new("mosquitto_sub");
        hear.args(there).args(["-t", filter, "-F", "%l", "-W", "120"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = hear.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut listener = Self { child, lines };
        assert_eq!(listener.next_bytes(), 3, "it has heard what was kept");
        listener
    }

    /// How many bytes the next message has.
    pub(crate) fn next_bytes(&mut self) -> u64 {
        self.lines.next().expect("a message comes in time").unwrap().parse().unwrap()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A nats-server; ended when dropped.
pub(crate) struct NatsServer {
    child: Child,
    pub(crate) port: u16,
    _kept: Option<Port>,
}

impl NatsServer {
    /// With these options; `None`, and the test counted as skipped, where there is none.
    pub(crate) fn start(test: &str, port: u16, options: &[&str]) -> Option<Self> {
        if !has("nats-server") {
            skip(test, "nats-server is not installed");
            return None;
        }
        let mut command = with_system_programs("nats-server");
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).args(options);
        let kept = Port::at(port);
        let child = command.spawn().unwrap();
        wait_for_tcp(([127, 0, 0, 1], port).into());
        Some(Self { child, port, _kept: kept })
    }

    pub(crate) fn subject(&self, rest: &str) -> String {
        format!("nats://127.0.0.1:{}/{rest}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_system_programs(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Certificates of a test: a root of its own, and what it has signed.
pub(crate) struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    /// `server` is for `localhost` and 127.0.0.1, `elsewhere` for another host, `expired` no longer valid, and `client`
    /// for a client; `alone` has signed itself.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        let root_key = rcgen::KeyPair::generate().unwrap();
        // By their names OpenSSL finds out who has signed whom.
        let called = |name: &str| {
            let mut called = rcgen::DistinguishedName::new();
            called.push(rcgen::DnType::CommonName, name);
            called
        };
        let mut root = rcgen::CertificateParams::new(Vec::new()).unwrap();
        root.distinguished_name = called("root");
        root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        write("root.pem", root.self_signed(&root_key).unwrap().pem());
        let issuer = rcgen::Issuer::new(root, root_key);
        for name in ["server", "elsewhere", "expired", "client", "alone"] {
            let key = rcgen::KeyPair::generate().unwrap();
            let names: &[&str] = if name == "elsewhere" { &["elsewhere.example"] } else { &["localhost", "127.0.0.1"] };
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let mut parameters = rcgen::CertificateParams::new(names).unwrap();
            parameters.distinguished_name = called(name);
            if name == "expired" {
                parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
            }
            let certificate = if name == "alone" {
                parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
                parameters.self_signed(&key)
            } else {
                parameters.signed_by(&key, &issuer)
            };
            write(&format!("{name}.pem"), certificate.unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { directory }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Lines for a listener of Mosquitto's with that certificate.
    pub(crate) fn listener(&self, name: &str) -> String {
        let (cert, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        format!("certfile {cert}\nkeyfile {key}\nallow_anonymous true")
    }

    /// Options of a nats-server with that certificate.
    pub(crate) fn options(&self, name: &str) -> [String; 5] {
        let file = |end: &str| self.path(&format!("{name}.{end}"));
        ["--tls".to_owned(), "--tlscert".to_owned(), file("pem"), "--tlskey".to_owned(), file("key")]
    }
}

/// What a relay does when a connection has brought so many bytes from its server.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Ends it.
    Cut,
    /// Changes one of them.
    Spoil,
}

/// A relay before a server on loopback, for all connections that come.
pub(crate) struct Between {
    pub(crate) port: u16,
    /// Bytes that came from the server.
    pub(crate) heard: Arc<AtomicU64>,
    /// What came from clients.
    pub(crate) sent: Arc<Mutex<Vec<u8>>>,
}

impl Between {
    /// Carries what comes to a port, until a connection has brought so many bytes from the server.
    pub(crate) fn start(server: u16, after: u64, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, sent) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let counted = (Arc::clone(&heard), Arc::clone(&sent));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                for socket in [&client, &server] {
                    socket.set_nodelay(true).unwrap();
                }
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (heard, sent) = (Arc::clone(&counted.0), Arc::clone(&counted.1));
                thread::spawn(move || carry_on(from, to, &sent));
                thread::spawn(move || carry_back(server, client, (after, then), &heard));
            }
        });
        Self { port, heard, sent }
    }

    /// Waits until so many bytes have come from the server: who asked for them is at work.
    pub(crate) fn wait_for_heard(&self, bytes: u64) {
        let begin = Instant::now();
        while self.heard.load(Ordering::Relaxed) < bytes {
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing comes");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn carry_on(mut from: TcpStream, mut to: TcpStream, sent: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        sent.lock().unwrap().extend_from_slice(&buffer[..bytes]);
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn carry_back(mut from: TcpStream, mut to: TcpStream, (after, then): (u64, Then), count: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    let mut came = 0;
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        let left = usize::try_from(after.saturating_sub(came)).unwrap_or(usize::MAX);
        came += bytes as u64;
        let mut piece = &mut buffer[..bytes];
        if left < bytes {
            match then {
                Then::Cut => piece = &mut piece[..left],
                Then::Spoil => piece[left] ^= 1,
            }
        }
        if to.write_all(piece).is_err() || left < bytes && matches!(then, Then::Cut) {
            break;
        }
    }
    // Orderly, as a host does whose program is gone.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Both);
}

/// A port of loopback that is kept for a server which a test ends and starts again: meanwhile nobody else gets it who
/// asks for any port, as many tests do at once. A server that reuses addresses (`SO_REUSEADDR`, as brokers do) has it.
pub(crate) struct Port {
    pub(crate) number: u16,
    _kept: OwnedFd,
}

impl Port {
    pub(crate) fn keep() -> Self {
        Self::at(0).expect("there is a port")
    }

    /// Keeps this one, unless a server has it already: one that takes its time to start may lose it meanwhile.
    fn at(number: u16) -> Option<Self> {
        // It is bound and never listens, so that it is in no server's way.
        let kept = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&kept, true).unwrap();
        rustix::net::bind(&kept, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, number)).ok()?;
        let number = SocketAddrV4::try_from(rustix::net::getsockname(&kept).unwrap()).unwrap().port();
        Some(Self { number, _kept: kept })
    }
}

/// A broker on a loopback port, which a test may kill and start again there; ended when dropped.
pub(crate) struct Broker {
    command: Box<dyn Fn() -> Command + Send>,
    child: Option<Child>,
    pub(crate) port: u16,
    _kept: Port,
    _directory: tempfile::TempDir,
}

impl Broker {
    /// A Mosquitto with the lines that `lines` makes for its directory; `None`, and the test counted as skipped, where
    /// there is none.
    pub(crate) fn mosquitto(test: &str, lines: impl Fn(&Path) -> String) -> Option<Self> {
        Self::start(test, "mosquitto", |port, directory| {
            let path = directory.join("mosquitto.conf");
            // Root becomes the user `mosquitto` unless told otherwise, and could not read the directory then.
            let lines = format!("listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n{}\n", lines(directory));
            std::fs::write(&path, lines).unwrap();
            vec!["-c".to_owned(), path.display().to_string()]
        })
    }

    /// A nats-server with these lines in its configuration.
    pub(crate) fn nats(test: &str, lines: &str) -> Option<Self> {
        Self::start(test, "nats-server", |port, directory| {
            let path = directory.join("nats.conf");
            std::fs::write(&path, format!("host: 127.0.0.1\nport: {port}\n{lines}\n")).unwrap();
            vec!["-c".to_owned(), path.display().to_string()]
        })
    }

    /// A nats-server whose streams are in its directory, so that they are there when it is started again.
    pub(crate) fn nats_with_store(test: &str) -> Option<Self> {
        Self::start(test, "nats-server", |port, directory| {
            let path = directory.join("nats.conf");
            let store = directory.join("store").display().to_string();
            let lines = format!("host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: {store:?} }}\n");
            std::fs::write(&path, lines).unwrap();
            vec!["-c".to_owned(), path.display().to_string()]
        })
    }

    fn start(test: &str, program: &'static str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Option<Self> {
        if !has(program) {
            skip(test, &format!("{program} is not installed"));
            return None;
        }
        let (kept, directory) = (Port::keep(), tempfile::tempdir().unwrap());
        let port = kept.number;
        let arguments = arguments(port, directory.path());
        let command = move || {
            let mut command = Command::new(program);
            command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
            command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut broker = Self { command: Box::new(command), child: None, port, _kept: kept, _directory: directory };
        broker.start_again();
        Some(broker)
    }

    /// Starts it once more, at the same port and with the same directory.
    pub(crate) fn start_again(&mut self) {
        self.child = Some((self.command)().spawn().unwrap());
        wait_for_tcp(([127, 0, 0, 1], self.port).into());
    }

    /// SIGTERM: it may save what it has.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
                .unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
