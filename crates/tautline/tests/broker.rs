//! Brokers as paths: real brokers, and some that behave badly on purpose.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;
use support::brokers::{Between, Broker, Listener, Mosquitto, OPEN, Port, Then};
use support::{Serve, causes, free_port, has, run, run_json, skip, taut, text};

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

/// The same work over a socket and over both brokers, in the same rounds, each with its interval.
#[test]
fn a_socket_and_brokers_of_all_kinds_stand_in_one_table() {
    let test = "a_socket_and_brokers_of_all_kinds_stand_in_one_table";
    let (Some(mqtt), Some(nats)) = (Mosquitto::start(test, OPEN), Broker::nats_with_store(test)) else { return };
    let topics = ["a", "b?qos=1", "c?qos=2"].map(|rest| mqtt.topic(rest)).join(" ");
    let subjects = ["d", "e?stream=E&create=memory"].map(|rest| format!("nats://127.0.0.1:{}/{rest}", nats.port));
    let server = Serve::start(&format!("tcp://127.0.0.1:0 {topics} {}", subjects.join(" ")));
    let line = format!("echo {} --count 210 --opt nodelay --place free --timeout 60s", server.endpoints.join(" "));
    let document = run_json(&line);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for (row, endpoint) in rows.iter().zip(&server.endpoints) {
        let rounds = row["rounds"].as_array().unwrap().len();
        assert_eq!(
            (&row["endpoint"], &row["lost"], &row["rtt_ns"]["count"]),
            (&json!(endpoint), &0.into(), &210.into())
        );
        assert_eq!(rounds, rows[0]["rounds"].as_array().unwrap().len());
        assert!(rounds >= 5 && row["rtt_ns"]["p50_ci"].is_array(), "{row:#}");
    }
    for row in &rows[1..] {
        assert_eq!(row["compared"]["with"], *server.endpoint(0), "{row:#}");
        assert!(row["compared"]["p50_ratio_ci"].is_array(), "{row:#}");
    }
}

#[test]
fn every_engine_and_many_links_and_sizes() {
    // Else it drops what is more than 1000 messages ahead of a reader, as on a busy machine.
    let lines = format!("{OPEN}\nmax_queued_messages 0");
    let Some(broker) = Mosquitto::start("every_engine_and_many_links_and_sizes", &lines) else { return };
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
    let row = &run_json(&format!("stream {endpoint} --time 300ms --rounds 1 --place free"))["results"][0];
    assert!(row["throughput_bps"].as_f64().unwrap() > 0.0, "{row:#}");
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
    let endless = run(&line("lab/x?user=ann&password-file=/dev/zero"));
    assert_eq!(endless.status.code(), Some(2), "{}", text(&endless.stderr));
    assert!(text(&endless.stderr).contains("longer than 65537 bytes"), "{}", text(&endless.stderr));
    // A password is nowhere in what is printed.
    let printed = run(&format!("{} --json", line(&format!("lab/x?user=ann&password-file={right}"))));
    assert!(!text(&printed.stdout).contains("secret"));
}

