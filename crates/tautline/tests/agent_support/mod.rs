//! A NATS server with agents on it, and who says to it what no Tautline would.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::brokers::{NatsServer, Port};
use crate::support::{taut, text};

/// A nats-server that keeps what it has, and agents on it.
pub(crate) struct Fleet {
    test: &'static str,
    pub(crate) server: Option<NatsServer>,
    pub(crate) port: u16,
    /// The same while the server is not there.
    _kept: Port,
    /// Of the server, and how agents get in.
    pub(crate) options: Vec<String>,
    pub(crate) query: String,
    pub(crate) agents: BTreeMap<String, Agent>,
    pub(crate) directory: TempDir,
}

pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) arguments: Vec<String>,
}

impl Agent {
    pub(crate) fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fleet {
    pub(crate) fn new(test: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (options, query) = (Vec::new(), String::new());
        let kept = Port::keep();
        Self { test, server: None, port: kept.number, _kept: kept, options, query, agents: BTreeMap::new(), directory }
    }

    /// `None`, and the test counted as skipped, where there is no nats-server.
    pub(crate) fn served(test: &'static str) -> Option<Self> {
        let mut fleet = Self::new(test);
        fleet.serve().then_some(fleet)
    }

    pub(crate) fn serve(&mut self) -> bool {
        let store = self.path("store");
        let mut options = vec!["-js", "-sd", store.to_str().unwrap()];
        options.extend(self.options.iter().map(String::as_str));
        self.server = NatsServer::start(self.test, self.port, &options);
        self.server.is_some()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn on(&self) -> String {
        format!("nats://127.0.0.1:{}{}", self.port, self.query)
    }

    /// Starts an agent at an address of its own, and waits until it is there.
    pub(crate) fn agent(&mut self, name: &str, number: u16, more: &[&str]) {
        self.begin(name, number, more);
        self.hear(name, "is on nats://");
    }

    pub(crate) fn begin(&mut self, name: &str, number: u16, more: &[&str]) {
        let address = format!("127.0.{}.{}", number / 200, number % 200 + 1);
        let arguments = ["agent", "--on", &self.on(), "--name", name, "--address", &address];
        let arguments = arguments.iter().chain(more).map(|&word| word.to_owned()).collect();
        self.start(name, arguments);
    }

    pub(crate) fn start(&mut self, name: &str, arguments: Vec<String>) {
        let log = File::options().create(true).append(true).open(self.log(name)).unwrap();
        let mut command = taut();
        let child = command.current_dir(self.directory.path()).args(&arguments).stderr(log).spawn().unwrap();
        self.agents.insert(name.to_owned(), Agent { child, arguments });
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path(&format!("{}.log", name.replace('/', "_")))
    }

    pub(crate) fn told(&self, name: &str) -> String {
        fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    pub(crate) fn hear(&self, name: &str, what: &str) {
        wait_for(what, || self.told(name).contains(what), || self.told(name));
    }

    pub(crate) fn three(&mut self, more: &[&str]) {
        for number in 1..=3 {
            self.agent(&format!("h{number}"), number, more);
        }
    }

    pub(crate) fn plan(&self, rest: &str) {
        fs::write(self.path("mesh.toml"), format!("[mesh]\n{rest}")).unwrap();
    }

    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut command = taut();
        command.current_dir(self.directory.path()).args(["mesh", "run", "mesh.toml", "--on", &self.on(), "--json"]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// The results that were kept, as they came.
    pub(crate) fn results(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.path("measured/results.jsonl")).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool, found: impl Fn() -> String) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not {what}: {}", found());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Says something to a server that no Tautline would say.
pub(crate) struct Raw {
    reader: BufReader<TcpStream>,
}

impl Raw {
    pub(crate) fn connect(fleet: &Fleet) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", fleet.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut raw = Self { reader: BufReader::new(stream) };
        raw.say(b"CONNECT {\"verbose\":false}\r\n");
        raw
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn publish(&mut self, subject: &str, payload: &[u8]) {
        self.say(format!("PUB {subject} {}\r\n", payload.len()).as_bytes());
        self.say(payload);
        self.say(b"\r\n");
    }

    /// The next message of what it has subscribed to.
    pub(crate) fn message(&mut self) -> Vec<u8> {
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the server hung up");
            assert!(!line.starts_with("-ERR"), "{line}");
            if line.starts_with("MSG ") {
                let length: usize = line.split_whitespace().next_back().unwrap().parse().unwrap();
                let mut bytes = vec![0; length + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(length);
                return bytes;
            }
        }
    }

    /// Waits until the server has all of it.
    pub(crate) fn settle(&mut self) {
        self.say(b"PING\r\n");
        let mut line = String::new();
        while !line.starts_with("PONG") {
            line.clear();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the server hung up");
            assert!(!line.starts_with("-ERR"), "{line}");
        }
    }
}

pub(crate) fn pairs(document: &Value, work: usize) -> &Vec<Value> {
    document["works"][work]["pairs"].as_array().unwrap()
}

/// What could not be measured, and why.
pub(crate) fn reasons(document: &Value, work: usize) -> BTreeSet<String> {
    let failed = pairs(document, work).iter().filter(|pair| pair["reached"]["how"] != "measured");
    failed.map(|pair| pair["reached"]["why"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn command_of(pid: u32) -> String {
    text(&fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default())
}

/// No two results of works that are alone, and none of looks, share a host and a moment. Returns how many there are.
pub(crate) fn assert_alone(results: &[Value], works: &[u64]) -> usize {
    let is_alone = |result: &&Value| match result["what"].as_str() {
        Some("measured") => works.contains(&result["work"].as_u64().unwrap()),
        what => what == Some("explained"),
    };
    let time = |result: &Value, key: &str| result[key].as_u64().unwrap();
    let mut alone: Vec<&Value> = results.iter().filter(is_alone).collect();
    alone.sort_by_key(|result| time(result, "begin_unix_ns"));
    let hosts = |result: &Value| [result["agent"].clone(), result["peer"].clone()];
    for (number, one) in alone.iter().enumerate() {
        let end = time(one, "end_unix_ns");
        for other in alone[number + 1..].iter().take_while(|other| time(other, "begin_unix_ns") < end) {
            assert!(!hosts(one).iter().any(|host| hosts(other).contains(host)), "{one}\n{other}");
        }
    }
    alone.len()
}
