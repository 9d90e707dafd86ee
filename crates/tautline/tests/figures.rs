//! Runs without an end: their lines, what becomes of them where they can't be written, and what a receiver gets.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::relay::Relay;
use support::{Serve, run, taut, text, words};

fn start(line: &str) -> Child {
    taut().args(words(line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

/// All lines of a file, of which each has to be as the schema says.
fn lines(path: &Path) -> Vec<Value> {
    let schema = jsonschema::validator_for(&taut_report::schema()).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.inspect(|line| assert!(schema.is_valid(line), "{line:#}")).collect()
}

/// Waits until a file has so many lines.
fn wait_for_lines(path: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(path).map_or(0, |text| text.matches('\n').count()) < count {
        assert!(Instant::now() < deadline, "{} has not {count} lines", path.display());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interval_is_a_line_and_the_next_begins_on_schedule() {
    let (server, directory) = Serve::on_all();
    let file = directory.path().join("lines");
    let (tcp, udp) = (server.endpoint(0), server.endpoint(1));
    let line = format!("echo {tcp} {udp} --place free --every 500ms --for 2s --jsonl {}", file.display());
    let output = run(&line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = lines(&file);
    // On a busy machine one may take the time of the next.
    assert!((3..=4).contains(&lines.len()), "{lines:#?}");
    let began = |line: &Value| line["began_unix_ns"].as_u64().unwrap();
    let ended = |line: &Value| began(line) + line["duration_ns"].as_u64().unwrap();
    let since = |at: u64| (at - began(&lines[0])) as f64 * 1e-9;
    // The whole time is measured, and the schedule is not drifted from: no interval is early, and the last one ends
    // when the time is over, later only by what its own replies took.
    assert!((1.9..2.6).contains(&since(ended(lines.last().unwrap()))), "{lines:#?}");
    for two in lines.windows(2) {
        let gap = since(began(&two[1])) - since(ended(&two[0]));
        assert!((-0.01..0.2).contains(&gap), "{gap} s without an interval");
    }
    for (number, line) in lines.iter().enumerate() {
        assert_eq!((&line["command"], &line["interval"]), (&json!("echo"), &json!(number)));
        assert_eq!((&line["ended"]["how"], &line["lines_lost"]), (&json!("complete"), &json!(0)));
        assert!(since(began(line)) > 0.5 * number as f64 - 0.01, "{number}: {} s", since(began(line)));
        let rows = line["results"].as_array().unwrap();
        assert_eq!([&rows[0]["endpoint"], &rows[1]["endpoint"]], [tcp, udp]);
        for row in rows {
            assert_eq!((&row["complete"], &row["lost"], &row["placement"]), (&json!(true), &json!(0), &json!("free")));
            assert_eq!(row["messages"], row["rtt_ns"]["count"]);
            assert!(row["messages"].as_u64().unwrap() > 10, "{row:#}");
            assert!(row["rtt_ns"]["p50"].as_u64() <= row["rtt_ns"]["p99"].as_u64());
            assert!(row.get("response_ns").is_none() && row.get("bytes").is_none());
        }
    }
    let log = text(&output.stdout);
    assert_eq!(log.lines().count(), 2 * lines.len(), "{log}");
    assert!(log.lines().all(|line| line.contains("free") || line.contains("not placed")), "{log}");
    // Once more: lines are added.
    assert!(run(&line).status.success());
    assert!(self::lines(&file).len() >= lines.len() + 3);
}

#[test]
fn an_interrupt_ends_with_what_there_is_of_the_last_interval() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let relay = Relay::before(server.socket_address(0));
    let mut child = start(&format!("echo {} --place free --every 1h --jsonl -", relay.endpoint()));
    relay.wait_for_messages(3000);
    interrupt(&child);
    let mut written = String::new();
    child.stdout.take().unwrap().read_to_string(&mut written).unwrap();
    assert!(child.wait().unwrap().success(), "a run without an end of its own is whole when its user ends it");
    let line: Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&line["ended"]["how"], &line["interval"]), (&json!("interrupted"), &json!(0)));
    assert!(line["results"][0]["messages"].as_u64().unwrap() > 0, "{line:#}");
    assert_eq!(line["results"][0]["complete"], false);
    assert!(line["duration_ns"].as_u64().unwrap() < 20_000_000_000);
}

#[test]
fn pace_and_stream_have_intervals_of_their_own_figures() {
    let (server, directory) = Serve::on_all();
    let file = |name: &str| directory.path().join(name);
    for (command, more) in [("pace", "--period 5ms"), ("stream", "")] {
        let file = file(command);
        let line = format!(
            "{command} {} {more} --place free --every 600ms --for 1200ms --jsonl {}",
            server.endpoint(0),
            file.display()
        );
        let output = run(&line);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines = lines(&file);
        assert!((1..=2).contains(&lines.len()), "{lines:#?}");
        for line in &lines {
            let row = &line["results"][0];
            assert_eq!((&line["command"], &row["complete"]), (&json!(command), &json!(true)), "{line:#}");
            match command {
                "pace" => {
                    assert_eq!((&row["lost"], &row["messages"]), (&json!(0), &row["delivery_ns"]["count"]));
                    // 600 ms hold 120 of 5 ms; half of an interval may have gone to the one before.
                    assert!((20..=121).contains(&row["messages"].as_u64().unwrap()), "{row:#}");
                }
                _ => {
                    assert!(row["throughput_bps"].as_f64().unwrap() > 1e6, "{row:#}");
                    assert!(row["bytes"].as_u64().unwrap() > 100_000 && row.get("messages").is_none(), "{row:#}");
                }
            }
        }
    }
}

#[test]
fn a_peer_that_goes_is_told_and_measured_again_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let mut server = Serve::start("tcp://127.0.0.1:0");
    let endpoint = server.endpoint(0).to_owned();
    let child = start(&format!("echo {endpoint} --place free --every 500ms --jsonl {}", file.display()));
    wait_for_lines(&file, 1);
    server.kill();
    wait_for_lines(&file, 4);
    let _again = Serve::start(&endpoint);
    let there = lines(&file).len();
    wait_for_lines(&file, there + 3);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = lines(&file);
    let away: Vec<&Value> = lines.iter().filter(|line| line["ended"]["how"] == "peer_gone").collect();
    assert!(away.len() >= 2, "{lines:#?}");
    for line in away {
        assert_eq!(
            (&line["results"][0]["endpoint"], &line["results"][0]["complete"]),
            (&json!(endpoint), &json!(false))
        );
        assert!(line["ended"]["why"].as_str().unwrap().contains("127.0.0.1"), "{line:#}");
    }
    assert_eq!(
        (&lines[0]["ended"]["how"], &lines[there + 1]["ended"]["how"]),
        (&json!("complete"), &json!("complete"))
    );
    // Nobody waited for one who was away: intervals kept to their schedule.
    let began = |line: &Value| line["began_unix_ns"].as_u64().unwrap();
    let span = (began(lines.last().unwrap()) - began(&lines[0])) as f64 * 1e-9;
    assert!((span - 0.5 * (lines.len() - 1) as f64).abs() < 0.6, "{span} s for {} lines", lines.len());
}

#[test]
fn a_peer_that_never_was_there_ends_it_at_once() {
    let output = run("echo tcp://127.0.0.1:1 --place free --every 1s --jsonl /dev/null");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn lines_that_can_not_be_written_are_told_and_counted() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let line = format!("echo {} --place free --every 500ms --for 1s", server.endpoint(0));
    let output = run(&format!("{line} --jsonl /dev/full"));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("write to /dev/full: No space left on device"), "{told}");
    // It is the lines alone that are lost.
    let count = text(&output.stdout).lines().count();
    let lines = if count == 1 { "1 line".to_owned() } else { format!("{count} lines") };
    assert!(count > 0 && told.contains(&format!("{lines} of --jsonl could not be written")), "{told}");
    // Nobody reads any more, and nobody else wants figures: it ends by itself.
    let mut child = start(&format!("echo {} --place free --every 500ms --jsonl -", server.endpoint(0)));
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && first.starts_with('{'), "{output:?}");
    assert!(text(&output.stderr).contains("1 line of --jsonl could not be written"), "{}", text(&output.stderr));
}

