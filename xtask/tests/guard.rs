//! What a run of tests has started does not outlive it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Processes that it starts, by their numbers, which it prints: one stays its child, one is of a session of its own.
const SCRIPT: &str = "setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000 & echo $!; wait";

fn start(mark: &str) -> (Child, Vec<u32>) {
    let mut command = Command::new("sh");
    let mut child = command.args(["-c", SCRIPT]).env("TAUT_TEST_RUN", mark).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(2);
    let started = lines.map(|line| line.unwrap().parse().unwrap()).collect();
    (child, started)
}

/// Whether it runs: one that was killed may wait for its parent to notice.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn what_is_marked_ends_with_the_run_and_nothing_else_does() {
    let own = format!("guarded-{}", std::process::id());
    let (mut inner, inner_started) = start(&format!("outer {own}"));
    let (mut other, other_started) = start(&format!("{own}1"));
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();

    let mut guard = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let mut guard = guard.args(["guard", &own]).arg(&scratch).stdin(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(inner_started.iter().all(|process| is_alive(*process)), "the run has not ended");
    // As when the run is killed.
    drop(guard.stdin.take());
    assert!(guard.wait().unwrap().success());

    let begin = Instant::now();
    while inner_started.iter().any(|process| is_alive(*process)) {
        assert!(begin.elapsed() < Duration::from_secs(30), "something is left: {inner_started:?}");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!inner.wait().unwrap().success());
    assert!(!scratch.exists());
    assert!(other_started.iter().all(|process| is_alive(*process)), "another's were ended");
    for process in other_started {
        assert!(Command::new("kill").arg(process.to_string()).status().unwrap().success());
    }
    other.wait().unwrap();
}
