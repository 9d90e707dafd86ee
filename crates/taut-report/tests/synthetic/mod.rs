//! A document with a row of every kind, computed from a fixed seed: nothing in it was measured.

mod crowds;
mod routes;
mod times;

use taut_explain::{Finding, Unit};
use taut_record::stats::{Distribution, Losses, Rounds};
use taut_record::{
    AirChangeRow, AirEventExcerpt, AirExcerpt, AirIdle, AirPdu, AirRow, AirSetting, CheckRow, Comparison, Counted,
    EchoRow, Ended, FORMAT_VERSION, FigureUnit, Floor, FloorRow, HostFacts, LossComparison, MessageExcerpt, PaceRound,
    PaceRow, PublishedFigure, PublishedRow, Recording, Round, Row, SettingRow, SettingVerdict, StreamRound, StreamRow,
    TcpFacts, TuneRow, Verdict, WatchRow, WatchedLoss, WatchedPlace,
};

use super::Document;
use crowds::crowds;
use routes::routes;
use times::{distribution, exceed, samples, summary};

/// A survey of three echo endpoints (one of them lossy, one also as an open loop), pacing with and without Nagle's
/// algorithm, streams, crowds, settings, floor and checks.
pub(crate) fn survey() -> Document {
    let mut results = vec![
        Row::Echo(Box::new(echo("unix:/run/taut.sock", "unix", 9_200, 0, None))),
        Row::Echo(Box::new(echo("tcp://192.0.2.7:7600", "tcp", 28_400, 0, None))),
        Row::Echo(Box::new(echo("udp://192.0.2.7:7600", "udp", 9_230, 37, None))),
        Row::Echo(Box::new(echo("tcp://192.0.2.7:7600", "tcp", 31_000, 4, Some(60.0)))),
        Row::Pace(Box::new(pace(true))),
        Row::Pace(Box::new(pace(false))),
        Row::Stream(Box::new(stream("up", 9.4e9, 0))),
        Row::Stream(Box::new(stream("down", 7.1e9, 12))),
        Row::Tune(Box::new(tune("base", "this socket", Some((1.0, (1.0, 1.0))), Verdict::CannotTellApart, None))),
        Row::Tune(Box::new(tune("nodelay", "this socket", Some((0.02, (0.018, 0.024))), Verdict::Shorter, None))),
        Row::Tune(Box::new(tune("busy-poll", "the host", Some((0.97, (0.9, 1.05))), Verdict::CannotTellApart, None))),
        Row::Tune(Box::new(tune("small-buffer", "this socket", Some((1.31, (1.2, 1.5))), Verdict::Longer, None))),
        Row::Tune(Box::new(tune("realtime", "the program", None, Verdict::NotAvailable, Some("needs CAP_SYS_NICE")))),
        Row::Floor(Box::new(FloorRow {
            what: "absolute sleep, how late it ends".to_owned(),
            ns: summary(&samples(54_000, 2_000, 1)).unwrap(),
            meaning: "messages on a schedule leave this late at best".to_owned(),
        })),
        Row::Check(check("socket timestamps", true)),
        Row::Check(check("Bluetooth adapter", false)),
    ];
    results.extend(crowds().into_iter().map(|row| Row::Crowd(Box::new(row))));
    results.extend(routes().into_iter().map(|row| Row::Route(Box::new(row))));
    results.push(Row::Watch(Box::new(watched())));
    results.push(Row::Setting(setting("net.core.somaxconn", SettingVerdict::Costs)));
    results.push(Row::Setting(setting("net.ipv4.tcp_wmem", SettingVerdict::Clear)));
    results.push(Row::Setting(setting("net.ipv4.tcp_slow_start_after_idle", SettingVerdict::Unknown)));
    results.push(Row::Published(Box::new(published())));
    results.push(Row::AirChange(Box::new(air_change("receive-buffer=64KiB", 1.0, 11.9, true))));
    results.push(Row::AirChange(Box::new(air_change("block=4032", 11.9, 11.8, false))));
    results.push(Row::Air(Box::new(air(50_000_000, 51_600.0))));
    results.push(Row::Air(Box::new(air(7_500_000, 230_000.0))));
    Document {
        recording: Recording {
            format_version: FORMAT_VERSION,
            command: "survey".to_owned(),
            command_line: "taut survey --html report.html".to_owned(),
            started_unix_s: 1_780_000_000,
            duration_ns: 93_400_000_000,
            ended: Ended::Complete,
            host: host(),
            results,
            observed: Vec::new(),
        },
        findings: vec![finding()],
        explained_again: None,
    }
}

