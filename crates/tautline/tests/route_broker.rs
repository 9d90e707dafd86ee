//! Brokers as sinks of `taut route`: what passes is published with an account, also of what was lost when the broker
//! went and came.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::brokers::{Broker, Mosquitto, OPEN};
use support::piped::{Pipe, settle};
use support::{taut, text};
use tempfile::TempDir;

const QUICK: &str = "set_tcp_nodelay true\nmax_queued_messages 0";

/// `taut route run` with numbers on its stdin.
struct Route {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
    heard: Vec<String>,
    directory: TempDir,
}

/// How it ended.
struct Ended {
    code: Option<i32>,
    said: String,
    counters: Value,
}

impl Route {
    /// One that is at work.
    fn start(from: &str, to: &str, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = taut()
            .args(["route", "run", "--json", "--from", from, "--to", to])
            .args(more)
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let stdin = child.stdin.take();
        let mut route = Self { child, stdin, said, heard: Vec::new(), directory };
        route.wait_for("runs in user");
        route
    }

    fn wait_for(&mut self, words: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while let Ok(line) = self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let found = line.contains(words);
            self.heard.push(line);
            if found {
                return;
            }
        }
        panic!("`{words}` is not said: {:#?}", self.heard);
    }

    fn write(&mut self, numbers: std::ops::Range<u64>) {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        self.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    }

    /// Its source is over.
    fn finish(mut self) -> Ended {
        self.stdin = None;
        self.end()
    }

    /// It is asked to end.
    fn stop(self) -> Ended {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.end()
    }

    fn end(mut self) -> Ended {
        let output = self.child.wait_with_output().unwrap();
        self.heard.extend(self.said.iter());
        let said = format!("{}\n{}", self.heard.join("\n"), text(&output.stdout));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        Ended { code: output.status.code(), counters: document["results"][0]["counters"].clone(), said }
    }
}

impl Ended {
    fn counter(&self, key: &str) -> u64 {
        self.counters[key].as_u64().unwrap_or_else(|| panic!("{key}: {}", self.said))
    }

    fn broker(&self) -> &Value {
        &self.counters["brokers"][0]
    }

    fn written(&self, key: &str) -> u64 {
        self.broker()["written"][key].as_u64().unwrap_or_else(|| panic!("{key}: {}", self.said))
    }

    fn reader(&self, key: &str) -> u64 {
        let readers = self.broker()["written"]["readers"].as_array().unwrap();
        assert_eq!(readers.len(), 1, "{}", self.said);
        readers[0][key].as_u64().unwrap()
    }
}

fn mosquitto(test: &str) -> Option<Broker> {
    Broker::mosquitto(test, |_| QUICK.to_owned())
}

/// One whose streams are in its directory, so that they are there again.
fn streaming(test: &str) -> Option<(Broker, TempDir)> {
    let store = tempfile::tempdir().unwrap();
    let broker = Broker::nats(test, &format!("jetstream {{ store_dir: \"{}\" }}", store.path().display()))?;
    Some((broker, store))
}

#[test]
fn what_passes_is_read_exactly() {
    let test = "what_passes_is_read_exactly";
    let (mqtt, nats) = (mosquitto(test), streaming(test));
    let on_mqtt = |how: &str| Some(format!("mqtt://127.0.0.1:{}/a{}?{how}", mqtt.as_ref()?.port, how.len()));
    let on_nats = |how: &str| Some(format!("nats://127.0.0.1:{}/a{how}", nats.as_ref()?.0.port));
    let addresses = [
        (on_mqtt("qos=0"), false),
        (on_mqtt("v=5&qos=1"), true),
        (on_mqtt("session=w&qos=2"), true),
        (on_nats(""), false),
        (on_nats(".b?stream=S&create=file"), true),
    ];
    for (address, acknowledges) in addresses {
        let Some(address) = address else { continue };
        // A session of that name is the writer's.
        let reader = Pipe::reader(&address.replace("session=w&", ""));
        let mut route = Route::start("lines:-", &address, &["--when", "value % 2 == 0", "--send", "value * 10"]);
        route.write(0..3000);
        let (wrote, read) = (route.finish(), reader.stop());
        let said = format!("{address}: {}\n{}", wrote.said, read.said);
        assert_eq!(["events", "passed", "lost"].map(|key| wrote.counter(key)), [3000, 1500, 0], "{said}");
        assert_eq!((wrote.written("sent"), wrote.written("dropped_here")), (1500, 0), "{said}");
        let confirmed = wrote.broker()["written"]["confirmed_by_broker"].as_u64();
        assert_eq!(confirmed, acknowledges.then_some(1500), "{said}");
        assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (1500, 0), "{said}");
        assert_eq!((read.heard("read"), read.heard("missing"), wrote.code), (1500, 0, Some(0)), "{said}");
        let expected: Vec<String> = (0..1500).map(|number| (number * 20).to_string()).collect();
        assert!(read.lines_in_order() == expected, "{} lines: {said}", read.lines.len());
    }
}

