//! Captures of UDP that are joined, and streams of numbered packets.

use serde_json::Value;

use crate::join;
use crate::packets::pcap;
use crate::packets::udp::{dns, quic, udp};
use crate::requests::{MS, explain, file};
use crate::support::{parse, taut, text};

/// Questions of DNS from a port each, and a stream of voice the other way; the far place is 0.4 ms away.
fn names_and_voice(is_far: bool, is_without: impl Fn(usize) -> bool) -> Vec<u8> {
    let begin = 1_700_000_000_000_000_000_u64;
    let ends = |port| ((std::net::Ipv4Addr::new(10, 0, 0, 5), port), (std::net::Ipv4Addr::new(10, 0, 0, 1), 53));
    let way: i64 = if is_far { 400_000 } else { 0 };
    let mut packets = Vec::new();
    for n in 0..20_u16 {
        let (at, name) = (begin + u64::from(n) * 100 * MS, format!("host{n}.example.com"));
        let (client, server) = ends(4000 + n);
        let [question, answer] = [false, true].map(|is_answer| dns(n, is_answer, &name, 1));
        packets.push((at.wrapping_add_signed(way), udp(client, server, &question)));
        packets.push((at.wrapping_add_signed(20 * MS as i64 - way), udp(server, client, &answer)));
        let voice = [&[0x80, 0, 0, n as u8][..], &[7; 168]].concat();
        packets.push((at.wrapping_add_signed(50 * MS as i64 - way), udp((server.0, 6000), (client.0, 6002), &voice)));
    }
    let kept: Vec<_> = packets.into_iter().enumerate().filter(|(number, _)| !is_without(*number)).collect();
    pcap(false, true, 101, &kept.into_iter().map(|(_, packet)| packet).collect::<Vec<_>>())
}

#[test]
fn captures_of_udp_are_joined_with_what_was_lost_between() {
    let directory = tempfile::tempdir().unwrap();
    // Of the questions one and its answer, of the stream one packet; the far file lacks a question that was answered.
    let near = file(directory.path(), "near.pcap", &names_and_voice(false, |number| [13, 32].contains(&number)));
    let far = file(directory.path(), "far.pcap", &names_and_voice(true, |number| [12, 13, 30].contains(&number)));
    let document = parse(&join(&[&near, &far], &["--join", "--json"]));
    let joined = &document["joined"][0];
    assert_eq!((&joined["connections"], &joined["matched_packets"]), (&0.into(), &56.into()), "{joined}");
    let [there, back] = ["there", "back"].map(|way| &joined[way]["datagrams"]);
    assert_eq!((&there["between"]["segments"], &there["datagrams"]), (&1.into(), &20.into()), "{there}");
    assert_eq!(there["not_captured"], serde_json::json!([0, 1]), "{there}");
    assert_eq!((&back["between"]["segments"], &back["datagrams"]), (&1.into(), &39.into()), "{back}");
    let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let told = text(&join(&[&near, &far], &[]).stdout);
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "by 56 packets of 20 flows of UDP that both have",
        "Of 20 datagrams of UDP on this way: 1 lost between near.pcap and far.pcap",
        "Not lost, but missing in the files: 0 datagrams that passed near.pcap, 1 datagram that passed far.pcap",
    ] {
        assert!(
            words.contains(
                &part.replace("near.pcap", &near.display().to_string()).replace("far.pcap", &far.display().to_string())
            ) || words.contains(part),
            "{part}\n{told}"
        );
    }
    assert!(told.lines().all(|line| line.chars().count() <= 100 || line.contains("/")), "{told}");
}

/// RTP beside what is none: drawn payloads, QUIC, DNS; and Tautline's own data.
#[test]
fn losses_of_numbered_streams_are_told_and_of_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let begin = 1_700_000_000_000_000_000_u64;
    let ends = |port| ((std::net::Ipv4Addr::new(10, 0, 0, 5), 4000), (std::net::Ipv4Addr::new(10, 0, 0, 1), port));
    let mut state = 1_u64;
    let mut drawn = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let mut packets = Vec::new();
    for n in 0..1000_u64 {
        let mut send = |port, payload: &[u8]| {
            let (from, to) = ends(port);
            packets.push((begin + n * 20 * MS + u64::from(port), udp(from, to, payload)));
        };
        let (number, stamp) = ((n as u16).to_be_bytes(), (n as u32 * 160).to_be_bytes());
        let rtp = [&[0x80, 0][..], &number, &stamp, &[0, 0, 0xab, 0xcd], &[0xd5; 160]].concat();
        // Beside it a report of RTCP now and then.
        let rtcp = [&[0x80, 200, 0, 6][..], &[0; 24]].concat();
        send(6000, if n % 100 == 50 { &rtcp } else { &rtp });
        send(7000, &[0; 100].map(|_: u8| drawn()));
        send(53, &dns(n as u16, false, "a.example.com", 1));
        send(443, &if n < 2 { quic(1, b"12345678") } else { [&[0x40][..], &[0; 60].map(|_: u8| drawn())].concat() });
        let mut own = [7; 64];
        taut_link::wire::data_header(&mut own, 99, n + n / 500);
        send(7900, &own);
    }
    let path = file(directory.path(), "streams.pcap", &pcap(false, true, 101, &packets));
    let output = explain(&path, &["--json", "--top", "20", "--fail-on", "stream_loss=1%"]);
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let worst = document["files"][0]["worst"].as_array().unwrap();
    let streams = |direction: &Value| direction["datagrams"]["streams"].as_array().cloned().unwrap_or_default();
    let told: Vec<Value> = worst.iter().flat_map(streams).collect();
    let mut protocols: Vec<_> = told
        .iter()
        .map(|stream| (stream["protocol"].as_str().unwrap(), stream["lost_packets"].as_u64().unwrap()))
        .collect();
    protocols.sort_unstable();
    assert_eq!(protocols, [("rtp", 10), ("tautline", 1)], "{told:?}");
    assert_eq!(worst.len(), 5);
    let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let full = text(&explain(&path, &["--full", "--top", "20"]).stdout);
    let words = full.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "FOUND stream_loss",
        "RTP SSRC 0x0000abcd, payload type 0: 10 of 1,000 packets lost (1.00 %) in 10 gaps, at most 1 in a row; jitter",
        "Tautline's session 0000000000000063: 1 of",
    ] {
        assert!(words.contains(part), "{part}\n{full}");
    }
}