/// A receiver of OTLP/HTTP that does what no real one does when it is asked to: it refuses the first request for the
/// moment, takes the others, and gives all bodies. The real one is in `figures_collector.rs`.
struct Receiver {
    url: String,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Vec<Value>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        Self { url, is_over, thread: thread::spawn(move || receive(&listener, &over)) }
    }

    /// All bodies, once nobody sends any more.
    fn bodies(self) -> Vec<Value> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn receive(listener: &TcpListener, is_over: &AtomicBool) -> Vec<Value> {
    listener.set_nonblocking(true).unwrap();
    let mut bodies: Vec<Value> = Vec::new();
    loop {
        let over = is_over.load(Ordering::Relaxed);
        match listener.accept() {
            Ok((client, _)) => bodies.push(receive_one(client, bodies.is_empty())),
            Err(_) if over => return bodies,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn receive_one(mut client: TcpStream, is_first: bool) -> Value {
    client.set_nonblocking(false).unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let (mut length, mut is_json, mut first) = (0, false, String::new());
    reader.read_line(&mut first).unwrap();
    assert_eq!(first, "POST /v1/metrics HTTP/1.1\r\n");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_ascii_lowercase();
        match line.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("content-type", value)) => is_json = value == "application/json",
            Some(_) => {}
            None => break,
        }
    }
    assert!(is_json);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = if is_first { "503 Busy\r\nRetry-After: 0" } else { "200 OK" };
    write!(client, "HTTP/1.1 {answer}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}").unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_receiver_of_opentelemetry_gets_cumulative_histograms() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let server = Serve::start("tcp://127.0.0.1:0");
    let receiver = Receiver::start();
    let line = format!(
        "echo {} --place free --every 500ms --for 1500ms --otlp {} --jsonl {}",
        server.endpoint(0),
        receiver.url,
        file.display()
    );
    let output = run(&line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bodies = receiver.bodies();
    assert_eq!(bodies[0], bodies[1], "what was refused for the moment comes again");
    let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
    let metric = |body: &Value, name: &str| {
        let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("{name}: {body:#}")).clone()
    };
    let mut sum = 0;
    let lines = lines(&file);
    assert!(lines.len() >= 2 && bodies.len() == lines.len() + 1, "{} of {}", bodies.len(), lines.len());
    for (line, body) in lines.iter().zip(&bodies[1..]) {
        sum += line["results"][0]["rtt_ns"]["count"].as_u64().unwrap();
        let resource = &body["resourceMetrics"][0]["resource"]["attributes"][0];
        assert_eq!(resource, &json!({ "key": "service.name", "value": { "stringValue": "taut" } }));
        let histogram = metric(body, "taut.round_trip");
        assert_eq!(histogram["unit"], "s");
        assert_eq!(histogram["exponentialHistogram"]["aggregationTemporality"], 2);
        let point = &histogram["exponentialHistogram"]["dataPoints"][0];
        let label = json!({ "key": "endpoint", "value": { "stringValue": server.endpoint(0) } });
        assert!(point["attributes"].as_array().unwrap().contains(&label), "{point:#}");
        let buckets: Vec<u64> = point["positive"]["bucketCounts"].as_array().unwrap().iter().map(number).collect();
        assert_eq!((number(&point["count"]), buckets.iter().sum::<u64>() + number(&point["zeroCount"])), (sum, sum));
        assert!(number(&point["startTimeUnixNano"]) < number(&point["timeUnixNano"]));
        let messages = metric(body, "taut.messages")["sum"].clone();
        assert_eq!(
            (&messages["isMonotonic"], &messages["dataPoints"][0]["asDouble"]),
            (&json!(true), &json!(sum as f64))
        );
    }
}

