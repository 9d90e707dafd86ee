//! A run without an end takes as much memory after a day as after a minute, as the allocator counts it.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use taut_record::stats::Distribution;
use taut_record::{Ended, FORMAT_VERSION, PlacementKind};
use taut_report::figures::{IntervalDocument, IntervalRow, IntervalSums, RowTimes, otlp, protobuf, text};

struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator; only the sum of lengths is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MINUTE: u64 = 60;
const DAY: u64 = 86_400;

/// `--every 1s` for a day in virtual time: the clock is a number. Intervals have other times each, some of them over
/// six decades and with a loss, and now and then their peer is away.
#[test]
fn a_day_of_seconds_takes_what_a_minute_takes() {
    let mut state = 42_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut drawn = |number: u64| {
        // To go through long times takes long, so few intervals have any.
        let decades = if number < 2 { 7 } else { 1 };
        let mut times = Distribution::new();
        for _ in 0..10 {
            times.record_ns(100 * 10_u64.pow((random() % decades) as u32) + random() % 500);
        }
        times.record_lost(u64::from(number == 0));
        let summary = times.summary();
        (times, summary)
    };
    let drawn: Vec<(Distribution, _)> = (0..100).map(&mut drawn).collect();
    let nothing = (Distribution::new(), None);
    // As a run has them: two endpoints, one of them with an open loop.
    let mut sums = IntervalSums::since(0);
    let mut after_a_minute = None;
    let mut messages = 0;
    for number in 0..DAY {
        let is_away = number % 1000 == 999;
        let (times, summary) = if is_away { &nothing } else { &drawn[(number % 100) as usize] };
        messages += times.messages();
        let row = |endpoint: &str| IntervalRow {
            endpoint: endpoint.to_owned(),
            engine: Some("epoll".to_owned()),
            placement: Some(PlacementKind::Free),
            complete: !is_away,
            messages: Some(times.messages()),
            lost: Some(times.lost()),
            rtt_ns: *summary,
            ..IntervalRow::default()
        };
        let ended = if is_away { Ended::PeerGone(format!("{number}")) } else { Ended::Complete };
        let document = IntervalDocument {
            format_version: FORMAT_VERSION,
            command: "echo".to_owned(),
            interval: number,
            began_unix_ns: number * 1_000_000_000,
            duration_ns: 1_000_000_000,
            ended,
            lines_lost: 0,
            results: vec![row("tcp://127.0.0.1:9100"), row("udp://127.0.0.1:9100")],
        };
        let closed = RowTimes { round_trip: Some(times), ..RowTimes::default() };
        sums.add(&document, &[closed, RowTimes { response: Some(times), ..closed }]);
        drop(document);
        if number == 0 || (number + 1) % (60 * MINUTE) == 0 || number + 1 == MINUTE {
            // All forms are written, and nothing of them stays.
            let forms = (text(&sums.families()), protobuf(&sums.families()), otlp(&sums.families(), sums.span()));
            assert!(forms.0.len() < 40_000 && forms.1.len() < 40_000 && forms.2.len() < 100_000);
        }
        let taken = TAKEN.load(Ordering::Relaxed);
        if number + 1 == MINUTE {
            after_a_minute = Some(taken);
        }
        let least = after_a_minute.unwrap_or(taken);
        assert_eq!(taken, least, "after {number} s");
    }
    let told = text(&sums.families());
    for line in [
        "taut_intervals_total 86400".to_owned(),
        "taut_failed_intervals_total 86".to_owned(),
        "taut_last_interval_end_timestamp_seconds 86400".to_owned(),
    ] {
        assert!(told.lines().any(|one| one == line), "{line}: {told}");
    }
    let counted = told
        .lines()
        .filter(|line| line.starts_with("taut_messages_total{"))
        .filter(|line| line.ends_with(&format!(" {messages}")));
    assert_eq!(counted.count(), 2, "{messages}: {told}");
}
