//! `taut trace` on stock kernels: the hooks that each has tell who held the data, and nothing is made up where nobody
//! did.

mod support;

use std::fs;

use serde_json::{Value, json};
use support::Lab;

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
