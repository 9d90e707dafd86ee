//! Streams of RTP and of Tautline's own data, drawn with what is lost, overtaken and doubled.

use std::collections::HashSet;

use proptest::prelude::*;
use taut_event::{Content, Datagram, Direction as Way, Numbered, RtpClock};

use super::{MS, OTHER, Talk, found, verdict};
use crate::{Direction, StreamFacts, Verdict};

const MOST: u64 = 1 << 16;

fn rtp(ssrc: u32, sequence: u64, timestamp: u32, payload_type: u8) -> Datagram {
    let rtp = Some(RtpClock { timestamp, payload_type });
    let content = Content::Numbered(Numbered { stream: ssrc.into(), sequence: sequence % MOST, rtp });
    Datagram { first: Some(0x80), content, ..OTHER }
}

/// Voice of 20 ms in packets whose numbers and times are given.
fn voice(packets: impl IntoIterator<Item = (u64, u64)>, payload_type: u8, samples: u32) -> Direction {
    let mut talk = Talk::new();
    for (number, at) in packets {
        talk.say(at, Way::Forward, 172, rtp(0xabcd, number, (number as u32).wrapping_mul(samples), payload_type));
    }
    talk.forward()
}

fn streams(direction: &Direction) -> &[StreamFacts] {
    &direction.datagrams.as_ref().unwrap().streams
}

fn one(direction: &Direction) -> &StreamFacts {
    let [stream] = streams(direction) else { panic!("{:?}", streams(direction)) };
    stream
}

#[test]
fn lost_packets_of_rtp_are_found_with_their_gap() {
    let lost = [100..103, 200..201, 300..320].map(|range: std::ops::Range<u64>| range);
    let kept = (0..500).filter(|number| !lost.iter().any(|range| range.contains(number)));
    let direction = voice(kept.map(|number| (65_400 + number, number * 20 * MS)), 0, 160);
    let stream = one(&direction);
    assert_eq!((stream.protocol.as_str(), stream.id.as_str()), ("rtp", "0x0000abcd"));
    assert_eq!((stream.packets, stream.expected_packets, stream.lost_packets), (476, 500, 24));
    assert_eq!((stream.gaps, stream.most_lost_in_a_row, stream.longest_gap_ns), (3, 20, 420 * MS));
    assert_eq!((stream.longest_gap_frames, stream.frames), (Some([296, 297]), [1, 476]));
    assert_eq!((stream.clock_hz, stream.jitter_ns, stream.restarts), (Some(8000), Some(0), 0));
    assert_eq!(found(&direction)[0], "stream_loss");
    let Verdict::Found(found) = verdict(&direction, "stream_loss") else { panic!() };
    assert_eq!((found.cost.held_ns, found.cost.episodes), ((80 + 40 + 420) * MS, 3));
    assert!(found.summary.starts_with("24 of 500 packets (4.80 %)"), "{}", found.summary);
    // Nothing is lost where packets are overtaken only.
    let swapped = (0..500).map(|number| (number ^ 1, number * 20 * MS));
    let direction = voice(swapped, 111, 960);
    assert_eq!((one(&direction).lost_packets, one(&direction).gaps, one(&direction).overtaken), (0, 0, 250));
    assert_eq!((*verdict(&direction, "stream_loss") == Verdict::Clear, one(&direction).clock_hz), (true, Some(48_000)));
}

/// A speaker is silent for 4 s, and the packet before that is lost.
#[test]
fn a_silence_beside_a_lost_packet_is_no_outage() {
    let at = |number: u64| number * 20 * MS + if number >= 250 { 4_000 * MS } else { 0 };
    let stream =
        |lost: u64| voice((0..500).filter(|&number| number != lost).map(|number| (number, at(number))), 0, 160);
    for (lost, longest) in [(249, 80), (100, 40)] {
        let direction = stream(lost);
        assert_eq!((one(&direction).lost_packets, one(&direction).longest_gap_ns), (1, longest * MS), "{lost}");
    }
}

#[test]
fn a_stream_that_starts_anew_has_no_loss_for_that() {
    let numbers = (0..200).chain(30_000..30_200);
    let direction = voice(numbers.enumerate().map(|(place, number)| (number, place as u64 * 20 * MS)), 8, 160);
    assert_eq!((one(&direction).restarts, one(&direction).lost_packets, one(&direction).packets), (1, 0, 399));
    // It may have been an outage in which numbers and timestamps ran on.
    let outage = (0..2000).chain(5500..8000);
    for direction in [direction, voice(outage.map(|number| (number, number * 20 * MS)), 0, 160)] {
        let Verdict::Unknown { missing, ask } = verdict(&direction, "stream_loss") else { panic!("{direction:#?}") };
        assert!(missing.contains("began anew (1 ×)") && ask.contains("at the sender"), "{missing} {ask}");
    }
    let closer = (0..2000).chain(4900..8000);
    let direction = voice(closer.map(|number| (number, number * 20 * MS)), 0, 160);
    assert_eq!((one(&direction).lost_packets, found(&direction)[0]), (2900, "stream_loss"));
}

