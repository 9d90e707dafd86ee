//! A `taut web` with a directory, and a client that writes what it likes and reads answers as they come.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::support::{taut, text, words};

/// `taut web`, ended when dropped.
pub(crate) struct Web {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    directory: tempfile::TempDir,
    listening: Vec<String>,
    told: UnixDatagram,
}

/// What it said at its end.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) served: Value,
    pub(crate) log: String,
    /// By sd_notify.
    pub(crate) told: String,
}

impl Web {
    /// Serves a directory of its own on TCP and a Unix socket.
    pub(crate) fn start(options: &str) -> Self {
        Self::start_with(taut(), &format!("--on tcp://127.0.0.1:0 --on unix:@SOCKET@ {options}"))
    }

    /// Started by a service manager's first client.
    pub(crate) fn start_passed(port: u16) -> Self {
        let mut command = Command::new("systemd-socket-activate");
        command.args(["-l", &format!("127.0.0.1:{port}"), "-E", "NOTIFY_SOCKET", env!("CARGO_BIN_EXE_taut")]);
        let mut web = Self::spawn(command, "--listen-fd");
        web.listening = vec![format!("tcp://127.0.0.1:{port}")];
        web
    }

    fn start_with(command: Command, line: &str) -> Self {
        let mut web = Self::spawn(command, line);
        let first = web.line();
        let value: Value =
            serde_json::from_str(&first).unwrap_or_else(|error| panic!("`{first}`: {error}: {}", web.log()));
        web.listening = value["listening"].as_array().unwrap().iter().map(|e| e.as_str().unwrap().to_owned()).collect();
        web
    }

    fn spawn(mut command: Command, line: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path().join("site");
        fs::create_dir(&site).unwrap();
        let manager = directory.path().join("notify");
        let told = UnixDatagram::bind(&manager).unwrap();
        told.set_nonblocking(true).unwrap();
        let line = line.replace("@SOCKET@", &directory.path().join("socket").display().to_string());
        let mut child = command
            .args(["web", "--host", "x"])
            .arg(&site)
            .arg("--json")
            .args(words(&line))
            .env("NOTIFY_SOCKET", manager)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.path().join("log")).unwrap())
            .spawn()
            .expect("taut web starts");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, directory, listening: Vec::new(), told }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn tcp(&self) -> SocketAddr {
        self.listening[0].strip_prefix("tcp://").unwrap().parse().unwrap()
    }

    pub(crate) fn unix(&self) -> PathBuf {
        self.outside("socket")
    }

    /// A connection, soon after the start too.
    pub(crate) fn connect(&self) -> TcpStream {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match TcpStream::connect(self.tcp()) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                    return stream;
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A path beneath the directory that is served.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.outside("site").join(name)
    }

    /// A path beside it.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file, with the directories that it lies in, and gives its contents.
    pub(crate) fn file(&self, name: &str, contents: &[u8]) -> Vec<u8> {
        let path = self.path(name);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(path, contents).unwrap();
        contents.to_vec()
    }

    /// Has a file be an hour old.
    pub(crate) fn age(&self, name: &str) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        text(&fs::read(self.outside("log")).unwrap())
    }

    pub(crate) fn wait_for_log(&self, says: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.log().contains(says) {
            assert!(Instant::now() < deadline, "never said `{says}`: {}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has told the service manager.
    pub(crate) fn told(&self) -> String {
        let mut told = String::new();
        let mut buffer = [0; 4096];
        while let Ok(length) = self.told.recv(&mut buffer) {
            told.push_str(&text(&buffer[..length]));
            told.push('\n');
        }
        // It stays to be looked at again.
        let path = self.outside("notify");
        let again = UnixDatagram::unbound().unwrap();
        if !told.is_empty() {
            again.send_to(told.as_bytes(), path).unwrap();
        }
        told
    }

    /// Resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(mut self) -> Ended {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code();
        let last = rest.lines().last().unwrap_or_default();
        let served = serde_json::from_str::<Value>(last).unwrap_or_default()["served"].clone();
        Ended { code, served, log: self.log(), told: self.told() }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Reads an answer with a length; `None` at the end of the stream.
    pub(crate) fn parse(stream: &mut impl Read) -> Option<Self> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                assert!(head.is_empty(), "half a head: {}", text(&head));
                return None;
            }
            head.push(byte[0]);
        }
        let head = text(&head);
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let field =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())).unwrap();
        let mut answer = Self { status, fields: lines.map(field).collect(), body: Vec::new() };
        let length = answer.field("content-length").map_or(0, |length| length.parse().unwrap());
        if status != 304 {
            stream.take(length).read_to_end(&mut answer.body).unwrap();
        }
        Some(answer)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(named, _)| named == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert!(values.next().is_none(), "{name} twice");
        value
    }
}

/// Writes bytes, says that no more come, and reads all answers until the server closes. A
/// connection that is reset after them has them too.
pub(crate) fn ask(web: &Web, request: &[u8]) -> Vec<Answer> {
    let stream = web.connect();
    let received = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // The server need not read all of what it refuses.
            let _ = (&stream).write_all(request);
            let _ = stream.shutdown(Shutdown::Write);
        });
        let mut received = Vec::new();
        let read: io::Result<usize> = (&stream).read_to_end(&mut received);
        // Whatever it was that was answered, the connection must come to an end.
        assert!(!read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "the connection is still open");
        writer.join().unwrap();
        received
    });
    let mut rest = received.as_slice();
    // A HEAD's answer tells a length that does not come.
    if request.starts_with(b"HEAD") {
        let end = received.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
        let mut answer = Answer::parse(&mut rest).expect("an answer");
        answer.body = received[end..].to_vec();
        return vec![answer];
    }
    std::iter::from_fn(|| Answer::parse(&mut rest)).collect()
}

/// Asks for a target, with more fields.
pub(crate) fn get(web: &Web, target: &str, fields: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
    let mut answers = ask(web, request.as_bytes());
    assert_eq!(answers.len(), 1, "{target}: {answers:?}");
    answers.remove(0)
}

/// Bytes that do not repeat, the same each time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64 (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