fn air(ci_ns: u64, throughput_bps: f64) -> AirRow {
    let duration_ns = 60_000_000_000;
    let shares =
        [("payload", 20), ("headers", 1), ("ifs", 3), ("empty_polls", 2), ("no_credit", 40), ("does_not_fit", 34)];
    let event = |number: u64| AirEventExcerpt {
        number,
        anchor_ns: number * ci_ns,
        closed: "more data cleared".to_owned(),
        pdus: [
            ("central", 0, 80_000, "empty", 0, "empty PDU"),
            ("peripheral", 230_000, 2_088_000, "data", 251, "SDU 3, 247 of 674 B"),
        ]
        .into_iter()
        .map(|(sender, start_ns, duration_ns, kind, payload_bytes, what)| AirPdu {
            start_ns,
            duration_ns,
            sender: sender.to_owned(),
            kind: kind.to_owned(),
            payload_bytes,
            more_data: number == 2,
            retransmission: number == 3,
            received: number != 2,
            what: what.to_owned(),
        })
        .collect(),
        idle: vec![AirIdle { start_ns: 2_468_000, duration_ns: ci_ns - 2_468_000, holder: "no_credit".to_owned() }],
    };
    AirRow {
        scenario: "synthetic".to_owned(),
        command: format!("taut air run synthetic --set ci={}us", ci_ns / 1000),
        seed: 7,
        set: vec![AirSetting { name: "ci".to_owned(), value: format!("{}us", ci_ns / 1000) }],
        links: 1,
        ci_ns,
        phy: "1m".to_owned(),
        length_bytes: 251,
        encrypted: false,
        mtu_bytes: 672,
        mps_bytes: 247,
        initial_credits: 3,
        duration_ns,
        throughput_bps,
        limit_bps: 782_800.0,
        quantised_limit_bps: 770_000.0,
        connection_events: duration_ns / ci_ns,
        events_by_pdus: vec![600, 20, 30, 550],
        sdu_latency_ns: summary(&samples(60_000_000, 8_000, 3)),
        ledger_ns: shares.into_iter().map(|(name, share)| (name.to_owned(), duration_ns / 100 * share)).collect(),
        counters: [("retransmissions".to_owned(), 3)].into(),
        excerpt: (ci_ns < 10_000_000).then(|| AirExcerpt {
            what: "The first connection events.".to_owned(),
            events: (1..=6).map(event).collect(),
        }),
    }
}

fn air_change(set: &str, before: f64, after: f64, kept: bool) -> AirChangeRow {
    let (name, value) = set.split_once('=').unwrap();
    AirChangeRow {
        scenario: "synthetic".to_owned(),
        command: format!("taut air run synthetic --set {set}"),
        set: vec![AirSetting { name: name.to_owned(), value: value.to_owned() }],
        place: "the receiver's socket".to_owned(),
        before_bps: before * 51_600.0,
        throughput_bps: after * 51_600.0,
        limit_bps: 782_800.0,
        held_by: "no_credit".to_owned(),
        kept,
        apply: "setsockopt(SO_RCVBUF)".to_owned(),
    }
}

fn host() -> HostFacts {
    HostFacts {
        tautline: "0.1.0".to_owned(),
        kernel: "6.12.1-synthetic".to_owned(),
        machine: "x86_64".to_owned(),
        processor: "Example Processor <1>".to_owned(),
        cores: 4,
        allowed_cores: vec![0, 1],
        clocksource: "tsc".to_owned(),
        load_1min: 0.42,
        tcp_congestion_control: "cubic".to_owned(),
        tcp_autocorking: true,
        root: false,
        floor: Floor {
            clock_read_ns: 23,
            sleep_late_p50_ns: 54_200,
            sleep_late_p99_ns: 81_300,
            empty_exchange_p50_ns: 6_310,
        },
    }
}

fn finding() -> Finding {
    Finding {
        cause: "nagle_delayed_ack".to_owned(),
        summary: "Nagle's algorithm holds small writes until the peer's delayed acknowledgement".to_owned(),
        on: "pace over tcp://192.0.2.7:7600".to_owned(),
        share: 0.75,
        share_of: Unit::Writes,
        cost_ns: 22_100_000,
        evidence: vec![
            "90 of 120 messages stayed in the socket until an acknowledgement came, and left within 50 µs of it"
                .to_owned(),
            "after the write the window had room for 10 segments, yet 64 B stayed unsent </script><b>".to_owned(),
        ],
        remedy: "Set TCP_NODELAY on the sending socket, or write each message with one call.".to_owned(),
        proof: None,
    }
}

