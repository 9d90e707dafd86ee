mod again;
mod holes;
mod rules;
mod scene;

use std::collections::HashMap;

use proptest::prelude::*;
use taut_event::Holder;
use taut_time::{ByteRange, Instant};

use super::super::why::NotJoined;
use super::{ClockReading, HostClock, JoinedDirection, JoinedTrace, TraceLog};
use crate::engine::drawn::{assert_has_no_gaps, assert_is_of};
use scene::{Scene, Seen, clock};

const ROUNDS: u64 = 20;

fn join_with(seen: &Seen, clock: Option<&HostClock>) -> Result<JoinedTrace, NotJoined> {
    let mut log = TraceLog::new(&seen.sightings, &seen.explanation, 10_000);
    seen.tell(&mut log);
    let programs = HashMap::from([(scene::THREAD, "python3 (4711)".to_owned())]);
    log.join(Instant::from_nanos(seen.end), clock, &programs)
}

fn joined(scene: &Scene) -> JoinedTrace {
    join_with(&scene.seen(), Some(&clock())).unwrap()
}

fn held(direction: &JoinedDirection, holder: Holder) -> u64 {
    direction.breakdown.iter().find(|held| held.holder == holder.name()).map_or(0, |held| held.held_ns)
}

/// The parts are the whole, whoever told them, and the picture is the breakdown.
fn adds_up(direction: &JoinedDirection) {
    let parts: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
    assert_eq!(parts, direction.span_ns, "{direction:#?}");
    let told = direction.told;
    assert_eq!(told.both_ns + told.trace_ns + told.capture_ns + told.nobody_ns, direction.span_ns, "{direction:#?}");
    let picture = direction.picture.as_ref().unwrap();
    assert_is_of(picture, &direction.breakdown, direction.span_ns);
    assert_has_no_gaps(picture);
    assert_eq!(picture.spans[0].begin_ns, direction.begin_ns);
}

#[test]
fn a_write_that_nagle_held_has_its_program_its_release_and_its_packets() {
    let joined = joined(&Scene::here(ROUNDS));
    assert_eq!((joined.connections, joined.matched_packets), (1, 5 * ROUNDS), "{joined:#?}");
    // Two processes of one machine: the true offset is none.
    assert!(joined.clock.offset_ns.unsigned_abs() <= joined.clock.uncertainty_ns, "{:?}", joined.clock);
    assert!(joined.clock.uncertainty_ns < 20_000 && !joined.is_by_time_of_day, "{:?}", joined.clock);
    let [direction] = &joined.directions[..] else { panic!("{joined:#?}") };
    adds_up(direction);
    assert_eq!((direction.sender.as_deref(), direction.receiver.as_deref()), (Some("python3 (4711)"), None));
    assert_eq!(direction.breakdown[0].holder, "nagle");
    // From the return of the second write to the acknowledgement of the first.
    let expected = ROUNDS * (scene::HELD - scene::SECOND_WRITTEN);
    assert!(held(direction, Holder::Nagle).abs_diff(expected) < ROUNDS * 60_000, "{direction:#?}");
    let longest = direction.longest.iter().find(|one| one.holder == "nagle").unwrap();
    assert_eq!(
        longest.seen,
        "python3 (4711) had written 48 bytes; let go by an ACK that the peer's delayed-ACK timer had sent."
    );
    // The first segment of its round, and the acknowledgement.
    let [before, after] = longest.frames;
    assert_eq!((before % 5, after), (1, before + 1), "{longest:?}");
}

#[test]
fn what_one_does_not_know_the_other_fills_in() {
    // The trace lost events of the fourth round.
    let scene = Scene { gap_in: Some(3), ..Scene::here(ROUNDS) };
    let (whole, with_gap) = (joined(&Scene::here(ROUNDS)), joined(&scene));
    let [whole, with_gap] = [&whole, &with_gap].map(|joined| &joined.directions[0]);
    adds_up(with_gap);
    assert!(with_gap.told.capture_ns > whole.told.capture_ns + 30_000_000, "{with_gap:#?}");
    assert!(held(with_gap, Holder::NotKnown) < 1_000_000, "{with_gap:#?}");
    assert!(held(with_gap, Holder::Nagle).abs_diff(held(whole, Holder::Nagle)) < 1_000_000, "{with_gap:#?}");
    assert!(with_gap.remarks.iter().any(|remark| remark.contains("Events were missed 1 time ")), "{with_gap:#?}");
}

