//! Brokers over TLS: real ones, with good certificates and bad ones, and somebody on the way who cuts and changes.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;

use support::brokers::{Between, Certificates, Mosquitto, NatsServer, OPEN, Port, Then};
use support::{Serve, causes, free_port, run, run_json, taut, text, words};

/// What `taut` says on a line that fails with this code.
fn said(line: &str, code: i32) -> String {
    let output = run(line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "taut {line}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn plain(endpoint: &str) -> String {
    format!("echo {endpoint} --plain --count 20 --rounds 1 --opt nodelay --timeout 10s")
}

#[test]
fn mqtt_over_tls_is_one_path_among_others() {
    let test = "mqtt_over_tls_is_one_path_among_others";
    let certificates = Certificates::new();
    let lines = format!("{}\nset_tcp_nodelay true\nmax_queued_messages 0", certificates.listener("server"));
    let Some(broker) = Mosquitto::start(test, &lines) else { return };
    let root = certificates.path("root.pem");
    let topics = ["taut?", "a/b?qos=1&", "c?qos=2&v=5&"]
        .map(|rest| format!("mqtts://localhost:{}/{rest}ca={root}", broker.port));
    let server = Serve::start(&format!("tcp://127.0.0.1:0 {}", topics.join(" ")));
    let line = format!("echo {} --count 210 --opt nodelay --place free --timeout 60s", server.endpoints.join(" "));
    let document = run_json(&line);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for (row, endpoint) in rows.iter().zip(&server.endpoints) {
        assert_eq!(
            (&row["endpoint"], &row["lost"], &row["rtt_ns"]["count"]),
            (&endpoint.as_str().into(), &0.into(), &210.into()),
            "{row:#}"
        );
    }
    assert_eq!(rows[1]["transport"], "mqtts");
    let endpoint = server.endpoint(2);
    for engine in ["blocking", "spin", "poll", "epoll", "tokio"] {
        for more in ["", "--connections 3", "--size 200KiB"] {
            let line = format!(
                "echo {endpoint} --count 40 --rounds 2 --engine {engine} --opt nodelay --place free --timeout 60s {more}"
            );
            let row = &run_json(&line)["results"][0];
            assert_eq!(row["lost"], 0, "{line}: {row:#}");
        }
    }
    // Far ahead of the broker, so that records wait for room.
    let line = format!("echo {endpoint} --rate 5000 --size 20KiB --time 300ms --rounds 1 --place free --timeout 60s");
    let row = &run_json(&line)["results"][0];
    assert_eq!((&row["sent"], &row["lost"]), (&1500.into(), &0.into()), "{row:#}");
    let row = &run_json(&format!("pace {endpoint} --time 300ms --place free"))["results"][0];
    assert_eq!(row["lost"], 0, "{row:#}");
    let row = &run_json(&format!("stream {endpoint} --time 300ms --rounds 1"))["results"][0];
    assert!(row["throughput_bps"].as_f64().unwrap() > 0.0, "{row:#}");
    // By address as well, which the certificate has too, and with the roots of the system.
    let by_address = format!("mqtts://127.0.0.1:{}/own?qos=1", broker.port);
    assert_eq!(run_json(&plain(&format!("{by_address}&ca={root}")))["results"][0]["lost"], 0);
    let mut trusting = taut();
    trusting.args(words(&plain(&by_address))).env("SSL_CERT_FILE", &root).env_remove("SSL_CERT_DIR");
    let output = trusting.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_certificate_that_is_not_in_order_is_refused_and_said_why() {
    let test = "a_certificate_that_is_not_in_order_is_refused_and_said_why";
    let certificates = Certificates::new();
    let (root, other) = (certificates.path("root.pem"), Certificates::new());
    let start = |name: &str| Mosquitto::start(test, &certificates.listener(name));
    let (Some(good), Some(elsewhere), Some(expired), Some(alone)) =
        (start("server"), start("elsewhere"), start("expired"), start("alone"))
    else {
        return;
    };
    let Some(open) = Mosquitto::start(test, OPEN) else { return };
    let at = |broker: &Mosquitto, settings: &str| plain(&format!("mqtts://localhost:{}/x?{settings}", broker.port));
    for (line, expected) in [
        (
            at(&good, &format!("ca={}", other.path("root.pem"))),
            "no root that we trust leads to it; ca=PATH names others",
        ),
        (at(&good, ""), "no root that we trust leads to it"),
        (at(&elsewhere, &format!("ca={root}")), "server-name=NAME"),
        (at(&good, &format!("ca={root}&server-name=elsewhere.example")), "not valid for name \"elsewhere.example\""),
        (at(&expired, &format!("ca={root}")), "we refused the server's certificate: certificate expired"),
        (at(&alone, &format!("ca={}", certificates.path("alone.pem"))), "basicConstraints=CA:FALSE"),
        (at(&open, &format!("ca={root}")), "before TLS had begun"),
        // Without TLS to one that wants it.
        (plain(&good.topic("x")), "mqtts://"),
    ] {
        let said = said(&line, 1);
        assert!(said.contains(expected), "{line}: {said}");
    }
    let named = at(&elsewhere, &format!("ca={root}&server-name=elsewhere.example"));
    assert_eq!(run_json(&named)["results"][0]["lost"], 0);
    for (settings, expected) in [
        ("ca=/nonexistent".to_owned(), "/nonexistent: "),
        ("ca=/dev/zero".to_owned(), "longer than"),
        (format!("ca={}", certificates.path("server.key")), "no certificate in it"),
        (format!("ca={root}&cert={root}&key={root}"), "root.pem: "),
        (format!("ca={root}&cert={root}"), "both cert=PATH and key=PATH"),
    ] {
        let said = said(&at(&good, &settings), 2);
        assert!(said.contains(expected), "{settings}: {said}");
    }
}

#[test]
fn what_is_no_tls_or_says_nothing_is_said_to_be_that() {
    let speaks = |text: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let clients: Vec<_> = listener
                .incoming()
                .flatten()
                .map(|mut client| {
                    client.write_all(text).unwrap();
                    client
                })
                .take(20)
                .collect();
            drop(clients);
        });
        plain(&format!("mqtts://127.0.0.1:{port}/x"))
    };
    let said_of = |line: &str| said(&line.replace("--timeout 10s", "--timeout 1s"), 1);
    let mail = said_of(&speaks(b"220 mail.example ESMTP\r\n"));
    assert!(mail.contains("we refused the server: what it sends is no TLS"), "{mail}");
    let silent = said_of(&speaks(b""));
    assert!(silent.contains("no answer to the beginning of TLS (does it listen with TLS there?)"), "{silent}");
}

