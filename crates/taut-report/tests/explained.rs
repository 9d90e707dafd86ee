//! Verdicts on captures, as text.

use serde_json::{Value, json};
use taut_report::ExplainDocument;

/// A direction in which most of the time is not known, and a cause with so large a share.
fn text(share: f64) -> String {
    told(direction(share), false)
}

fn direction(share: f64) -> Value {
    let held = |holder: &str, share: f64| json!({ "holder": holder, "side": "sender", "held_ns": (share * 1e9) as u64, "share": share, "episodes": 3, "longest": [] });
    let found = json!({
        "cause": "slow_start", "verdict": "found", "summary": "The congestion window was still doubling",
        "side": "sender", "certainty": "consistent", "evidence": [], "remedy": "Reuse connections.",
        "cost": { "held_ns": 1, "between_ns": [1, 1], "share": share, "episodes": 3 },
    });
    json!({
        "from": "a", "to": "b", "bytes": 1, "segments": 1, "begin_ns": 0, "span_ns": 1_000_000_000_u64, "frames": [1, 2],
        "vantage": 0.0, "min_rtt_ns": 1_000_000, "median_rtt_ns": null, "mss_bytes": 1448, "largest_window_bytes": null,
        "peak_flight_bytes": 1, "repeated_segments": 0, "verdicts": [found], "remarks": [],
        "breakdown": [held("not_known", 1.0 - share), held("slow_start", share)],
    })
}

fn told(direction: Value, is_full: bool) -> String {
    let file = json!({
        "file": "a.pcap", "packets": 2, "tcp_packets": 2, "bytes": 1, "remarks": [], "span_ns": 1, "segments": 1,
        "copies": 0, "flows": 1, "evicted_flows": 0, "directions": 1, "totals": [], "causes": [], "worst": [direction],
    });
    let document = json!({
        "format_version": 1, "command": "explain", "command_line": "taut explain a.pcap", "ended": { "how": "complete" },
        "files": [file],
    });
    serde_json::from_value::<ExplainDocument>(document).expect("it is a document").to_text(is_full)
}

#[test]
fn a_small_cause_does_not_stand_before_all_that_is_not_known() {
    let small = text(0.12);
    let told = small.find("CAN'T TELL what holds the data back for 88.0 %").expect(&small);
    assert!(told < small.find("FOUND slow_start").unwrap(), "{small}");
    assert!(!text(0.62).contains("CAN'T TELL"), "{}", text(0.62));
}

#[test]
fn long_ends_take_nothing_from_the_figures() {
    let mut long = direction(0.62);
    let end = |last: &str| format!("[2001:db8:1111:2222:3333:4444:5555:{last}]:54321");
    (long["from"], long["to"]) = (end("6666").into(), end("ffff").into());
    (long["bytes"], long["min_rtt_ns"]) = (3_000_000.into(), 20_000_000.into());
    let figures = "3,000,000 B in 1.00 s, seen at the sender, RTT 20.0 ms";
    let title = format!("{} > {}: {figures}", end("6666"), end("ffff"));
    for is_full in [false, true] {
        let text = told(long.clone(), is_full);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.matches(&title).count(), 1 + usize::from(is_full), "{text}");
        assert!(is_full || text.lines().count() <= 15, "{text}");
    }
}