#[test]
fn what_can_not_be_joined_says_why() {
    let here = Scene::here(ROUNDS);
    let why = |scene: &Scene| join_with(&scene.seen(), Some(&clock())).unwrap_err();
    assert_eq!(why(&Scene { other_port: true, ..here.clone() }), NotJoined::NoTcpInCommon);
    assert_eq!(why(&Scene { other_numbers: true, ..here.clone() }), NotJoined::OtherSegments);
    assert_eq!(join_with(&here.seen(), None).unwrap_err(), NotJoined::OldRecording);
    for step in [700_000_000, -120_000_000] {
        assert_eq!(why(&Scene { step, ..here.clone() }), NotJoined::ClockWasSet, "{step}");
    }
    let mut seen = here.seen();
    seen.explanation.clock_steps = 1;
    assert_eq!(join_with(&seen, Some(&clock())).unwrap_err(), NotJoined::ClockWasSet);
    // Times that no clock explains.
    assert_eq!(why(&Scene { is_shuffled: true, ..here }), NotJoined::NoEvenClock);
}

#[test]
fn few_packets_are_joined_by_the_time_of_day_unless_they_contradict_it() {
    let few = joined(&Scene::here(1));
    assert!(few.is_by_time_of_day && few.remarks[0].contains("Too few packets tell"), "{few:#?}");
    assert_eq!((few.clock.offset_ns, few.clock.uncertainty_ns), (0, 300));
    adds_up(&few.directions[0]);
    let elsewhere = Scene { offset: 5_000_000, ..Scene::here(1) };
    let why = join_with(&elsewhere.seen(), Some(&clock())).unwrap_err();
    assert_eq!(why, NotJoined::TooFew { common: 5 });
    let mut set = clock();
    set.end.time_of_day_ahead_ns += 2_000_000;
    assert!(matches!(join_with(&Scene::here(1).seen(), Some(&set)), Err(NotJoined::TooFew { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Wherever the capture was taken and whatever its clock shows.
    #[test]
    fn shifted_and_drifting_clocks_give_the_same_holders(
        offset in -1_i64 << 50..1 << 50,
        rate_ppm in -80.0..80.0_f64,
        way in 0..3_000_000_u64,
        seed: u64,
    ) {
        let here = joined(&Scene { way, seed, ..Scene::here(ROUNDS) });
        let there = joined(&Scene { offset, rate_ppm, way, seed, ..Scene::here(ROUNDS) });
        let scene = Scene { offset, rate_ppm, ..Scene::here(ROUNDS) };
        // The error holds the truth.
        let middle = ROUNDS * scene::ROUND / 2;
        let true_offset = -(scene.captured(middle) as i64).wrapping_sub(Scene::here(ROUNDS).captured(middle) as i64);
        let told = there.clock.offset_ns;
        // The middle of the packets is not that of the time.
        let moved = (rate_ppm.abs() * 1e-6 * scene::ROUND as f64) as u64 * 2;
        prop_assert!(told.abs_diff(true_offset) <= there.clock.uncertainty_ns + moved + 1, "{told} {true_offset} {there:#?}");
        let [here, there] = [&here, &there].map(|joined| &joined.directions[0]);
        adds_up(here);
        adds_up(there);
        let names = |direction: &JoinedDirection| -> Vec<String> {
            direction.breakdown.iter().filter(|held| held.share > 0.02).map(|held| held.holder.clone()).collect()
        };
        prop_assert_eq!(names(here), names(there));
        // The kernel tells how long Nagle's algorithm held; what is beyond is the clocks' rates.
        let [one, other] = [here, there].map(|direction| held(direction, Holder::Nagle));
        prop_assert!(one.abs_diff(other) < one / 1000 + ROUNDS * 40_000, "{one} {other}");
    }

    #[test]
    fn files_that_make_no_sense_do_no_harm(
        seed: u64,
        ahead in prop::array::uniform2(any::<i64>()),
        uncertainty_ns: u64,
        offset in -1_i64 << 60..1 << 60,
        moved in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<[u32; 2]>()), 0..40),
    ) {
        let mut seen = Scene { seed, offset, ..Scene::here(ROUNDS) }.seen();
        for (which, at, [from, length]) in moved {
            let which = which.index(seen.events.len());
            let event = &mut seen.events[which];
            event.at = Instant::from_nanos(at >> (which % 64));
            event.bytes = ByteRange::new(u64::from(from) << 31, (u64::from(from) << 31) + u64::from(length));
        }
        let reading = |ahead| ClockReading { at_ns: seed, time_of_day_ahead_ns: ahead, uncertainty_ns };
        let clock = HostClock { begin: reading(ahead[0]), end: reading(ahead[1]) };
        for clock in [clock, scene::clock()] {
            if let Ok(joined) = join_with(&seen, Some(&clock)) {
                joined.directions.iter().for_each(adds_up);
            }
        }
    }
}
