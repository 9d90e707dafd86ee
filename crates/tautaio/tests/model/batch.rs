//! Submits requests one by one or as a list, in all the ways there are.

use std::sync::Arc;

use super::ffi::{self, Aiocb, Sigevent};
use super::ledger::{self, Notify};
use super::operation::{Kind, ListTicket, Operation, list_event};
use super::round::Context;

/// Submits all of them in order. `certain`: they complete without anybody's doing, so they may be waited for.
pub(crate) fn submit(context: &mut Context<'_>, operations: &mut [Operation], certain: bool) {
    let listable = operations.iter().all(|operation| operation.kind != Kind::Sync);
    if operations.is_empty() || !listable || context.random.percent(60) {
        for operation in operations {
            operation.submit(context);
        }
        return;
    }
    submit_list(context, operations, certain);
}

fn submit_list(context: &mut Context<'_>, operations: &mut [Operation], certain: bool) {
    let mut nop = Aiocb::empty();
    nop.opcode = libc::LIO_NOP;
    let mut invalid = Aiocb::empty();
    let is_invalid = context.random.percent(5);
    (invalid.opcode, invalid.fd) = (77, operations[0].fd);

    let mut list: Vec<*mut Aiocb> = Vec::new();
    for operation in operations.iter_mut() {
        if context.random.percent(10) {
            list.push(std::ptr::null_mut());
        }
        if context.random.percent(10) {
            list.push(&raw mut nop);
        }
        operation.is_submitted(context);
        list.push(operation.pointer());
    }
    if is_invalid {
        list.insert(context.random.below(list.len() + 1), &raw mut invalid);
    }

    let wide = context.random.percent(50);
    let waits = certain && context.random.percent(50);
    if waits {
        let handled = ledger::handled();
        let result = ffi::listio(libc::LIO_WAIT, &list, None, wide);
        match result {
            // The requests go on.
            Err(libc::EINTR) => assert_ne!(handled, ledger::handled(), "EINTR without a handler"),
            result => {
                let expected = if is_invalid { Err(libc::EIO) } else { Ok(()) };
                assert_eq!(result, expected, "lio_listio(LIO_WAIT)");
                for operation in operations.iter() {
                    assert!(operation.is_complete(), "after lio_listio(LIO_WAIT): {operation:?}");
                }
            }
        }
    } else {
        let notify = if context.random.percent(50) { context.notify() } else { Notify::Nothing };
        let mut event: Option<Sigevent> = context.random.percent(20).then(|| Sigevent::new(libc::SIGEV_NONE, 0, 0));
        if notify != Notify::Nothing {
            let (ticket, its_event) = list_event(notify);
            event = Some(its_event);
            let watched = operations.iter().map(|operation| operation.pointer().cast_const()).collect();
            let list = Arc::new(ListTicket::new(ticket, watched));
            for operation in operations.iter_mut() {
                operation.belongs_to(&list);
            }
        }
        let result = ffi::listio(libc::LIO_NOWAIT, &list, event.as_mut(), wide);
        assert_eq!(result, if is_invalid { Err(libc::EIO) } else { Ok(()) }, "lio_listio(LIO_NOWAIT)");
        // The library has its own copies.
        list.fill(std::ptr::without_provenance_mut(8));
        event = Some(Sigevent::new(-1, -1, u64::MAX));
        std::hint::black_box((&list, &event));
    }
    if is_invalid {
        assert_eq!(ffi::status(&invalid), libc::EINVAL, "aio_error of an entry with an invalid opcode");
    }
}
