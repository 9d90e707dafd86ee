//! What the tool and the host cost when nothing is measured.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use taut_link::{affinity, clock};
use taut_time::Duration;

use crate::engine::{EngineKind, overhead};
use taut_record::stats::{Distribution, Quantile};
use taut_record::{Floor, FloorRow};

/// Measures the floor in about a tenth of a second, for the head of every recording.
pub fn quick() -> Floor {
    clock::set_timer_slack(Duration::ZERO);
    let sleeps = sleep_lateness(50);
    let exchange = empty_exchange(2000, None).unwrap_or_default();
    let at = |times: &Distribution, q| times.quantile(q).and_then(Quantile::time).unwrap_or(0);
    Floor {
        clock_read_ns: clock_reads(2000).mean().unwrap_or(0),
        sleep_late_p50_ns: at(&sleeps, 0.5),
        sleep_late_p99_ns: at(&sleeps, 0.99),
        empty_exchange_p50_ns: at(&exchange, 0.5),
    }
}

/// Measures the floor in full, for `taut doctor`.
pub fn rows() -> Vec<FloorRow> {
    let row = |what: &str, times: Option<Distribution>, meaning: &str| {
        let times = times?;
        Some(FloorRow { what: what.to_owned(), ns: times.summary()?, meaning: meaning.to_owned() })
    };
    let on_a_thread = |prepare: fn() -> bool| {
        thread::spawn(move || prepare().then(|| sleep_lateness(300))).join().unwrap_or_default()
    };
    let cores = affinity::allowed_cores();
    let same = cores.first().map(|&core| (core, core));
    let other = cores.get(1).map(|&second| (cores[0], second));
    [
        row("read the clock", Some(clock_reads(100_000)), "every time in a recording costs one or two of these"),
        row(
            "sleep 1 ms, default timer slack: late by",
            on_a_thread(|| {
                clock::set_timer_slack(Duration::from_micros(50));
                true
            }),
            "how late a program that sets nothing wakes up",
        ),
        row(
            "sleep 1 ms, timer slack 1 ns: late by",
            on_a_thread(|| {
                clock::set_timer_slack(Duration::ZERO);
                true
            }),
            "how late our own sender wakes up: the error of every schedule",
        ),
        row(
            "sleep 1 ms, SCHED_FIFO: late by",
            on_a_thread(|| {
                clock::set_timer_slack(Duration::ZERO);
                clock::set_fifo_scheduling().is_ok()
            }),
            "the same with --fifo",
        ),
        row(
            "empty exchange, same core",
            same.and_then(|cores| empty_exchange(20_000, Some(cores))),
            "one byte there and back between two threads that sleep: a local round trip is shorter only by spinning",
        ),
        row(
            "empty exchange, two cores",
            other.and_then(|cores| empty_exchange(20_000, Some(cores))),
            "the same with a wake-up across cores",
        ),
    ]
    .into_iter()
    .flatten()
    .chain(engines())
    .collect()
}

/// What each engine costs by itself.
fn engines() -> impl Iterator<Item = FloorRow> {
    EngineKind::ALL.into_iter().filter(|kind| !kind.blocks()).filter_map(|kind| {
        let ns = overhead::of(kind, 2_000).ok()?.summary()?;
        let meaning = "of every message under this engine; blocking has no wait of its own".to_owned();
        Some(FloorRow { what: format!("wait with {kind} for what is there"), ns, meaning })
    })
}

fn clock_reads(count: u32) -> Distribution {
    const BATCH: u32 = 100;
    (0..count / BATCH)
        .map(|_| {
            let before = clock::now();
            for _ in 0..BATCH - 1 {
                std::hint::black_box(clock::now());
            }
            clock::now().saturating_since(before) / BATCH
        })
        .collect()
}

fn sleep_lateness(count: u32) -> Distribution {
    let mut next = clock::now();
    (0..count)
        .map(|_| {
            next = clock::now().max(next) + Duration::from_millis(1);
            clock::sleep_until(next);
            clock::now().saturating_since(next)
        })
        .collect()
}

/// Round trips of one byte over a socket pair between two threads, on the given processors.
fn empty_exchange(count: u32, cores: Option<(usize, usize)>) -> Option<Distribution> {
    let (mut here, mut there) = UnixStream::pair().ok()?;
    let echo = thread::spawn(move || {
        let _placed = affinity::on_core(cores.map(|(_, core)| core));
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let ask = thread::spawn(move || {
        let _placed = affinity::on_core(cores.map(|(core, _)| core));
        let mut byte = [0];
        let mut times = Distribution::new();
        for turn in 0..count + 100 {
            let before = clock::now();
            here.write_all(&byte).ok()?;
            here.read_exact(&mut byte).ok()?;
            if turn >= 100 {
                times.record(clock::now().saturating_since(before));
            }
        }
        Some(times)
    });
    let times = ask.join().ok().flatten();
    echo.join().ok()?;
    times
}
