//! Verdicts on captures, as text.

use serde_json::json;
use taut_report::ExplainDocument;

/// A direction in which most of the time is not known, and a cause with so large a share.
fn text(share: f64) -> String {
    let held = |holder: &str, share: f64| json!({ "holder": holder, "side": "sender", "held_ns": (share * 1e9) as u64, "share": share, "episodes": 3, "longest": [] });
    let found = json!({
        "cause": "slow_start", "verdict": "found", "summary": "The congestion window was still doubling",
        "side": "sender", "certainty": "consistent", "evidence": [], "remedy": "Reuse connections.",
        "cost": { "held_ns": 1, "between_ns": [1, 1], "share": share, "episodes": 3 },
    });
    let direction = json!({
        "from": "a", "to": "b", "bytes": 1, "segments": 1, "begin_ns": 0, "span_ns": 1_000_000_000_u64, "frames": [1, 2],
        "vantage": 0.0, "min_rtt_ns": 1_000_000, "median_rtt_ns": null, "mss_bytes": 1448, "largest_window_bytes": null,
        "peak_flight_bytes": 1, "repeated_segments": 0, "verdicts": [found], "remarks": [],
        "breakdown": [held("not_known", 1.0 - share), held("slow_start", share)],
    });
    let file = json!({
        "file": "a.pcap", "packets": 2, "tcp_packets": 2, "bytes": 1, "remarks": [], "span_ns": 1, "segments": 1,
        "copies": 0, "flows": 1, "evicted_flows": 0, "directions": 1, "totals": [], "causes": [], "worst": [direction],
    });
    let document = json!({
        "format_version": 1, "command": "explain", "command_line": "taut explain a.pcap", "ended": { "how": "complete" },
        "files": [file],
    });
    serde_json::from_value::<ExplainDocument>(document).expect("it is a document").to_text(false)
}

#[test]
fn a_small_cause_does_not_stand_before_all_that_is_not_known() {
    let small = text(0.12);
    let told = small.find("CAN'T TELL what holds the data back for 88.0 %").expect(&small);
    assert!(told < small.find("FOUND slow_start").unwrap(), "{small}");
    assert!(!text(0.62).contains("CAN'T TELL"), "{}", text(0.62));
}
