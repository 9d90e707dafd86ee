//! `taut pipe` between lines and a broker, with its account.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{causes, taut};

/// What takes longer hangs, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(60);

/// `taut pipe` with lines on its stdin and stdout, and its account as the last line of stderr.
pub(crate) struct Pipe {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: JoinHandle<Vec<String>>,
    count: Arc<AtomicUsize>,
    said: Receiver<String>,
    heard: Vec<String>,
}

/// How a pipe ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// The lines that came out of it.
    pub(crate) lines: Vec<String>,
    pub(crate) said: String,
    pub(crate) account: Value,
}

impl Pipe {
    pub(crate) fn start(a: &str, b: &str, more: &[&str]) -> Self {
        let mut command = taut();
        command.args(["pipe", a, b, "--framing", "line", "--json"]).args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let lines = thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let count = |line| {
                counted.fetch_add(1, Ordering::Relaxed);
                line
            };
            lines.map(count).collect()
        });
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, count, said, heard: Vec::new() }
    }

    /// One that publishes the lines of its stdin.
    pub(crate) fn writer(to: &str) -> Self {
        let mut pipe = Self::start("stdio:", to, &["--linger", "50ms"]);
        pipe.wait_for("pipe 1: ");
        pipe
    }

    /// One that hears messages, whose subscription is there.
    pub(crate) fn reader(from: &str) -> Self {
        let mut pipe = Self::start(from, "stdio:", &[]);
        pipe.wait_for("pipe 1: ");
        pipe
    }

    pub(crate) fn wait_for(&mut self, words: &str) {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let Ok(line) = self.said.recv_timeout(PATIENCE) else { break };
            let found = line.contains(words);
            self.heard.push(line);
            if found {
                return;
            }
        }
        panic!("`{words}` is not said: {:#?}", self.heard);
    }

    pub(crate) fn write(&mut self, numbers: std::ops::Range<u64>) {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        self.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    }

    /// Waits until so many lines have come out of it.
    pub(crate) fn wait_for_lines(&self, count: usize) {
        let begin = Instant::now();
        while self.count.load(Ordering::Relaxed) < count {
            assert!(begin.elapsed() < PATIENCE, "{} lines", self.count.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it has taken all that was written to it.
    pub(crate) fn wait_until_taken(&self) {
        let begin = Instant::now();
        while rustix::io::ioctl_fionread(self.stdin.as_ref().unwrap()).unwrap() > 0 {
            assert!(begin.elapsed() < PATIENCE, "it takes nothing");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its stdin is over.
    pub(crate) fn finish(mut self) -> Ended {
        self.stdin = None;
        self.end()
    }

    /// It is asked to end.
    pub(crate) fn stop(self) -> Ended {
        self.signal(Signal::INT);
        self.end()
    }

    pub(crate) fn end(mut self) -> Ended {
        let code = self.child.wait().unwrap().code();
        self.heard.extend(self.said.iter());
        let account = self.heard.iter().rev().find_map(|line| serde_json::from_str(line).ok());
        let said = self.heard.join("\n");
        let account: Value = account.unwrap_or_else(|| panic!("no account: {said}"));
        Ended { code, lines: self.lines.join().unwrap(), said, account }
    }
}

impl Ended {
    pub(crate) fn broker(&self) -> &Value {
        &self.account["brokers"][0]
    }

    pub(crate) fn written(&self, key: &str) -> u64 {
        self.broker()["written"][key].as_u64().unwrap_or_else(|| panic!("{key}: {}", self.said))
    }

    pub(crate) fn reader(&self, key: &str) -> u64 {
        let readers = self.broker()["written"]["readers"].as_array().unwrap();
        assert_eq!(readers.len(), 1, "{}", self.said);
        readers[0][key].as_u64().unwrap()
    }

    pub(crate) fn heard(&self, key: &str) -> u64 {
        self.broker()["heard"][key].as_u64().unwrap_or_else(|| panic!("{key}: {}", self.said))
    }

    pub(crate) fn causes(&self) -> Vec<&str> {
        causes(&self.account)
    }

    /// The lines, which are numbers, in the order in which they were written. With QoS 1 and 2 Mosquitto now and then
    /// sends on one before another: it promises order for one message under way (max_inflight_messages in
    /// mosquitto.conf(5)), and the account says so.
    pub(crate) fn lines_in_order(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        if self.heard("out_of_order") > 0 {
            assert!(!lines.is_sorted_by_key(|line| number(line)), "the lines are in order: {}", self.said);
            lines.sort_by_key(|line| number(line));
        }
        lines
    }
}

fn number(line: &str) -> u64 {
    line.parse().unwrap()
}

/// Time for what was written to get to the broker and to its reader.
pub(crate) fn settle() {
    thread::sleep(Duration::from_millis(300));
}

/// A transfer of so many lines that loses nothing.
pub(crate) fn whole(address: &str, count: u64) {
    let reader = Pipe::reader(address);
    let mut writer = Pipe::writer(address.trim_end_matches("&session=s"));
    writer.write(0..count);
    let (wrote, read) = (writer.finish(), reader.stop());
    let said = format!("{address}: {}\n{}", wrote.said, read.said);
    assert_eq!(wrote.code, Some(0), "{said}");
    assert_eq!(read.code, Some(130), "{said}");
    assert_eq!((wrote.written("sent"), wrote.written("dropped_here")), (count, 0), "{said}");
    assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (count, 0), "{said}");
    assert_eq!((read.heard("read"), read.heard("missing"), read.heard("twice")), (count, 0, 0), "{said}");
    assert_eq!((read.heard("before"), read.heard("out_of_order")), (0, wrote.reader("out_of_order")), "{said}");
    let expected: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let has_inflight = ["qos=1", "qos=2"].iter().any(|how| address.contains(how));
    let lines = if has_inflight { read.lines_in_order() } else { read.lines.clone() };
    assert!(lines == expected, "{address}: {} lines", lines.len());
    let confirmed = &wrote.broker()["written"]["confirmed_by_broker"];
    let acknowledges = ["qos=1", "qos=2", "stream="].iter().any(|how| address.contains(how));
    assert_eq!(confirmed.as_u64(), acknowledges.then_some(count), "{said}");
    assert!(wrote.causes().is_empty() && read.causes().is_empty(), "{said}");
}
