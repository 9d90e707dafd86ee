//! A mesh over a real ssh(1): hosts are measured as anywhere, and nothing is left over there, however a run ends.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::ssh::Ssh;
use support::{parse, taut};
use tempfile::TempDir;

/// Two hosts that are this one.
const HOSTS: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
/// Nobody serves SSH there.
const AWAY: &str = "127.0.0.3";

/// A plan, and hosts to which ssh(1) leads.
struct Mesh {
    ssh: Ssh,
    directory: TempDir,
    /// The program over there.
    taut: String,
}

impl Mesh {
    /// `None`, and the test counted as skipped, where there is no SSH.
    fn new(test: &str, hosts: &[&str], works: &str) -> Option<Self> {
        let ssh = Ssh::start(test, &HOSTS)?;
        let directory = tempfile::tempdir().unwrap();
        let plan = format!("[mesh]\nhosts = {hosts:?}\npatience = \"30s\"\n{works}");
        fs::write(directory.path().join("mesh.toml"), plan).unwrap();
        let taut = ssh.keys.plain(env!("CARGO_BIN_EXE_taut"));
        Some(Self { ssh, directory, taut })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A run of the plan, with more options of ssh(1), which win; what it says goes to a file.
    fn command(&self, options: &[&str]) -> Command {
        let via = format!("ssh {} {} {{host}}", options.join(" "), self.ssh.keys.options().join(" "));
        let mut command = taut();
        command.args(["mesh", "run"]).arg(self.path("mesh.toml")).args(["--json", "--via", &via, "--taut", &self.taut]);
        command.stdout(Stdio::piped()).stderr(fs::File::create(self.path("said")).unwrap());
        command
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap()
    }

    /// Waits until so many measurements are over and something else runs over there that measures.
    fn wait_until_measuring(&self, done: &str, what: &str) {
        let begin = Instant::now();
        while !(self.said().contains(done) && self.ssh.started().iter().any(|(_, words)| words.contains(what))) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}: {}", self.ssh.started(), self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until nothing of all that was started over there runs any more.
    fn assert_nothing_is_left(&self) {
        let begin = Instant::now();
        while !self.ssh.started().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?} still run", self.ssh.started());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How each pair of a work was reached, and why not.
fn reached(document: &Value, work: usize) -> Vec<[&str; 2]> {
    let pairs = document["works"][work]["pairs"].as_array().unwrap();
    pairs.iter().map(|pair| ["how", "why"].map(|key| pair["reached"][key].as_str().unwrap_or_default())).collect()
}

const ECHOES: &str = "[[mesh.work]]\necho = \"udp\"\nmessages = 50\n\
    [[mesh.work]]\necho = \"tcp\"\nmessages = 50\nwarn = \"p50 > 1ns\"\nexplain = true\n";

#[test]
fn hosts_over_ssh_are_measured_and_looked_into() {
    let test = "hosts_over_ssh_are_measured_and_looked_into";
    let Some(mesh) = Mesh::new(test, &HOSTS, ECHOES) else { return };
    // As it comes, and with one connection to each host that all share, which stays behind for a while.
    let place = mesh.path("%h").display().to_string();
    let shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=2s", "-o", &format!("ControlPath={place}")];
    for options in [&[] as &[&str], &shared] {
        let output = mesh.command(options).output().unwrap();
        let document = parse(&output);
        assert_eq!(output.status.code(), Some(3), "{document:#}\n{}", mesh.said());
        for host in document["hosts"].as_array().unwrap() {
            assert_eq!(host["version"], env!("CARGO_PKG_VERSION"), "{host}");
        }
        assert_eq!([0, 1].map(|work| reached(&document, work)), [[["measured", ""]], [["measured", ""]]]);
        let pair = &document["works"][1]["pairs"][0];
        assert_eq!((&pair["measured"]["rtt_ns"]["count"], &pair["measured"]["lost"]), (&50.into(), &0.into()));
        assert!(pair["explained"]["messages"].as_u64() > Some(0), "{pair:#}");
        mesh.assert_nothing_is_left();
    }
}

#[test]
fn a_host_that_ssh_does_not_reach_is_named_in_its_words() {
    let test = "a_host_that_ssh_does_not_reach_is_named_in_its_words";
    let Some(mesh) = Mesh::new(test, &[HOSTS[0], AWAY, HOSTS[1]], ECHOES) else { return };
    let output = mesh.command(&[]).output().unwrap();
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(1), "{document:#}\n{}", mesh.said());
    let failed = document["hosts"][1]["failed"].as_str().unwrap();
    assert!(failed.contains("ssh: connect to host 127.0.0.3") && failed.contains("Connection refused"), "{failed}");
    let measured = reached(&document, 0).into_iter().filter(|pair| pair[0] == "measured").count();
    assert_eq!((measured, document["works"][0]["pairs"].as_array().unwrap().len()), (1, 3), "{document:#}");
    // Whose key is another one than we know is not spoken to.
    let output = mesh.command(&["-o", "UserKnownHostsFile=/dev/null"]).output().unwrap();
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(1), "{document:#}\n{}", mesh.said());
    let failed = document["hosts"][0]["failed"].as_str().unwrap();
    assert!(failed.contains("Host key verification failed"), "{failed}");
    mesh.assert_nothing_is_left();
}

/// The stream would go on for 40 s.
const STREAM: &str = "[[mesh.work]]\necho = \"tcp\"\nmessages = 50\n[[mesh.work]]\nstream = \"tcp\"\ntime = \"40s\"\n";

/// A run in whose stream something happens.
fn ended_by(test: &str, happens: impl FnOnce(&Mesh, &Child)) -> Option<(Option<i32>, Value)> {
    let mesh = Mesh::new(test, &HOSTS, STREAM)?;
    let child = mesh.command(&[]).spawn().unwrap();
    mesh.wait_until_measuring("1 of 2 measurements", " stream ");
    let begin = Instant::now();
    happens(&mesh, &child);
    let output = child.wait_with_output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}: {}", begin.elapsed(), mesh.said());
    mesh.assert_nothing_is_left();
    let document = parse(&output);
    assert_eq!(reached(&document, 0), [["measured", ""]], "{document:#}");
    Some((output.status.code(), document))
}

#[test]
fn an_interrupt_ends_what_runs_behind_ssh() {
    let interrupt = |_: &Mesh, child: &Child| kill_process(Pid::from_child(child), Signal::INT).unwrap();
    let Some((code, document)) = ended_by("an_interrupt_ends_what_runs_behind_ssh", interrupt) else { return };
    assert_eq!((code, &document["ended"]["how"]), (Some(130), &"interrupted".into()), "{document:#}");
    assert_eq!(reached(&document, 1), [["not_run", "interrupted"]], "{document:#}");
}

#[test]
fn connections_that_break_are_told_and_leave_nothing_behind() {
    let test = "connections_that_break_are_told_and_leave_nothing_behind";
    let Some((code, document)) = ended_by(test, |mesh, _| mesh.ssh.cut()) else { return };
    let stream = reached(&document, 1)[0];
    assert_eq!((code, stream[0]), (Some(1), "failed"), "{document:#}");
    assert!(["closed", "reset"].iter().any(|word| stream[1].contains(word)), "{}", stream[1]);
}
