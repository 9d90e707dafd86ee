//! Streams of JetStream as paths, on a real nats-server.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::brokers::{Between, NatsServer, Port, Then};
use support::{Serve, free_port, run, run_json, taut, text};

/// A nats-server with JetStream, its store in a directory of its own.
struct JetStream {
    nats: NatsServer,
    directory: tempfile::TempDir,
}

impl JetStream {
    fn start(test: &str) -> Option<Self> {
        Self::start_at(test, free_port(), tempfile::tempdir().unwrap())
    }

    fn start_at(test: &str, port: u16, directory: tempfile::TempDir) -> Option<Self> {
        let store = directory.path().display().to_string();
        let nats = NatsServer::start(test, port, &["-js", "-sd", &store])?;
        Some(Self { nats, directory })
    }

    fn subject(&self, rest: &str) -> String {
        self.nats.subject(rest)
    }

    fn client(&self) -> Raw {
        Raw::new(self.nats.port)
    }
}

/// A client of a few lines, as stock ones speak: requests with an inbox, and JSON.
struct Raw {
    socket: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Raw {
    fn new(port: u16) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(b"CONNECT {\"verbose\":false}\r\nSUB inbox.test 1\r\n").unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap());
        Self { socket, lines }
    }

    /// A request, and what its answer has.
    fn ask(&mut self, subject: &str, question: &str) -> Value {
        let line = format!("PUB {subject} inbox.test {}\r\n{question}\r\n", question.len());
        self.socket.write_all(line.as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server is gone");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[0] {
                "PING" => self.socket.write_all(b"PONG\r\n").unwrap(),
                "MSG" => {
                    let bytes: usize = words[words.len() - 1].parse().unwrap();
                    let mut payload = vec![0; bytes + 2];
                    self.lines.read_exact(&mut payload).unwrap();
                    return serde_json::from_slice(&payload[..bytes]).unwrap();
                }
                "INFO" => {}
                other => panic!("{other}: {line}"),
            }
        }
    }

    fn api(&mut self, what: &str, question: &Value) -> Value {
        let question = if question.is_null() { String::new() } else { question.to_string() };
        let answer = self.ask(&format!("$JS.API.{what}"), &question);
        assert!(answer["error"].is_null(), "{what}: {answer:#}");
        answer
    }

    fn make_stream(&mut self, stream: &Value) {
        let name = stream["name"].as_str().unwrap();
        self.api(&format!("STREAM.CREATE.{name}"), stream);
    }
}

