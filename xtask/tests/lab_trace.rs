//! `taut trace` on stock kernels: the hooks that each has tell who held the data, and nothing is made up where nobody
//! did.

mod support;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::{Lab, note_skipped};

/// A sender whose writes Nagle's algorithm holds for delayed ACKs, and the same without the algorithm.
const SCRIPT: &str = "
    taut serve tcp://127.0.0.1:9100 >/dev/null &
    sleep 1
    for nagle in on off; do
        taut trace --json -- taut pace tcp://127.0.0.1:9100 --peer-ack delayed --nagle $nagle --time 2s \
            --rounds 1 >$OUT/$nagle 2>$OUT/$nagle.stderr || cat $OUT/$nagle.stderr >&2
    done";

fn trace(test: &str, kernel: &str) -> Option<[Value; 2]> {
    let lab = Lab::ready(test)?;
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", SCRIPT]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    Some(["on", "off"].map(|nagle| {
        let text = fs::read_to_string(lab.path("out").join(nagle)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{stderr}"))
    }))
}

/// What is said of a cause, over all directions.
fn cause<'a>(trace: &'a Value, name: &str) -> Option<&'a Value> {
    trace["causes"].as_array().unwrap().iter().find(|cause| cause["cause"] == name)
}

/// Since Linux 6.3: what io_uring sends and receives, and what comes into a queue.
const SINCE_6_3: [&str; 3] = ["sock_send_length", "sock_recv_length", "sk_data_ready"];

fn names_nagle(test: &str, kernel: &str, missing_hooks: &[&str]) {
    let Some([held, free]) = trace(test, kernel) else { return };
    assert_eq!(held["lost_records"], 0, "{held:#}");
    assert_eq!(held["missing_hooks"], json!(missing_hooks), "{held:#}");
    // Each of them tells when a thread was ready to run, and when it ran.
    assert!(!held.to_string().contains("sched_waking"), "{held:#}");
    let remarks = held["remarks"].to_string();
    assert_eq!(remarks.contains("by io_uring is not seen here"), !missing_hooks.is_empty(), "{remarks}");
    // The paced connection loses the most: nearly all of its 200 writes were held, until the timer of the peer.
    let worst = &held["worst"][0];
    assert!(cause(&held, "nagle_delayed_ack").is_some_and(|cause| cause["found"] == 1), "{held:#}");
    let (held_writes, by_timer) = (&worst["held_writes"], &worst["released"]["ack_by_delayed_ack_timer"]);
    assert!(held_writes.as_u64().unwrap() > 150 && by_timer.as_u64().unwrap() > 100, "{worst:#}");
    let held_ns = worst["median_held_ns"].as_u64().unwrap();
    assert!((5_000_000..45_000_000).contains(&held_ns), "{worst:#}");
    assert!(cause(&free, "nagle_delayed_ack").is_none_or(|cause| cause["found"] == 0), "{free:#}");
}

#[test]
fn a_program_is_traced_on_linux_5_10() {
    names_nagle("a_program_is_traced_on_linux_5_10", "5.10", &SINCE_6_3);
}

#[test]
fn a_program_is_traced_on_linux_6_1() {
    names_nagle("a_program_is_traced_on_linux_6_1", "6.1", &SINCE_6_3);
}

#[test]
fn a_program_is_traced_on_linux_6_12() {
    names_nagle("a_program_is_traced_on_linux_6_12", "6.12", &[]);
}

/// A short case, of which a boot is the larger part.
const SHORT: &str = "
    taut serve tcp://127.0.0.1:9100 >/dev/null &
    sleep 1
    taut trace --json --events $OUT/events -- taut pace tcp://127.0.0.1:9100 --peer-ack delayed --nagle on \
        --time 500ms --rounds 1 >$OUT/trace 2>$OUT/stderr || cat $OUT/stderr >&2";