#[test]
fn a_broker_that_goes_away_is_told_and_found_again_by_the_server() {
    let test = "a_broker_that_goes_away_is_told_and_found_again_by_the_server";
    let kept = Port::keep();
    let port = kept.number;
    let Some(broker) = Mosquitto::start_at(test, port, |_| OPEN.to_owned()) else { return };
    let mut server = Serve::start(&broker.topic("taut?qos=1"));
    let endpoint = server.endpoint(0).to_owned();
    let between = Between::start(port, u64::MAX, Then::Cut);
    let way = endpoint.replace(&format!(":{port}/"), &format!(":{}/", between.port));
    let mut client = taut();
    client.args(["echo", &way, "--time", "60s", "--rounds", "1", "--place", "free", "--json"]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    between.wait_for_heard(5000);
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

const STOCK: &str = "allow_anonymous true";

/// The table of who holds what: no absolute times where something is held, since the kernel chooses its delays.
#[test]
fn who_holds_messages_with_qos_1_is_named_and_cured() {
    let test = "who_holds_messages_with_qos_1_is_named_and_cured";
    let (Some(stock), Some(quick)) = (Mosquitto::start(test, STOCK), Mosquitto::start(test, OPEN)) else { return };
    let topics = [stock.topic("t?qos=1"), quick.topic("t?qos=1"), stock.topic("zero"), quick.topic("n?qos=1&nagle=on")];
    let server = Serve::start(&topics.join(" "));
    let echo = |endpoint: &str, options: &str| {
        let document = run_json(&format!("echo {endpoint} --count 40 --rounds 2 --place free --timeout 60s {options}"));
        let row = &document["results"][0];
        assert_eq!(row["lost"], 0, "{row:#}");
        (row["rtt_ns"]["p50"].as_f64().unwrap(), document)
    };
    let named = |document: &serde_json::Value| causes(document).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let at = |index: usize| server.endpoint(index);

    let (both, document) = echo(at(0), "");
    assert_eq!(named(&document), ["client_nagle", "broker_nagle"], "{:#}", document["findings"]);
    let finding = &document["findings"][1];
    assert!(finding["evidence"][1].as_str().unwrap().contains("mosquitto version 2"), "{finding:#}");
    assert!(finding["remedy"].as_str().unwrap().contains("set_tcp_nodelay true"), "{finding:#}");
    let (of_broker, document) = echo(at(0), "--opt nodelay");
    assert_eq!(named(&document), ["broker_nagle"], "{:#}", document["findings"]);
    let (of_client, document) = echo(at(1), "");
    assert_eq!(named(&document), ["client_nagle"], "{:#}", document["findings"]);
    let (far_side, document) = echo(at(3), "");
    assert_eq!(named(&document), ["client_nagle"], "{:#}", document["findings"]);
    // Without it on both sides, and with QoS 0 anyway, nothing is held and nothing is found.
    let (none, document) = echo(at(1), "--opt nodelay");
    assert!(named(&document).is_empty(), "{:#}", document["findings"]);
    let (zero, document) = echo(at(2), "");
    assert!(named(&document).is_empty(), "{:#}", document["findings"]);
    // From outside: at one end alone it does nothing.
    let (asker, document) = echo(at(0), "--opt nodelay --opt quickack");
    assert_eq!(named(&document), ["broker_nagle"], "{:#}", document["findings"]);
    let (responder, document) = echo(at(0), "--opt nodelay --peer-ack prompt");
    assert_eq!(named(&document), ["broker_nagle"], "{:#}", document["findings"]);
    let (cured, document) = echo(at(0), "--opt nodelay --opt quickack --peer-ack prompt");
    assert!(named(&document).is_empty(), "{:#}", document["findings"]);

    for (held, what) in [(of_broker, "broker"), (of_client, "client"), (asker, "asker"), (responder, "responder")] {
        assert!((0.5..=1.5).contains(&(held / of_broker)), "{what}: {held} beside {of_broker}");
        assert!(
            held > 20.0 * none && held > 20.0 * cured && held > 20.0 * zero,
            "{what}: {held} {none} {cured} {zero}"
        );
    }
    // The bar of a path that is cured; the kernel chooses its delays, and this is without them.
    assert!(cured <= 0.2e6, "{cured} ns");
    for (held, what) in [(both, "client and broker"), (far_side, "both clients")] {
        assert!((1.5..=3.0).contains(&(held / of_broker)), "{what}: {held} beside {of_broker}");
    }
}

#[test]
fn tune_finds_the_cure_around_a_broker() {
    let test = "tune_finds_the_cure_around_a_broker";
    let Some(stock) = Mosquitto::start(test, STOCK) else { return };
    let server = Serve::start(&stock.topic("t?qos=1"));
    let document = run_json(&format!("tune {} --time 100ms --place free", server.endpoint(0)));
    let rows = document["results"].as_array().unwrap();
    let shorter: Vec<&serde_json::Value> = rows.iter().filter(|row| row["verdict"] == "shorter").collect();
    let best =
        shorter.iter().min_by(|a, b| a["p50_ratio"].as_f64().unwrap().total_cmp(&b["p50_ratio"].as_f64().unwrap()));
    let best = best.unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!(best["setting"], "nodelay, quickack at both ends", "{best:#}");
    assert!(best["p50_ratio"].as_f64().unwrap() < 0.01, "{best:#}");
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
        (&[TAKEN, &[0xD0, 0]], true, "no answer to our SUBSCRIBE"),
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
    let mut listener = Listener::start(&broker, "own/+/own", "own/sign/own");
    run_json(&format!("echo {} --plain --count 100 --size 32 --opt nodelay", broker.topic("own?qos=1")));
    let heard: Vec<u64> = (0..20).map(|_| listener.next_bytes()).collect();
    assert_eq!(heard, [32; 20]);
}
