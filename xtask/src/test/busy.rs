//! A busy loop on each core: what a test that does not need a quiet machine has to stand.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The loops; they end when it is dropped.
pub(super) struct Busy {
    is_over: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts one on each core that this process may use, with usual priority.
    ///
    /// # Errors
    /// The kernel does not say which those are, or a thread can't be started.
    pub(super) fn on_each_core() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("cannot ask for the cores of this process")?;
        let mut busy = Self { is_over: Arc::default(), loops: Vec::new() };
        for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
            let is_over = Arc::clone(&busy.is_over);
            let work = move || {
                let mut this_one = CpuSet::new();
                this_one.set(core);
                // Without it the scheduler spreads them alike.
                let _ = sched_setaffinity(None, &this_one);
                while !is_over.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            };
            busy.loops.push(thread::Builder::new().spawn(work).context("cannot start a busy loop")?);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for busy in self.loops.drain(..) {
            // A loop does not panic.
            let _ = busy.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn each_core_is_kept_busy_until_the_end() {
        let used = || clock_gettime(ClockId::ProcessCPUTime);
        let nanoseconds = |before: rustix::time::Timespec| {
            let now = used();
            (now.tv_sec - before.tv_sec) * 1_000_000_000 + now.tv_nsec - before.tv_nsec
        };
        let before = used();
        let busy = Busy::on_each_core().unwrap();
        assert_eq!(busy.loops.len(), thread::available_parallelism().unwrap().get());
        let begin = Instant::now();
        // However much others take: it comes.
        while nanoseconds(before) < 50_000_000 {
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing is busy");
            thread::sleep(Duration::from_millis(10));
        }
        drop(busy);
        let after = used();
        thread::sleep(Duration::from_millis(100));
        assert!(nanoseconds(after) < 50_000_000, "something is still busy");
    }
}
