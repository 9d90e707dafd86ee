//! Brokers as ends of `taut pipe`: what real ones lose, and whether the account says so.

mod support;

use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::brokers::Broker;
use support::piped::{Pipe, settle, whole};
use support::{taut, text};

const QUICK: &str = "set_tcp_nodelay true\nmax_queued_messages 0";

fn mosquitto(test: &str) -> Option<Broker> {
    Broker::mosquitto(test, |_| QUICK.to_owned())
}

#[test]
fn what_is_written_is_read_exactly() {
    let test = "what_is_written_is_read_exactly";
    if let Some(broker) = mosquitto(test) {
        for how in ["?qos=0", "?qos=1", "?qos=2", "?v=5", "?v=5&qos=1", "?v=5&qos=2", "?v=5&qos=2&session=s"] {
            whole(&format!("mqtt://127.0.0.1:{}/{}/a{how}", broker.port, how.len()), 3000);
        }
    }
    if let Some(broker) = Broker::nats(test, "") {
        whole(&format!("nats://127.0.0.1:{}/a.b", broker.port), 3000);
    }
}

#[test]
fn both_ways_have_an_account() {
    let test = "both_ways_have_an_account";
    let (mqtt, nats) = (mosquitto(test), Broker::nats(test, ""));
    let mqtt = mqtt.as_ref().map(|broker| format!("mqtt://127.0.0.1:{}/a?qos=1&v=5", broker.port));
    let nats = nats.as_ref().map(|broker| format!("nats://127.0.0.1:{}/a", broker.port));
    for address in mqtt.into_iter().chain(nats) {
        let mut server = Pipe::reader(&address);
        let mut client = Pipe::writer(&address);
        server.write(0..500);
        client.write(1000..1700);
        client.wait_for_lines(500);
        server.wait_for_lines(700);
        let client = client.finish();
        let server = server.stop();
        let said = format!("{}\n{}", client.said, server.said);
        assert_eq!(client.lines.len(), 500, "{said}");
        assert_eq!(server.lines.len(), 700, "{said}");
        for (one, wrote, read) in [(&client, 700, 500), (&server, 500, 700)] {
            assert_eq!((one.written("sent"), one.heard("read"), one.heard("missing")), (wrote, read, 0), "{said}");
        }
    }
}

/// Mosquitto as it comes keeps 1000 messages for a reader that is away, and acknowledges all.
#[test]
fn the_4000_of_5000_that_a_stock_broker_drops_are_missing_at_both_ends() {
    let test = "the_4000_of_5000_that_a_stock_broker_drops_are_missing_at_both_ends";
    for version in ["v=5", "v=3"] {
        let Some(broker) = Broker::mosquitto(test, |_| "set_tcp_nodelay true".to_owned()) else { return };
        let address = format!("mqtt://127.0.0.1:{}/a?qos=1&{version}", broker.port);
        let away = format!("{address}&session=away");
        let first = Pipe::reader(&away).stop();
        assert_eq!(first.code, Some(130), "{}", first.said);
        let mut writer = Pipe::writer(&address);
        writer.write(0..5000);
        // Nothing tells that the broker has all of them.
        thread::sleep(Duration::from_secs(5));
        let reader = Pipe::reader(&away);
        reader.wait_for_lines(1000);
        thread::sleep(Duration::from_secs(1));
        // After which nobody can say that they are still to come.
        writer.write(5000..5001);
        let (wrote, read) = (writer.finish(), reader.stop());
        let said = format!("{}\n{}", wrote.said, read.said);
        assert_eq!((wrote.written("sent"), wrote.written("confirmed_by_broker")), (5001, 5001), "{said}");
        let readers = wrote.broker()["written"]["readers"].as_array().unwrap();
        assert_eq!((readers.len(), &readers[0]["reader"]), (1, &"away".into()), "{said}");
        // As many as its queue has, and those that it had under way.
        let got = read.heard("read");
        assert!((1001..=1101).contains(&got), "{got}: {said}");
        let missing = 5001 - got;
        assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (got, missing), "{said}");
        assert_eq!((read.heard("missing"), read.heard("passed_over")), (missing, missing), "{said}");
        assert_eq!((wrote.code, read.code), (Some(1), Some(1)), "{said}");
        for end in [&wrote, &read] {
            assert_eq!(end.causes(), ["broker_dropped"], "{said}");
            let remedy = end.account["findings"][0]["remedy"].as_str().unwrap();
            assert!(remedy.contains("max_queued_messages"), "{said}");
            let evidence = end.account["findings"][0]["evidence"][0].as_str().unwrap();
            assert!(evidence.contains(&missing.to_string()) && evidence.contains("mosquitto version"), "{said}");
        }
    }
}

