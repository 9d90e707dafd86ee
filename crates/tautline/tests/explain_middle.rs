//! `taut explain` on captures that a router took between both ends, held against the kernel of the sender. `cargo test
//! --test explain_middle -- --nocapture` prints the table.

mod explain_support;
mod support;

use explain_support::Conditions;
use explain_support::traffic::{Reader, Sender, Traffic, alike, explain, in_words, keep, ms, said, truth};

struct Case {
    name: &'static str,
    /// With the way to the router.
    traffic: Traffic,
    /// From there on.
    behind: Conditions,
    found: &'static [&'static str],
    absent: &'static [&'static str],
    /// What the losses' evidence says.
    says: &'static str,
}

fn way(delay: u64) -> Conditions {
    Conditions { delay: ms(delay), ..Conditions::default() }
}

fn at_rate(rate: u64, queue_bytes: u64, conditions: Conditions) -> Conditions {
    Conditions { rate: Some(rate), queue_bytes, ..conditions }
}

const NAGLE: &str = "nagle_delayed_ack";
/// 32 kB are used up over 20 ms at a rate of 13 Mbit/s.
const SMALL: usize = 32 << 10;
const RATE: u64 = 20_000_000;

/// Each case is followed by its twin: all but what it is about.
fn cases() -> Vec<Case> {
    let traffic = |conditions, options: &str, sender, reader| Traffic {
        conditions,
        options: options.to_owned(),
        congestion_control: Some("cubic"),
        starts_anew: true,
        receive_buffer: None,
        sender,
        reader,
    };
    let bulk = |conditions| traffic(conditions, "", Sender::Bulk, Reader::Fast);
    let requests = |options| traffic(way(4), options, Sender::TwoWrites(200, 100), Reader::Answering(200, 100, ms(0)));
    let lossy = |conditions| Conditions { lost: vec![400, 800, 1300], ..conditions };
    let case = |name, traffic, behind, found, absent| Case { name, traffic, behind, found, absent, says: "" };
    let deep = 2 << 20;
    vec![
        case("request in two writes", requests(""), way(6), &[NAGLE], &["loss"]),
        case("the same, TCP_NODELAY", requests("nodelay=on"), way(6), &[], &[NAGLE, "loss"]),
        case(
            "small receive buffer",
            Traffic { receive_buffer: Some(SMALL), ..bulk(way(7)) },
            way(13),
            &["receive_window"],
            &["receiving_program", NAGLE, "loss"],
        ),
        case(
            "room in the window",
            bulk(at_rate(RATE, 32 << 10, way(7))),
            way(13),
            &["congestion_window"],
            &["receive_window", "receiving_program", "path_queue", NAGLE],
        ),
        Case {
            says: "3 lost on the sender's side, since they had not passed before, and 0 on the receiver's",
            ..case("lost before", bulk(lossy(at_rate(RATE, 256 << 10, way(5)))), way(7), &["loss"], &[NAGLE])
        },
        Case {
            says: "0 lost on the sender's side, since they had not passed before, and 3 on the receiver's",
            ..case("lost behind", bulk(at_rate(RATE, 256 << 10, way(5))), lossy(way(7)), &["loss"], &[NAGLE])
        },
        case(
            "queue before",
            bulk(at_rate(RATE / 2, deep, way(4))),
            way(4),
            &["path_queue"],
            &["loss", "receive_window", NAGLE],
        ),
        case(
            "queue behind",
            bulk(way(4)),
            at_rate(RATE / 2, deep, way(4)),
            &["path_queue"],
            &["loss", "receive_window", NAGLE],
        ),
        case(
            "short queue behind",
            bulk(way(7)),
            at_rate(RATE, 32 << 10, way(13)),
            &["congestion_window"],
            &["path_queue", "receive_window", NAGLE],
        ),
    ]
}

#[test]
fn a_router_sees_what_the_senders_kernel_knows() {
    const TEST: &str = "a_router_sees_what_the_senders_kernel_knows";
    if !support::is_root() || !support::has("ip") {
        return support::skip(TEST, "needs root and ip, for three network namespaces");
    }
    println!("{:24} {:>6} {:>6}  by the kernel, then by the capture, in % of the time", "", "place", "alike");
    let mut wrong = Vec::new();
    for Case { name, traffic, behind, found, absent, says } in cases() {
        let (samples, captures) = match traffic.run_routed(&behind) {
            Ok(run) => run,
            Err(error) => return support::skip(TEST, &error),
        };
        let truth = truth(&samples, &traffic);
        keep(&format!("middle-{}", name.replace(' ', "-")), &captures[1]);
        let direction = explain(&captures[1]);
        let said = said(&direction);
        let (alike, place) = (alike(&truth, &said), direction["vantage"].as_f64().unwrap());
        println!("{name:24} {place:6.2} {:5.1} %  {} | {}", alike * 100.0, in_words(&truth), in_words(&said));
        let verdicts = direction["verdicts"].as_array().unwrap();
        let is_found = |cause: &&&str| verdicts.iter().any(|on| on["cause"] == **cause && on["verdict"] == "found");
        let mut check = |holds: bool, what: String| {
            if !holds {
                wrong.push(format!("{name}: {what}: {direction:#}"));
            }
        };
        check(alike >= 0.9, format!("{alike:.3} alike"));
        let lacking: Vec<_> = found.iter().filter(|cause| !is_found(cause)).collect();
        check(lacking.is_empty(), format!("{lacking:?} not found"));
        let false_ones: Vec<_> = absent.iter().filter(is_found).collect();
        check(false_ones.is_empty(), format!("{false_ones:?} found"));
        let (near, far) = (traffic.conditions.delay.as_secs_f64(), behind.delay.as_secs_f64());
        let by_delay = near / (near + far);
        check(
            (place - by_delay).abs() < 0.05 && place > 0.25 && place < 0.75,
            format!("seen at {place:.2} and not at {by_delay:.2}"),
        );
        if !says.is_empty() {
            let last = &samples.last().unwrap().1;
            check(
                direction["repeated_segments"] == last.retransmitted_segments,
                format!("{} segments repeated by the kernel", last.retransmitted_segments),
            );
            let loss = verdicts.iter().find(|on| on["cause"] == "loss").unwrap();
            check(loss.to_string().contains(says), format!("`{says}` not said"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
