mod datagrams;
mod losses;
pub(super) mod scene;
mod transfer;

use taut_time::Instant;

use super::*;
use scene::{Random, Scene};

fn joined(scene: &Scene) -> Joined {
    let (near, far) = scene.files();
    join(&near, &far).unwrap()
}

/// Whether what is said of the clock is wrong by no more than is said, at any time of the packets it was made of.
fn holds(scene: &Scene) -> bool {
    let (near, far) = scene.files();
    let matches = Matches::between(&near, &far).unwrap();
    let stretches = Stretches::of(&near, &far, &matches).unwrap();
    let (best, fit) = stretches.longest();
    let is_right = |at: u64| (fit.ahead(at) - scene.ahead(at) as f64).abs() <= fit.uncertainty + 1.0;
    stretches.all[best].packets.iter().all(|placed| is_right(placed.point.at))
}

#[test]
fn the_error_of_the_offset_holds_in_all_of_200_random_cases() {
    let mut narrow = 0;
    for seed in 0..200 {
        let scene = Scene::random(seed);
        let found = joined(&scene);
        assert!(holds(&scene), "seed {seed}: {scene:?}\n{found:?}");
        let [least, most] = found.clock.rate_between_ppm;
        assert!((least..=most).contains(&scene.rate_ppm), "seed {seed}: {scene:?}\n{found:?}");
        assert!(found.matched_packets > 100, "seed {seed}: {found:?}");
        // The error is that of causality and not just large: about half a round trip.
        let half = (scene.there + scene.back) as f64 / 2.0;
        narrow += u64::from((found.clock.uncertainty_ns as f64) < 1.5 * half + 1e4);
    }
    assert!(narrow > 150, "{narrow}");
}

#[test]
fn the_map_takes_times_of_the_other_clock_to_the_reference() {
    for seed in 0..50 {
        let scene = Scene { delay_varies: false, ..Scene::random(seed) };
        let (near, far) = scene.files();
        let matches = Matches::between(&near, &far).unwrap();
        let stretches = Stretches::of(&near, &far, &matches).unwrap();
        let fit = stretches.longest().1;
        let map = fit.to_clock_map(Duration::from_nanos(1));
        for at in [scene.begin, scene.begin + scene.length / 3, scene.begin + scene.length] {
            let there = at.wrapping_add_signed(scene.ahead(at));
            let back = map.to_reference(Instant::from_nanos(there)).as_nanos();
            assert!(back.abs_diff(at) <= map.uncertainty.as_nanos() as u64 + 2, "seed {seed}: {back} {at} {map:?}");
        }
    }
}

#[test]
fn the_same_file_twice_is_one_place_and_no_offset() {
    let (near, _) = Scene::random(3).files();
    let found = join(&near, &near).unwrap();
    assert!(found.is_same_place);
    assert_eq!((found.clock.offset_ns, found.clock.least_round_trip_ns, found.clock.steps), (0, 0, 0));
    assert!(found.clock.uncertainty_ns < 100, "{found:?}");
}

#[test]
fn in_the_other_order_the_offset_has_the_other_sign() {
    let scene = Scene { rate_ppm: 0.0, ..Scene::random(5) };
    let (near, far) = scene.files();
    let (one, other) = (join(&near, &far).unwrap(), join(&far, &near).unwrap());
    assert!((one.clock.offset_ns + other.clock.offset_ns).abs() <= 4, "{one:?}{other:?}");
    assert_eq!(one.matched_packets, other.matched_packets);
    assert!(!one.is_same_place);
}

/// The way there takes three times as long as the way back: the offset is wrong by a quarter of the round trip,
/// and the error says so.
#[test]
fn a_path_that_is_not_symmetric_is_within_the_error() {
    let scene = Scene { there: 30_000_000, back: 10_000_000, rate_ppm: 0.0, ..Scene::random(9) };
    let found = joined(&scene);
    let wrong = found.clock.offset_ns.abs_diff(scene.ahead(scene.begin));
    assert!(wrong > 8_000_000 && wrong <= found.clock.uncertainty_ns, "{wrong} {found:?}");
}

