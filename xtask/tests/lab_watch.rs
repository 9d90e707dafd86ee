//! Grade 2 of `taut watch` on stock kernels: `crates/tautline/tests/watch_counted.rs` in a guest, in virtual time.

mod support;

use support::{Lab, test_program};

fn counts(test: &str, kernel: &str) {
    let Some(lab) = Lab::ready(test) else { return };
    let counted = format!("{}:/bin/watch-counted", test_program("watch_counted").display());
    let script = "TAUT_PROGRAM=$(command -v taut) TMPDIR=/tmp watch-counted --nocapture --test-threads 1 is_counted";
    let mut command = lab.command(&[
        "run",
        "--kernel",
        kernel,
        "--icount",
        "--memory",
        "1024",
        "--timeout",
        "20m",
        "--module",
        "tcp_diag",
    ]);
    let output = command.args(["--file", &counted, "--", "sh", "-c", script]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}{stderr}");
    let skipped = format!("{stdout}{stderr}").contains("SKIPPED");
    assert!(stdout.contains("ok. 3 passed; 0 failed") && !skipped, "{stdout}{stderr}");
}

#[test]
fn losses_are_counted_on_linux_5_10() {
    counts("losses_are_counted_on_linux_5_10", "5.10");
}

#[test]
fn losses_are_counted_on_linux_6_1() {
    counts("losses_are_counted_on_linux_6_1", "6.1");
}

#[test]
fn losses_are_counted_on_linux_6_12() {
    counts("losses_are_counted_on_linux_6_12", "6.12");
}