/// As one has them who draws payloads that begin with the same two bits.
#[test]
fn what_only_begins_like_rtp_is_none() {
    let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 29;
    let story = |datagram: &dyn Fn(u64) -> Datagram| {
        let mut talk = Talk::new();
        (0..5000).for_each(|n| talk.say(n * MS, Way::Forward, 100, datagram(n)));
        talk.forward()
    };
    // Everything drawn; the same SSRC; numbers that run on, and timestamps that do not.
    let all = story(&|n| rtp(noise(n) as u32, noise(n + 7), noise(n + 9) as u32, (noise(n) >> 40) as u8 & 63));
    let same = story(&|n| rtp(7, noise(n), noise(n + 9) as u32, 96));
    let jumps = story(&|n| rtp(7, n, noise(n + 9) as u32, 96));
    // A stream beside much more that is none.
    let few = story(&|n| if n % 4 == 0 { rtp(7, n / 4, n as u32, 96) } else { OTHER });
    for direction in [all, same, jumps, few] {
        assert!(streams(&direction).is_empty(), "{:?}", streams(&direction));
        assert!(direction.verdicts.iter().all(|on| on.cause != "stream_loss"));
    }
    assert_eq!(streams(&story(&|n| rtp(7, n, n as u32 * 8, 96))).len(), 1);
}

/// A header of another protocol, with a counter that others share and fields that stay as they are.
#[test]
fn where_timestamps_stand_still_there_is_no_stream() {
    for step in [1, 3, 5] {
        for timestamp in [0, 0x1122_3344] {
            let mut talk = Talk::new();
            (0..3000).for_each(|n| talk.say(n * 20 * MS, Way::Forward, 62, rtp(0, step * n, timestamp, 1)));
            let direction = talk.forward();
            assert!(streams(&direction).is_empty(), "{:?}", streams(&direction));
            assert!(direction.verdicts.iter().all(|on| on.cause != "stream_loss"));
        }
    }
    // All packets of a picture have one timestamp.
    let mut talk = Talk::new();
    (0..300).for_each(|n| talk.say(n * MS, Way::Forward, 1200, rtp(7, n, n as u32 / 100 * 3000, 96)));
    assert_eq!(one(&talk.forward()).lost_packets, 0);
}

#[test]
fn equal_gaps_at_every_turn_may_be_no_losses() {
    let counts_by = |step: u64| voice((0..1000).map(|n| (step * n, n * 20 * MS)), 96, 160);
    // Every second pair goes to another port; and one in twenty of what comes is lost besides.
    let pairs = voice((0..2000).filter(|n| n % 4 < 2).map(|n| (n, n * 20 * MS)), 0, 160);
    let lossy = voice((0..2000).filter(|n| n % 2 == 0 && n % 38 != 0).map(|n| (n, n * 20 * MS)), 0, 160);
    for direction in [counts_by(2), counts_by(5), pairs, lossy] {
        let Verdict::Unknown { missing, ask } = verdict(&direction, "stream_loss") else { panic!("{direction:#?}") };
        assert!(missing.contains("counts by one") && ask.contains("all that the sender sends"), "{missing} {ask}");
    }
    // As many lost by chance, and every tenth: these are losses.
    let chance = (0..2000_u64).filter(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 1 == 0);
    let tenth = (0..2000).filter(|n| n % 10 != 3);
    for direction in [voice(chance.map(|n| (n, n * 20 * MS)), 0, 160), voice(tenth.map(|n| (n, n * 20 * MS)), 0, 160)] {
        assert_eq!(found(&direction)[0], "stream_loss");
    }
    // One stream of each kind: what is lost of the other one is told.
    let mut talk = Talk::new();
    for n in 0..1000_u64 {
        talk.say(n * 20 * MS, Way::Forward, 172, rtp(1, 2 * n, n as u32 * 160, 0));
        if n % 10 != 3 {
            talk.say(n * 20 * MS + MS, Way::Forward, 172, rtp(2, n, n as u32 * 160, 0));
        }
    }
    let direction = talk.forward();
    let Verdict::Found(found) = verdict(&direction, "stream_loss") else { panic!("{direction:#?}") };
    assert!(found.summary.starts_with("100 of 1000 packets"), "{}", found.summary);
    assert!(found.evidence.iter().any(|seen| seen.text.starts_with("Not among them: 1 streams")), "{found:#?}");
}