#[test]
fn clocks_that_are_set_have_stretches_and_the_longest_counts() {
    for seed in 0..20 {
        let scene = Scene { step: Some((2, 3, 1_000_000_000)), rate_ppm: 0.0, ..Scene::random(seed) };
        let found = joined(&scene);
        assert_eq!(found.clock.steps, 1, "seed {seed} {found:?}");
        let wrong = found.clock.offset_ns.abs_diff(scene.offset);
        assert!(wrong <= found.clock.uncertainty_ns + 2, "seed {seed}: {wrong} {found:?}");
    }
}

#[test]
fn a_step_of_a_clock_is_no_time_of_the_receiver() {
    let (near, mut far) = Scene { lost_percent: 0, rate_ppm: 0.0, ..Scene::random(6) }.files();
    let whole = join(&near, &far).unwrap();
    let even = far.seen.clone();
    for (from, by) in (200..210).flat_map(|from| [(from, 1_000_000_000), (from, -1_000_000_000)]) {
        far.seen.clone_from(&even);
        far.seen[from..].iter_mut().for_each(|seen| seen.at = seen.at.wrapping_add_signed(by));
        for (joined, is_near) in [(join(&near, &far).unwrap(), true), (join(&far, &near).unwrap(), false)] {
            let of_far = if is_near { &joined.there } else { &joined.back };
            let [told, most] = [&of_far.acknowledged, &whole.there.acknowledged];
            assert_eq!(joined.clock.steps, 1, "{from} {by} {joined:?}");
            assert!(told.least_ns >= most.least_ns && told.most_ns <= most.most_ns, "{from} {by} {told:?} {most:?}");
            assert!(told.segments + 2 >= most.segments, "{from} {by} {told:?} {most:?}");
        }
    }
}

#[test]
fn addresses_that_were_translated_are_matched_by_numbers() {
    let scene = Scene { is_translated: true, ..Scene::random(11) };
    let found = joined(&scene);
    assert!(holds(&scene) && found.remarks.iter().any(|remark| remark.contains("NAT")), "{found:?}");
}

/// Without identification and timestamp a repetition looks like its original; where one of both is lost on the way,
/// nothing may be made of the other.
#[test]
fn a_repetition_is_never_taken_for_its_original() {
    for seed in 0..50 {
        let scene = Scene { lost_percent: 20, has_marks: false, ..Scene::random(seed) };
        let found = joined(&scene);
        assert!(holds(&scene), "seed {seed}: {scene:?}\n{found:?}");
        assert_eq!(found.clock.steps, 0, "seed {seed}: {found:?}");
    }
}

#[test]
fn segments_that_were_put_together_or_cut_up_are_the_same() {
    for seed in 0..20 {
        let scene = Scene { pieces: 4, ..Scene::random(seed) };
        let found = joined(&scene);
        assert!(holds(&scene), "seed {seed}: {scene:?}\n{found:?}");
    }
}

#[test]
fn what_can_not_be_joined_says_why() {
    let (near, far) = Scene::random(1).files();
    let (other, _) = Scene { port: 9, ..Scene::random(2) }.files();
    assert_eq!(join(&near, &other), Err(NotJoined::NothingInCommon));
    let (later, _) = Scene::random(2).files();
    assert_eq!(join(&near, &later), Err(NotJoined::OtherPackets));
    assert_eq!(join(&near, &Sightings::new()), Err(NotJoined::NothingInCommon));
    let one_way = near.only(|_, seen| seen.is_from_first);
    assert_eq!(join(&one_way, &far), Err(NotJoined::OneDirection));
    let few = |file: &Sightings| file.only(|number, _| number < 6);
    assert!(matches!(join(&few(&near), &few(&far)), Err(NotJoined::TooFew { .. })));
}

/// Whatever the numbers are, nothing panics, and no clock is made of noise without saying so.
#[test]
fn files_that_make_no_sense_do_no_harm() {
    let mut random = Random(77);
    for _ in 0..200 {
        let (mut near, mut far) = Scene::random(random.below(50)).files();
        for file in [&mut near, &mut far] {
            for _ in 0..random.below(40) {
                let number = random.below(file.seen.len() as u64) as usize;
                file.seen[number].at = random.next() >> random.below(64);
            }
        }
        if let Ok(found) = join(&near, &far) {
            assert!(found.clock.uncertainty_ns > 0);
        }
    }
}

