//! Brokers as paths: real brokers, and some that behave badly on purpose.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use support::{Serve, free_port, has, run, run_json, skip, taut, text, wait_for_tcp};

/// A Mosquitto of the test's own, on a loopback port; ended when dropped.
struct Mosquitto {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Mosquitto {
    /// With these lines in its configuration; `None`, and the test counted as skipped, where there is none.
    fn start(test: &str, lines: &str) -> Option<Self> {
        Self::start_at(test, free_port(), |_| lines.to_owned())
    }

    fn start_at(test: &str, port: u16, lines: impl Fn(&Path) -> String) -> Option<Self> {
        if !has("mosquitto") {
            skip(test, "mosquitto is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mosquitto.conf");
        // Root becomes the user `mosquitto` unless told otherwise, and could not read the directory then.
        let lines = format!("listener {port} 127.0.0.1\nuser root\n{}\n", lines(directory.path()));
        std::fs::write(&path, lines).unwrap();
        let mut command = Command::new("mosquitto");
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("-c").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let broker = Self { child, port, _directory: directory };
        wait_for_tcp(([127, 0, 0, 1], port).into());
        Some(broker)
    }

    fn topic(&self, rest: &str) -> String {
        format!("mqtt://127.0.0.1:{}/{rest}", self.port)
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const OPEN: &str = "allow_anonymous true\nset_tcp_nodelay true";

#[test]
fn a_broker_is_one_path_among_others() {
    let Some(broker) = Mosquitto::start("a_broker_is_one_path_among_others", OPEN) else { return };
    let topics = ["taut", "a/b?qos=1", "c?qos=2", "d?qos=1&v=5", "e?v=5&qos=2"].map(|rest| broker.topic(rest));
    let server = Serve::start(&format!("tcp://127.0.0.1:0 {}", topics.join(" ")));
    let line = format!("echo {} --count 210 --opt nodelay --place free --timeout 60s", server.endpoints.join(" "));
    let document = run_json(&line);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for (row, endpoint) in rows.iter().zip(&server.endpoints) {
        assert_eq!(row["endpoint"], *endpoint);
        assert_eq!(
            (&row["sent"], &row["lost"], &row["rtt_ns"]["count"]),
            (&210.into(), &0.into(), &210.into()),
            "{row:#}"
        );
        // The same rounds for all, held against the first.
        assert_eq!(row["rounds"].as_array().unwrap().len(), rows[0]["rounds"].as_array().unwrap().len());
    }
    assert_eq!(rows[1]["transport"], "mqtt");
    assert_eq!(rows[3]["compared"]["with"], *server.endpoint(0));
    // No server: what is published comes back by the client's own subscription.
    for topic in ["own", "own?qos=1", "own?qos=2&v=5"].map(|rest| broker.topic(rest)) {
        let row = &run_json(&format!("echo {topic} --plain --count 100 --opt nodelay --timeout 60s"))["results"][0];
        assert_eq!((&row["lost"], &row["rtt_ns"]["count"]), (&0.into(), &100.into()), "{row:#}");
    }
}

#[test]
fn every_engine_and_many_links_and_sizes() {
    let Some(broker) = Mosquitto::start("every_engine_and_many_links_and_sizes", OPEN) else { return };
    let server = Serve::start(&broker.topic("taut?qos=1"));
    let endpoint = server.endpoint(0);
    for engine in ["blocking", "spin", "poll", "epoll", "tokio"] {
        for more in ["", "--connections 3", "--size 200KiB"] {
            let line =
                format!("echo {endpoint} --count 60 --rounds 2 --engine {engine} --opt nodelay --timeout 60s {more}");
            let row = &run_json(&line)["results"][0];
            assert_eq!(
                (&row["lost"], row["rtt_ns"]["count"].as_u64() >= Some(60)),
                (&0.into(), true),
                "{line}: {row:#}"
            );
        }
    }
    // MQTT 5 lets 20 messages be under way here; an open loop that is far ahead waits for acknowledgements.
    let fast = broker.topic("taut?qos=1&v=5");
    let row = &run_json(&format!("echo {fast} --rate 20000 --time 500ms --rounds 1 --place free --timeout 60s"))["results"]
        [0];
    assert_eq!((&row["sent"], &row["lost"]), (&10_000.into(), &0.into()), "{row:#}");
    let row = &run_json(&format!("pace {endpoint} --time 300ms --place free"))["results"][0];
    assert_eq!(row["lost"], 0, "{row:#}");
}

#[test]
fn who_is_not_let_in_is_told_so() {
    let Some(broker) = Mosquitto::start_at("who_is_not_let_in_is_told_so", free_port(), |directory| {
        let passwords = directory.join("passwords");
        std::fs::write(&passwords, "ann:secret\n").unwrap();
        let hashed = Command::new("mosquitto_passwd").arg("-U").arg(&passwords).status().unwrap();
        assert!(hashed.success());
        let acl = directory.join("acl");
        std::fs::write(&acl, "user ann\ntopic readwrite lab/#\n").unwrap();
        format!("allow_anonymous false\npassword_file {}\nacl_file {}", passwords.display(), acl.display())
    }) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, password: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, password).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (file("right", "secret\n"), file("wrong", "guess\n"));
    let line = |topic: &str| format!("echo {} --plain --count 20 --timeout 5s", broker.topic(topic));
    for version in ["v=3", "v=5"] {
        for topic in ["lab/x?".to_owned(), format!("lab/x?user=ann&password-file={wrong}&")] {
            let refused = run(&line(&format!("{topic}{version}")));
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{said}");
            assert!(said.contains("the broker ") && said.contains("password-file="), "{version}: {said}");
        }
        let allowed = run_json(&line(&format!("lab/x?user=ann&password-file={right}&{version}")));
        assert_eq!(allowed["results"][0]["lost"], 0);
    }
    let missing = run(&line("lab/x?user=ann&password-file=/nonexistent"));
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    // A password is nowhere in what is printed.
    let printed = run(&format!("{} --json", line(&format!("lab/x?user=ann&password-file={right}"))));
    assert!(!text(&printed.stdout).contains("secret"));
}

#[test]
fn a_broker_that_goes_away_is_told_and_found_again_by_the_server() {
    let test = "a_broker_that_goes_away_is_told_and_found_again_by_the_server";
    let port = free_port();
    let Some(broker) = Mosquitto::start_at(test, port, |_| OPEN.to_owned()) else { return };
    let mut server = Serve::start(&broker.topic("taut?qos=1"));
    let endpoint = server.endpoint(0).to_owned();
    let mut client = taut();
    client.args(["echo", &endpoint, "--time", "60s", "--rounds", "1", "--place", "free", "--json"]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    drop(broker);
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(said.contains("the broker closed the connection"), "{said}");
    let none = run(&format!("echo {endpoint} --count 10"));
    assert!(text(&none.stderr).contains("refused"), "{}", text(&none.stderr));
    // A server ends with nobody's broker.
    assert!(server.is_running());
    let _again = Mosquitto::start_at(test, port, |_| OPEN.to_owned()).unwrap();
    let found = (0..20).any(|_| run(&format!("echo {endpoint} --count 10 --opt nodelay")).status.success());
    assert!(found, "the server did not come back to its broker");
}

/// Answers a client's CONNECT with these bytes, sends the rest after its next packets, and stays.
fn bad_broker(pieces: &'static [&'static [u8]], repeat_last: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("mqtt://{}/x?qos=1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || misbehave(stream, pieces, repeat_last));
        }
    });
    endpoint
}

fn misbehave(mut stream: TcpStream, pieces: &[&[u8]], repeat_last: bool) {
    let mut buffer = [0; 4096];
    for (index, piece) in pieces.iter().enumerate() {
        if stream.read(&mut buffer).unwrap_or(0) == 0 || stream.write_all(piece).is_err() {
            return;
        }
        while repeat_last && index + 1 == pieces.len() {
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    }
    let _ = stream.read(&mut buffer);
    thread::sleep(Duration::from_secs(30));
}

#[test]
fn bad_brokers_get_a_clear_error_and_no_memory() {
    const TAKEN: &[u8] = &[0x20, 2, 0, 0];
    const SUBSCRIBED: &[u8] = &[0x90, 3, 0, 1, 1];
    let cases: [(&'static [&'static [u8]], bool, &str); 6] = [
        (&[b"HTTP/1.1 400 Bad Request\r\n\r\n"], false, "is it a broker"),
        (&[&[0x20, 2, 0, 1]], false, "does not speak MQTT 3.1.1: try v=5"),
        // 256 MiB in one packet.
        (&[TAKEN, SUBSCRIBED, &[0x30, 0xFF, 0xFF, 0xFF, 0x7F]], false, "larger than what is taken here"),
        // Acknowledges what was never published.
        (&[TAKEN, SUBSCRIBED, &[0x40, 2, 0x12, 0x34]], false, "broke the protocol"),
        // Messages without end, of a topic that nobody subscribed to, and answers that mean nothing.
        (&[TAKEN, SUBSCRIBED, b"\x30\x08\x00\x01xABCDE"], true, ""),
        (&[TAKEN, &[0xD0, 0]], true, "no answer to the broker's CONNECT"),
    ];
    for (pieces, repeat_last, words) in cases {
        let endpoint = bad_broker(pieces, repeat_last);
        let mut client = taut();
        client.args(["echo", &endpoint, "--plain", "--count", "50", "--timeout", "1s", "--rounds", "1"]);
        // A process that may have no more than so much dies of an endless broker.
        let limit = rustix::process::Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
        let child = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed());
        rustix::process::prlimit(pid, rustix::process::Resource::As, limit).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{pieces:x?}: {said}");
        assert!(said.contains(words) && !said.contains("panicked"), "{pieces:x?}: {said}");
    }
}

#[test]
fn stock_clients_are_peers() {
    let test = "stock_clients_are_peers";
    if !has("mosquitto_sub") {
        return skip(test, "mosquitto-clients are not installed");
    }
    let Some(broker) = Mosquitto::start(test, OPEN) else { return };
    let mut listener = Command::new("mosquitto_sub");
    listener.args(["-h", "127.0.0.1", "-p", &broker.port.to_string(), "-t", "own", "-C", "20", "-F", "%l"]);
    let listener = listener.stdout(Stdio::piped()).spawn().unwrap();
    // Its subscription has no sign of being there but what it hears.
    thread::sleep(Duration::from_millis(500));
    run_json(&format!("echo {} --plain --count 100 --size 32 --opt nodelay", broker.topic("own?qos=1")));
    let heard = listener.wait_with_output().unwrap();
    assert_eq!(text(&heard.stdout).lines().collect::<Vec<_>>(), vec!["32"; 20]);
}