fn echo(endpoint: &str, transport: &str, centre_ns: u64, lost: u64, rate_hz: Option<f64>) -> EchoRow {
    let count = if rate_hz.is_some() { 3_000 } else { 20_000 };
    let sent = count as u64 + lost;
    let rounds: Vec<Vec<u64>> =
        (0..5).map(|round| samples(centre_ns + centre_ns * round / 60, count / 5, round + centre_ns)).collect();
    let all: Vec<u64> = rounds.concat();
    let late: Vec<u64> =
        all.iter().enumerate().map(|(i, ns)| ns + if i % 97 == 0 { 18_000_000 } else { 60_000 }).collect();
    let judged = if rate_hz.is_some() { &late } else { &all };
    // All losses are in the third round.
    let rounds = |times: &[u64]| -> Vec<Distribution> {
        let mut rounds: Vec<Distribution> = times.chunks(count / 5).map(distribution).collect();
        rounds[2].record_lost(lost);
        rounds
    };
    let summary = |times: &[u64]| rounds(times).iter().collect::<Rounds>().summary();
    let base = (endpoint, rate_hz) == ("unix:/run/taut.sock", None);
    let of_base = Losses { lost: 0, messages: 20_000 };
    let losses = LossComparison::of(Losses { lost, messages: sent }, of_base, 1, "unix:/run/taut.sock");
    EchoRow {
        endpoint: endpoint.to_owned(),
        transport: transport.to_owned(),
        command: format!("taut echo {endpoint}{}", rate_hz.map_or_else(String::new, |rate| format!(" --rate {rate}"))),
        engine: "blocking".to_owned(),
        engine_wait_ns: None,
        message_bytes: 64,
        writes: "write".to_owned(),
        connections: 1,
        rate_hz,
        placement: None,
        nagle: (transport == "tcp").then_some(false),
        tcp: (transport == "tcp").then(|| tcp(0)),
        rtt_ns: summary(&all),
        response_ns: rate_hz.and_then(|_| summary(&late)),
        send_lateness_ns: rate_hz.and_then(|_| self::summary(&samples(54_000, count, 9))),
        sent,
        lost,
        late_replies: lost / 4,
        duplicates: lost / 12,
        unsent: 0,
        numbers: None,
        timeout_ns: 1_000_000_000,
        exceed: exceed(judged, lost),
        curve: rounds(judged).iter().collect::<Rounds>().pooled().curve(),
        rounds: rounds(judged).iter().map(|times| Round::of(times, times.messages(), times.lost())).collect(),
        loss_compared: losses.clone(),
        compared: (!base)
            .then(|| Comparison {
                with: "unix:/run/taut.sock".to_owned(),
                p50_ratio: if lost == 37 { 1.01 } else { centre_ns as f64 / 9_200.0 },
                p50_ratio_ci: if lost == 37 {
                    (0.97, 1.04)
                } else {
                    (centre_ns as f64 / 9_400.0, centre_ns as f64 / 9_000.0)
                },
                p50_ratio_level: Some(0.984_375),
                verdict: if lost == 37 { Verdict::CannotTellApart } else { Verdict::Longer },
                rounds_needed: None,
            })
            .map(|compared| compared.beside(losses.as_ref())),
        observer: None,
        options: vec!["TCP_NODELAY=1".to_owned(), "SO_SNDBUF=87040".to_owned()],
        peer_acks: "kernel default".to_owned(),
    }
}

