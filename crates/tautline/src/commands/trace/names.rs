//! What traced processes are called.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use taut_source::trace::{Tracer, has_kernels_numbers};
use taut_time::Instant;

use crate::output;

/// For so long after it was met a process is looked at again: a shell that starts a program by exec(2) has its name
/// soon.
const YOUTH: Duration = Duration::from_secs(2);

/// Names of the processes met so far.
#[derive(Default)]
pub(super) struct Names {
    all: HashMap<u32, String>,
    /// Those met in the last seconds, and when.
    young: Vec<(u32, Instant)>,
}

impl Names {
    pub(super) fn learn(&mut self, tracer: &mut Tracer, now: Instant) {
        let new = tracer.take_new_processes();
        // The numbers are the kernel's, and another process may have one of them here.
        if has_kernels_numbers() {
            self.young.extend(new.into_iter().map(|pid| (pid, now)));
        }
        for &(pid, _) in &self.young {
            let name = named(pid.cast_signed());
            // One that is gone keeps the name that it had.
            if name != pid.to_string() || !self.all.contains_key(&pid) {
                self.all.insert(pid, name);
            }
        }
        self.young.retain(|(_, met)| now.saturating_since(*met) < YOUTH);
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = i32> {
        self.all.keys().map(|pid| pid.cast_signed())
    }

    pub(super) fn of(&self, pid: u32) -> String {
        self.all.get(&pid).cloned().unwrap_or_else(|| pid.to_string())
    }
}

/// `nginx (4711)`
pub(super) fn named(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = output::printable(String::from_utf8_lossy(&name).trim_end());
    if name.is_empty() { pid.to_string() } else { format!("{name} ({pid})") }
}
