//! Who holds the messages of `taut pace` over a broker: this side, the broker or the reader.

mod support;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::brokers::{Certificates, Listener, Mosquitto, NatsServer, OPEN};
use support::{Serve, causes, free_port, has, parse, run_json, skip, taut, text, words};

fn pace(endpoint: &str, options: &str) -> Value {
    run_json(&format!("pace {endpoint} --rounds 2 --time 1s --place free {options}"))
}

/// The part of a stage in the time of all messages.
fn share(row: &Value, stage: &str) -> f64 {
    let parts = row["ledger_ns"].as_array().unwrap();
    let time = |part: &Value| part[1].as_f64().unwrap();
    let whole: f64 = parts.iter().map(time).sum();
    parts.iter().find(|part| part[0] == stage).map_or(0.0, time) / whole
}

fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no time: {value}")) / 1e6
}

/// Of each message its times are in order, and those of the kernels are there.
fn check_order(row: &Value) {
    let hold = &row["broker"];
    let messages = row["messages"].as_u64().unwrap();
    assert_eq!((&row["lost"], hold["at_most_ns"]["count"].as_u64()), (&0.into(), Some(messages)), "{row:#}");
    assert!(ms(&hold["at_least_ns"]["p50"]) <= ms(&hold["at_most_ns"]["p50"]), "{hold:#}");
    for message in row["excerpt"].as_array().unwrap() {
        let at = |stage: &str| message[stage].as_i64().unwrap_or_else(|| panic!("no {stage}: {message:#}"));
        // The clock of the kernel's stamps is not that of the program: they are apart by less than that.
        let order = ["write_begin", "scheduled", "left", "forwarded", "read"].map(at);
        assert!(order.windows(2).all(|pair| pair[0] <= pair[1] + 100_000), "{message:#}");
        assert!(at("acked") >= at("left") && message["received"].is_null(), "{message:#}");
    }
}

#[test]
fn what_the_broker_had_is_told_over_every_protocol() {
    let test = "what_the_broker_had_is_told_over_every_protocol";
    let certificates = Certificates::new();
    let port = free_port();
    let lines = format!("{OPEN}\nlistener {port} 127.0.0.1\n{}", certificates.listener("server"));
    let Some(mosquitto) = Mosquitto::start(test, &lines) else { return };
    let store = tempfile::tempdir().unwrap();
    let store = store.path().display().to_string();
    let Some(nats) = NatsServer::start(test, free_port(), &["-js", "-sd", &store]) else { return };
    support::wait_for_tcp(([127, 0, 0, 1], port).into());
    let endpoints = [
        mosquitto.topic("zero"),
        mosquitto.topic("one?qos=1"),
        mosquitto.topic("two?qos=2&v=5"),
        format!("mqtts://localhost:{port}/tls?qos=1&ca={}", certificates.path("root.pem")),
        nats.subject("core"),
        nats.subject("kept?stream=KEPT&create=memory"),
    ];
    let server = Serve::start(&endpoints.join(" "));
    for endpoint in &server.endpoints {
        let document = pace(endpoint, "--opt nodelay");
        let row = &document["results"][0];
        check_order(row);
        // How long that is a busy machine decides; it is a part of the delivery.
        let [hold, delivery] = [&row["broker"]["at_most_ns"], &row["delivery_ns"]].map(|times| ms(&times["p50"]));
        assert!(hold <= delivery, "{endpoint}: {row:#}");
        assert!(share(row, "medium") == 0.0, "{endpoint}: {row:#}");
        assert!(causes(&document).is_empty(), "{document:#}");
    }
    // Nobody tells who reads, and so nobody what the broker held.
    let row = &pace(&mosquitto.topic("own"), "--plain")["results"][0];
    assert!(row["broker"].is_null() && row["ack_ns"]["count"].as_u64() > Some(0), "{row:#}");
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

fn pacing(endpoint: &str, form: &str) -> Child {
    let line = format!("pace {endpoint} --rounds 1 --time 2s --place free --opt nodelay {form}");
    taut().args(words(&line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Stops a process for half a second in the middle of such a run: many messages have gone over the broker, and many are
/// to come.
fn stopped_meanwhile(broker: &Mosquitto, pid: u32, endpoint: &str, form: &str) -> std::process::Output {
    // What is said before the run is short, and little.
    let (many, least) = if form.contains("--size") { (5, 10_000) } else { (50, 0) };
    let mut listener = Listener::start(broker, "t/#", "t/sign");
    let child = pacing(endpoint, form);
    let mut heard = 0;
    while heard < many {
        heard += u32::from(listener.next_bytes() >= least);
    }
    drop(listener);
    signal(pid, Signal::STOP);
    thread::sleep(Duration::from_millis(500));
    signal(pid, Signal::CONT);
    child.wait_with_output().unwrap()
}

#[test]
fn a_broker_that_stops_is_told_from_a_reader_that_stops() {
    let test = "a_broker_that_stops_is_told_from_a_reader_that_stops";
    if !has("mosquitto_sub") {
        return skip(test, "mosquitto-clients are not installed");
    }
    let Some(broker) = Mosquitto::start(test, OPEN) else { return };
    let server = Serve::start(&broker.topic("t"));
    let endpoint = server.endpoint(0);
    let document = parse(&stopped_meanwhile(&broker, broker.pid(), endpoint, "--json"));
    let row = &document["results"][0];
    check_order(row);
    let hold = &row["broker"];
    // Its kernel had the bytes, and acknowledged them within the delay of an acknowledgement.
    assert!(ms(&hold["at_most_ns"]["max"]) > 300.0 && ms(&hold["at_least_ns"]["max"]) > 200.0, "{hold:#}");
    assert!(share(row, "broker") > 10.0 * share(row, "socket"), "{:#}", row["ledger_ns"]);

    // What is more than that kernel takes stays in our socket, and in the call when that is full.
    let large = stopped_meanwhile(&broker, broker.pid(), endpoint, "--json --size 1000KiB --period 20ms");
    let row = &parse(&large)["results"][0];
    let held = ms(&row["send_call_ns"]["max"]) + ms(&row["hold_ns"]["max"]);
    assert!(held > 200.0, "{:#} {:#}", row["send_call_ns"], row["hold_ns"]);

    // Of what a late reader takes with one call only the last arrival is known: that is counted and said.
    let document = parse(&stopped_meanwhile(&broker, server.pid(), endpoint, "--json"));
    let together = document["results"][0]["broker"]["read_together"].as_u64().unwrap();
    assert!(together >= 10, "{:#}", document["results"][0]["broker"]);
    let table = stopped_meanwhile(&broker, server.pid(), endpoint, "");
    let said = text(&table.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("may have waited for the reader"), "{said}");
    assert!(said.contains("with the broker"), "{said}");
}

/// What the far host does not tell is not made up: an older `taut serve` has no times of arrival over a broker, and the
/// same holds of a kernel that has none.
#[test]
fn a_recording_of_before_has_no_broker_and_says_so() {
    let Some(broker) = Mosquitto::start("a_recording_of_before_has_no_broker_and_says_so", OPEN) else { return };
    let server = Serve::start(&broker.topic("t"));
    let mut document = pace(server.endpoint(0), "--opt nodelay");
    let row = document["results"][0].as_object_mut().unwrap();
    row.remove("broker");
    row["ledger_ns"].as_array_mut().unwrap().retain(|part| part[0] != "broker");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("before.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_taut")).arg("report").arg(&file).output().unwrap();
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("can't be told from the peer program's") && !said.contains("with the broker"), "{said}");
}
