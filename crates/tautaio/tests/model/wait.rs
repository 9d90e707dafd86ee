//! `aio_suspend`, with what must hold when it returns.

use std::time::{Duration, Instant};

use super::ffi::{self, Aiocb};
use super::ledger;
use super::operation::Operation;
use super::round::Context;

/// Waits for some of these for at most this long.
pub(crate) fn suspend(context: &mut Context<'_>, operations: &[&Operation], microseconds: usize) {
    let chosen: Vec<&Operation> = operations.iter().copied().filter(|_| context.random.percent(70)).collect();
    let mut list: Vec<*const Aiocb> = Vec::new();
    for operation in &chosen {
        if context.random.percent(10) {
            list.push(std::ptr::null());
        }
        list.push(operation.pointer());
    }
    let complete = chosen.iter().any(|operation| operation.is_complete());
    let timeout = Duration::from_micros(microseconds as u64);
    let (handled, begin) = (ledger::handled(), Instant::now());
    match ffi::suspend(&list, Some(timeout), context.random.percent(50)) {
        Ok(()) => assert!(
            chosen.is_empty() || chosen.iter().any(|operation| operation.is_complete()),
            "aio_suspend = 0 with nothing complete"
        ),
        Err(libc::EAGAIN) => {
            assert!(!complete && !chosen.is_empty(), "aio_suspend timed out with something complete");
            assert!(begin.elapsed() >= timeout, "aio_suspend timed out after {:?} of {timeout:?}", begin.elapsed());
        }
        Err(libc::EINTR) => {
            assert!(!complete && !chosen.is_empty(), "aio_suspend was interrupted with something complete");
            assert_ne!(handled, ledger::handled(), "EINTR without a handler");
        }
        Err(other) => panic!("aio_suspend: errno {other}"),
    }
}
