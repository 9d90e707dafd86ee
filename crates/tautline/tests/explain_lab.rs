//! `taut explain` held against the kernel: connections over a path of our own, whose sender's state (TCP_INFO) is read
//! each millisecond; captured at both ends. `cargo test --test explain_lab -- --nocapture` prints the table.

mod explain_support;
mod support;

use explain_support::Conditions;
use explain_support::traffic::{Reader, Sender, Traffic, alike, explain, in_words, ms, said, truth};

struct Case {
    name: &'static str,
    conditions: Conditions,
    options: &'static str,
    receive_buffer: Option<usize>,
    sender: Sender,
    reader: Reader,
    /// The causes that must be found from both sides.
    found: &'static [&'static str],
    /// Those that must not.
    absent: &'static [&'static str],
    /// Of the time, how much must be booked as the kernel has it.
    agreement: f64,
}

impl Case {
    fn traffic(&self) -> Traffic {
        Traffic {
            conditions: self.conditions.clone(),
            options: self.options.to_owned(),
            congestion_control: None,
            receive_buffer: self.receive_buffer,
            sender: self.sender,
            reader: self.reader,
        }
    }
}

fn path(delay: u64) -> Conditions {
    Conditions { delay: ms(delay), ..Conditions::default() }
}

fn cases() -> Vec<Case> {
    let case = |name, delay, sender, reader, found, absent| Case {
        name,
        conditions: path(delay),
        options: "",
        receive_buffer: None,
        sender,
        reader,
        found,
        absent,
        agreement: 0.9,
    };
    let answers = Reader::Answering(200, 100, ms(0));
    vec![
        case("request in two writes", 2, Sender::TwoWrites(200, 100), answers, &["nagle_delayed_ack"], &["loss"]),
        Case {
            options: "nodelay=on",
            ..case(
                "the same, TCP_NODELAY",
                2,
                Sender::TwoWrites(200, 100),
                answers,
                &[],
                &["nagle_delayed_ack", "loss"],
            )
        },
        Case {
            options: "nodelay=on",
            ..case(
                "period = round trip",
                5,
                Sender::Periodic(128, ms(10)),
                Reader::Fast,
                &["sending_program"],
                &["nagle_delayed_ack"],
            )
        },
        Case {
            receive_buffer: Some(32 << 10),
            ..case(
                "small receive buffer",
                20,
                Sender::Bulk,
                Reader::Fast,
                &["receive_window"],
                &["receiving_program", "nagle_delayed_ack"],
            )
        },
        case("slow reader", 2, Sender::Bulk, Reader::Slow(ms(20)), &["receiving_program"], &["nagle_delayed_ack"]),
        Case {
            receive_buffer: Some(128 << 10),
            agreement: 0.85,
            ..case(
                "pausing reader",
                5,
                Sender::Bulk,
                Reader::Pausing(1_500_000, ms(400)),
                &["receiving_program"],
                &["nagle_delayed_ack"],
            )
        },
        Case {
            conditions: Conditions {
                rate: Some(20_000_000),
                queue_bytes: 256 << 10,
                lost: vec![400, 800, 1300],
                ..path(10)
            },
            ..case("three losses", 10, Sender::Bulk, Reader::Fast, &["loss"], &["nagle_delayed_ack", "receive_window"])
        },
        Case {
            options: "nodelay=on",
            ..case(
                "server thinks 30 ms",
                5,
                Sender::Requests(200, 5000),
                Reader::Answering(200, 5000, ms(30)),
                &["peer_turn"],
                &["loss", "nagle_delayed_ack"],
            )
        },
    ]
}

/// The same capture by a clock that is so many seconds ahead.
fn ahead_by(seconds: u32, capture: &[u8]) -> Vec<u8> {
    let (mut moved, mut place) = (capture.to_vec(), 24);
    while let Some(header) = capture.get(place..place + 16) {
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        moved[place..place + 4].copy_from_slice(&(word(0) + seconds).to_le_bytes());
        place += 16 + word(8) as usize;
    }
    moved
}

