//! A NATS server as a path: a real one, and some that behave badly on purpose.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use support::brokers::{Between, NatsServer, Port, Then};
use support::{Serve, causes, free_port, run, run_json, taut, text};

#[test]
fn a_nats_server_is_one_path_among_others() {
    let Some(nats) = NatsServer::start("a_nats_server_is_one_path_among_others", free_port(), &[]) else { return };
    let server = Serve::start(&format!("tcp://127.0.0.1:0 {} {}", nats.subject("taut"), nats.subject("a.b-2")));
    let line = format!("echo {} --count 210 --opt nodelay --place free --timeout 60s", server.endpoints.join(" "));
    let document = run_json(&line);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (row, endpoint) in rows.iter().zip(&server.endpoints) {
        assert_eq!(
            (&row["endpoint"], &row["sent"], &row["lost"], &row["rtt_ns"]["count"]),
            (&endpoint.as_str().into(), &210.into(), &0.into(), &210.into()),
            "{row:#}"
        );
    }
    assert_eq!((&rows[1]["transport"], &rows[2]["compared"]["with"]), (&"nats".into(), &server.endpoint(0).into()));
    // No server: what is published comes back by the client's own subscription.
    let row = &run_json(&format!("echo {} --plain --count 100 --opt nodelay --timeout 60s", nats.subject("own")))["results"]
        [0];
    assert_eq!((&row["lost"], &row["rtt_ns"]["count"]), (&0.into(), &100.into()), "{row:#}");
}

#[test]
fn every_engine_workload_and_size() {
    let Some(nats) = NatsServer::start("every_engine_workload_and_size", free_port(), &[]) else { return };
    let server = Serve::start(&nats.subject("taut"));
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
    let row = &run_json(&format!("pace {endpoint} --time 300ms --place free"))["results"][0];
    assert_eq!(row["lost"], 0, "{row:#}");
    let row = &run_json(&format!("stream {endpoint} --time 300ms --rounds 1"))["results"][0];
    assert!(row["throughput_bps"].as_f64().unwrap() > 0.0, "{row:#}");
}

/// Nothing of core NATS is acknowledged, so that with a message at a time nothing is held.
#[test]
fn nothing_is_found_where_nothing_is_held() {
    let Some(nats) = NatsServer::start("nothing_is_found_where_nothing_is_held", free_port(), &[]) else { return };
    let server = Serve::start(&nats.subject("taut?nagle=on"));
    let document = run_json(&format!("echo {} --count 40 --rounds 2 --place free", server.endpoint(0)));
    assert!(causes(&document).is_empty(), "{:#}", document["findings"]);
}

