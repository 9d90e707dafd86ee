//! `taut air attach --h4` under hosts that a test plays, and what `taut air host` refuses. Kernels
//! as hosts are the lab's.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{run, taut, text};

/// HCI_Reset, and the answer of a controller.
const RESET: [u8; 4] = [1, 0x03, 0x0c, 0];
const RESET_DONE: [u8; 7] = [4, 0x0e, 4, 1, 0x03, 0x0c, 0];
const HARDWARE_ERROR: [u8; 4] = [4, 0x10, 1, 1];

/// A radio with a controller on a Unix socket and one on TCP.
struct Radio {
    child: Child,
    stdout: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
    places: Vec<String>,
}

impl Radio {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let central = format!("central=unix:{}", directory.path().join("central").display());
        let stderr = fs::File::create(directory.path().join("stderr")).unwrap();
        let mut command = taut();
        command.args([
            "air",
            "attach",
            "two-nodes",
            "--json",
            "--h4",
            &central,
            "--h4",
            "peripheral=tcp://127.0.0.1:0",
        ]);
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut radio =
            Self { stdout: BufReader::new(child.stdout.take().unwrap()), child, directory, places: Vec::new() };
        let line = radio.line();
        let controllers = line["adapters"].as_array().unwrap();
        assert_eq!(controllers[0]["side"], "central");
        assert_eq!(controllers[1]["address"], "00:AA:01:01:00:00");
        radio.places = controllers.iter().map(|one| one["h4"].as_str().unwrap().to_owned()).collect();
        radio
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}: {}", self.said()))
    }

    fn said(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap()
    }

    fn central(&self) -> UnixStream {
        let host = UnixStream::connect(self.directory.path().join("central")).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        host
    }

    /// Ends it, and gives its last words.
    fn stop(mut self) -> (Value, String) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::INT)
            .unwrap();
        let last = self.line();
        assert!(self.child.wait().unwrap().success());
        (last, self.said())
    }
}

impl Drop for Radio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn expect(host: &mut impl Read, packet: &[u8]) {
    let mut got = vec![0; packet.len()];
    host.read_exact(&mut got).unwrap();
    assert_eq!(got, packet);
}

#[test]
fn hosts_come_and_go_and_get_their_controllers() {
    let radio = Radio::start();
    let mut central = radio.central();
    central.write_all(&RESET).unwrap();
    expect(&mut central, &RESET_DONE);
    let address = radio.places[1].strip_prefix("tcp://").unwrap();
    let mut peripheral = TcpStream::connect(address).unwrap();
    for byte in RESET {
        peripheral.write_all(&[byte]).unwrap();
    }
    expect(&mut peripheral, &RESET_DONE);
    // The next one gets a controller that knows nothing of the last one.
    drop(central);
    let mut central = radio.central();
    central.write_all(&RESET).unwrap();
    expect(&mut central, &RESET_DONE);
    drop(central);
    drop(peripheral);
    let (last, said) = radio.stop();
    assert_eq!((&last["packets_from_hosts"], &last["packets_to_hosts"]), (&3.into(), &3.into()), "{last}");
    assert_eq!(said.matches("central: a host has come").count(), 2, "{said}");
    assert!(said.contains("central: its host is gone: it closed the stream"), "{said}");
}

#[test]
fn a_garbled_stream_is_told_to_both_and_found_again() {
    let radio = Radio::start();
    let mut host = radio.central();
    // No indicator of a host; and then something that looks like data for a while.
    host.write_all(&[0x42, 2, 0, 1]).unwrap();
    expect(&mut host, &HARDWARE_ERROR);
    host.write_all(&RESET).unwrap();
    expect(&mut host, &RESET_DONE);
    // A packet that is longer than the controller's buffers.
    host.write_all(&[2, 0x40, 0, 0xff, 0xff]).unwrap();
    expect(&mut host, &HARDWARE_ERROR);
    host.write_all(&[&[2; 1000][..], &RESET].concat()).unwrap();
    expect(&mut host, &RESET_DONE);
    drop(host);
    let (_, said) = radio.stop();
    let hint = "central: what its host sends can't be followed until it resets the controller: ";
    assert!(said.contains(&format!("{hint}0x42 is no packet indicator that a host sends")), "{said}");
    assert!(said.contains(&format!("{hint}an ACL data packet of 65535 bytes")), "{said}");
}

#[test]
fn wrong_lines_say_what_to_write() {
    for (line, says) in [
        ("air attach --h4 central", "central=unix:PATH"),
        ("air attach --h4 middle=unix:/x", "central=unix:PATH"),
        ("air attach --h4 peripheral0=unix:/x", "central=unix:PATH"),
        ("air attach --h4 central=udp://127.0.0.1:1", "a host connects by unix:PATH or tcp://HOST:PORT"),
        ("air attach --h4 central=nowhere", "unix:PATH"),
        ("air attach --h4 peripheral2=unix:@taut-none", "there is no peripheral 2: the scenario has 1"),
        ("air attach --h4 central=unix:@taut-a --h4 central=unix:@taut-b", "central has two hosts"),
        ("air host /dev/null", "is no serial line"),
        ("air host /dev/none", "/dev/none is missing"),
        ("air host /dev/null --set ci=15ms", "--scenario"),
        ("air host /dev/null --scenario two-nodes --set ci=soon", "ci"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{line}: {}", text(&output.stderr));
    }
}
