//! Which processor a thread runs on: on a small machine it matters more than anything else.

mod spot;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use taut_link::wire::Hello;
use taut_link::{Error, Result, is_this_boot};

pub use spot::{Spot, Wish, of_peers, of_threads};

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

/// Puts the calling thread, which serves a client, where that wants it, if it is of this boot. The
/// processor that the thread is bound to then, if it is to one.
pub(crate) fn for_client(hello: &Hello) -> Option<u16> {
    if let Some(core) =
        hello.core.map(usize::from).filter(|core| is_this_boot(hello.boot) && allowed_cores().contains(core))
    {
        // It was allowed a moment ago; what came of it is told below.
        let _ = pin(core);
    }
    bound_core(hello)
}

/// The processor that the calling thread is bound to, if it is to one; for clients of this boot only.
pub(crate) fn bound_core(hello: &Hello) -> Option<u16> {
    if !is_this_boot(hello.boot) {
        return None;
    }
    match allowed_cores()[..] {
        [only] => u16::try_from(only).ok(),
        _ => None,
    }
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
