//! Where segments were lost, and how soon they were acknowledged, against transfers whose truth is known.

use super::scene::Scene;
use super::transfer::{Transfer, Truth};
use crate::join::{Losses, Way, join};

fn told(transfer: &Transfer) -> (Way, Truth) {
    let (near, far, truth) = transfer.run();
    let found = join(&near, &far).unwrap();
    let turned = join(&far, &near).unwrap();
    // Which file is named first makes no difference.
    let [there, back] = [&found.there, &turned.back].map(|way| (&way.losses, &way.acknowledged));
    assert_eq!(there, back, "{transfer:?}");
    (found.there, truth)
}

fn counts(losses: &Losses) -> [u64; 5] {
    [losses.segments, losses.repeated, losses.between.segments, losses.beyond.segments, losses.needless.segments]
}

fn true_counts(truth: &Truth) -> [u64; 5] {
    [truth.segments, truth.repeated, truth.between, truth.beyond, truth.needless]
}

#[test]
fn the_side_of_each_loss_is_the_true_one() {
    let mut sums = [0; 5];
    for seed in 0..300 {
        let transfer = Transfer { is_v6: seed % 3 == 0, ..Transfer::random(seed) };
        let (way, truth) = told(&transfer);
        let (mut told, truths) = (counts(&way.losses), true_counts(&truth));
        if transfer.is_v6 && !transfer.has_timestamps {
            // Of two that look alike, nothing tells which one came through, nor where both files end alike.
            let untold = truths[0] - told[0];
            let is_near = |kind: usize| told[kind] <= truths[kind] && told[kind] + untold >= truths[kind];
            assert!(untold < 60 && is_near(2) && is_near(3), "seed {seed} {transfer:?}\n{:?}", way.losses);
            assert!(told[4] <= truths[4], "seed {seed} {transfer:?}\n{:?}", way.losses);
            told = truths;
        }
        assert_eq!(told, truths, "seed {seed} {transfer:?}\n{:?}", way.losses);
        assert_eq!(way.losses.beyond_or_needless.segments, 0);
        assert_eq!(way.losses.not_captured, [0; 2], "seed {seed} {transfer:?}");
        sums.iter_mut().zip(true_counts(&truth)).for_each(|(sum, count)| *sum += count);
    }
    // Each kind was there.
    assert!(sums.iter().all(|&sum| sum > 1000), "{sums:?}");
}

#[test]
fn each_acknowledgement_took_what_it_took() {
    for seed in 0..100 {
        let transfer = Transfer { lost: [0; 3], timeout: 10_000_000_000, ..Transfer::random(seed) };
        let (way, mut truth) = told(&transfer);
        let told = way.acknowledged;
        // The handshake took the other way's time.
        truth.delays.sort_unstable();
        assert_eq!(told.segments, truth.delays.len() as u64 + 1, "seed {seed}");
        assert!(told.most_ns >= truth.delays[200]);
        assert_eq!(told.least_ns, truth.delays[0].min(told.least_ns));
    }
}

/// Packets that a file lacks although they passed are not lost.
#[test]
fn holes_of_the_captures_are_not_losses() {
    let mut holes = [0; 2];
    for seed in 0..100 {
        let transfer = Transfer { lost: [0; 3], holes: [20, 30], timeout: 10_000_000_000, ..Transfer::random(seed) };
        let (way, truth) = told(&transfer);
        assert_eq!((way.losses.between.segments, way.losses.beyond.segments), (0, 0), "seed {seed} {:?}", way.losses);
        assert_eq!(way.losses.not_captured, truth.not_captured, "seed {seed}");
        holes = [0, 1].map(|place| holes[place] + truth.not_captured[place]);
    }
    assert!(holes.iter().all(|&count| count > 300), "{holes:?}");
    // With both, no loss is told that is none, but where a hole hides one transmission of several.
    for seed in 0..100 {
        let transfer = Transfer { holes: [5, 5], ..Transfer::random(seed) };
        let (way, truth) = told(&transfer);
        let doubt = truth.not_captured.iter().sum::<u64>();
        let losses = &way.losses;
        assert!(losses.between.segments.abs_diff(truth.between) <= doubt, "seed {seed} {losses:?} {truth:?}");
        assert!(losses.beyond.segments.abs_diff(truth.beyond) <= doubt, "seed {seed} {losses:?} {truth:?}");
    }
}