/// One file only tells the round trip; two tell which way the queue is on.
#[test]
fn the_way_that_packets_wait_on_is_told() {
    let mut told = 0;
    for seed in 0..50 {
        let scene = Scene { delay_varies: false, queue_there: 60_000_000, lost_percent: 0, ..Scene::random(seed) };
        let (near, far) = scene.files();
        for (found, is_turned) in [(join(&near, &far).unwrap(), false), (join(&far, &near).unwrap(), true)] {
            let (with, without) = if is_turned { (&found.back, &found.there) } else { (&found.there, &found.back) };
            assert!(with.p99_beyond_ns.abs_diff(60_000_000) <= with.beyond_uncertainty_ns + 3000, "{seed} {found:?}");
            assert!(without.most_beyond_ns <= without.beyond_uncertainty_ns + 3000, "{seed} {found:?}");
            // Where the rate may be anything nobody knows.
            let is_known = with.beyond_uncertainty_ns < 25_000_000;
            assert!(with.has_the_queue(without) || !is_known, "{seed} {found:?}");
            assert!(!without.has_the_queue(with), "{seed} {found:?}");
            told += u64::from(is_known);
            let error = found.clock.uncertainty_ns + 3000;
            assert!(with.least_ns.unsigned_abs().abs_diff(scene.there) <= error, "{seed} {found:?}");
            assert!(without.least_ns.unsigned_abs().abs_diff(scene.back) <= error, "{seed} {found:?}");
            assert_eq!(with.packets + without.packets, found.matched_packets);
        }
    }
    assert!(told > 60, "{told}");
    // Both ways vary alike.
    let found = joined(&Scene { there: 1_000_000, back: 1_000_000, ..Scene::random(6) });
    assert!(!found.there.has_the_queue(&found.back) && !found.back.has_the_queue(&found.there), "{found:?}");
}

/// As a capture of all interfaces has them.
#[test]
fn packets_that_a_file_has_twice_are_one() {
    for seed in 0..20 {
        let scene = Scene::random(seed);
        let (near, far) = scene.files();
        let (once, twice) = (join(&near, &far).unwrap(), join(&near.doubled(10_000), &far).unwrap());
        assert_eq!((once.matched_packets, once.clock), (twice.matched_packets, twice.clock), "seed {seed}");
    }
}

#[test]
fn a_file_that_begins_later_is_joined_from_there_on() {
    let scene = Scene::random(21);
    let (near, far) = scene.files();
    let late = far.only(|number, _| number >= 150);
    let found = join(&near, &late).unwrap();
    assert!(found.matched_packets < joined(&scene).matched_packets - 100, "{found:?}");
    let wrong = |at| (found.clock.offset_ns - scene.ahead(at)).unsigned_abs();
    // In the middle of what is common, which is late in the scene.
    let nearest = (0..100).map(|part| wrong(scene.begin + scene.length / 100 * part)).min().unwrap();
    assert!(nearest <= found.clock.uncertainty_ns, "{nearest} {found:?}");
}

#[test]
fn clocks_that_are_set_all_the_time_are_refused() {
    let (near, mut far) = Scene { rate_ppm: 0.0, ..Scene::random(4) }.files();
    for (number, seen) in far.seen.iter_mut().enumerate() {
        seen.at += number as u64 / 10 * 3_000_000_000;
    }
    assert_eq!(join(&near, &far), Err(NotJoined::NoEvenClock));
}

/// Beyond 1000 ppm the error would be false; below, nothing that is possible is cut off.
#[test]
fn clocks_that_run_too_differently_are_refused_or_their_error_holds() {
    let mut counts = [0; 3];
    for seed in 0..10 {
        for rate_ppm in [900.0, 990.0, 1010.0, 1050.0, 1200.0, 2000.0, 5000.0, -1500.0] {
            let scene = Scene { rate_ppm, ..Scene::random(seed) };
            let (near, far) = scene.files();
            match join(&near, &far) {
                Err(NotJoined::Apart { ppm }) => {
                    assert!(ppm.abs() > 1000 && (ppm > 0) == (rate_ppm > 0.0), "{ppm} {scene:?}");
                    counts[0] += 1;
                }
                Err(other) => panic!("{other} {scene:?}"),
                Ok(found) if found.remarks.contains(&fit::open_rate()) => counts[1] += 1,
                Ok(found) => {
                    assert!(holds(&scene), "{scene:?}\n{found:?}");
                    counts[2] += 1;
                }
            }
        }
    }
    assert!(counts[0] > 30 && counts[2] > 5, "{counts:?}");
}