fn pace(nagle: bool) -> PaceRow {
    let period: i64 = 10_000_000;
    let messages: Vec<MessageExcerpt> = (0..120).map(|i| message(i, period, nagle)).collect();
    let time = |of: fn(&MessageExcerpt) -> i64| -> Vec<u64> { messages.iter().map(|m| of(m).max(1) as u64).collect() };
    let delivery = time(|m| m.read.unwrap() - m.intended);
    let hold = time(|m| m.left.unwrap() - m.write_end.unwrap());
    let gaps: Vec<u64> = if nagle { vec![40_000_000; 30] } else { samples(10_000_000, 119, 3) };
    let ledger = [("program", 6_504_000), ("call", 720_000), ("socket", if nagle { 1_800_000_000 } else { 240_000 })];
    let below = [("driver", 96_000), ("medium", 12_000_000), ("peer program", 1_200_000)];
    PaceRow {
        endpoint: "tcp://192.0.2.7:7600".to_owned(),
        transport: "tcp".to_owned(),
        command: format!("taut pace tcp://192.0.2.7:7600 --period 10ms{}", if nagle { "" } else { " --nodelay" }),
        message_bytes: 64,
        period_ns: 10_000_000,
        nagle: Some(nagle),
        peer: "taut serve, kernel's own acknowledgements".to_owned(),
        messages: 120,
        segments: Some(if nagle { 30 } else { 120 }),
        messages_per_segment: Some(if nagle { 4.0 } else { 1.0 }),
        send_lateness_ns: summary(&samples(54_000, 120, 4)),
        send_call_ns: summary(&samples(6_000, 120, 5)),
        hold_ns: summary(&hold),
        ack_ns: summary(&samples(40_200_000, 120, 6)),
        delivery_ns: summary(&delivery),
        sender_gap_ns: summary(&gaps),
        sender_gap_of: "left".to_owned(),
        receiver_gap_ns: summary(&gaps),
        exceed: exceed(&delivery, 0),
        lost: 0,
        clock_uncertainty_ns: Some(12_000),
        ledger_ns: ledger.into_iter().chain(below).map(|(name, ns)| (name.to_owned(), ns)).collect(),
        rounds: (0..5)
            .map(|round| PaceRound {
                sender_gap_mean_ns: Some(if nagle { 40_000_000 } else { 10_000_000 } + 1_000 * round),
                receiver_gap_mean_ns: Some(if nagle { 40_000_000 } else { 10_000_000 } + 2_000 * round),
                delivery_p50_ns: Some(if nagle { 21_000_000 } else { 190_000 } + 3_000 * round),
                messages_per_segment: Some(if nagle { 4.0 } else { 1.0 }),
                messages: 120,
                complete: true,
            })
            .collect(),
        dropped_rounds: 0,
        placement: None,
        excerpt: messages[..40].to_vec(),
        broker: None,
        tcp: Some(tcp(0)),
        observer: None,
        options: vec![format!("TCP_NODELAY={}", u8::from(!nagle))],
    }
}

/// With Nagle's algorithm three messages in four wait for the acknowledgement that comes every 40 ms.
fn message(i: i64, period: i64, nagle: bool) -> MessageExcerpt {
    let intended = i * period;
    let write_begin = intended + 54_000 + i * 7_919 % 20_000;
    let write_end = write_begin + 6_000;
    let waits = nagle && i % 4 != 0;
    let scheduled = if waits { (write_end / 40_000_000 + 1) * 40_000_000 + 49_000 } else { write_end + 2_000 };
    let left = scheduled + 800;
    MessageExcerpt {
        intended,
        write_begin: Some(write_begin),
        write_end: Some(write_end),
        scheduled: Some(scheduled),
        left: Some(left),
        acked: (i % 4 == 0 || !nagle).then_some(left + 39_800_000),
        received: Some(left + 100_000),
        forwarded: None,
        read: Some(left + 110_000 + i * 6_007 % 9_000),
    }
}

fn stream(direction: &str, bps: f64, retransmitted: u32) -> StreamRow {
    StreamRow {
        endpoint: "tcp://192.0.2.7:7600".to_owned(),
        transport: "tcp".to_owned(),
        command: format!("taut stream tcp://192.0.2.7:7600 --direction {direction}"),
        direction: direction.to_owned(),
        connections: 1,
        block_bytes: 65_536,
        throughput_bps: bps,
        throughput_bps_ci: Some((bps * 0.96, bps * 1.03)),
        throughput_bps_ci_level: Some(0.9375),
        bytes: (bps / 8.0 * 10.0) as u64,
        counted: Counted::Received,
        lost_bytes: 0,
        unconfirmed_bytes: 0,
        coarse: None,
        cpu_ns: 4_200_000_000,
        peer_cpu_ns: Some(5_100_000_000),
        bytes_per_cpu_second: bps / 8.0 * 10.0 / 9.3,
        rounds: (0..5)
            .map(|i| StreamRound {
                throughput_bps: bps * (0.96 + 0.0175 * f64::from(i)),
                bytes: (bps / 4.0) as u64,
                duration_ns: 2_000_000_000,
                complete: true,
            })
            .collect(),
        placement: None,
        tcp: Some(tcp(retransmitted)),
        options: Vec::new(),
    }
}

fn tcp(retransmitted_segments: u32) -> TcpFacts {
    TcpFacts {
        mss_bytes: 1448,
        smoothed_rtt_ns: 120_000,
        min_rtt_ns: 80_000,
        congestion_window_segments: 10,
        retransmitted_segments,
        data_segments_out: 30,
        busy_ns: 1_000_000,
        receive_window_limited_ns: 0,
        send_buffer_limited_ns: 0,
        delivery_rate_bps: 9_000_000_000,
    }
}

