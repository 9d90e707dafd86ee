//! Which processor a thread runs on: on a small machine it matters more than anything else.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

/// Puts the calling thread on one processor, until the result is dropped. `None` leaves it where it is.
///
/// # Errors
/// There is no such processor, or it is not allowed to this process.
pub fn on_core(core: Option<usize>) -> Result<Option<Placed>> {
    let Some(core) = core else { return Ok(None) };
    let fail = |error| Error::Input(format!("processor {core} can't be used: {error}"));
    let before = sched_getaffinity(None).map_err(fail)?;
    pin(core).map_err(fail)?;
    Ok(Some(Placed { before }))
}

/// Puts the calling thread, and those that it starts, on one processor for good.
///
/// # Errors
/// As [`on_core`].
pub fn stay_on_core(core: usize) -> Result<()> {
    pin(core).map_err(|error| Error::Input(format!("processor {core} can't be used: {error}")))
}

/// Processors that the calling thread may use.
pub fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(None);
    set.map_or_else(|_| Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// A thread on its processor.
#[derive(Debug)]
#[must_use]
pub struct Placed {
    before: CpuSet,
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The set was in force before, so the kernel takes it unless the processors went away meanwhile.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn pin(core: usize) -> rustix::io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}
