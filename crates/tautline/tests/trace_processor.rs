//! `taut trace` on a reader that is ready to run and has no processor, and on the same reader that is let run. Where
//! the kernel does not let this user trace, or nobody may be let run before others, they are skipped.

#[path = "support/mod.rs"]
mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use support::{has, is_root, skip};
use trace_support::{Traced, has_gap, may_trace, verdict};

/// This thread runs on the first processor that it may have, with a priority of `SCHED_FIFO` unless that is 0.
fn pinned(priority: u8) {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
    if priority > 0 {
        let (priority, thread) = (priority.to_string(), gettid().as_raw_nonzero().to_string());
        let status = Command::new("chrt").args(["--fifo", "--pid", &priority, &thread]).status().unwrap();
        assert!(status.success());
    }
}

/// A reader beside another thread that has its processor for half of the time, 8 ms each, with priority 20; it gets 8
/// bytes every 10 ms. What the trace says of what it got.
fn beside_another(priority: u8) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::start(port);
    let is_over = AtomicBool::new(false);
    // Both have their priorities before anything is sent.
    let ready = Barrier::new(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            pinned(20);
            ready.wait();
            while !is_over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(8) {
                    std::hint::spin_loop();
                }
                sleep(Duration::from_millis(8));
            }
        });
        let reader = scope.spawn(|| {
            pinned(priority);
            ready.wait();
            let (mut stream, _) = listener.accept().unwrap();
            while stream.read(&mut [0; 4096]).unwrap() > 0 {}
        });
        // Before all others, so that it sends while the other one runs, too.
        scope.spawn(|| {
            pinned(40);
            ready.wait();
            let mut sender = TcpStream::connect(("127.0.0.1", port)).unwrap();
            sender.set_nodelay(true).unwrap();
            for _ in 0..100 {
                sender.write_all(&[1; 8]).unwrap();
                sleep(Duration::from_millis(10));
            }
        });
        reader.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
    let document = trace.finish();
    let end = format!(":{port}");
    let mut directions = document["worst"].as_array().unwrap().iter();
    let inward = directions.find(|one| one["is_outgoing"] == false && one["to"].as_str().unwrap().ends_with(&end));
    inward.unwrap_or_else(|| panic!("{document:#}")).clone()
}

fn share(direction: &Value, holder: &str) -> f64 {
    let mut held = direction["breakdown"].as_array().unwrap().iter();
    held.find(|held| held["holder"] == holder).map_or(0.0, |held| held["share"].as_f64().unwrap())
}

#[test]
fn a_reader_without_a_processor_is_told_from_one_that_does_not_read() {
    const NAME: &str = "a_reader_without_a_processor_is_told_from_one_that_does_not_read";
    if !may_trace(NAME) {
        return;
    }
    if !is_root() || !has("chrt") {
        return skip(NAME, "takes root and chrt(1), to let the reader run last or first");
    }
    let after = beside_another(0);
    assert_eq!(verdict(&after, "processor")["verdict"], "found", "{after:#}");
    // Half of the messages wait for 4 ms on average, so a fifth of the time.
    let waited = share(&after, "processor");
    assert!(waited > 0.1 && waited > 5.0 * share(&after, "receiving_program"), "{after:#}");
    // It is let run before the other one: the remedy, and the same in all else.
    let before = beside_another(30);
    let expected = if has_gap(&before) { "unknown" } else { "clear" };
    assert_eq!(verdict(&before, "processor")["verdict"], expected, "{before:#}");
    assert!(share(&before, "processor") < 0.01, "{before:#}");
}