/// Without SACK a receiver does not say that it has something twice.
#[test]
fn what_the_receiver_does_not_tell_is_not_decided() {
    let mut undecided = 0;
    for seed in 0..100 {
        let (way, truth) = told(&Transfer { speaks_sack: false, ..Transfer::random(seed) });
        let losses = &way.losses;
        assert_eq!((losses.between.segments, losses.beyond.segments), (truth.between, 0), "seed {seed}");
        let told = losses.beyond_or_needless.segments;
        assert!(
            told >= truth.beyond && told + losses.needless.segments <= truth.beyond + truth.needless,
            "seed {seed}"
        );
        undecided += told;
    }
    assert!(undecided > 1000, "{undecided}");
}

#[test]
fn the_frames_are_those_of_the_lost_ones() {
    let transfer = Transfer { lost: [30, 0, 0], timeout: 200_000_000, most_delay: 0, ..Transfer::random(8) };
    let (near, far, _) = transfer.run();
    let losses = join(&near, &far).unwrap().there.losses;
    assert!(losses.between.segments >= 3, "{losses:?}");
    for lost in &losses.between.first {
        let mark = near.seen[lost.near_frame.unwrap() as usize - 1].mark;
        assert!(lost.far_frame.is_none() && far.seen.iter().all(|seen| seen.mark != mark), "{lost:?}");
    }
}

/// A device that cuts segments up changes nothing of what was lost, with and without marks of a repetition.
#[test]
fn segments_that_were_cut_up_are_counted_by_their_bytes() {
    for seed in 0..60 {
        let scene =
            Scene { pieces: 1 << (seed % 3), has_marks: seed % 2 == 0, lost_percent: 10, ..Scene::random(seed) };
        let (near, far) = scene.files();
        let found = join(&near, &far).unwrap();
        let of = |file: &crate::join::Sightings, is_request: bool| {
            file.seen.iter().filter(|seen| seen.is_from_first == is_request).count() as u64
        };
        let (there, back) = (&found.there.losses, &found.back.losses);
        for (told, near, far, is_request) in [(there, &near, &far, true), (back, &far, &near, false)] {
            let lost = of(near, is_request) - of(far, is_request) / u64::from(scene.pieces);
            // Before the first packet of which it is known which one it is there, and behind the last, nothing is told.
            let untold = of(near, is_request) - told.segments;
            assert!(untold < 10, "seed {seed} {untold}");
            assert!((lost - untold.min(lost)..=lost).contains(&told.between.segments), "seed {seed} {lost} {told:?}");
        }
        assert_eq!(there.beyond.segments + back.beyond.segments, 0, "seed {seed} {there:?} {back:?}");
    }
}

/// As a capture of all interfaces has them: IPv6 has no identification that would tell copies from repetitions.
#[test]
fn packets_of_ipv6_that_both_files_have_twice_are_one() {
    for seed in 0..60 {
        let once = Transfer { is_v6: true, has_timestamps: seed % 2 == 0, ..Transfer::random(seed) };
        let twice = Transfer { is_doubled: true, ..once.clone() };
        let files = [once.run(), twice.run()];
        let [once, twice] = files.map(|(near, far, _)| join(&near, &far).unwrap());
        // Of acknowledgements that look alike, and soon follow each other, the first one counts.
        assert!(once.matched_packets.abs_diff(twice.matched_packets) < 20, "seed {seed} {once:?} {twice:?}");
        assert_eq!(once.clock.offset_ns, twice.clock.offset_ns);
        assert_eq!(counts(&once.there.losses), counts(&twice.there.losses), "seed {seed}");
        let acknowledged = [&once, &twice].map(|joined| {
            let acknowledged = &joined.there.acknowledged;
            (acknowledged.segments, acknowledged.least_ns, acknowledged.most_ns)
        });
        assert_eq!(acknowledged[0], acknowledged[1], "seed {seed}");
    }
}
