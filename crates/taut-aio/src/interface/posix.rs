//! The functions of `<aio.h>`, as POSIX.1-2017 has them, and FreeBSD's aio_waitcomplete(2).
//!
//! They give what the C functions give and set `errno`. What POSIX leaves open is decided as tautaio(3) says.
#![expect(unsafe_code, reason = "the C interface hands out pointers")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::time::Duration;

use crate::interface::control_block::{ControlBlock, SigEvent};
use crate::lockfree::announcement::{Announcement, Wait};
use crate::service::command::Request;
use crate::service::{self, Shared, Task};
use crate::sync::atomic::Ordering;
use crate::system::{self, Deadline};
use crate::system::{file, futex};
use crate::worker::cancel::ALL_DONE;
use crate::worker::notice::{self, NOTIFY_QUEUE, Notice};
use crate::worker::order::Kind;

/// `AIO_PRIO_DELTA_MAX` (sysconf(3)): the least priority. Priorities are accepted and make no difference.
const LOWEST_PRIORITY: c_int = 20;

fn fail(errno: c_int) -> c_int {
    system::set_errno(errno);
    -1
}

/// aio_read(3).
///
/// # Safety
/// `block` is null or a control block that stays, with its buffer, untouched until the operation is complete.
pub unsafe fn aio_read(block: *mut ControlBlock) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { submit_one(block, Kind::Read) }
}

/// aio_write(3).
///
/// # Safety
/// As for [`aio_read`].
pub unsafe fn aio_write(block: *mut ControlBlock) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { submit_one(block, Kind::Write) }
}

/// aio_fsync(3).
///
/// # Safety
/// As for [`aio_read`].
pub unsafe fn aio_fsync(how: c_int, block: *mut ControlBlock) -> c_int {
    let kind = match how {
        libc::O_SYNC => Kind::Sync,
        libc::O_DSYNC => Kind::DataSync,
        _ => return fail(libc::EINVAL),
    };
    if block.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let fd = unsafe { (*block).fd };
    match file::look(fd) {
        // It need not be open for writing: others may have written (POSIX, aio_fsync).
        Ok(meaning) if meaning.kind.can_be_synchronised() => {}
        Ok(_) => return fail(libc::EINVAL),
        Err(_) => return fail(libc::EBADF),
    }
    // SAFETY: the caller's promise.
    unsafe { submit_one(block, kind) }
}

/// aio_error(3): async-signal-safe.
///
/// # Safety
/// `block` is null or a control block.
pub unsafe fn aio_error(block: *const ControlBlock) -> c_int {
    // SAFETY: the caller's promise.
    let Some(block) = (unsafe { block.as_ref() }) else { return fail(libc::EINVAL) };
    match block.error() {
        // In the child of a fork, an operation of the parent: not inherited (POSIX, fork).
        libc::EINPROGRESS if service::shared().epoch() > 0 && !block.is_ours(service::shared().epoch()) => {
            libc::ECANCELED
        }
        libc::EINPROGRESS => {
            service::shared().polled(block);
            libc::EINPROGRESS
        }
        error => error,
    }
}

/// aio_return(3): async-signal-safe.
///
/// # Safety
/// `block` is null or a control block.
pub unsafe fn aio_return(block: *mut ControlBlock) -> isize {
    // SAFETY: the caller's promise.
    let Some(block) = (unsafe { block.as_ref() }) else { return fail(libc::EINVAL) as isize };
    let error = block.error();
    if error == libc::EINPROGRESS {
        return fail(libc::EINVAL) as isize;
    }
    if let Some(queue) = service::shared().queue() {
        queue.completions().strike_out(block.position(), ptr::from_ref(block) as usize);
    }
    let result = block.result();
    if result == -1 && error != 0 {
        system::set_errno(error);
    }
    result
}

/// aio_cancel(3).
///
/// # Safety
/// `block` is null or a control block.
pub unsafe fn aio_cancel(fd: c_int, block: *mut ControlBlock) -> c_int {
    if !system::is_open(fd) {
        return fail(libc::EBADF);
    }
    let shared = service::shared();
    // SAFETY: the caller's promise.
    match unsafe { block.as_ref() } {
        Some(block) if block.fd != fd => return fail(libc::EINVAL),
        Some(block) if !block.is_in_flight(shared.epoch()) => return ALL_DONE,
        None if !shared.in_flight.any(fd) => return ALL_DONE,
        _ => {}
    }
    if !shared.runs_here() {
        return ALL_DONE;
    }
    shared.ask(Request::Cancel { fd, block: block as usize, issued: !shared.cancels_strictly() })
}