#[test]
fn streams_beyond_eight_take_no_memory_and_are_counted() {
    let mut talk = Talk::new();
    for n in 0..4000_u64 {
        talk.say(n * MS, Way::Forward, 100, rtp(n as u32 % 20, n / 20, n as u32 * 8, 96));
    }
    let direction = talk.forward();
    assert_eq!(streams(&direction).len(), 8);
    assert!(
        direction.remarks.iter().any(|remark| remark.contains("beyond the first eight")),
        "{:?}",
        direction.remarks
    );
}

/// The ninth stream loses half, of which nothing is counted.
#[test]
fn what_streams_beyond_eight_lose_is_not_known() {
    let of = |streams: u64| {
        let mut talk = Talk::new();
        for n in 0..500 {
            for id in (0..streams).filter(|&id| id < 8 || n % 2 == 1) {
                talk.say(n * 20 * MS + id * 1000, Way::Forward, 172, rtp(id as u32, n, n as u32 * 160, 0));
            }
        }
        talk.forward()
    };
    let direction = of(9);
    let Verdict::Unknown { missing, ask } = verdict(&direction, "stream_loss") else { panic!("{direction:#?}") };
    assert!(missing.contains("250 packets, of streams beyond") && ask.contains("rtp.ssrc"), "{missing} {ask}");
    assert_eq!(*verdict(&of(8), "stream_loss"), Verdict::Clear);
}

#[test]
fn tautlines_own_numbers_are_told() {
    let mut talk = Talk::new();
    for sequence in (0..100_u64).filter(|number| number % 10 != 3) {
        let content = Content::Numbered(Numbered { stream: u64::MAX, sequence, rtp: None });
        talk.say(sequence * 10 * MS, Way::Forward, 64, Datagram { content, ..OTHER });
    }
    let direction = talk.forward();
    let stream = one(&direction);
    assert_eq!((stream.protocol.as_str(), stream.lost_packets, stream.gaps), ("tautline", 10, 10));
    assert_eq!((stream.jitter_ns, found(&direction)[0]), (None, "stream_loss"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Against sets of the numbers that came, and the jitter as RFC 3550 writes it.
    #[test]
    fn counts_and_jitter_are_those_of_the_definitions(
        first in 0..MOST,
        fates in prop::collection::vec((0..100_u8, 0..15_u64), 200..400),
    ) {
        let mut sent: Vec<(u64, u64)> = Vec::new();
        for (place, (fate, late)) in fates.iter().enumerate() {
            let at = (place as u64 * 20 + late) * MS;
            let is_edge = place < 2 || place + 2 >= fates.len();
            match fate {
                0..10 if !is_edge => {}
                10..15 => sent.extend([(first + place as u64, at), (first + place as u64, at + 30 * MS)]),
                15..20 => sent.push((first + place as u64, at + 70 * MS)),
                _ => sent.push((first + place as u64, at)),
            }
        }
        sent.sort_by_key(|(_, at)| *at);
        let direction = voice(sent.iter().copied(), 0, 160);
        let stream = one(&direction);
        let come: HashSet<u64> = sent.iter().map(|(number, _)| *number).collect();
        let (least, most) = (come.iter().min().unwrap(), come.iter().max().unwrap());
        prop_assert_eq!(stream.packets, come.len() as u64);
        prop_assert_eq!(stream.expected_packets, most - least + 1);
        prop_assert_eq!(stream.lost_packets, most - least + 1 - come.len() as u64);
        prop_assert_eq!(stream.duplicates, (sent.len() - come.len()) as u64);
        let (mut known, mut highest, mut overtaken) = (HashSet::new(), 0, 0);
        let (mut jitter, mut before) = (0.0_f64, None);
        for &(number, at) in &sent {
            if !known.insert(number) {
                continue;
            }
            overtaken += u64::from(number < highest);
            highest = highest.max(number);
            let transit = at as f64 / 1e9 * 8000.0 - number as f64 * 160.0;
            if let Some(before) = before.replace(transit) {
                let off: f64 = transit - before;
                jitter += (off.abs() - jitter) / 16.0;
            }
        }
        prop_assert_eq!(stream.overtaken, overtaken);
        let told = stream.jitter_ns.unwrap() as f64;
        prop_assert!((told - jitter / 8000.0 * 1e9).abs() < 1000.0, "{} {}", told, jitter);
        let runs = (*least..*most).filter(|number| come.contains(number) && !come.contains(&(number + 1))).count();
        prop_assert!(stream.gaps <= runs as u64 && (stream.gaps > 0) == (stream.lost_packets > 0));
    }
}
