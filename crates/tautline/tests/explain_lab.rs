//! `taut explain` held against the kernel: connections over a path of our own, whose sender's state (TCP_INFO) is read
//! each millisecond; captured at both ends. `cargo test --test explain_lab -- --nocapture` prints the table.

mod explain_support;
mod support;

use std::thread;

use explain_support::Conditions;
use explain_support::traffic::{Reader, Sender, Traffic, alike, explain, in_words, keep, ms, said, truth};

struct Case {
    name: &'static str,
    traffic: Traffic,
    /// The causes that must be found from both sides.
    found: &'static [&'static str],
    /// Those that must not.
    absent: &'static [&'static str],
    /// Of the time, how much must be booked as the kernel has it.
    agreement: f64,
}

fn path(delay: u64) -> Conditions {
    Conditions { delay: ms(delay), ..Conditions::default() }
}

fn at_rate(delay: u64, rate: u64, queue_bytes: u64) -> Conditions {
    Conditions { rate: Some(rate), queue_bytes, ..path(delay) }
}

fn traffic(conditions: Conditions, options: &str, sender: Sender, reader: Reader) -> Traffic {
    Traffic {
        conditions,
        options: options.to_owned(),
        congestion_control: Some("cubic"),
        starts_anew: true,
        receive_buffer: None,
        sender,
        reader,
    }
}

fn cases() -> Vec<Case> {
    const NAGLE: &str = "nagle_delayed_ack";
    let answers = Reader::Answering(200, 100, ms(0));
    let bulk = |conditions| traffic(conditions, "", Sender::Bulk, Reader::Fast);
    let by = |name, conditions| Traffic { congestion_control: Some(name), ..bulk(conditions) };
    let case = |name, traffic, found, absent| Case { name, traffic, found, absent, agreement: 0.9 };
    vec![
        case("request in two writes", traffic(path(2), "", Sender::TwoWrites(200, 100), answers), &[NAGLE], &["loss"]),
        case(
            "the same, TCP_NODELAY",
            traffic(path(2), "nodelay=on", Sender::TwoWrites(200, 100), answers),
            &[],
            &[NAGLE, "loss"],
        ),
        case(
            "period = round trip",
            traffic(path(5), "nodelay=on", Sender::Periodic(128, ms(10)), Reader::Fast),
            &["sending_program"],
            &[NAGLE],
        ),
        case(
            "periodic writes, Nagle",
            traffic(path(10), "", Sender::Periodic(128, ms(8)), Reader::Fast),
            &[NAGLE],
            &["loss", "receive_window"],
        ),
        Case {
            agreement: 0.85,
            ..case(
                "small receive buffer",
                Traffic { receive_buffer: Some(32 << 10), ..bulk(path(20)) },
                &["receive_window"],
                &["receiving_program", NAGLE],
            )
        },
        case("slow reader", traffic(path(2), "", Sender::Bulk, Reader::Slow(ms(20))), &["receiving_program"], &[NAGLE]),
        // A tail that is probed while the reader pauses counts as lost.
        Case {
            agreement: 0.75,
            ..case(
                "pausing reader",
                Traffic {
                    receive_buffer: Some(128 << 10),
                    ..traffic(path(5), "", Sender::Bulk, Reader::Pausing(1_500_000, ms(400)))
                },
                &["receiving_program"],
                &[NAGLE],
            )
        },
        // Whether the program was late after an acknowledgement, or its buffer was full, the kernel's state does not
        // tell: only causes are asked for.
        Case {
            agreement: 0.0,
            ..case(
                "small send buffer",
                traffic(path(10), "nodelay=on,sndbuf=16384", Sender::Bulk, Reader::Fast),
                &[],
                &["receive_window", "receiving_program", "loss", NAGLE],
            )
        },
        case("bottleneck, Cubic", bulk(at_rate(10, 20_000_000, 32 << 10)), &["congestion_window"], &WINDOW),
        case("bottleneck, Reno", by("reno", at_rate(10, 20_000_000, 32 << 10)), &["congestion_window"], &WINDOW),
        case("bottleneck, BBR", by("bbr", at_rate(10, 20_000_000, 256 << 10)), &[], &WINDOW),
        case("long queue", bulk(at_rate(2, 10_000_000, 2 << 20)), &["path_queue"], &["loss", "receive_window"]),
        case(
            "short transfer",
            traffic(path(40), "", Sender::Once(1_200_000), Reader::Fast),
            &["slow_start"],
            &["loss", "slow_start_after_idle"],
        ),
        case(
            "bursts after pauses",
            traffic(path(20), "", Sender::Periodic(400_000, ms(980)), Reader::Fast),
            &["slow_start_after_idle"],
            &["loss"],
        ),
        case(
            "the same, no new start",
            Traffic { starts_anew: false, ..traffic(path(20), "", Sender::Periodic(400_000, ms(980)), Reader::Fast) },
            &[],
            &["slow_start_after_idle", "loss"],
        ),
        case(
            "three losses",
            bulk(Conditions { lost: vec![400, 800, 1300], ..at_rate(10, 20_000_000, 256 << 10) }),
            &["loss"],
            &[NAGLE, "receive_window"],
        ),
        case(
            "lost tails",
            traffic(
                Conditions { lost: vec![8, 16, 24, 32], ..path(10) },
                "nodelay=on",
                Sender::Periodic(1000, ms(50)),
                Reader::Fast,
            ),
            &["loss"],
            &[NAGLE, "receive_window"],
        ),
        // What is repaired at once after another loss counts by the kernel until all of it is acknowledged.
        Case {
            agreement: 0.85,
            ..case(
                "1 % lost",
                bulk(Conditions { lost: (1..20_000).filter(|number| number * 7_919 % 101 == 5).collect(), ..path(10) }),
                &["loss"],
                &[NAGLE, "receive_window"],
            )
        },
        case(
            "program idle",
            traffic(path(5), "", Sender::Periodic(1000, ms(300)), Reader::Fast),
            &["sending_program"],
            &[NAGLE, "loss", "congestion_window"],
        ),
        case(
            "server thinks 30 ms",
            traffic(path(5), "nodelay=on", Sender::Requests(200, 5000), Reader::Answering(200, 5000, ms(30))),
            &["peer_turn"],
            &["loss", NAGLE],
        ),
    ]
}