/// In virtual time nothing is left to chance: neither in the kernel nor in how `taut` reads and books.
#[test]
fn two_runs_in_virtual_time_have_the_same_ledger_byte_for_byte() {
    let Some(lab) = Lab::ready("two_runs_in_virtual_time_have_the_same_ledger_byte_for_byte") else { return };
    let [one, other] = ["one", "other"].map(|run| {
        let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--out"]);
        let output = command.arg(lab.path(run)).args(["--", "sh", "-c", SHORT]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ["trace", "events"].map(|name| fs::read_to_string(lab.path(run).join(name)).unwrap())
    });
    let trace: Value = serde_json::from_str(&one[0]).unwrap_or_else(|error| panic!("{error}: {}", one[0]));
    assert!(cause(&trace, "nagle_delayed_ack").is_some_and(|cause| cause["found"] == 1), "{trace:#}");
    assert!(trace["worst"][0]["writes"].as_u64().unwrap() > 20 && one[1].lines().count() > 100, "{trace:#}");
    for (one, other) in one.iter().zip(&other) {
        let first = one.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert!(
            one == other,
            "{} and {} lines, the first that differs: {first:#?}",
            one.lines().count(),
            other.lines().count()
        );
    }
}

/// The published speed-server, traced from its start over the controllers of `scenarios/paper-000.toml`: once with a
/// receiver whose small buffer makes the kernel give few credits, as older kernels do whatever its size, and once as
/// this kernel is.
const STUTTER: &str = r#"
await() { until grep -qs "$1" "$2"; do sleep 0.1; done; }
A0=00:AA:01:00:00:00 A1=00:AA:01:01:00:00
taut air attach paper-000 --on --json --pcapng $OUT/air.pcapng >/tmp/radio & radio=$!
await adapters /tmp/radio
usual=$(cat /proc/sys/net/core/rmem_default)
for receiver in small usual; do
    [ $receiver = small ] && bytes=2304 || bytes=$usual
    taut trace --json --events $OUT/$receiver.events -- l2cat speed-server --no-advertise --once --bind $A1 133 \
        >$OUT/$receiver 2>/tmp/$receiver & trace=$!
    await Listening /tmp/$receiver
    echo $bytes >/proc/sys/net/core/rmem_default
    l2cat speed-client --bind $A0 --time 2 $A1 133 >/tmp/client 2>&1
    echo $usual >/proc/sys/net/core/rmem_default
    wait $trace || { cat /tmp/$receiver >&2; exit 10; }
    taut explain --json $OUT/$receiver.events >$OUT/$receiver.explained || exit 11
    # The kernel ends a link 2 s after its last channel: the next one begins anew.
    sleep 4
done
kill -INT $radio; wait $radio
for receiver in small usual; do
    taut explain --join --json $OUT/$receiver.events $OUT/air.pcapng >$OUT/$receiver.joined || exit 12
done"#;

/// Who held what the program sent, in ns.
fn held(direction: &Value, rows: &str, holder: &str) -> u64 {
    let all = direction[rows].as_array().unwrap_or_else(|| panic!("no {rows}: {direction:#}"));
    all.iter().find(|row| row["holder"] == holder).map_or(0, |row| row["held_ns"].as_u64().unwrap())
}

fn sum(direction: &Value, rows: &str) -> u64 {
    direction[rows].as_array().unwrap().iter().map(|row| row["held_ns"].as_u64().unwrap()).sum()
}

/// With a capture of the air beside it, the program's waits go on down to what the radio did meanwhile.
fn down_to_the_air(joined: &Value, sent: &Value) {
    let [timeline] = &joined["joined"].as_array().unwrap()[..] else { panic!("{joined:#}") };
    let programs = timeline["bluetooth"]["programs"].as_array().unwrap_or_else(|| panic!("{timeline:#}"));
    let [program] = &programs[..] else { panic!("{timeline:#}") };
    assert_eq!(program["program"], sent["program"], "{program:#}");
    let ns = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}: {program:#}"));
    let rows = program["rows"].as_array().unwrap();
    for row in rows {
        assert_eq!(row["air"].as_object().unwrap().values().map(ns).sum::<u64>(), ns(&row["held_ns"]), "{program:#}");
    }
    let air = |part: &str| rows.iter().map(|row| ns(&row["air"][part])).sum::<u64>();
    let held: u64 = rows.iter().map(|row| ns(&row["held_ns"])).sum();
    assert_eq!(held, ns(&program["held_ns"]), "{program:#}");
    // The air is without loss there, and carries data for a good part of the time.
    assert!(air("repeats_ns") < held / 100 && air("on_air_ns") > held / 10, "{program:#}");
}

/// Whose fault the waits of the published program are.
#[test]
fn what_stops_the_published_program_is_told_of_that_program() {
    let Some(lab) = Lab::ready("what_stops_the_published_program_is_told_of_that_program") else { return };
    let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--l2cat", "--module", "hci_vhci", "--out"]);
    let output = command.arg(lab.path("out")).args(["--", "sh", "-c", STUTTER]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let read = |name: &str| {
        let text = fs::read_to_string(lab.path("out").join(name)).unwrap();
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}{stderr}"))
    };
    let mut found = Vec::new();
    for receiver in ["small", "usual"] {
        let trace = read(receiver);
        assert_eq!((&trace["lost_records"], &trace["others"]), (&json!(0), &json!(1)), "{trace:#}");
        let sent = &trace["worst"][0];
        let (program, writes) = (sent["program"].as_str().unwrap(), sent["writes"].as_u64().unwrap());
        assert!(program.starts_with("l2cat (") && writes > 50, "{trace:#}");
        assert_eq!((&sent["transport"], &sent["written_by"]), (&json!("l2cap"), &json!(["sendto"])), "{trace:#}");
        let refused = sent["refused_writes"].as_u64().unwrap();
        assert!(refused > writes / 4, "{trace:#}");
        // Each nanosecond has one holder, also of the time in which the program waited for room: nearly all.
        let span = sent["span_ns"].as_u64().unwrap();
        assert_eq!(sum(sent, "breakdown"), span, "{trace:#}");
        let waited = sum(sent, "waited");
        assert!(waited <= span && waited > span / 10 * 9, "{waited} of {span}: {trace:#}");
        let not_known = held(sent, "breakdown", "not_known") + held(sent, "breakdown", "sending_program");
        assert!(not_known < span / 100, "{trace:#}");
        found.push((held(sent, "waited", "credits") as f64 / waited as f64, sent["verdicts"][0].clone()));
        // The file tells the same.
        let explained = read(&format!("{receiver}.explained"));
        assert_eq!(explained["traces"][0]["trace"]["worst"], trace["worst"], "{explained:#}");
        down_to_the_air(&read(&format!("{receiver}.joined")), sent);
    }
    let [(few, cause), (enough, other)] = &found[..] else { unreachable!() };
    assert!(*few > 0.3 && cause["cause"] == "credit_window" && cause["verdict"] == "found", "{few} {cause:#}");
    assert!(*enough < 0.05 && other["cause"] != "credit_window", "{enough} {other:#}");
}

/// What the kernel tells of the descriptors of a trace, of a process and of a port, and of a watch that counts.
const DESCRIPTORS: &str = r#"
uname -r
for scope in "--pid $$" "--port 443"; do
    rm -f /tmp/said
    taut trace --json $scope >/dev/null 2>/tmp/said & trace=$!
    until grep -qs "tracing " /tmp/said; do sleep 0.1; done
    echo "of ${scope% *}"
    cat /proc/$trace/fdinfo/*
    kill -INT $trace; wait $trace
done
taut watch --json --grade 2 --every 500ms >/tmp/watched & watch=$!
until [ -s /tmp/watched ]; do sleep 0.1; done
echo "of watch"
cat /proc/$watch/fdinfo/*
kill -INT $watch; wait $watch"#;

/// How many instructions of each program the verifier looks at, by the hook: a program that grows, or that costs it
/// more than its length, shows here. (What the kernel makes of the programs afterwards is its own, and not kept.)
fn verified(test: &str, kernel: &str) {
    let Some(lab) = Lab::ready(test) else { return };
    // To ask for its sockets a watch needs a module.
    let mut command = lab.command(&["run", "--kernel", kernel, "--icount", "--module", "tcp_diag"]);
    let output = command.args(["--", "sh", "-c", DESCRIPTORS]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{kernel}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
    let mut parts = stdout.split("\nof ");
    let version = parts.next().unwrap();
    let mut counts = Vec::new();
    for part in parts {
        let (whose, descriptors) = part.split_once('\n').unwrap();
        let fields = |descriptor: &str| -> HashMap<String, String> {
            let pairs = descriptor.lines().filter_map(|line| line.split_once(":\t"));
            pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
        };
        let all: Vec<HashMap<String, String>> = descriptors.split("pos:").map(fields).collect();
        for link in all.iter().filter(|descriptor| descriptor.contains_key("tp_name")) {
            let program =
                all.iter().find(|of| of.get("prog_id") == link.get("prog_id") && of.contains_key("prog_type"));
            let count = program.and_then(|program| program.get("verified_insns"));
            counts.push(format!("{whose} {}: {}", link["tp_name"], count.unwrap_or_else(|| panic!("{stdout}"))));
        }
    }
    counts.sort();
    assert_eq!(counts.iter().filter(|count| count.starts_with("watch ")).count(), 3, "{}", counts.join("\n"));
    println!("Linux {version}\n{}", counts.join("\n"));
    // Debian's next kernel may have other types, and so other programs, or another verifier.
    let path = format!("{}/tests/snapshots/lab_trace__verified-{kernel}.snap", env!("CARGO_MANIFEST_DIR"));
    let kept = fs::read_to_string(path).unwrap_or_default();
    if kept.contains("description: Linux") && !kept.contains(&format!("description: Linux {version}\n")) {
        println!("the counts kept are of another kernel, so these are not held against them");
        return assert!(counts.len() >= 30, "{}", counts.join("\n"));
    }
    insta::with_settings!({description => format!("Linux {version}"), omit_expression => true}, {
        insta::assert_snapshot!(format!("verified-{kernel}"), counts.join("\n"));
    });
}

/// Linux 5.10 does not tell (`verified_insns` is since 5.16).
#[test]
fn programs_are_verified_as_before_on_linux_6_1() {
    verified("programs_are_verified_as_before_on_linux_6_1", "6.1");
}

#[test]
fn programs_are_verified_as_before_on_linux_6_12() {
    verified("programs_are_verified_as_before_on_linux_6_12", "6.12");
}

/// rctest sends to another one over BR/EDR: to one that is stopped for 3 s, and to one that is not.
const RFCOMM: &str = r#"
await() { until grep -qs "$1" "$2"; do sleep 0.1; done; }
A1=00:AA:01:01:00:00
taut air attach two-nodes --set bredr.on=true --on --json >/tmp/radio & radio=$!
await adapters /tmp/radio
for receiver in stopped usual; do
    receive -r -i hci1 -P 5 -b 500 >/tmp/received 2>&1 &
    sleep 1
    taut trace --json --events $OUT/$receiver.events -- rctest -s -i hci0 -P 5 -b 500 -N 400 -L 20 $A1 \
        >$OUT/$receiver 2>/tmp/$receiver & trace=$!
    await Connected /tmp/$receiver
    [ $receiver = usual ] || { sleep 0.2; killall -STOP receive; sleep 3; killall -CONT receive; }
    wait $trace || { cat /tmp/$receiver >&2; exit 10; }
    taut explain --json $OUT/$receiver.events >$OUT/$receiver.explained || exit 11
    killall receive
    sleep 4
done
kill -INT $radio; wait $radio"#;

/// What a stock program sends over RFCOMM waits for credits while nobody reads it, and else for the air.
#[test]
fn a_receiver_that_does_not_read_is_told_of_a_stock_program_over_rfcomm() {
    let test = "a_receiver_that_does_not_read_is_told_of_a_stock_program_over_rfcomm";
    let rctest = "/usr/bin/rctest";
    if !Path::new(rctest).exists() {
        return note_skipped(test, &format!("{rctest} is missing: apt-get install bluez"));
    }
    let Some(lab) = Lab::ready(test) else { return };
    let mut command = lab.command(&["run", "--kernel", "6.12", "--icount", "--module", "hci_vhci", "--file", rctest]);
    // By a name of its own it can be stopped alone, with the children that it has for connections.
    command.args(["--file", &format!("{rctest}:/bin/receive"), "--out"]).arg(lab.path("out"));
    let output = command.args(["--", "sh", "-c", RFCOMM]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
    let read = |name: &str| {
        let text = fs::read_to_string(lab.path("out").join(name)).unwrap();
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}{stderr}"))
    };
    for receiver in ["stopped", "usual"] {
        let trace = read(receiver);
        assert_eq!(trace["lost_records"], 0, "{trace:#}");
        let of_socket = |one: &&Value| one["transport"] == "rfcomm" && one["is_outgoing"] == true;
        let sent: Vec<&Value> = trace["worst"].as_array().unwrap().iter().filter(of_socket).collect();
        let [sent] = sent[..] else { panic!("{trace:#}") };
        assert!(sent["program"].as_str().unwrap().starts_with("rctest ("), "{sent:#}");
        let to = sent["to"].as_str().unwrap();
        assert!(to.starts_with("00:AA:01:01:00:00 RFCOMM channel 5 (handle "), "{sent:#}");
        assert_eq!((&sent["from"], &sent["writes"]), (&json!("hci0"), &json!(400)), "{sent:#}");
        assert_eq!(sent["bytes"], 400 * 500, "{sent:#}");
        // Each nanosecond has one holder.
        let span = sent["span_ns"].as_u64().unwrap();
        assert_eq!(sum(sent, "breakdown"), span, "{sent:#}");
        assert!(held(sent, "breakdown", "not_known") < span / 50, "{sent:#}");
        let without_credits = held(sent, "breakdown", "rfcomm_credits");
        let mut verdicts = sent["verdicts"].as_array().unwrap().iter();
        let credits = verdicts.find(|on| on["cause"] == "rfcomm_credits").unwrap();
        if receiver == "stopped" {
            // It has room for 50 KB, which take less than a second.
            assert!((2_000_000_000..3_500_000_000).contains(&without_credits), "{sent:#}");
            assert_eq!((&credits["verdict"], &credits["side"]), (&json!("found"), &json!("receiver")), "{sent:#}");
            assert!(sent["waited_writes"].as_u64().unwrap() > 0, "{sent:#}");
            assert!(held(sent, "waited", "rfcomm_credits") > 1_500_000_000, "{sent:#}");
        } else {
            assert!(without_credits < span / 50, "{sent:#}");
            assert_ne!(credits["verdict"], "found", "{sent:#}");
        }
        // The file tells the same.
        let explained = read(&format!("{receiver}.explained"));
        assert_eq!(explained["traces"][0]["trace"]["worst"], trace["worst"], "{explained:#}");
    }
}