/// aio_suspend(3): async-signal-safe.
///
/// # Safety
/// `list` has `length` entries, each null or a control block; `timeout` is null or valid.
pub unsafe fn aio_suspend(list: *const *const ControlBlock, length: c_int, timeout: *const libc::timespec) -> c_int {
    // SAFETY: the caller's promise.
    let Some(list) = (unsafe { entries(list, length) }) else { return fail(libc::EINVAL) };
    // SAFETY: the caller's promise.
    let deadline = match unsafe { deadline(timeout) } {
        Ok(deadline) => deadline,
        Err(errno) => return fail(errno),
    };
    let one_is_done = || {
        let mut any = false;
        for &block in list.iter().filter(|block| !block.is_null()) {
            any = true;
            // SAFETY: the caller's promise.
            if unsafe { aio_error(block) } != libc::EINPROGRESS {
                return Some(());
            }
        }
        // Nothing to wait for, as glibc has it.
        (!any).then_some(())
    };
    let suspended = &service::shared().suspended;
    let sleep = |word: &_, value| {
        futex::sleep_cancelably(word, value, deadline, leave, ptr::from_ref(suspended).cast_mut().cast())
    };
    match suspended.wait(one_is_done, sleep) {
        Ok(()) => 0,
        Err(Wait::Interrupted) => fail(libc::EINTR),
        Err(_) => fail(libc::EAGAIN),
    }
}

/// A thread is cancelled while it waits for this announcement.
extern "C" fn leave(announcement: *mut c_void) {
    // SAFETY: handed over as such; it is static.
    unsafe { &*announcement.cast::<Announcement>() }.leave();
}