/// What `taut` says on a line that fails.
fn said(line: &str) -> String {
    let output = run(line);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "taut {line}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing is {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stream_is_one_path_among_others() {
    let Some(server) = JetStream::start("a_stream_is_one_path_among_others") else { return };
    let mut raw = server.client();
    raw.make_stream(&json!({ "name": "FILES", "subjects": ["f.>"], "storage": "file" }));
    let paths =
        ["core", "m?stream=MADE&create=memory", "f.x?stream=FILES&reader=taut"].map(|rest| server.subject(rest));
    let answering = Serve::start(&paths.join(" "));
    let line = format!("echo {} --count 210 --opt nodelay --place free --timeout 60s", answering.endpoints.join(" "));
    let document = run_json(&line);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (row, endpoint) in rows.iter().zip(&answering.endpoints) {
        assert_eq!(
            (&row["endpoint"], &row["lost"], &row["rtt_ns"]["count"]),
            (&endpoint.as_str().into(), &0.into(), &210.into()),
            "{row:#}"
        );
    }
    // The questions are in the streams; answers are where its subjects cover them.
    for (name, kept, ends) in [("MADE", "m.", &[".req"][..]), ("FILES", "f.x.", &[".req", ".rep"])] {
        let info = raw.api(&format!("STREAM.INFO.{name}"), &json!({ "subjects_filter": ">" }));
        assert!(info["state"]["messages"].as_u64().unwrap() >= 210, "{info:#}");
        let subjects = info["state"]["subjects"].as_object().unwrap();
        let is_known = |subject: &String| subject.starts_with(kept) && ends.iter().any(|end| subject.ends_with(end));
        assert!(subjects.keys().all(is_known), "{info:#}");
    }
    let made = raw.api("STREAM.INFO.MADE", &Value::Null);
    let (storage, limit) = (&made["config"]["storage"], &made["config"]["max_bytes"]);
    assert_eq!((storage, limit), (&"memory".into(), &(64 << 20).into()), "{made:#}");
    // The reader has acknowledged all that it read.
    let reader = raw.api("CONSUMER.INFO.FILES.taut", &Value::Null);
    assert_eq!((&reader["num_ack_pending"], &reader["num_pending"]), (&0.into(), &0.into()), "{reader:#}");

    let endpoint = answering.endpoint(1);
    for engine in ["blocking", "spin", "poll", "epoll", "tokio"] {
        for more in ["", "--connections 3", "--size 100KiB"] {
            let line = format!(
                "echo {endpoint} --count 40 --rounds 2 --engine {engine} --opt nodelay --place free --timeout 60s {more}"
            );
            assert_eq!(run_json(&line)["results"][0]["lost"], 0, "{line}");
        }
    }
    // More than may be without an acknowledgement.
    let line = format!("echo {endpoint} --rate 20000 --time 500ms --rounds 1 --place free --timeout 60s");
    let row = &run_json(&line)["results"][0];
    assert_eq!((&row["sent"], &row["lost"]), (&10_000.into(), &0.into()), "{row:#}");
    let row = &run_json(&format!("pace {endpoint} --time 300ms --place free"))["results"][0];
    assert_eq!(row["lost"], 0, "{row:#}");
    let row = &run_json(&format!("stream {endpoint} --block 1KiB --time 300ms --rounds 1"))["results"][0];
    assert!(row["throughput_bps"].as_f64().unwrap() > 0.0, "{row:#}");
}

#[test]
fn the_stream_alone_is_the_echo() {
    let Some(server) = JetStream::start("the_stream_alone_is_the_echo") else { return };
    let endpoint = server.subject("p?stream=P&create=file");
    let row = &run_json(&format!("echo {endpoint} --plain --count 100 --opt nodelay --timeout 60s"))["results"][0];
    assert_eq!((&row["lost"], &row["rtt_ns"]["count"]), (&0.into(), &100.into()), "{row:#}");
    let info = server.client().api("STREAM.INFO.P", &Value::Null);
    assert!(info["state"]["messages"].as_u64().unwrap() >= 100, "{info:#}");
    // A reader without a name is forgotten by the server, at the latest some time after.
    assert!(info["state"]["consumer_count"].as_u64().unwrap() <= 10, "{info:#}");
}

