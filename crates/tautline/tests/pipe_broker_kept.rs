//! Brokers as ends of `taut pipe` over TLS, and streams of JetStream.

mod support;

use std::io::Write;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use support::brokers::{Between, Broker, Certificates, Then};
use support::piped::{Pipe, whole};
use support::{taut, text};

const QUICK: &str = "set_tcp_nodelay true\nmax_queued_messages 0";

fn secure_mosquitto(test: &str, certificates: &Certificates) -> Option<Broker> {
    Broker::mosquitto(test, |_| format!("{}\n{QUICK}", certificates.listener("server")))
}

/// A nats-server that speaks TLS only.
fn secure_nats(test: &str, certificates: &Certificates) -> Option<Broker> {
    let file = |end: &str| certificates.path(&format!("server.{end}"));
    Broker::nats(test, &format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", file("pem"), file("key")))
}

/// One whose streams are in its directory, so that they are there again.
fn streaming(test: &str) -> Option<(Broker, tempfile::TempDir)> {
    let store = tempfile::tempdir().unwrap();
    let broker = Broker::nats(test, &format!("jetstream {{ store_dir: \"{}\" }}", store.path().display()))?;
    Some((broker, store))
}

#[test]
fn what_is_written_over_tls_is_read_exactly() {
    let test = "what_is_written_over_tls_is_read_exactly";
    let certificates = Certificates::new();
    let root = certificates.path("root.pem");
    if let Some(broker) = secure_mosquitto(test, &certificates) {
        for how in ["qos=0", "qos=1", "qos=2&v=5", "v=5&qos=1&session=s"] {
            whole(&format!("mqtts://localhost:{}/{}/a?ca={root}&{how}", broker.port, how.len()), 2000);
        }
    }
    if let Some(broker) = secure_nats(test, &certificates) {
        whole(&format!("nats://localhost:{}/a.b?ca={root}", broker.port), 2000);
    }
}

#[test]
fn both_ways_over_tls_and_more_than_a_record() {
    let test = "both_ways_over_tls_and_more_than_a_record";
    let certificates = Certificates::new();
    let Some(broker) = secure_mosquitto(test, &certificates) else { return };
    let address = format!("mqtts://localhost:{}/a?qos=1&ca={}", broker.port, certificates.path("root.pem"));
    let (mut server, mut client) = (Pipe::reader(&address), Pipe::writer(&address));
    // A record has at most 16 KiB.
    let lines =
        |from: u32| (from..from + 60).map(|number| format!("{number}{}\n", "x".repeat(40_000))).collect::<String>();
    server.stdin.as_mut().unwrap().write_all(lines(0).as_bytes()).unwrap();
    client.stdin.as_mut().unwrap().write_all(lines(100).as_bytes()).unwrap();
    client.wait_for_lines(60);
    server.wait_for_lines(60);
    let client = client.finish();
    let server = server.stop();
    let said = format!("{}\n{}", client.said, server.said);
    assert_eq!((client.lines.join("\n") + "\n", server.lines.join("\n") + "\n"), (lines(0), lines(100)), "{said}");
    for one in [&client, &server] {
        assert_eq!((one.written("sent"), one.heard("read"), one.heard("missing")), (60, 60, 0), "{said}");
    }
}

#[test]
fn a_broker_whose_certificate_is_not_good_is_refused_and_so_is_one_without_tls() {
    let test = "a_broker_whose_certificate_is_not_good_is_refused_and_so_is_one_without_tls";
    let certificates = Certificates::new();
    let Some(broker) = secure_mosquitto(test, &certificates) else { return };
    let said = |address: &str| {
        let output = taut().args(["pipe", "exec:echo x", address, "--framing", "line"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{address}: {said}");
        said
    };
    let wrong = said(&format!("mqtts://localhost:{}/a?ca={}", broker.port, certificates.path("alone.pem")));
    assert!(wrong.contains("we refused the server's certificate"), "{wrong}");
    let elsewhere = said(&format!(
        "mqtts://localhost:{}/a?ca={}&server-name=elsewhere.example",
        broker.port,
        certificates.path("root.pem")
    ));
    assert!(elsewhere.contains("we refused the server's certificate"), "{elsewhere}");
    let Some(open) = Broker::nats(test, "") else { return };
    let none = said(&format!("nats://127.0.0.1:{}/a?tls=on", open.port));
    assert!(none.contains("offers no TLS, which the address asks for"), "{none}");
}

/// Killed, and cut by somebody on the way in the middle of a record: the account adds up as without TLS.
#[test]
fn connections_over_tls_that_break_are_made_again_and_counted() {
    let test = "connections_over_tls_that_break_are_made_again_and_counted";
    let certificates = Certificates::new();
    let root = certificates.path("root.pem");
    let Some(mut broker) = secure_mosquitto(test, &certificates) else { return };
    let at = |port: u16| format!("mqtts://localhost:{port}/a?qos=1&v=5&ca={root}");
    let mut reader = Pipe::reader(&at(broker.port));
    let mut writer = Pipe::writer(&at(broker.port));
    writer.write(0..200);
    broker.kill();
    writer.write(200..400);
    broker.start_again();
    reader.wait_for("with the broker again");
    writer.wait_for("with the broker again");
    writer.write(400..600);
    // All that the writer is told is acknowledgements: the cut is among them, each time it has come so far.
    let between = Between::start(broker.port, 5000, Then::Cut);
    let mut cut = Pipe::writer(&at(between.port));
    for piece in 0..20 {
        cut.write(1000 + piece * 50..1050 + piece * 50);
        thread::sleep(Duration::from_millis(20));
    }
    let cut = cut.finish();
    let (wrote, read) = (writer.finish(), reader.stop());
    let said = format!("{}\n{}\n{}", wrote.said, cut.said, read.said);
    assert!(cut.said.contains("without TLS' own end") && cut.broker()["reconnections"].as_u64() > Some(0), "{said}");
    let mut missing = 0;
    for (one, sent) in [(&wrote, 600), (&cut, 1000)] {
        assert_eq!((one.written("sent"), one.written("dropped_here")), (sent, 0), "{said}");
        assert_eq!(one.reader("confirmed_by_reader") + one.reader("missing"), sent, "{said}");
        missing += one.reader("missing");
    }
    // The broker stayed for the second one, and had to acknowledge all.
    assert_eq!((cut.reader("missing"), cut.code), (0, Some(0)), "{said}");
    assert_eq!((read.heard("read"), read.heard("missing") + read.heard("before")), (1600 - missing, missing), "{said}");
    assert_eq!(read.lines.len() as u64, 1600 - missing, "{said}");
}

#[test]
fn what_is_written_to_a_stream_is_read_exactly() {
    let test = "what_is_written_to_a_stream_is_read_exactly";
    let Some((broker, _store)) = streaming(test) else { return };
    for how in ["create=memory", "create=file&reader=r"] {
        let name = how.len();
        whole(&format!("nats://127.0.0.1:{}/a{name}?stream=S{name}&{how}", broker.port), 3000);
    }
    // Both ways through one stream.
    let address = format!("nats://127.0.0.1:{}/b?stream=B&create=memory", broker.port);
    let (mut server, mut client) = (Pipe::reader(&address), Pipe::writer(&address));
    server.write(0..500);
    client.write(1000..1700);
    client.wait_for_lines(500);
    server.wait_for_lines(700);
    let client = client.finish();
    let server = server.stop();
    let said = format!("{}\n{}", client.said, server.said);
    assert_eq!((client.lines.len(), server.lines.len()), (500, 700), "{said}");
    for (one, wrote, read) in [(&client, 700, 500), (&server, 500, 700)] {
        assert_eq!((one.written("sent"), one.heard("read"), one.heard("missing")), (wrote, read, 0), "{said}");
    }
}

/// A stock broker of MQTT drops 4000 of these 5000, and core NATS all.
#[test]
fn a_durable_reader_that_was_away_gets_all_that_the_stream_kept() {
    let test = "a_durable_reader_that_was_away_gets_all_that_the_stream_kept";
    let Some((mut broker, _store)) = streaming(test) else { return };
    let address = format!("nats://127.0.0.1:{}/a?stream=S&create=file", broker.port);
    let durable = format!("{address}&reader=away");
    let first = Pipe::reader(&durable).stop();
    assert_eq!(first.code, Some(130), "{}", first.said);
    let mut writer = Pipe::writer(&address);
    writer.write(0..5000);
    thread::sleep(Duration::from_secs(1));
    // What the stream has acknowledged is in its files.
    broker.kill();
    broker.start_again();
    writer.wait_for("with the broker again");
    let reader = Pipe::reader(&durable);
    // Far behind, and it still has to be told of the end behind the last message.
    reader.signal(Signal::STOP);
    writer.write(5000..5100);
    thread::sleep(Duration::from_millis(500));
    reader.signal(Signal::CONT);
    let wrote = writer.finish();
    reader.wait_for_lines(5100);
    let read = reader.stop();
    let said = format!("{}\n{}", wrote.said, read.said);
    assert_eq!((wrote.written("sent"), wrote.written("confirmed_by_broker")), (5100, 5100), "{said}");
    assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (5100, 0), "{said}");
    let sums = ["read", "missing", "before"].map(|key| read.heard(key));
    assert_eq!(sums, [5100, 0, 0], "{said}");
    let expected: Vec<String> = (0..5100).map(|number| number.to_string()).collect();
    assert!(read.lines_in_order() == expected, "{} lines: {said}", read.lines.len());
    assert_eq!((wrote.code, read.code), (Some(0), Some(130)), "{said}");
}

#[test]
fn what_a_stream_does_not_keep_ends_the_pipe_and_says_why() {
    let test = "what_a_stream_does_not_keep_ends_the_pipe_and_says_why";
    let Some((broker, _store)) = streaming(test) else { return };
    let said = |query: &str| {
        let address = format!("nats://127.0.0.1:{}/{query}", broker.port);
        let output = taut().args(["pipe", "exec:seq 100", &address, "--framing", "line"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{query}: {said}");
        said
    };
    assert!(said("a?stream=NONE").contains("has no stream NONE"));
    let first = taut()
        .args(["pipe", "exec:seq 3", &format!("nats://127.0.0.1:{}/a?stream=S&create=memory", broker.port)])
        .args(["--framing", "line"])
        .output()
        .unwrap();
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert!(said("other?stream=S").contains("that does not keep other"));
}
