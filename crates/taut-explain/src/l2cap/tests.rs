use super::*;

/// A channel as Linux 5.10 and 6.12 negotiate it by default, at 50 ms on LE 1M.
fn options(changes: &[&str]) -> Vec<String> {
    let base = [
        "connection_interval_us=50000",
        "tx_octets=251",
        "rx_octets=251",
        "rcv_mtu=672",
        "rcv_mps=247",
        "credits_granted=3",
        "largest_grant=3",
        "credit_rule=sdu",
        "rcvbuf=212992",
        "snd_mtu=672",
        "snd_mps=247",
        "credits_received=3",
        "largest_grant_received=46",
        "peer_credit_rule=rcvbuf",
        "peer_rcvbuf=212992",
        "phy=1m_tx+1m_rx",
        "security_level=1",
    ];
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let kept = base.iter().filter(|option| !changes.iter().any(|change| name(change) == name(option)));
    kept.chain(changes).map(|option| (*option).to_owned()).filter(|option| !option.ends_with('=')).collect()
}

fn causes(changes: &[&str], down: bool, block_bytes: u64, kbps: f64) -> Vec<String> {
    let stream = Stream { on: "x".to_owned(), down, block_bytes, throughput_bps: kbps * 1e3 };
    let mut causes: Vec<_> =
        of_stream(&Facts::of(&options(changes)), &stream).into_iter().map(|finding| finding.cause).collect();
    causes.sort();
    causes
}

#[test]
fn one_sdu_at_a_time_is_told_with_the_kernels_rule() {
    let stream = Stream { on: "x".to_owned(), down: true, block_bytes: 67_200, throughput_bps: 53_760.0 };
    let findings = of_stream(&Facts::of(&options(&[])), &stream);
    assert_eq!(findings.len(), 2, "{findings:?}");
    let window = &findings[0];
    assert_eq!((window.cause.as_str(), findings[1].cause.as_str()), ("credit_window_one_sdu", "interval_default"));
    assert!(window.evidence[2].contains("2.0 connection intervals of 50 ms"), "{window:?}");
    assert!(window.evidence[3].contains("before 6.10"), "{window:?}");
    // 100 ms, less the time on the air.
    assert_eq!(window.cost_ns / 10_000_000, 9);
}

#[test]
fn a_wide_window_or_a_busy_air_is_no_finding() {
    let none: Vec<String> = Vec::new();
    assert_eq!(causes(&[], false, 67_200, 750.0), none);
    // Slow for another reason, with credits enough.
    assert_eq!(causes(&[], false, 4096, 100.0), none);
    // One SDU at a time, and still nearly all that the air can carry: credits come back within the event.
    assert_eq!(causes(&[], true, 4096, 715.0), none);
    // Grants were not heard.
    assert_eq!(causes(&["largest_grant="], true, 67_200, 53.8), none);
}

#[test]
fn the_newer_rule_is_told_apart_by_what_disables_it() {
    let small_mps = ["snd_mps=188", "credits_received=4", "largest_grant_received=4", "connection_interval_us=15000"];
    assert_eq!(causes(&small_mps, false, 67_200, 179.2), ["credit_window_small_mps"]);
    let small_buffer = ["peer_rcvbuf=9216", "largest_grant_received=3", "connection_interval_us=15000"];
    assert_eq!(causes(&small_buffer, false, 67_200, 179.9), ["credit_window_small_buffer"]);
    let unknown = ["peer_credit_rule=", "largest_grant_received=3", "connection_interval_us=15000"];
    assert_eq!(causes(&unknown, false, 67_200, 179.2), ["credit_window_one_sdu"]);
}

#[test]
fn a_remainder_counts_where_it_costs_a_credit() {
    let fast = "connection_interval_us=7500";
    assert_eq!(causes(&[fast], true, 4096, 336.0), ["credit_window_one_sdu", "partial_sdu_tail"]);
    assert_eq!(causes(&[fast], true, 4032, 358.0), ["credit_window_one_sdu"]);
    let stream = Stream { on: "x".to_owned(), down: true, block_bytes: 4096, throughput_bps: 336_000.0 };
    let findings = of_stream(&Facts::of(&options(&[fast])), &stream);
    assert!(findings[0].evidence[1].contains("13.0 connection intervals"), "{findings:?}");
    // One in 196, or nearly a whole one.
    assert_eq!(causes(&[fast], true, 131_072, 356.0), ["credit_window_one_sdu"]);
    assert_eq!(causes(&[fast], true, 4600, 350.0), ["credit_window_one_sdu"]);
}

#[test]
fn short_pdus_are_named_in_the_direction_that_sends_them() {
    assert_eq!(causes(&["tx_octets=27"], false, 67_200, 230.0), ["data_length_not_in_force"]);
    assert!(causes(&["tx_octets=27"], true, 67_200, 750.0).is_empty());
}

#[test]
fn an_interval_put_back_is_not_one_never_changed() {
    let facts = Facts::of(&options(&["interval_put_back_from_us=7500"]));
    let messages = Messages { on: "x".to_owned(), p50_ns: 80_000_000 };
    let findings = of_messages(&facts, &messages);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].cause.as_str(), findings[0].cost_ns), ("interval_put_back", 42_500_000));
}

#[test]
fn an_interval_never_changed_matters_where_messages_wait_for_it() {
    let found = |interval: &str, p50_ns| {
        of_messages(&Facts::of(&options(&[interval])), &Messages { on: "x".to_owned(), p50_ns })
    };
    assert_eq!(found("connection_interval_us=30000", 45_000_000)[0].cause, "interval_default");
    assert!(found("connection_interval_us=50000", 2_000_000).is_empty());
    assert!(found("connection_interval_us=7500", 15_000_000).is_empty());
}

#[test]
fn a_channel_that_stands_still_is_told_where_its_buffer_makes_it() {
    let found = |changes: &[&str], down, bytes| of_standstill(&Facts::of(&options(changes)), "x", down, bytes);
    let small = ["peer_rcvbuf=4608", "largest_grant_received=1"];
    let finding = found(&small, false, 67_200).unwrap();
    assert_eq!(finding.cause, "credit_window_below_sdu");
    assert!(finding.evidence[1].contains("after 2 of them"), "{finding:?}");
    assert!(finding.remedy.contains("at most 492 bytes"), "{finding:?}");
    // What is small enough comes through; a larger buffer, the older rule, the other direction and
    // a default buffer have no such stop.
    assert!(found(&small, false, 128).is_none());
    assert!(found(&["peer_rcvbuf=9216"], false, 67_200).is_none());
    assert!(found(&["peer_rcvbuf=4608", "peer_credit_rule=sdu"], false, 67_200).is_none());
    assert!(found(&small, true, 67_200).is_none() && found(&[], false, 67_200).is_none());
}

#[test]
fn data_that_came_too_early_is_told() {
    let facts = Facts::of(&options(&["data_before_response=3"]));
    let findings = of_messages(&facts, &Messages { on: "x".to_owned(), p50_ns: 1 });
    assert_eq!(findings[0].cause, "data_before_response");
    assert!(findings[0].evidence[0].starts_with("3 PDUs"));
}

#[test]
fn a_link_that_is_none_of_le_has_no_findings() {
    let facts = Facts::of(&["sndbuf=2626560".to_owned()]);
    let stream = Stream { on: "tcp".to_owned(), down: false, block_bytes: 4096, throughput_bps: 1e9 };
    assert_eq!(of_stream(&facts, &stream), []);
}