#[test]
fn a_reader_with_a_name_reads_what_came_while_it_was_away() {
    let test = "a_reader_with_a_name_reads_what_came_while_it_was_away";
    let Some(server) = JetStream::start(test) else { return };
    let mut raw = server.client();
    raw.make_stream(&json!({ "name": "S", "subjects": ["t.>"], "storage": "memory" }));
    let endpoint = server.subject("t?stream=S&reader=R");
    let echo = format!("echo {endpoint} --count 20 --rounds 1 --opt nodelay --place free --timeout 20s");
    let mut answering = Serve::start(&endpoint);
    assert_eq!(run_json(&echo)["results"][0]["lost"], 0);
    // Killed before it has acknowledged all that it answered, the reader would get some of that again.
    let counts = |raw: &mut Raw| {
        let info = raw.api("CONSUMER.INFO.S.R", &Value::Null);
        ["num_pending", "num_ack_pending"].map(|what| info[what].as_u64().unwrap())
    };
    wait_for("acknowledged", || counts(&mut raw)[1] == 0);
    answering.kill();
    let last = |raw: &mut Raw| raw.api("STREAM.INFO.S", &Value::Null)["state"]["last_seq"].as_u64().unwrap();
    // What the client said last may come behind its end, also while one looks.
    let (left, before) = loop {
        let before = last(&mut raw);
        let left: u64 = counts(&mut raw).iter().sum();
        if last(&mut raw) == before {
            break (left, before);
        }
    };
    // A stock client's publication is acknowledged, with nobody there to read it.
    for number in 1..=5 {
        let kept = raw.ask("t.stranger.req", "no question");
        assert_eq!((&kept["stream"], kept["seq"].is_u64()), (&"S".into(), true), "{kept:#} {number}");
    }
    // One may have gone to who is not there any more, before the server knew, and just now: one look has both.
    let (now, after) = (counts(&mut raw).iter().sum::<u64>(), last(&mut raw));
    assert!(after >= before + 5, "{before} {after}");
    assert_eq!(now, left + after - before, "{left} {before} {after}");
    let _answering = Serve::start(&endpoint);
    wait_for("read", || counts(&mut raw)[0] == 0);
    // What was no question did it no harm.
    assert_eq!(run_json(&echo)["results"][0]["lost"], 0);
}

#[test]
fn what_a_stream_refuses_is_named() {
    let test = "what_a_stream_refuses_is_named";
    let (Some(server), Some(without)) = (JetStream::start(test), NatsServer::start(test, free_port(), &[])) else {
        return;
    };
    let mut raw = server.client();
    raw.make_stream(&json!({ "name": "OTHER", "subjects": ["other.>"], "storage": "memory" }));
    raw.make_stream(&json!({ "name": "FULL", "subjects": ["full.>"], "storage": "memory", "max_msgs": 5,
                             "discard": "new" }));
    raw.make_stream(&json!({ "name": "S", "subjects": ["s.>"], "storage": "memory" }));
    let reader = |raw: &mut Raw, name: &str, mut config: Value| {
        config["durable_name"] = name.into();
        config["ack_policy"] = "explicit".into();
        let question = json!({ "stream_name": "S", "config": config });
        raw.api(&format!("CONSUMER.DURABLE.CREATE.S.{name}"), &question);
    };
    reader(&mut raw, "theirs", json!({}));
    reader(&mut raw, "pushed", json!({ "deliver_subject": "push.there", "filter_subject": "s.*.req" }));
    let echo = |endpoint: String| format!("echo {endpoint} --plain --count 20 --rounds 1 --timeout 5s");
    for (line, expected) in [
        (echo(without.subject("s?stream=S")), "has no JetStream"),
        (echo(server.subject("s?stream=NONE")), "has no stream NONE: make it (`nats stream add`)"),
        (echo(server.subject("s?stream=OTHER")), "that does not keep s."),
        (echo(server.subject("s?stream=OTHER&create=file")), "its subjects are other.>"),
        // Its subjects are another stream's already.
        (echo(server.subject("s?stream=NEW&create=file")), "refused to make the stream NEW: subjects overlap"),
        (echo(server.subject("full?stream=FULL")), "did not keep a message: maximum messages exceeded"),
        (
            format!("serve {}", server.subject("s?stream=S&reader=theirs")),
            "has a reader theirs that does not read s.*.req",
        ),
        (
            format!("serve {}", server.subject("s?stream=S&reader=pushed")),
            "has a reader pushed that is one that is pushed",
        ),
    ] {
        let said = said(&line);
        assert!(said.contains("the broker ") && said.contains(expected), "{line}: {said}");
    }
}

#[test]
fn a_stream_that_goes_away_is_told() {
    let Some(server) = JetStream::start("a_stream_that_goes_away_is_told") else { return };
    let mut raw = server.client();
    raw.make_stream(&json!({ "name": "S", "subjects": ["s.>"], "storage": "memory" }));
    let mut client = taut();
    let endpoint = server.subject("s?stream=S");
    client.args(["echo", &endpoint, "--plain", "--time", "60s", "--rounds", "1", "--json"]);
    let client = client.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while raw.api("STREAM.INFO.S", &Value::Null)["state"]["messages"] == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing is published");
    }
    raw.api("STREAM.DELETE.S", &Value::Null);
    let output = client.wait_with_output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    let is_named =
        said.contains("no stream has its subject any more") || said.contains("ended the reading of the stream");
    assert!(is_named, "{said}");
}