/// What the help of a command lists it can do.
#[test]
fn every_command_with_intervals_reaches_a_receiver_and_a_scraper() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("numbers");
    std::fs::write(&input, "1\n2\n").unwrap();
    let server = Serve::start("tcp://127.0.0.1:0");
    let endpoint = server.endpoint(0);
    // One interval each.
    for (line, name) in [
        (format!("pace {endpoint} --place free --every 500ms --for 500ms"), "taut.delivery"),
        (format!("stream {endpoint} --place free --every 500ms --for 500ms"), "taut.stream"),
        ("watch --port 1 --every 500ms --for 400ms".to_owned(), "taut.connections"),
        (format!("route run --from lines:{} --to file:/dev/null --every 1m", input.display()), "taut.route_events"),
        ("pipe exec:true exec:true --every 1m".to_owned(), "taut.pipe"),
    ] {
        let receiver = Receiver::start();
        let mut command = taut();
        command.args(words(&line)).args(["--otlp", &receiver.url]).env("XDG_RUNTIME_DIR", directory.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        let body = receiver.bodies().pop().unwrap();
        let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        assert!(metrics.iter().any(|metric| metric["name"] == name), "{line}: {body:#}");
    }
    for (line, name) in [
        (format!("pace {endpoint} --place free --every 500ms"), "taut_delivery_seconds_count{"),
        (format!("stream {endpoint} --place free --every 500ms"), "taut_stream_bytes_per_second{"),
        ("pipe stdio: exec:cat --every 500ms".to_owned(), "taut_pipes_open 1\n"),
    ] {
        let port = support::free_port();
        let mut command = taut();
        command.args(words(&line)).args(["--prometheus", &port.to_string()]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        support::wait_for_tcp(([127, 0, 0, 1], port).into());
        let url = format!("http://127.0.0.1:{port}/metrics");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap().contains(name) {
            assert!(Instant::now() < deadline, "{line} does not serve {name}");
            thread::sleep(Duration::from_millis(50));
        }
        interrupt(&child);
        child.wait().unwrap();
    }
}

#[test]
fn a_receiver_that_is_away_is_told_and_what_it_did_not_take_is_counted() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("echo {} --place free --every 500ms --for 1500ms --otlp http://{nobody}", server.endpoint(0));
    let output = run(&line);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let count = text(&output.stdout).lines().count();
    let lost = format!("--otlp: {count} of {count} intervals were not taken: ");
    assert!(count >= 2 && told.contains(&lost) && told.contains("refused"), "{told}");
}