fn tune(
    setting: &str,
    place: &str,
    ratio: Option<(f64, (f64, f64))>,
    verdict: Verdict,
    why_not: Option<&str>,
) -> TuneRow {
    TuneRow {
        endpoint: "tcp://192.0.2.7:7600".to_owned(),
        command: "taut tune tcp://192.0.2.7:7600".to_owned(),
        measured: "write-write-read".to_owned(),
        setting: setting.to_owned(),
        place: place.to_owned(),
        p50_ns: ratio.map(|(ratio, _)| (40_400_000.0 * ratio) as u64),
        p99_ns: ratio.map(|(ratio, _)| (41_900_000.0 * ratio) as u64),
        lost_share: 0.0,
        p50_ratio: ratio.map(|(ratio, _)| ratio),
        p50_ratio_ci: ratio.map(|(_, interval)| interval),
        p50_ratio_level: ratio.map(|_| 0.9375),
        p99_ratio: ratio.map(|(ratio, _)| ratio),
        screening_ratio: None,
        base_p50_ns: None,
        verdict,
        rounds_needed: None,
        why_not: why_not.map(str::to_owned),
        apply: (setting == "nodelay")
            .then(|| "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));".to_owned()),
        throughput_bps: None,
        options: Vec::new(),
        placement: None,
    }
}

fn watched() -> WatchRow {
    let loss = WatchedLoss {
        place: WatchedPlace {
            cause: "accept_queue".to_owned(),
            program: Some("serve \"<all>\"".to_owned()),
            pid: Some(4711),
            side: "server".to_owned(),
            service: "192.0.2.7:80".to_owned(),
        },
        summary: "the accept queue is full: connections wait for this program or are refused".to_owned(),
        remedy: "accept sooner, or a larger backlog (listen(2) and net.core.somaxconn)".to_owned(),
        connections: 1,
        worst_local: "192.0.2.7:80".to_owned(),
        worst_peer: "0.0.0.0:0".to_owned(),
        worst_peer_program: None,
        worst_share: 0.42,
        worst_look_period_ns: 20_000_000,
        lost_ns: 2_100_000_000,
        total_lost_ns: 2_100_000_000,
        stands_ns: 5_000_000_000,
        is_new: true,
    };
    WatchRow {
        command: "taut watch".to_owned(),
        span_ns: 5_000_000_000,
        connections: 1_234,
        active: 56,
        looks: 250,
        suspect_looks: 40,
        look_period_ns: 20_000_000,
        work_ns: 80_000_000,
        is_enough: true,
        losses: vec![loss],
        remarks: vec!["The options of 7 connections can't be looked at: run it as root.".to_owned()],
    }
}

fn setting(name: &str, verdict: SettingVerdict) -> SettingRow {
    let (found, remedy) = match verdict {
        SettingVerdict::Costs => ("an accept queue was full 12 times", Some("raise it")),
        SettingVerdict::Clear => ("no send buffer was the limit", None),
        SettingVerdict::Unknown => ("looks do not show it", Some("a trace does")),
    };
    let remedy = remedy.map(ToOwned::to_owned);
    SettingRow {
        name: name.to_owned(),
        value: "4096 16384 4194304".to_owned(),
        verdict,
        found: found.to_owned(),
        remedy,
    }
}

fn published() -> PublishedRow {
    let figure = |figure: &str, unit, published: Option<f64>, here: Option<f64>| PublishedFigure {
        figure: figure.to_owned(),
        unit,
        published,
        published_in_words: published.is_none().then(|| "grows with their number".to_owned()),
        here,
    };
    PublishedRow {
        experiment: "A synthetic experiment".to_owned(),
        there: "two machines of then".to_owned(),
        here: "this machine, over loopback".to_owned(),
        figures: vec![
            figure("mean gap", FigureUnit::Ns, Some(56_073_000.0), Some(56_130_000.0)),
            figure("throughput", FigureUnit::Bps, Some(224_800.0), None),
            figure("late", FigureUnit::Share, Some(0.016), Some(0.0)),
            figure("100 active to 1", FigureUnit::Number, None, Some(0.92)),
        ],
        meaning: "It was the receiver's delayed ACK.".to_owned(),
        command: "taut pace --emulate-delack 56ms".to_owned(),
    }
}

fn check(what: &str, works: bool) -> CheckRow {
    CheckRow {
        what: what.to_owned(),
        works,
        needed_for: "taut pace, taut trace".to_owned(),
        found: if works { "software, all stages" } else { "none" }.to_owned(),
        remedy: (!works).then(|| "plug one in, or run `taut air` instead".to_owned()),
    }
}