/// lio_listio(3).
///
/// # Safety
/// `list` has `length` entries, each null or as for [`aio_read`]; `event` is null or valid.
pub unsafe fn lio_listio(mode: c_int, list: *const *mut ControlBlock, length: c_int, event: *const SigEvent) -> c_int {
    // SAFETY: the caller's promise.
    let Some(list) = (unsafe { entries(list.cast::<*const ControlBlock>(), length) }) else {
        return fail(libc::EINVAL);
    };
    if mode != libc::LIO_WAIT && mode != libc::LIO_NOWAIT {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let event = unsafe { event.as_ref() }.filter(|event| mode == libc::LIO_NOWAIT && event.notify != libc::SIGEV_NONE);
    if event.is_some_and(|event| notice::check(event).is_err()) {
        return fail(libc::EINVAL);
    }
    let shared = match service::started() {
        Ok(shared) => shared,
        Err(errno) => return fail(errno),
    };
    // SAFETY: the caller's promise.
    let all_taken = unsafe { submit_list(shared, list, event) };
    if mode == libc::LIO_NOWAIT {
        return if all_taken { 0 } else { fail(libc::EIO) };
    }
    // SAFETY: the caller's promise.
    let errors = || list.iter().filter(|block| !block.is_null()).map(|&block| unsafe { aio_error(block) });
    let all_done = || errors().all(|error| error != libc::EINPROGRESS).then_some(());
    let waited = shared.suspended.wait(all_done, |word, value| futex::sleep(word, value, Deadline::NEVER));
    match waited {
        Err(_) => fail(libc::EINTR),
        Ok(()) if !all_taken || errors().any(|error| error != 0) => fail(libc::EIO),
        Ok(()) => 0,
    }
}

/// aio_init(3), a GNU extension: starts the library. There is no pool to size.
pub fn aio_init() {
    // What goes wrong comes up with the first operation.
    let _ = service::started();
}

/// aio_waitcomplete(2) of FreeBSD: the oldest request that is complete and not collected.
///
/// # Safety
/// `block` is null or a place for an address; `timeout` is null or valid.
pub unsafe fn aio_waitcomplete(block: *mut *mut ControlBlock, timeout: *const libc::timespec) -> isize {
    // SAFETY: the caller's promise.
    let set = |address: usize| unsafe {
        if !block.is_null() {
            *block = address as *mut ControlBlock;
        }
    };
    set(0);
    // SAFETY: the caller's promise.
    let deadline = match unsafe { deadline(timeout) } {
        Ok(deadline) => deadline,
        Err(errno) => return fail(errno) as isize,
    };
    let shared = match service::started() {
        Ok(shared) => shared,
        Err(errno) => return fail(errno) as isize,
    };
    let Some(queue) = shared.queue() else { return fail(libc::EAGAIN) as isize };
    match queue.wait(deadline) {
        Ok(completed) => {
            set(completed.request);
            if completed.result < 0 { fail(-completed.result as c_int) as isize } else { completed.result }
        }
        Err(Wait::Interrupted) => fail(libc::EINTR) as isize,
        Err(_) => fail(libc::EAGAIN) as isize,
    }
}

/// An eventfd that becomes readable when requests are complete, for programs that wait with poll(2). The library's.
pub fn completion_fd() -> c_int {
    let shared = match service::started() {
        Ok(shared) => shared,
        Err(errno) => return fail(errno),
    };
    let Some(queue) = shared.queue() else { return fail(libc::EAGAIN) };
    queue.event_fd(&shared.own).unwrap_or_else(fail)
}

/// Cancels what is in flight on a descriptor that is about to be closed: `close` must not leave
/// reads behind that keep the connection open (as musl has it). Without io_uring, what can't be
/// canceled is waited for: the number may mean another file afterwards. Async-signal-safe.
pub fn before_close(fd: c_int) {
    let shared = service::shared();
    // The I/O thread closes what is its own, by whatever way: it can't wait for itself.
    if shared.in_flight.any(fd) && !shared.is_io_thread() && shared.runs_here() {
        shared.ask(Request::Close { fd });
    }
}

/// [`before_close`] for all descriptors from `first` to `last`.
pub fn before_close_range(first: c_uint, last: c_uint) {
    let shared = service::shared();
    if shared.runs_here() {
        shared.in_flight.among(first, last).for_each(before_close);
    }
}

/// Whether a descriptor is the library's own, which the application must not close.
pub fn is_own_descriptor(fd: c_int) -> bool {
    service::shared().own.contains(fd) && service::shared().runs_here()
}

/// The library's own descriptors from this number on, the lowest first.
pub fn own_descriptors(from: c_uint) -> impl Iterator<Item = c_uint> {
    let next = |from| service::shared().own.next(from).and_then(|fd| c_uint::try_from(fd).ok());
    let first = if service::shared().runs_here() { next(from) } else { None };
    std::iter::successors(first, move |&fd| next(fd + 1))
}

/// Submits with an event that only the safe face may use.
///
/// # Safety
/// As for [`aio_read`]; a queue in the event has its count raised.
pub(crate) unsafe fn submit_from_face(block: *mut ControlBlock, kind: Kind) -> Result<(), c_int> {
    let shared = service::started()?;
    // SAFETY: the caller's promise.
    unsafe {
        check(block, kind, shared)?;
        hand_over(shared, block, kind);
    }
    Ok(())
}

unsafe fn submit_one(block: *mut ControlBlock, kind: Kind) -> c_int {
    if block.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: not null, and the caller's promise.
    let submitted = unsafe {
        notice::check(&(*block).event).and_then(|()| service::started()).and_then(|shared| {
            check(block, kind, shared)?;
            hand_over(shared, block, kind);
            Ok(())
        })
    };
    submitted.map_or_else(fail, |()| 0)
}

/// Checks what POSIX lets the call itself refuse, but for the event.
unsafe fn check(block: *mut ControlBlock, kind: Kind, shared: &Shared) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let block = unsafe { &*block };
    // A synchronisation ignores all but the descriptor and the event (POSIX, aio_fsync).
    let transfer = (0..=LOWEST_PRIORITY).contains(&block.priority) && isize::try_from(block.length).is_ok();
    let valid = (transfer || !kind.moves_data())
        // POSIX leaves it undefined. Refused, the first operation goes on unharmed.
        && !block.is_in_flight(shared.epoch());
    if valid { Ok(()) } else { Err(libc::EINVAL) }
}

unsafe fn hand_over(shared: &Shared, block: *mut ControlBlock, kind: Kind) {
    // SAFETY: the caller's promise.
    unsafe {
        let epoch = begin(shared, block, Task::new(kind));
        shared.submit(block, block, epoch);
    }
    service::mind_fork();
}

