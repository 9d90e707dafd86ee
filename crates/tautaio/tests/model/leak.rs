//! What the process holds: it must not grow with the requests that went through.

use std::fs;
use std::time::{Duration, Instant};

/// Threads that the epoll engine has at most for files.
const FILE_THREADS: usize = 8;

/// Threads and descriptors are exact; memory may settle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) memory_kib: usize,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        let count = |directory: &str| fs::read_dir(directory).map_or(0, Iterator::count);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        Self { descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"), memory_kib: memory.unwrap_or(0) }
    }

    /// No more descriptors and threads than `before`, but for the epoll engine's threads for files, which stay once
    /// started. Threads of notifications take a moment to go. Without `exact`, others may have opened descriptors too.
    pub(crate) fn assert_settles_to(before: Self, exact: bool) {
        let begin = Instant::now();
        loop {
            let now = Self::now();
            let closed = !exact || now.descriptors <= before.descriptors;
            if closed && now.threads <= before.threads + FILE_THREADS {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "leak: {before:?} became {now:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