#[test]
fn a_datagram_is_a_message_as_it_came_and_an_end_is_soon() {
    let test = "a_datagram_is_a_message_as_it_came_and_an_end_is_soon";
    let Some(broker) = mosquitto(test) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sensor");
    let address = format!("mqtt://127.0.0.1:{}/a?qos=1", broker.port);
    let reader = Pipe::reader(&address);
    let route = Route::start(&format!("unix-dgram:{}", path.display()), &address, &["--when", "len > 2"]);
    let sensor = UnixDatagram::unbound().unwrap();
    // Shorter than `value`, at which nothing looks.
    for payload in ["hello", "no", "world 7"] {
        sensor.send_to(payload.as_bytes(), &path).unwrap();
    }
    reader.wait_for_lines(2);
    let asked = Instant::now();
    let wrote = route.stop();
    // As long as `taut route stop` waits for its answer.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}: {}", asked.elapsed(), wrote.said);
    let read = reader.stop();
    assert_eq!(read.lines, ["hello", "world 7"], "{}", read.said);
    assert_eq!((wrote.written("sent"), wrote.reader("confirmed_by_reader")), (2, 2), "{}", wrote.said);
    assert_eq!(wrote.code, Some(0), "{}", wrote.said);
}

#[test]
fn what_finds_no_room_while_the_broker_is_away_is_dropped_and_counted() {
    let test = "what_finds_no_room_while_the_broker_is_away_is_dropped_and_counted";
    // It saves the session, so that the reader may come later than the writer when it is there again.
    let lines = |directory: &Path| format!("{QUICK}\npersistence true\npersistence_location {}/", directory.display());
    let Some(mut broker) = Broker::mosquitto(test, lines) else { return };
    let address = format!("mqtt://127.0.0.1:{}/a?qos=1&v=5", broker.port);
    let reader = Pipe::reader(&format!("{address}&session=r"));
    let mut route = Route::start("lines:-", &format!("{address}&buffer=100"), &[]);
    route.write(0..50);
    settle();
    broker.stop();
    route.wait_for("connecting again");
    route.write(50..500);
    settle();
    broker.start_again();
    route.wait_for("with the broker again");
    route.write(500..510);
    let (wrote, read) = (route.finish(), reader.stop());
    let said = format!("{}\n{}", wrote.said, read.said);
    // The oldest ones: the last hundred of those that came while it was away went on.
    assert_eq!((wrote.written("sent"), wrote.written("dropped_here")), (510, 350), "{said}");
    assert_eq!((wrote.counter("passed"), wrote.counter("lost")), (510, 350), "{said}");
    assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (160, 0), "{said}");
    assert_eq!((read.heard("dropped_there"), read.heard("missing")), (350, 0), "{said}");
    assert_eq!((wrote.code, &wrote.broker()["reconnections"]), (Some(1), &1.into()), "{said}");
    let expected: Vec<String> = (0..50).chain(400..510).map(|number: u64| number.to_string()).collect();
    assert_eq!(read.lines_in_order(), expected, "{said}");
}

