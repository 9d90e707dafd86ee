//! `taut trace` of a program that leaves processes behind. Where the kernel lets nobody trace, it is skipped.

mod support;
mod trace_support;

use support::{parse, taut, text};
use trace_support::may_trace;

fn remarks(script: &str) -> String {
    let output = taut().args(["trace", "--json", "--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    parse(&output)["remarks"].to_string()
}

#[test]
fn what_a_program_leaves_behind_is_named() {
    if !may_trace("what_a_program_leaves_behind_is_named") {
        return;
    }
    // Each ends by itself.
    let of_daemon = remarks("sleep 2 </dev/null >/dev/null 2>&1 & sleep 0.3");
    assert!(of_daemon.contains("1 process that it forked goes on") && of_daemon.contains("sleep ("), "{of_daemon}");
    assert!(of_daemon.contains("taut trace --pid "), "{of_daemon}");
    let of_another = remarks("sleep 0.2 & wait");
    assert!(!of_another.contains("that it forked"), "{of_another}");
}
