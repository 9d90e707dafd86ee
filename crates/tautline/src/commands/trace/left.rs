//! Processes that go on when the traced program has ended, as those of one that becomes a daemon.

use std::fs;

use taut_source::trace::{Tracer, has_kernels_numbers};

use super::names::named;

/// So many are told by name.
const NAMED: usize = 4;

/// What is said of them; nothing where there are none, or where they have other numbers than the kernel's.
pub(super) fn remark(tracer: &Tracer) -> Option<String> {
    if !has_kernels_numbers() {
        return None;
    }
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut left: Vec<i32> = numbers.filter(|&pid| tracer.follows(pid) && !has_ended(pid)).collect();
    left.sort_unstable();
    let (first, count) = (*left.first()?, left.len());
    let names: Vec<String> = left.iter().take(NAMED).map(|&pid| named(pid)).collect();
    let (processes, go) = if count == 1 { ("process", "goes") } else { ("processes", "go") };
    let more = if count > NAMED { ", …" } else { "" };
    Some(format!(
        "The program has ended, and {count} {processes} that it forked {go} on, as of a daemon: {}{more}. What they do \
         from here on is not in this trace; `taut trace --pid {first}` traces one.",
        names.join(", ")
    ))
}

/// Whether it is only still there for its parent to ask how it ended.
fn has_ended(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state comes behind the name, which may have anything in it.
    status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}