#[test]
fn a_reader_that_nobody_ever_heard_of_is_no_loss_but_is_said() {
    let test = "a_reader_that_nobody_ever_heard_of_is_no_loss_but_is_said";
    let Some(broker) = mosquitto(test) else { return };
    let address = format!("mqtt://127.0.0.1:{}/a?qos=1", broker.port);
    let output = taut().args(["pipe", "exec:seq 50", &address, "--framing", "line"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("no reader was ever heard of") && said.contains("50 confirmed by the broker"), "{said}");
    // A foreign reader gets the messages as they are, and nothing can be told.
    let reader = Pipe::reader(&format!("{address}&envelope=off"));
    let mut writer = Pipe::writer(&format!("{address}&envelope=off"));
    writer.write(0..20);
    let wrote = writer.finish();
    reader.wait_for_lines(20);
    let read = reader.stop();
    assert_eq!((read.heard("read"), read.heard("without_number")), (20, 20), "{}", read.said);
    assert_eq!((wrote.code, &wrote.broker()["written"]["envelope"]), (Some(0), &false.into()), "{}", wrote.said);
}

#[test]
fn what_the_broker_refuses_is_told_though_the_source_has_ended() {
    let test = "what_the_broker_refuses_is_told_though_the_source_has_ended";
    let user = "{ user: u, password: p, permissions: { publish: { deny: \"a\" } } }";
    let lines = format!("authorization {{ users: [ {user} ] }}\nno_auth_user: u");
    let Some(broker) = Broker::nats(test, &lines) else { return };
    for envelope in ["on", "off"] {
        let address = format!("nats://127.0.0.1:{}/a?envelope={envelope}", broker.port);
        let output = taut().args(["pipe", "exec:echo x", &address, "--framing", "line"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains("refused a message: permissions violation for publish"), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
}

#[test]
fn what_does_not_fit_while_the_broker_is_away_is_dropped_and_counted() {
    let test = "what_does_not_fit_while_the_broker_is_away_is_dropped_and_counted";
    // It saves the session, so that the reader may come later than the writer when it is there again.
    let lines = |directory: &Path| format!("{QUICK}\npersistence true\npersistence_location {}/", directory.display());
    let Some(mut broker) = Broker::mosquitto(test, lines) else { return };
    let address = format!("mqtt://127.0.0.1:{}/a?qos=1&v=5", broker.port);
    let reader = Pipe::reader(&format!("{address}&session=r"));
    let mut writer = Pipe::writer(&format!("{address}&buffer=100"));
    writer.write(0..50);
    reader.wait_for_lines(50);
    settle();
    broker.stop();
    writer.wait_for("connecting again");
    writer.write(50..500);
    writer.wait_until_taken();
    settle();
    broker.start_again();
    writer.wait_for("with the broker again");
    writer.write(500..510);
    let (wrote, read) = (writer.finish(), reader.stop());
    let said = format!("{}\n{}", wrote.said, read.said);
    let dropped = wrote.written("dropped_here");
    // The oldest ones: the last hundred of those that came while it was away went on.
    assert_eq!((wrote.written("sent"), dropped), (510, 350), "{said}");
    assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (160, 0), "{said}");
    assert_eq!((read.heard("dropped_there"), read.heard("missing")), (350, 0), "{said}");
    assert_eq!(wrote.code, Some(1), "what was dropped is lost: {said}");
    let expected: Vec<String> = (0..50).chain(400..510).map(|number: u64| number.to_string()).collect();
    assert_eq!(read.lines_in_order(), expected, "{said}");
}

/// A broker of MQTT 3.1.1 can't say that it takes none so long: it closes the connection, and would get the message
/// again with each one that is made anew.
#[test]
fn a_message_at_which_the_broker_closes_is_given_up_and_the_others_go_on() {
    let test = "a_message_at_which_the_broker_closes_is_given_up_and_the_others_go_on";
    let Some(broker) = Broker::mosquitto(test, |_| format!("{QUICK}\nmax_packet_size 2000")) else { return };
    for qos in [1, 2] {
        let address = format!("mqtt://127.0.0.1:{}/{qos}?qos={qos}", broker.port);
        let reader = Pipe::reader(&address);
        let mut writer = Pipe::writer(&address);
        writer.write(0..50);
        reader.wait_for_lines(50);
        let long = format!("{}\n", "x".repeat(3000));
        writer.stdin.as_mut().unwrap().write_all(long.as_bytes()).unwrap();
        writer.write(50..100);
        writer.wait_for("closes the connection at message 51 (3000 bytes) each time and takes others");
        reader.wait_for_lines(100);
        let (wrote, read) = (writer.finish(), reader.stop());
        let said = format!("{}\n{}", wrote.said, read.said);
        assert_eq!((wrote.written("sent"), wrote.written("confirmed_by_broker")), (101, 100), "{said}");
        assert_eq!((wrote.written("dropped_here"), wrote.reader("missing")), (0, 1), "{said}");
        assert_eq!((read.heard("read"), read.heard("missing"), read.heard("twice")), (100, 1, 0), "{said}");
        let mut lines: Vec<u64> = read.lines.iter().map(|line| line.parse().unwrap()).collect();
        lines.sort_unstable();
        assert_eq!(lines, (0..100).collect::<Vec<u64>>(), "{said}");
        // The broker has not acknowledged it, so it dropped nothing.
        assert!(wrote.causes().is_empty() && read.causes().is_empty(), "{said}");
        assert_eq!((wrote.code, read.code), (Some(1), Some(1)), "{said}");
    }
}

#[test]
fn a_session_that_is_taken_over_is_told_and_not_taken_back_for_ever() {
    let test = "a_session_that_is_taken_over_is_told_and_not_taken_back_for_ever";
    let Some(broker) = mosquitto(test) else { return };
    for version in ["v=5", "v=3"] {
        let address = format!("mqtt://127.0.0.1:{}/{version}?qos=1&{version}&session=one", broker.port);
        let first = Pipe::reader(&address);
        let second = Pipe::reader(&address);
        let (mut pipes, begin) = (vec![first, second], Instant::now());
        // One of them ends, and says why.
        let ended = loop {
            let over = pipes.iter_mut().position(|pipe| pipe.child.try_wait().unwrap().is_some());
            if let Some(index) = over {
                break pipes.remove(index);
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "both are there");
            thread::sleep(Duration::from_millis(20));
        };
        let ended = ended.end();
        assert_eq!(ended.code, Some(1), "{}", ended.said);
        assert!(ended.said.contains("the session one to another client of that name"), "{}", ended.said);
        // And the other one has the session for good.
        let mut writer = Pipe::writer(&format!("mqtt://127.0.0.1:{}/{version}?qos=1&{version}", broker.port));
        writer.write(0..100);
        let wrote = writer.finish();
        let other = pipes.remove(0).stop();
        assert_eq!((other.heard("read"), other.heard("missing")), (100, 0), "{}", other.said);
        assert!(other.broker()["reconnections"].as_u64() <= Some(3), "{}", other.said);
        assert_eq!(wrote.code, Some(0), "{}", wrote.said);
    }
}

#[test]
fn a_reader_that_does_not_keep_up_with_nats_is_cut_off_and_told() {
    let test = "a_reader_that_does_not_keep_up_with_nats_is_cut_off_and_told";
    let Some(broker) = Broker::nats(test, "max_pending: 1MB\nwrite_deadline: \"2s\"") else { return };
    let address = format!("nats://127.0.0.1:{}/a", broker.port);
    let mut reader = Pipe::reader(&address);
    let mut writer = Pipe::writer(&address);
    writer.write(0..100);
    reader.wait_for_lines(100);
    reader.signal(Signal::STOP);
    let filler = "x".repeat(1000);
    let lines: String = (100..30_100).map(|number| format!("{number}{filler}\n")).collect();
    writer.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    thread::sleep(Duration::from_secs(3));
    reader.signal(Signal::CONT);
    reader.wait_for("with the broker again");
    writer.write(30_100..30_200);
    let (wrote, read) = (writer.finish(), reader.stop());
    let said = format!("{}\n{}", wrote.said, read.said);
    let (got, missing) = (read.heard("read"), read.heard("missing"));
    assert_eq!((got + missing, read.heard("before")), (30_200, 0), "{said}");
    assert!(missing > 1000 && read.heard("cut_off") == missing, "{said}");
    assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (got, missing), "{said}");
    assert_eq!((wrote.code, read.code), (Some(1), Some(1)), "{said}");
    assert_eq!(read.causes(), ["slow_consumer"], "{said}");
    let evidence = read.account["findings"][0]["evidence"][0].as_str().unwrap();
    assert!(evidence.contains(&missing.to_string()), "{evidence}");
    assert_eq!(read.lines.len() as u64, got);
}

#[test]
fn a_reader_that_is_stopped_for_a_while_gets_all_that_the_broker_keeps() {
    let test = "a_reader_that_is_stopped_for_a_while_gets_all_that_the_broker_keeps";
    let Some(broker) = mosquitto(test) else { return };
    let address = format!("mqtt://127.0.0.1:{}/a?qos=2&v=5", broker.port);
    let reader = Pipe::reader(&format!("{address}&session=slow"));
    let mut writer = Pipe::writer(&address);
    writer.write(0..1000);
    reader.signal(Signal::STOP);
    writer.write(1000..6000);
    thread::sleep(if support::long() { Duration::from_secs(10) } else { Duration::from_secs(2) });
    reader.signal(Signal::CONT);
    let (wrote, read) = (writer.finish(), reader.stop());
    let said = format!("{}\n{}", wrote.said, read.said);
    assert_eq!((wrote.reader("confirmed_by_reader"), wrote.reader("missing")), (6000, 0), "{said}");
    assert_eq!((read.heard("read"), read.heard("missing"), read.lines.len()), (6000, 0, 6000), "{said}");
}