#[test]
fn watch_writes_lines_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let output = run(&format!("watch --port 1 --every 500ms --duration 1s --jsonl {}", file.display()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = lines(&file);
    assert!((1..=3).contains(&lines.len()) && lines.iter().all(|line| line["command"] == "watch"), "{lines:#?}");
    let output = run("watch --port 1 --every 500ms --for 1s --jsonl -");
    assert!(text(&output.stdout).lines().all(|line| line.starts_with('{')), "{}", text(&output.stdout));
    assert_eq!(run("watch --json --jsonl -").status.code(), Some(2));
}

#[test]
fn routes_tell_what_they_did_in_each_interval_and_the_sums() {
    let directory = tempfile::tempdir().unwrap();
    let (file, port) = (directory.path().join("lines"), support::free_port());
    let line = format!(
        "route run --from timer:5ms --to file:/dev/null --place user --every 500ms --jsonl {} --prometheus {port}",
        file.display()
    );
    let mut command = taut();
    command.args(words(&line)).env("XDG_RUNTIME_DIR", directory.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_lines(&file, 2);
    let url = format!("http://127.0.0.1:{port}/metrics");
    let served = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = lines(&file);
    let events = |line: &Value| line["results"][0]["events"].as_u64().unwrap();
    assert!(lines.len() >= 3, "the last one too: {lines:#?}");
    let mut so_far = [0, 0];
    for line in &lines[..2] {
        assert_eq!((&line["command"], &line["results"][0]["name"]), (&json!("route run"), &json!("route")));
        assert_eq!(line["results"][0]["passed"], line["results"][0]["events"]);
        // No more than there was time for; what a busy core leaves undone in one interval comes in the next.
        so_far = [so_far[0] + events(line), so_far[1] + line["duration_ns"].as_u64().unwrap()];
        let most = so_far[1] / 5_000_000 + 2;
        assert!(events(line) >= 20 && so_far[0] <= most, "{so_far:?}: {line:#}");
    }
    let all: u64 = lines.iter().map(events).sum();
    assert!(text(&output.stdout).contains(&format!("events {all}  passed {all}")), "{all}: {}", text(&output.stdout));
    let name = "taut_route_events_total{route=\"route\",runs=\"user\"} ";
    let served: f64 = served.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap();
    assert!(served >= (events(&lines[0]) + events(&lines[1])) as f64 && served <= all as f64, "{served} of {all}");
}

#[test]
fn pipes_tell_what_they_carried_while_they_are_open_and_when_they_have_ended() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let line = format!("pipe stdio: exec:cat --every 500ms --jsonl {}", file.display());
    let mut child = taut();
    child.args(words(&line)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&[b'x'; 1000]).unwrap();
    // Nothing else moves: it is the interval's end that wakes it up, and the pipe is open.
    let sum = |lines: &[Value], way: &str| lines.iter().map(|line| line[way]["bytes"].as_u64().unwrap()).sum::<u64>();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut open = Vec::new();
    while sum(&open, "b_to_a") < 1000 {
        assert!(Instant::now() < deadline, "{open:#?}");
        wait_for_lines(&file, open.len() + 1);
        open = lines(&file);
    }
    assert_eq!((sum(&open, "a_to_b"), sum(&open, "b_to_a")), (1000, 1000));
    assert!(open.iter().all(|line| line["pipes_ended"] == 0) && open.last().unwrap()["pipes_open"] == 1, "{open:#?}");
    stdin.write_all(&[b'y'; 234]).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.len() == 1234, "{}", text(&output.stderr));
    let lines = lines(&file);
    let last = lines.last().unwrap();
    assert_eq!(last["command"], "pipe");
    assert_eq!((&last["pipes_open"], &last["pipes_ended"], &last["pipes_failed"]), (&json!(0), &json!(1), &json!(0)));
    assert_eq!((sum(&lines, "a_to_b"), sum(&lines, "b_to_a")), (1234, 1234), "{lines:#?}");
    let output = run("pipe exec:true exec:true --every 1s --jsonl x --tee x");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    for line in ["pipe stdio: exec:cat --every 1s --jsonl -", "pipe exec:true exec:true --every 1s --jsonl - --json"] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(text(&output.stderr).contains("--jsonl - writes to stdout"), "{}", text(&output.stderr));
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let route = "route run --from timer:1s --to file:/dev/null";
    for (more, why) in [
        ("--jsonl x", "add --every"),
        ("--every 1s", "add one of them"),
        ("--every 1s --jsonl x --detach", "cannot be used with"),
        ("--every 1s --jsonl - --log -", "--jsonl - writes to stdout"),
        ("--every 1s --jsonl - --json", "--jsonl - writes to stdout"),
    ] {
        let output = run(&format!("{route} {more}"));
        assert_eq!(output.status.code(), Some(2), "{more}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{more}: {}", text(&output.stderr));
    }
    for (line, why) in [
        ("echo 127.0.0.1 --jsonl x", "--jsonl tells of intervals: add --every"),
        ("pace 127.0.0.1 --prometheus 0", "--prometheus tells of intervals"),
        ("stream 127.0.0.1 --otlp http://h", "--otlp tells of intervals"),
        ("echo 127.0.0.1 --for 1s", "--every"),
        ("echo 127.0.0.1 --every 1ms", "an interval has from 500ms to 1h"),
        ("echo 127.0.0.1 --every 2h", "an interval has from 500ms to 1h"),
        ("echo 127.0.0.1 --every 1s --time 1s", "cannot be used with"),
        ("echo 127.0.0.1 --every 1s --deadline 1ms", "cannot be used with"),
        ("echo 127.0.0.1 --every 1s --count 9", "--count is of a run with an end"),
        ("echo 127.0.0.1 --every 1s --assert p99<1s", "--assert is of a run with an end"),
        ("pace 127.0.0.1 --every 1s --rounds 3", "cannot be used with"),
        ("stream 127.0.0.1 --every 1s --json", "--json is of a run with an end"),
        ("echo 127.0.0.1 --every 1s --otlp https://h", "https is not possible"),
        ("watch --otlp https://h", "https is not possible"),
        ("echo 127.0.0.1 --every 1s --otlp h:4318", "write http://HOST:PORT/PATH"),
        ("echo 127.0.0.1 --every 1s --prometheus here", "a port, or ADDRESS:PORT"),
        ("echo air:paper-000 --every 1s", "--every"),
        ("pace air:paper-000 --every 1s", "--every"),
        ("stream air:paper-000 --every 1s", "--every"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{line}: {}", text(&output.stderr));
    }
    let output = run("echo 127.0.0.1 --every 1s --jsonl /nowhere/x");
    assert_eq!(output.status.code(), Some(1));
    let server = Serve::start("tcp://127.0.0.1:0");
    for line in ["echo {} --rate 1 --every 500ms", "pace {} --period 2s --every 1s"] {
        let output = run(&line.replace("{}", server.endpoint(0)));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(text(&output.stderr).contains("lengthen --every"), "{}", text(&output.stderr));
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Serve::start("tcp://127.0.0.1:0");
    let output = run(&format!("echo {} --every 1s --prometheus {}", server.endpoint(0), taken.local_addr().unwrap()));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("listen on 127.0.0.1:"), "{}", text(&output.stderr));
}

/// A pipe whose reader stands still holds up nobody.
#[test]
fn a_reader_that_stands_still_does_not_hold_up_the_intervals() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let server = Serve::start("tcp://127.0.0.1:0");
    // Opened for both, so that it has a reader, and no room left.
    let mut held = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    rustix::pipe::fcntl_setpipe_size(&held, 4096).unwrap();
    held.write_all(&[b'\n'; 4096]).unwrap();
    let output =
        run(&format!("echo {} --place free --every 1s --for 2s --jsonl {}", server.endpoint(0), fifo.display()));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nobody reads it"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).lines().count() >= 1);
}
