//! What a descriptor whose number was another's a moment ago must do: just its own work.

use std::ffi::c_int;

use super::descriptor;
use super::operation::{Finished, Operation};
use super::round::Context;
use super::wait;

/// A few bytes through a pipe that has nothing in it; the read first, half of the time.
pub(crate) fn use_pipe(context: &mut Context<'_>, [reader, writer]: [c_int; 2]) {
    let length = context.random.between(1, 4096);
    let mut read = Operation::read(context, reader, length, 0, false);
    let mut write = Operation::write(context, writer, length, 0, false);
    if context.random.percent(50) {
        read.submit(context);
        write.submit(context);
    } else {
        write.submit(context);
        read.submit(context);
    }
    let (read, write) = (complete(context, read), complete(context, write));
    assert_eq!((write.outcome.error, write.outcome.value), (0, length as isize), "a write to a new pipe");
    assert_eq!(read.outcome.error, 0, "a read from a new pipe");
    let count = read.outcome.value.unsigned_abs();
    assert!(count > 0 && read.buffer.bytes()[..count] == write.buffer.bytes()[..count], "other bytes in a new pipe");
}

/// Waits for a request that surely completes.
pub(crate) fn complete(context: &mut Context<'_>, mut operation: Operation) -> Finished {
    for tries in 0_usize.. {
        if operation.is_ready(context) {
            break;
        }
        if tries > 3 {
            if context.random.percent(50) {
                wait::suspend(context, &[&operation], 1000);
            } else {
                descriptor::pause(50);
            }
        }
    }
    operation.finish(context)
}
