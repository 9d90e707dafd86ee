//! Captures that begin late or lack packets: what is joined keeps its offset, and nothing is laid on a clock.

use taut_event::{Address, Release, SegmentFlags};
use taut_time::Instant;

use super::super::super::sightings::{Sighting, Sightings};
use super::super::super::tests::scene::Random;
use super::super::super::why::NotJoined;
use super::super::log::{Mark, Marked};
use super::super::pair::pair;
use super::scene::{Scene, clock};
use super::{JoinedTrace, ROUNDS, join_with};

/// Acknowledged before it is answered, so that the answer has the same number.
fn scenes() -> [Scene; 3] {
    let here = Scene { acknowledges_first: true, ..Scene::here(ROUNDS) };
    [here.clone(), Scene { is_numbered: false, ..here.clone() }, Scene { way: 3_000_000, ..here }]
}

fn without(scene: &Scene, is_missing: impl Fn(usize) -> bool) -> Result<JoinedTrace, NotJoined> {
    let mut seen = scene.seen();
    seen.sightings = seen.sightings.only(|number, _| !is_missing(number));
    join_with(&seen, Some(&clock()))
}

fn is_right(joined: &JoinedTrace) {
    assert!(!joined.is_by_time_of_day, "{joined:#?}");
    assert!(joined.clock.offset_ns.unsigned_abs() <= joined.clock.uncertainty_ns, "{:?}", joined.clock);
}

#[test]
fn no_packet_is_needed_by_itself() {
    for scene in scenes() {
        let whole = without(&scene, |_| false).unwrap();
        is_right(&whole);
        for missing in 0..scene.seen().sightings.seen.len() {
            let joined = without(&scene, |number| number == missing).unwrap_or_else(|why| panic!("{missing} {why}"));
            is_right(&joined);
            assert!(joined.clock.uncertainty_ns <= 8 * whole.clock.uncertainty_ns, "{missing} {joined:#?}");
        }
    }
}

#[test]
fn a_capture_may_begin_anywhere() {
    for scene in scenes() {
        let all = scene.seen().sightings.seen.len();
        for first in 0..all {
            match without(&scene, |number| number < first) {
                Ok(joined) => {
                    assert!(joined.is_by_time_of_day || joined.clock.uncertainty_ns < 10_000_000, "{joined:#?}")
                }
                Err(why) => assert!(
                    first + 20 > all
                        && matches!(why, NotJoined::TooFew { .. } | NotJoined::OneDirection | NotJoined::OtherSegments),
                    "{first} {why}"
                ),
            }
        }
    }
}

#[test]
fn packets_are_missing_at_random() {
    for scene in scenes() {
        for seed in 0..60 {
            let mut random = Random(seed);
            let lost: Vec<bool> = (0..1000).map(|_| random.below(100) < 1 + seed % 5).collect();
            is_right(&without(&scene, |number| lost[number]).unwrap_or_else(|why| panic!("{seed} {why}")));
        }
    }
}

/// Gigabytes, and the numbers come round and round: some bytes of one lap have the number of some of another.
#[test]
fn numbers_that_come_round_are_of_their_own_lap() {
    let address = |port| Address { ip: std::net::Ipv4Addr::new(10, 0, 0, 1).into(), port };
    let (client, server) = (address(4000), address(80));
    for first_captured in [0, 60, 130, 200] {
        let mut sightings = Sightings::new();
        sightings.set_resolution(1);
        let mut marks = Vec::new();
        let mut random = Random(9);
        // Counted on beyond 2^32.
        let mut byte = (1_u64 << 32) + 77;
        for number in 0..300_u64 {
            // Most segments of a lap stand where one of the lap before stood.
            let length = if number % 50 == 0 { (1 << 25) + random.below(1 << 25) } else { 1 << 26 };
            let at = 1_000_000_000 + number * 1_000_000;
            let mark =
                |at, what, from, to| Mark { at, flow: 0, connection: 0, is_first: false, what, from, to, thread: None };
            marks.push(mark(at, Marked::Left, byte, byte + length));
            marks.push(mark(at + 100_000, Marked::Acknowledged, byte, byte + length));
            marks.push(mark(at + 200_000, Marked::Released(Release::Unknown), byte, byte));
            let mut packet = |at, from, to, sequence, acknowledgement, payload, identification| {
                sightings.add(&Sighting {
                    at: Instant::from_nanos(at),
                    frame: number,
                    from,
                    to,
                    sequence,
                    acknowledgement,
                    flags: SegmentFlags(SegmentFlags::ACK),
                    payload,
                    window: 500,
                    identification: Some(identification),
                    timestamps: None,
                    sack: None,
                    permits_sack: false,
                });
            };
            if number >= first_captured {
                packet(at + 1000, client, server, byte as u32, 5, length as u32, (number * 9 + 1) as u16);
                packet(at + 90_000, server, client, 5, (byte + length) as u32, 0, number as u16 + 1);
            }
            byte += length;
        }
        let is_first = client <= server;
        marks.iter_mut().for_each(|mark| mark.is_first = is_first);
        let pairs = pair(&sightings, &marks, 0);
        assert!(pairs.events.len() as u64 >= 2 * (300 - first_captured) - 2, "{first_captured} {}", pairs.events.len());
        for found in &pairs.events {
            let ahead = marks[found.other as usize].at as i64 - sightings.seen[found.reference as usize].at as i64;
            assert!([-1000, 10_000].contains(&ahead), "{first_captured} {ahead}");
        }
    }
}