/// Whether there is one processor for all.
fn is_alone() -> bool {
    thread::available_parallelism().is_ok_and(|processors| processors.get() == 1)
}

/// What a full path is not.
const WINDOW: [&str; 4] = ["receive_window", "receiving_program", "sending_program", "nagle_delayed_ack"];

/// The same capture without each nth packet.
fn without_each(nth: usize, capture: &[u8]) -> Vec<u8> {
    let (mut left, mut place, mut count) = (capture[..24].to_vec(), 24, 0);
    while let Some(header) = capture.get(place..place + 16) {
        let end = place + 16 + u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        count += 1;
        if count % nth != 0 {
            left.extend(&capture[place..end]);
        }
        place = end;
    }
    left
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
    let conditions = Conditions { lost: vec![5, 11], ..path(4) };
    let traffic = traffic(conditions, "", Sender::Requests(200, 100), Reader::Answering(200, 100, ms(0)));
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
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    let is_there = |case: &Case| {
        let control = case.traffic.congestion_control;
        control.is_none_or(|control| known.split_whitespace().any(|known| known == control))
    };
    let (cases, lacking): (Vec<_>, Vec<_>) = cases().into_iter().partition(is_there);
    lacking.iter().for_each(|case| println!("{:24} not here: the kernel has no such congestion control", case.name));
    // They mostly wait, so that several stand beside each other where there is more than one processor.
    let at_once = if is_alone() { 1 } else { 3 };
    let runs = cases.chunks(at_once).flat_map(|cases| {
        thread::scope(|scope| {
            let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.traffic.run())).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
        })
    });
    for (case, run) in cases.iter().zip(runs) {
        let (samples, captures) = match run {
            Ok(run) => run,
            Err(error) => return support::skip(TEST, &error),
        };
        let truth = truth(&samples, &case.traffic);
        for (place, capture) in ["sender", "receiver"].into_iter().zip(captures) {
            keep(&format!("{}-{place}", case.name.replace(' ', "-")), &capture);
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
            if case.traffic.conditions.lost.is_empty() && case.traffic.conditions.rate.is_some() {
                let holes = explain(&without_each(100, &capture));
                let loss = holes["verdicts"].as_array().unwrap().iter().find(|on| on["cause"] == "loss").unwrap();
                let was = truth.get("loss").copied().unwrap_or_default();
                check(loss["verdict"] != "found" || was > 0.0, format!("loss of what was not captured: {loss:#}"));
            }
            let vantage = direction["vantage"].as_f64().unwrap();
            check(if place == "sender" { vantage < 0.25 } else { vantage > 0.75 }, format!("vantage {vantage}"));
            if !case.traffic.conditions.lost.is_empty() {
                let last = &samples.last().unwrap().1;
                let (repeated, truth) = (direction["repeated_segments"].as_u64().unwrap(), last.retransmitted_segments);
                // Of many, the last may leave when the kernel's state is read no more.
                let may_differ = u64::from(case.traffic.conditions.lost.len() > 10);
                check(
                    repeated.abs_diff(truth.into()) <= may_differ,
                    format!("{repeated} segments repeated, {truth} by the kernel"),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