#[test]
fn a_server_that_restarts_has_its_stream_and_reader_again() {
    let test = "a_server_that_restarts_has_its_stream_and_reader_again";
    let kept = Port::keep();
    let port = kept.number;
    let Some(server) = JetStream::start_at(test, port, tempfile::tempdir().unwrap()) else { return };
    let endpoint = server.subject("t?stream=S&create=file&reader=R");
    let _answering = Serve::start(&endpoint);
    let echo = format!("echo {endpoint} --count 20 --rounds 1 --opt nodelay --place free --timeout 20s");
    assert_eq!(run_json(&echo)["results"][0]["lost"], 0);
    let JetStream { nats, directory } = server;
    drop(nats);
    let again = JetStream::start_at(test, port, directory).unwrap();
    let found = (0..20).any(|_| run(&echo).status.success());
    assert!(found, "the server did not come back to its broker");
    let reader = again.client().api("CONSUMER.INFO.S.R", &Value::Null);
    assert!(reader["delivered"]["stream_seq"].as_u64().unwrap() > 20, "{reader:#}");
}

#[test]
fn a_server_with_small_messages_is_told() {
    let test = "a_server_with_small_messages_is_told";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.conf");
    std::fs::write(&path, "max_payload: 65536\n").unwrap();
    let Some(nats) = NatsServer::start(test, free_port(), &["-c", &path.display().to_string()]) else { return };
    let mut server = taut();
    server.args(["serve", &nats.subject("t"), "--while-stdin-open"]).stdin(std::process::Stdio::piped());
    server.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut server = server.spawn().unwrap();
    let echo = |size: &str| format!("echo {} --size {size} --count 10 --rounds 1 --place free", nats.subject("t"));
    assert!((0..20).any(|_| run(&echo("60KiB")).status.success()));
    let refused = run(&echo("200KiB"));
    let told = format!("{}{}", text(&refused.stdout), text(&refused.stderr));
    assert!(told.contains("its limit is 65536 bytes (max_payload)"), "{told}");
    drop(server.stdin.take());
    let said = text(&server.wait_with_output().unwrap().stderr);
    assert!(
        said.contains("takes messages of at most 65536 bytes (max_payload), clients may ask for 1048576"),
        "{said}"
    );
}

#[test]
fn two_that_are_alone_with_a_server_do_not_hear_each_other() {
    let test = "two_that_are_alone_with_a_server_do_not_hear_each_other";
    let Some(nats) = NatsServer::start(test, free_port(), &[]) else { return };
    let start = || {
        let between = Between::start(nats.port, u64::MAX, Then::Cut);
        let mut client = taut();
        let endpoint = format!("nats://127.0.0.1:{}/same", between.port);
        client.args(["echo", &endpoint, "--plain", "--time", "2s", "--rounds", "1", "--opt", "nodelay", "--json"]);
        (client.stdout(std::process::Stdio::piped()).spawn().unwrap(), between)
    };
    for (client, between) in [start(), start()] {
        let document = support::parse(&client.wait_with_output().unwrap());
        let row = &document["results"][0];
        assert_eq!((&row["lost"], &row["sent"]), (&0.into(), &row["rtt_ns"]["count"]), "{row:#}");
        // A message is as long on its way there as on its way back. Each would get what both have sent.
        let (sent, heard) = (between.sent.lock().unwrap().len() as u64, between.heard.load(Ordering::Relaxed));
        assert!(sent > 10_000 && heard < sent * 5 / 4, "{heard} bytes came for {sent}");
    }
}