#[test]
fn who_is_not_let_in_is_told_so() {
    let test = "who_is_not_let_in_is_told_so";
    let Some(nats) = NatsServer::start(test, free_port(), &["--user", "ann", "--pass", "secret"]) else { return };
    let Some(by_token) = NatsServer::start(test, free_port(), &["--auth", "secret"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, password: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, password).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (file("right", "secret\n"), file("wrong", "guess\n"));
    let line = |subject: &str| format!("echo {subject} --plain --count 20 --timeout 5s");
    let refused =
        [nats.subject("x"), nats.subject(&format!("x?user=ann&password-file={wrong}")), by_token.subject("x")];
    for subject in refused {
        let refused = run(&line(&subject));
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{subject}: {said}");
        assert!(said.contains("the broker ") && said.contains("password-file="), "{subject}: {said}");
    }
    for subject in [
        nats.subject(&format!("x?user=ann&password-file={right}")),
        by_token.subject(&format!("x?password-file={right}")),
    ] {
        let printed = run(&format!("{} --json", line(&subject)));
        assert!(printed.status.success(), "{subject}: {}", text(&printed.stderr));
        assert!(!text(&printed.stdout).contains("secret"));
    }
}

#[test]
fn a_server_that_goes_away_is_told_and_found_again() {
    let kept = Port::keep();
    let port = kept.number;
    let Some(nats) = NatsServer::start("a_server_that_goes_away_is_told_and_found_again", port, &[]) else { return };
    let mut server = Serve::start(&nats.subject("taut"));
    let endpoint = server.endpoint(0).to_owned();
    let between = Between::start(port, u64::MAX, Then::Cut);
    let way = endpoint.replace(&format!(":{port}/"), &format!(":{}/", between.port));
    let mut client = taut();
    client.args(["echo", &way, "--time", "60s", "--rounds", "1", "--place", "free", "--json"]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    between.wait_for_heard(5000);
    drop(nats);
    let output = client.wait_with_output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.code() == Some(1) && said.contains("the broker closed the connection"), "{said}");
    assert!(server.is_running());
    let _again = NatsServer::start("", port, &[]).unwrap();
    let found = (0..20).any(|_| run(&format!("echo {endpoint} --count 10 --opt nodelay")).status.success());
    assert!(found, "the server did not come back to its broker");
}

/// Greets a client with these bytes, sends the rest after its next lines, and the last one for ever.
fn bad_server(pieces: &'static [&'static [u8]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("nats://{}/x", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                for piece in pieces {
                    if stream.write_all(piece).is_err() || stream.read(&mut [0; 4096]).unwrap_or(0) == 0 {
                        return;
                    }
                }
                while stream.write_all(pieces[pieces.len() - 1]).is_ok() {}
            });
        }
    });
    endpoint
}

const INFO: &[u8] = b"INFO {\"version\":\"2\",\"max_payload\":1048576}\r\n";

/// Questions, as many as the answers to them do not fit into the buffers of a connection that nobody reads.
const PINGS: [u8; 6000] = {
    let mut all = [0; 6000];
    let mut at = 0;
    while at < all.len() {
        all[at] = b"PING\r\n"[at % 6];
        at += 1;
    }
    all
};

#[test]
fn bad_servers_get_a_clear_error_and_no_memory() {
    let cases: [(&'static [&'static [u8]], &str); 6] = [
        (&[b"220 mail.example ESMTP\r\n"], "is it a NATS server"),
        (&[b"INFO {\"tls_required\":true}\r\n"], "what it sends is no TLS"),
        (&[INFO, b"PONG\r\nMSG x 1 268435456\r\n"], "larger than what is taken here"),
        // Messages without end before it has let the client in, and after.
        (&[INFO, b"MSG x 1 5\r\nABCDE\r\n"], "no answer to our CONNECT"),
        (&[INFO, &PINGS], "no answer to our CONNECT"),
        (&[INFO, b"PONG\r\nMSG y 1 5\r\nABCDE\r\n"], ""),
    ];
    for (pieces, words) in cases {
        let endpoint = bad_server(pieces);
        let mut client = taut();
        client.args(["echo", &endpoint, "--plain", "--count", "50", "--timeout", "1s", "--rounds", "1"]);
        let limit = rustix::process::Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
        let child = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed());
        rustix::process::prlimit(pid, rustix::process::Resource::As, limit).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words) && !said.contains("panicked"), "{said}");
    }
}

/// The refusal of what its account needs comes before its first line has gone.
#[test]
fn a_pipe_to_a_server_that_refuses_what_it_publishes_ends_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("nats://{}/t", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || refuse(&stream));
        }
    });
    let mut pipe = taut();
    pipe.args(["pipe", "stdio:", &endpoint, "--framing", "line"]);
    let mut pipe = pipe.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its input stays open.
    pipe.stdin.as_mut().unwrap().write_all(b"one\n").unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while pipe.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            pipe.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    let output = pipe.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the broker refused a message: permissions violation"), "{said}");
}

/// Lets a client in, and refuses each message.
fn refuse(mut stream: &TcpStream) {
    stream.write_all(INFO).unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer: &[u8] = match line.split(' ').next() {
            Some("PING") => b"PONG\r\n",
            Some("PUB" | "HPUB") => b"-ERR 'Permissions Violation for Publish to \"t\"'\r\n",
            _ => continue,
        };
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}