/// Counts an operation and marks its block.
unsafe fn begin(shared: &Shared, block: *mut ControlBlock, task: Task) -> u32 {
    let errno = system::errno();
    // Before all else: when a signal handler forks meanwhile, the child has nothing of this but a
    // block that is canceled.
    let epoch = shared.epoch();
    // SAFETY: the caller's promise.
    unsafe {
        let fd = (*block).fd;
        shared.in_flight.enter(fd);
        ControlBlock::begin(block, task.word(), shared.find_target(fd, epoch), epoch);
    }
    system::set_errno(errno);
    epoch
}

/// Submits what can be of a list, at once; gives whether that was all of it.
unsafe fn submit_list(shared: &Shared, list: &[*const ControlBlock], event: Option<&SigEvent>) -> bool {
    let mut all_taken = true;
    let mut bottom: *mut ControlBlock = ptr::null_mut();
    let mut top: *mut ControlBlock = ptr::null_mut();
    let mut length = 0;
    let mut epoch = shared.epoch();
    for block in list.iter().map(|block| block.cast_mut()).filter(|block| !block.is_null()) {
        // SAFETY: the caller's promise.
        unsafe {
            let kind = match (*block).opcode {
                libc::LIO_READ => Kind::Read,
                libc::LIO_WRITE => Kind::Write,
                libc::LIO_NOP => continue,
                _ => {
                    all_taken = false;
                    ControlBlock::refuse(block, libc::EINVAL, shared.epoch());
                    continue;
                }
            };
            if notice::check(&(*block).event).and_then(|()| check(block, kind, shared)).is_err() {
                all_taken = false;
                ControlBlock::refuse(block, libc::EINVAL, shared.epoch());
                continue;
            }
            let begun_in = begin(shared, block, Task { kind, in_list: event.is_some() });
            if begun_in != epoch {
                // A signal handler has forked, and this is the child: those before are canceled.
                (epoch, length, bottom, top) = (begun_in, 0, ptr::null_mut(), ptr::null_mut());
            }
            if bottom.is_null() {
                bottom = block;
            } else {
                (*block).link.store(top as usize, Ordering::Relaxed);
            }
            top = block;
        }
        length += 1;
    }
    if top.is_null() {
        if let Some(event) = event {
            // Nothing to wait for: it is complete.
            shared.ask(Request::Deliver(Notice::new(&event.into(), 0)));
        }
        return all_taken;
    }
    if let Some(event) = event {
        let list = shared.ask(Request::List { length, event: event.into() });
        let mut block = top;
        while !block.is_null() {
            // SAFETY: linked above; the I/O thread has none of them yet.
            unsafe {
                (*block).list = list.cast_unsigned();
                let is_last = ptr::eq(block, bottom);
                block =
                    if is_last { ptr::null_mut() } else { (*block).link.load(Ordering::Relaxed) as *mut ControlBlock };
            }
        }
    }
    // SAFETY: linked above.
    unsafe { shared.submit(top, bottom, epoch) };
    service::mind_fork();
    all_taken
}

/// A list as a slice; `None` when its length is negative or it is missing.
unsafe fn entries<'a>(list: *const *const ControlBlock, length: c_int) -> Option<&'a [*const ControlBlock]> {
    match usize::try_from(length) {
        Err(_) => None,
        Ok(0) => Some(&[]),
        Ok(_) if list.is_null() => None,
        // SAFETY: the caller's promise.
        Ok(length) => Some(unsafe { std::slice::from_raw_parts(list, length) }),
    }
}

unsafe fn deadline(timeout: *const libc::timespec) -> Result<Deadline, c_int> {
    // SAFETY: the caller's promise.
    let Some(timeout) = (unsafe { timeout.as_ref() }) else { return Ok(Deadline::NEVER) };
    let nanos = u32::try_from(timeout.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000).ok_or(libc::EINVAL)?;
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| libc::EINVAL)?;
    Ok(Deadline::after(Duration::new(seconds, nanos)))
}

/// The event of the safe face's queues is not for C programs, who could forge its address.
const _: () = assert!(NOTIFY_QUEUE != libc::SIGEV_THREAD_ID);