/// The broker is killed while a route publishes, and comes back.
fn killed(mut broker: Broker, address: &str, session: &str) {
    let mut reader = Pipe::reader(&format!("{address}{session}"));
    let mut route = Route::start("lines:-", &format!("{address}&buffer=200"), &[]);
    for part in 0..20 {
        route.write(part * 50..(part + 1) * 50);
        match part {
            5 => broker.kill(),
            14 => {
                settle();
                broker.start_again();
                route.wait_for("with the broker again");
                reader.wait_for("with the broker again");
            }
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
    let (wrote, read) = (route.finish(), reader.stop());
    let said = format!("{address}{session}:\n{}\n{}", wrote.said, read.said);
    let (dropped, missing) = (wrote.written("dropped_here"), wrote.reader("missing"));
    assert_eq!((wrote.counter("passed"), wrote.written("sent")), (1000, 1000), "{said}");
    assert_eq!(wrote.counter("lost"), dropped, "{said}");
    assert!(dropped >= 200, "{said}");
    // Both say the same, and it is what came out.
    assert_eq!(wrote.reader("confirmed_by_reader") + dropped + missing, 1000, "{said}");
    assert_eq!(read.heard("read"), wrote.reader("confirmed_by_reader"), "{said}");
    assert_eq!(read.heard("missing") + read.heard("before"), missing, "{said}");
    assert_eq!(read.heard("dropped_there"), dropped, "{said}");
    let distinct: BTreeSet<&String> = read.lines.iter().collect();
    assert_eq!((distinct.len(), read.lines.len() as u64), (read.lines.len(), read.heard("read")), "{said}");
    // What came last went on, whatever was lost before.
    assert_eq!(read.lines.last().map(String::as_str), Some("999"), "{said}");
    assert_eq!(wrote.code, Some(1), "{said}");
}

#[test]
fn a_broker_that_is_killed_leaves_an_account_that_adds_up() {
    let test = "a_broker_that_is_killed_leaves_an_account_that_adds_up";
    let persistent = |directory: &Path| {
        let saves = "persistence true\nautosave_on_changes true\nautosave_interval 1";
        format!("{QUICK}\n{saves}\npersistence_location {}/", directory.display())
    };
    if let Some(broker) = Broker::mosquitto(test, persistent) {
        let address = format!("mqtt://127.0.0.1:{}/a?qos=1&v=5", broker.port);
        killed(broker, &address, "&session=r");
    }
    if let Some(broker) = mosquitto(test) {
        let address = format!("mqtt://127.0.0.1:{}/a?qos=2", broker.port);
        killed(broker, &address, "");
    }
    if let Some(broker) = Broker::nats(test, "") {
        let address = format!("nats://127.0.0.1:{}/a?envelope=on", broker.port);
        killed(broker, &address, "");
    }
}

/// A source that waits for nobody, and somebody who has no time.
#[test]
fn a_timer_goes_on_while_the_broker_is_away() {
    let test = "a_timer_goes_on_while_the_broker_is_away";
    let Some(mut broker) = mosquitto(test) else { return };
    let address = format!("mqtt://127.0.0.1:{}/a?qos=1&v=5&buffer=50", broker.port);
    let mut route = Route::start("timer:1ms", &address, &["--send", "count"]);
    settle();
    broker.kill();
    route.wait_for("connecting again");
    thread::sleep(Duration::from_secs(1));
    let asked = Instant::now();
    let wrote = route.stop();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}: {}", asked.elapsed(), wrote.said);
    let (passed, sent) = (wrote.counter("passed"), wrote.written("sent"));
    let (confirmed, dropped) = (wrote.written("confirmed_by_broker"), wrote.written("dropped_here"));
    assert!(passed >= 100 && confirmed > 0 && dropped > 50, "{}", wrote.said);
    // Those that were under way when it was killed it may have had, at most 16.
    assert!(sent - confirmed - dropped <= 16, "{}", wrote.said);
    assert_eq!(passed - sent, wrote.counter("lost") - dropped, "{}", wrote.said);
    assert_eq!(wrote.broker()["not_taken"], passed - sent, "{}", wrote.said);
    assert_eq!(wrote.code, Some(1), "{}", wrote.said);
}

#[test]
fn a_route_that_is_stopped_without_its_broker_holds_up_no_question_and_is_a_loss_of_the_run() {
    let test = "a_route_that_is_stopped_without_its_broker_holds_up_no_question_and_is_a_loss_of_the_run";
    let Some(mut broker) = mosquitto(test) else { return };
    let address = format!("mqtt://127.0.0.1:{}/a?qos=1&v=5&buffer=50", broker.port);
    let mut route = Route::start("timer:1ms", &address, &["--send", "count"]);
    settle();
    broker.kill();
    route.wait_for("connecting again");
    settle();
    let ask = |arguments: &[&str]| {
        let mut command = taut();
        command.arg("route").args(arguments).env("XDG_RUNTIME_DIR", route.directory.path());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut stop = ask(&["stop", "route", "--json"]);
    settle();
    let listed = ask(&["list"]).wait_with_output().unwrap();
    // It is at work until what it has is dropped.
    assert!(stop.try_wait().unwrap().is_none(), "{}", text(&listed.stdout));
    assert!(text(&listed.stdout).contains("timer:1000us -> mqtt://"), "{}", text(&listed.stdout));
    let stopped = stop.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&stopped.stdout).unwrap();
    let written = &document["results"][0]["counters"]["brokers"][0]["written"];
    assert!(written["dropped_here"].as_u64().unwrap() >= 50, "{document}");
    assert_eq!(stopped.status.code(), Some(0), "{document}");
    // The run has no counters of it any more.
    route.wait_for("messages to a broker were lost");
    let run = route.child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{document}");
}

#[test]
fn a_broker_that_stands_still_keeps_no_route_alive() {
    let test = "a_broker_that_stands_still_keeps_no_route_alive";
    let Some(broker) = Mosquitto::start(test, OPEN) else { return };
    let pid = Pid::from_raw(broker.pid().try_into().unwrap()).unwrap();
    let mut route = Route::start("lines:-", &broker.topic("a?qos=1&buffer=100"), &[]);
    kill_process(pid, Signal::STOP).unwrap();
    let mut stdin = route.stdin.take().unwrap();
    // More than there is room for: what the route reads from waits with it, until it is gone.
    let writing = thread::spawn(move || (0..100_000).try_for_each(|number| writeln!(stdin, "{number}")).is_err());
    thread::sleep(Duration::from_secs(1));
    let asked = Instant::now();
    let wrote = route.stop();
    let took = asked.elapsed();
    kill_process(pid, Signal::CONT).unwrap();
    assert!(took < Duration::from_secs(10), "{took:?}: {}", wrote.said);
    assert!(writing.join().unwrap(), "all was taken: {}", wrote.said);
    let (passed, sent, dropped) = (wrote.counter("passed"), wrote.written("sent"), wrote.written("dropped_here"));
    assert!(sent > 1000 && dropped >= sent - 16, "{}", wrote.said);
    assert_eq!(passed - sent, wrote.counter("lost") - dropped, "{}", wrote.said);
    assert_eq!(wrote.broker()["not_taken"], passed - sent, "{}", wrote.said);
    assert_eq!(wrote.code, Some(1), "{}", wrote.said);
}

#[test]
fn who_may_not_subscribe_publishes_without_an_account() {
    let test = "who_may_not_subscribe_publishes_without_an_account";
    let user = "{ user: u, password: p, permissions: { publish: { allow: \"a\" }, subscribe: { deny: \">\" } } }";
    let nats = Broker::nats(test, &format!("authorization {{ users: [ {user} ] }}\nno_auth_user: u"));
    let nats = nats.as_ref().map(|broker| format!("nats://127.0.0.1:{}/a?envelope=off", broker.port));
    let mqtt = mosquitto(test);
    for version in ["v=3", "v=5"] {
        let Some(mqtt) = &mqtt else { break };
        let address = format!("mqtt://127.0.0.1:{}/{version}?qos=1&{version}&envelope=off", mqtt.port);
        let reader = Pipe::reader(&address);
        let mut route = Route::start("lines:-", &address, &[]);
        route.write(0..20);
        let wrote = route.finish();
        settle();
        let read = reader.stop();
        let said = format!("{}\n{}", wrote.said, read.said);
        assert_eq!((read.heard("read"), read.heard("without_number"), read.lines.len()), (20, 20, 20), "{said}");
        assert_eq!((wrote.written("confirmed_by_broker"), wrote.code), (20, Some(0)), "{said}");
        assert_eq!(wrote.broker()["written"]["envelope"], false, "{said}");
    }
    if let Some(address) = nats {
        let mut route = Route::start("lines:-", &address, &[]);
        route.write(0..20);
        let wrote = route.finish();
        assert_eq!((wrote.written("sent"), wrote.code), (20, Some(0)), "{}", wrote.said);
    }
}

#[test]
fn what_the_broker_refuses_is_told() {
    let test = "what_the_broker_refuses_is_told";
    let user = "{ user: u, password: p, permissions: { publish: { deny: \"a\" } } }";
    let lines = format!("authorization {{ users: [ {user} ] }}\nno_auth_user: u");
    let Some(broker) = Broker::nats(test, &lines) else { return };
    let mut route = Route::start("lines:-", &format!("nats://127.0.0.1:{}/a?buffer=10", broker.port), &[]);
    route.write(0..1);
    route.wait_for("refused a message: permissions violation for publish");
    route.write(1..30);
    let wrote = route.finish();
    let error = wrote.broker()["error"].as_str().unwrap_or_default();
    assert!(error.contains("refused a message"), "{}", wrote.said);
    // The first one the broker had, and refused.
    assert_eq!((wrote.written("sent"), wrote.written("dropped_here")), (30, 29), "{}", wrote.said);
    assert_eq!((wrote.counter("lost"), wrote.code), (29, Some(1)), "{}", wrote.said);
}

#[test]
fn what_a_broker_can_not_be_is_told_with_what_can() {
    let directory = tempfile::tempdir().unwrap();
    let away = format!("mqtt://127.0.0.1:{}/t", support::free_port());
    for (arguments, code, says) in [
        (&["check", "--from", "mqtt://h/t"][..], 2, "taut pipe 'mqtt://h/t' stdio: --framing line"),
        (&["check", "--from", "timer:1s", "--to", "mqtt://h"], 2, "the topic is missing"),
        (&["check", "--from", "timer:1s", "--to", "nats:h/t"], 2, "nats://HOST/SUBJECT"),
        (&["run", "--from", "timer:1s", "--to", &away], 1, "Connection refused"),
        (
            &["run", "--from", "udp://127.0.0.1:9", "--to", &away, "--place", "kernel"],
            4,
            "a sink that the kernel path has: reply or udp://, not mqtt://",
        ),
    ] {
        let output = taut().arg("route").args(arguments).env("XDG_RUNTIME_DIR", directory.path()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}