#[test]
fn clients_show_their_certificate_where_the_broker_asks_for_one() {
    let test = "clients_show_their_certificate_where_the_broker_asks_for_one";
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let root = certificates.path("root.pem");
    let lines = format!("{}\ncafile {root}\nrequire_certificate true", certificates.listener("server"));
    let Some(broker) = Mosquitto::start(test, &lines) else { return };
    let options = certificates.options("server");
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--tlsverify", "--tlscacert", &root]);
    let Some(nats) = NatsServer::start(test, free_port(), &options) else { return };
    for (place, refusal) in [
        (format!("mqtts://localhost:{}/x?ca={root}", broker.port), "alert says"),
        (format!("nats://localhost:{}/x?ca={root}", nats.port), "alert says"),
    ] {
        let shown =
            |of: &Certificates| plain(&format!("{place}&cert={}&key={}", of.path("client.pem"), of.path("client.key")));
        assert_eq!(run_json(&shown(&certificates))["results"][0]["lost"], 0);
        let none = said(&plain(&place), 1);
        assert!(none.contains("the server refused") && none.contains(refusal), "{none}");
        let strange = said(&shown(&others), 1);
        assert!(strange.contains("the server refused") && strange.contains(refusal), "{strange}");
    }
}

#[test]
fn who_cuts_or_changes_what_comes_is_noticed() {
    let test = "who_cuts_or_changes_what_comes_is_noticed";
    let certificates = Certificates::new();
    let Some(broker) = Mosquitto::start(test, &certificates.listener("server")) else { return };
    let options = certificates.options("server");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let Some(nats) = NatsServer::start(test, free_port(), &options) else { return };
    // In the middle of the third message of 100 KiB, well behind the handshake.
    let after = 250 << 10;
    for (port, place) in [(broker.port, "mqtts://localhost:PORT/x?qos=1&"), (nats.port, "nats://localhost:PORT/x?")] {
        for (then, expected) in [(Then::Cut, "without TLS' own end"), (Then::Spoil, "and we fail at TLS")] {
            let between = Between::start(port, after, then);
            let place = format!("{place}ca={}", certificates.path("root.pem"));
            let place = place.replace("PORT", &between.port.to_string());
            let line = plain(&place).replace("--count 20", "--count 20 --size 100KiB");
            let output = run(&line);
            let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("the broker ") && said.contains(expected), "{said}");
            assert!(between.heard.load(Ordering::Relaxed) >= after);
        }
    }
}