/// Both ends of the path are captured by one clock, of which one capture is moved.
#[test]
fn captures_of_both_ends_are_put_on_one_timeline() {
    const TEST: &str = "captures_of_both_ends_are_put_on_one_timeline";
    if !support::is_root() || !support::has("ip") {
        return support::skip(TEST, "needs root and ip, for two network namespaces");
    }
    let traffic = Traffic {
        conditions: Conditions { lost: vec![5, 11], ..path(4) },
        options: String::new(),
        congestion_control: None,
        receive_buffer: None,
        sender: Sender::Requests(200, 100),
        reader: Reader::Answering(200, 100, ms(0)),
    };
    let (_, [near, far]) = match traffic.run() {
        Ok(run) => run,
        Err(error) => return support::skip(TEST, &error),
    };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, capture: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, capture).unwrap();
        path.display().to_string()
    };
    let (near, far) = (file("near.pcap", &near), file("far.pcap", &ahead_by(7, &far)));
    for (one, other, sign) in [(&near, &far, 1), (&far, &near, -1)] {
        let joined = support::run_json(&format!("explain --join {one} {other}"))["joined"][0].clone();
        println!("{joined:#}");
        let clock = &joined["clock"];
        let (offset, error) = (clock["offset_ns"].as_i64().unwrap(), clock["uncertainty_ns"].as_u64().unwrap());
        assert!(offset.abs_diff(sign * 7_000_000_000) <= error, "{joined}");
        // No way is shorter than 4 ms.
        assert!(clock["least_round_trip_ns"].as_u64().unwrap() >= 7_900_000, "{joined}");
        assert!(joined["matched_packets"].as_u64().unwrap() > 100 && clock["steps"] == 0, "{joined}");
    }
}

#[test]
fn the_time_breakdown_is_the_kernels() {
    const TEST: &str = "the_time_breakdown_is_the_kernels";
    if !support::is_root() || !support::has("ip") {
        return support::skip(TEST, "needs root and ip, for two network namespaces");
    }
    println!("{:24} {:8} {:>6}  by the kernel, then by the capture, in % of the time", "", "seen at", "alike");
    let mut wrong = Vec::new();
    for case in cases() {
        let traffic = case.traffic();
        let (samples, captures) = match traffic.run() {
            Ok(run) => run,
            Err(error) => return support::skip(TEST, &error),
        };
        let truth = truth(&samples, &traffic);
        for (place, capture) in ["sender", "receiver"].into_iter().zip(captures) {
            let direction = explain(&capture);
            let said = said(&direction);
            let alike = alike(&truth, &said);
            println!("{:24} {place:8} {:5.1} %  {} | {}", case.name, alike * 100.0, in_words(&truth), in_words(&said));
            let verdicts = direction["verdicts"].as_array().unwrap();
            let is_found = |cause: &&&str| verdicts.iter().any(|on| on["cause"] == **cause && on["verdict"] == "found");
            let mut check = |holds: bool, what: String| {
                if !holds {
                    wrong.push(format!("{}, at the {place}: {what}: {direction:#}", case.name));
                }
            };
            check(alike >= case.agreement, format!("{alike:.3} alike"));
            let lacking: Vec<_> = case.found.iter().filter(|cause| !is_found(cause)).collect();
            check(lacking.is_empty(), format!("{lacking:?} not found"));
            let false_ones: Vec<_> = case.absent.iter().filter(is_found).collect();
            check(false_ones.is_empty(), format!("{false_ones:?} found"));
            let vantage = direction["vantage"].as_f64().unwrap();
            check(if place == "sender" { vantage < 0.25 } else { vantage > 0.75 }, format!("vantage {vantage}"));
            if !case.conditions.lost.is_empty() {
                let last = &samples.last().unwrap().1;
                let (repeated, truth) = (direction["repeated_segments"].as_u64().unwrap(), last.retransmitted_segments);
                check(repeated == u64::from(truth), format!("{repeated} segments repeated, {truth} by the kernel"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
