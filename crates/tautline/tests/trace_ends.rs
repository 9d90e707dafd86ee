//! The programs that a trace has in the kernel: they go with the tracer, however it ends, and another tracer stays at
//! work. Where the kernel does not let this user trace, these are skipped.

mod support;
mod trace_support;

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use support::{is_root, skip};
use trace_support::loaded::{are_gone_soon, are_loaded, programs_of};
use trace_support::staged::Staged;
use trace_support::{Traced, found, may_trace, sent_to};

/// The programs of a tracer, which are in the kernel.
fn loaded_by(trace: &Traced) -> BTreeSet<u32> {
    let programs = programs_of(trace.id());
    // Without these five there is no trace.
    assert!(programs.len() >= 5, "{programs:?}");
    are_loaded(&programs);
    programs
}

/// Whether the test can run: root is told of programs.
fn can_run(test: &str) -> bool {
    if !is_root() {
        skip(test, "root is told which programs are in the kernel");
        return false;
    }
    may_trace(test)
}

#[test]
fn a_tracer_that_is_killed_leaves_no_program_in_the_kernel() {
    if !can_run("a_tracer_that_is_killed_leaves_no_program_in_the_kernel") {
        return;
    }
    let own = std::process::id().to_string();
    for what in [["--port", "9"], ["--pid", own.as_str()]] {
        let trace = Traced::of(&what);
        let programs = loaded_by(&trace);
        // By SIGKILL.
        drop(trace);
        are_gone_soon(&programs);
    }
}

#[test]
fn two_tracers_of_one_program_both_name_its_cause_and_one_goes_on_without_the_other() {
    if !can_run("two_tracers_of_one_program_both_name_its_cause_and_one_goes_on_without_the_other") {
        return;
    }
    let program = Staged::start("nagle");
    let pid = program.id().to_string();
    let [first, second] = [(); 2].map(|()| Traced::of(&["--pid", &pid]));
    let [of_first, of_second] = [&first, &second].map(loaded_by);
    assert!(of_first.is_disjoint(&of_second), "{of_first:?} {of_second:?}");
    sleep(Duration::from_secs(2));
    let first = first.finish();
    are_gone_soon(&of_first);
    are_loaded(&of_second);
    sleep(Duration::from_secs(2));
    let second = second.finish();
    let directions = [&first, &second].map(|document| sent_to(document, program.port));
    for direction in directions {
        assert_eq!(found(direction).first(), Some(&"nagle_delayed_ack"), "{direction:#}");
    }
    // Each of its requests takes two, and 50 ms.
    let [until_then, in_all] = directions.map(|direction: &Value| direction["writes"].as_u64().unwrap());
    assert!(until_then > 20 && in_all > until_then + 20, "{until_then} writes, then {in_all}");
}