#[test]
fn a_nats_server_says_whether_it_wants_tls_and_the_address_may_insist() {
    let test = "a_nats_server_says_whether_it_wants_tls_and_the_address_may_insist";
    let certificates = Certificates::new();
    let root = certificates.path("root.pem");
    let options = certificates.options("server");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let Some(strict) = NatsServer::start(test, free_port(), &options) else { return };
    // Offers TLS and takes who comes without.
    let lax = certificates.path("lax.conf");
    let (cert, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let lines = format!("tls {{ cert_file: \"{cert}\", key_file: \"{key}\" }}\nallow_non_tls: true\n");
    std::fs::write(&lax, lines).unwrap();
    let Some(lax) = NatsServer::start(test, free_port(), &["-c", &lax]) else { return };
    let Some(open) = NatsServer::start(test, free_port(), &[]) else { return };
    let at = |server: &NatsServer, settings: &str| format!("nats://localhost:{}/x?{settings}", server.port);
    let server = Serve::start(&at(&strict, &format!("ca={root}")));
    for more in ["", "--connections 3 --engine epoll", "--size 200KiB", "--engine tokio"] {
        let line = format!("echo {} --count 60 --rounds 2 --place free --timeout 60s {more}", server.endpoint(0));
        assert_eq!(run_json(&line)["results"][0]["lost"], 0, "{line}");
    }
    for (line, expected) in [
        // It asks for TLS, and the system knows no root of it.
        (plain(&at(&strict, "")), "no root that we trust leads to it"),
        (plain(&at(&open, "tls=on")), "offers no TLS, which the address asks for"),
        // Certificates that are given are meant to be used.
        (plain(&at(&open, &format!("ca={root}"))), "offers no TLS"),
        (plain(&at(&lax, "tls=on")), "no root that we trust leads to it"),
        (plain(&at(&strict, &format!("ca={root}&server-name=elsewhere.example"))), "not valid for name"),
    ] {
        let said = said(&line, 1);
        assert!(said.contains(expected), "{line}: {said}");
    }
    // Nothing is readable on the way, unless the address does not insist.
    for (settings, is_readable) in [(format!("tls=on&ca={root}"), false), (String::new(), true)] {
        let between = Between::start(lax.port, u64::MAX, Then::Cut);
        let place = format!("nats://localhost:{}/x?{settings}", between.port);
        assert_eq!(run_json(&plain(&place))["results"][0]["lost"], 0);
        let sent = between.sent.lock().unwrap();
        let has = |words: &str| sent.windows(words.len()).any(|window| window == words.as_bytes());
        assert_eq!((has("CONNECT"), has("PUB x.")), (is_readable, is_readable));
    }
}

#[test]
fn who_may_be_overheard_is_warned() {
    let test = "who_may_be_overheard_is_warned";
    let Some(broker) = Mosquitto::start(test, OPEN) else { return };
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("password");
    std::fs::write(&secret, "secret\n").unwrap();
    let settings = format!("user=ann&password-file={}", secret.display());
    // An address that is not known to stay on this host, although it does.
    let open = plain(&format!("mqtt://0.0.0.0:{}/x?{settings}", broker.port));
    let output = run(&open);
    let warned = text(&output.stderr);
    assert!(output.status.success() && warned.contains("others may read") && warned.contains("mqtts://"), "{warned}");
    for quiet in [format!("mqtt://0.0.0.0:{}/x", broker.port), broker.topic(&format!("x?{settings}"))] {
        let output = run(&plain(&quiet));
        assert!(output.status.success() && !text(&output.stderr).contains("others may read"), "{quiet}");
    }
}

/// TLS changes nothing about who waits for whom: acknowledgements of MQTT and messages are records of their own.
#[test]
fn who_holds_messages_with_qos_1_over_tls_is_named() {
    let test = "who_holds_messages_with_qos_1_over_tls_is_named";
    let certificates = Certificates::new();
    let stock = certificates.listener("server");
    let quick = format!("{stock}\nset_tcp_nodelay true");
    let (Some(stock), Some(quick)) = (Mosquitto::start(test, &stock), Mosquitto::start(test, &quick)) else { return };
    let root = certificates.path("root.pem");
    let topic = |broker: &Mosquitto| format!("mqtts://localhost:{}/t?qos=1&ca={root}", broker.port);
    let server = Serve::start(&format!("{} {}", topic(&stock), topic(&quick)));
    for (index, options, expected) in [
        (0, "", &["client_nagle", "broker_nagle"][..]),
        (0, "--opt nodelay", &["broker_nagle"]),
        (1, "", &["client_nagle"]),
        (1, "--opt nodelay", &[]),
        (0, "--opt nodelay --opt quickack --peer-ack prompt", &[]),
    ] {
        let endpoint = server.endpoint(index);
        let line = format!("echo {endpoint} --count 40 --rounds 2 --place free --timeout 60s {options}");
        let document = run_json(&line);
        assert_eq!(causes(&document), expected, "{line}: {:#}", document["findings"]);
    }
}

#[test]
fn a_server_tells_when_its_broker_goes_and_comes() {
    let test = "a_server_tells_when_its_broker_goes_and_comes";
    let certificates = Certificates::new();
    let kept = Port::keep();
    let port = kept.number;
    let start = || Mosquitto::start_at(test, port, |_| certificates.listener("server"));
    let Some(broker) = start() else { return };
    let mut server = taut();
    let endpoint = format!("mqtts://localhost:{port}/t?ca={}", certificates.path("root.pem"));
    server.args(["serve", &endpoint, "--while-stdin-open"]).stdin(std::process::Stdio::piped());
    let mut server = server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let echo = format!("echo {endpoint} --count 10 --rounds 1 --opt nodelay --place free");
    let served = || (0..20).any(|_| run(&echo).status.success());
    assert!(served());
    let mut lines = BufReader::new(server.stderr.take().unwrap());
    let mut said = String::new();
    drop(broker);
    while !said.contains("refused") && lines.read_line(&mut said).unwrap() > 0 {}
    let _again = start().unwrap();
    assert!(served(), "the server did not come back to its broker");
    // It may answer before it says so.
    while !said.contains("the broker is there again") && lines.read_line(&mut said).unwrap() > 0 {}
    drop(server.stdin.take());
    server.wait().unwrap();
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("`{words}` is not in: {said}"));
    assert!(at("the broker closed the connection") < at("refused"), "{said}");
    assert!(at("refused") < at("the broker is there again"), "{said}");
}
