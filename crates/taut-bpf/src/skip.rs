//! Tests that can't run on a host say so.

use std::fs::OpenOptions;
use std::io::Write;

/// Notes loudly that a test can't run here.
pub(crate) fn note(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    if let Some(path) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = OpenOptions::new().create(true).append(true).open(path).unwrap();
        // One write, so that lines of tests that run at once do not mix.
        log.write_all(format!("taut-bpf {test}: {reason}\n").as_bytes()).unwrap();
    }
}
