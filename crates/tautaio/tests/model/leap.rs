//! Signal handlers that leave aio_suspend, aio_cancel and close by siglongjmp(3), in any moment. What was left goes on
//! or is undone by the next call, and the library writes nowhere in the stack that was given up.
#![expect(unsafe_code, reason = "sigsetjmp, siglongjmp and a timer that signals one thread")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use super::descriptor::{self, close};
use super::ffi::{self, Aiocb};
use super::ledger;
use super::random::Random;
use super::takers;

/// Reads that wait while a call is left.
const MOST: usize = 40;

/// `sigjmp_buf` of any C library here: 200 bytes in glibc on x86-64, 312 on AArch64.
#[repr(C, align(16))]
pub(crate) struct Place([u8; 512]);

// What calls a function that may be left: a function that returns twice can't be called from Rust. Gives 0 when the
// function has returned, another number when it was left. The registers that it uses are among those that
// sigsetjmp(3) keeps.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl taut_stress_try",
    "taut_stress_try:",
    "push rbp",
    "push rbx",
    "sub rsp, 8",
    "mov rbx, rsi",
    "mov rbp, rdx",
    "mov esi, 1",
    "call {save}@PLT",
    "test eax, eax",
    "jne 2f",
    "mov rdi, rbp",
    "call rbx",
    "xor eax, eax",
    "2:",
    "add rsp, 8",
    "pop rbx",
    "pop rbp",
    "ret",
    save = sym __sigsetjmp,
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl taut_stress_try",
    "taut_stress_try:",
    "stp x29, x30, [sp, #-32]!",
    "stp x19, x20, [sp, #16]",
    "mov x29, sp",
    "mov x19, x1",
    "mov x20, x2",
    "mov w1, #1",
    "bl {save}",
    "cbnz w0, 2f",
    "mov x0, x20",
    "blr x19",
    "mov w0, #0",
    "2:",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    "ret",
    save = sym __sigsetjmp,
);

unsafe extern "C" {
    fn __sigsetjmp(place: *mut Place, keeps_mask: c_int) -> c_int;
    fn siglongjmp(place: *mut Place, value: c_int) -> !;
    fn taut_stress_try(place: *mut Place, function: extern "C" fn(*mut c_void), argument: *mut c_void) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DEFERRED`.
const DEFERRED: c_int = 0;

/// Where the thread that may leap goes; null while it must not.
static ARMED: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// Reads, which a thread in aio_waitcomplete may look at when they are long over.
static READS: Mutex<Reads> = Mutex::new(Reads { blocks: [const { Aiocb::empty() }; MOST], bytes: [0; MOST] });

struct Reads {
    blocks: [Aiocb; MOST],
    bytes: [u8; MOST],
}

// SAFETY: the pointers in it are followed by the kernel only.
unsafe impl Send for Reads {}

/// What is called and left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Call {
    Suspend,
    Cancel,
    Close,
}

struct Try {
    call: Call,
    fd: c_int,
    list: [*const Aiocb; MOST],
    length: c_int,
    place: *mut Place,
}

fn signal() -> c_int {
    libc::SIGRTMIN() + 6
}

extern "C" fn on_signal(_signal: c_int) {
    let place = ARMED.swap(ptr::null_mut(), Ordering::SeqCst);
    if !place.is_null() {
        // SAFETY: armed within the call of `taut_stress_try` that has filled it, in this thread. No frame between has
        // anything to drop.
        unsafe { siglongjmp(place, 1) }
    }
}

extern "C" fn call(argument: *mut c_void) {
    // SAFETY: it lives as long as the call.
    let Try { call, fd, list, length, place } = unsafe { &*argument.cast_const().cast::<Try>() };
    ARMED.store(*place, Ordering::SeqCst);
    // SAFETY: the requests stay, and the number is the caller's.
    unsafe {
        match call {
            Call::Suspend => ffi::aio_suspend(list.as_ptr(), *length, ptr::null()),
            Call::Cancel => ffi::aio_cancel(*fd, ptr::null_mut()),
            Call::Close => libc::close(*fd),
        };
    }
    ARMED.store(ptr::null_mut(), Ordering::SeqCst);
}

/// Leaves calls until told to stop.
pub(crate) fn leap_now_and_then(mut random: Random, stop: &AtomicBool) {
    ledger::handle(signal(), on_signal);
    let timer = timer_of_this_thread();
    let mut place = Box::new(Place([0; 512]));
    while !stop.load(Ordering::Acquire) {
        let call = *random.pick(&[Call::Suspend, Call::Suspend, Call::Cancel, Call::Close]);
        let mut reads = super::lock(&READS);
        leap(&mut random, call, &mut reads, &mut place, timer);
        drop(reads);
        descriptor::pause(random.between(5000, 30_000) as u64);
    }
    // SAFETY: made above.
    unsafe { libc::timer_delete(timer) };
}

fn leap(random: &mut Random, what: Call, reads: &mut Reads, place: &mut Place, timer: libc::timer_t) {
    let [ours, theirs] = descriptor::socket_pair(libc::SOCK_STREAM);
    let inode = descriptor::inode(ours);
    let count = random.between(1, MOST);
    let mut list = [ptr::null(); MOST];
    for ((block, byte), entry) in reads.blocks.iter_mut().zip(&mut reads.bytes).zip(&mut list).take(count) {
        *block = Aiocb::empty();
        (block.fd, block.buffer, block.length) = (ours, ptr::from_mut(byte).cast(), 1);
        block.event.value = takers::IGNORED;
        ffi::read(block);
        *entry = ptr::from_ref(block);
    }
    let mut attempt = Try { call: what, fd: ours, list, length: count as c_int, place };
    // A wait has no other end.
    set(timer, random.between(1, if what == Call::Suspend { 300 } else { 60 }) as i64);
    // SAFETY: all of it outlives the call.
    let left = unsafe { taut_stress_try(attempt.place, call, (&raw mut attempt).cast()) } != 0;
    set(timer, 0);
    assert!(left || what != Call::Suspend, "aio_suspend returned with nothing complete");
    if left {
        watch_the_stack();
        let mut before = DEFERRED;
        // SAFETY: both are this thread's.
        assert_eq!(unsafe { pthread_setcanceltype(DEFERRED, &raw mut before) }, 0);
        // The C library's own close(2) leaves it so, too: glibc 2.36 cancels asynchronously while it is in the call.
        assert!(before == DEFERRED || what == Call::Close, "a thread that left {what:?} is canceled asynchronously");
    }
    match what {
        Call::Suspend => {
            for block in &reads.blocks[..count] {
                assert_eq!(ffi::status(block), libc::EINPROGRESS, "after aio_suspend was left");
            }
            close(ours);
        }
        Call::Cancel => close(ours),
        // It may have been left before it closed the number, or afterwards, when that is somebody else's.
        Call::Close if descriptor::inode(ours) == inode => close(ours),
        Call::Close => {}
    }
    let begin = Instant::now();
    for block in &mut reads.blocks[..count] {
        while ffi::status(block) == libc::EINPROGRESS {
            assert!(begin.elapsed() < Duration::from_secs(30), "a read is lost after {what:?} was left");
            descriptor::pause(50);
        }
        assert_eq!((ffi::status(block), ffi::result(block)), (libc::ECANCELED, -1), "after {what:?} was left");
    }
    close(theirs);
}

/// Fills the stack where the call was, and sees that it stays so.
#[inline(never)]
fn watch_the_stack() {
    let filled = std::hint::black_box([0x5a_u8; 16_384]);
    descriptor::pause(1000);
    assert!(std::hint::black_box(&filled).iter().all(|&byte| byte == 0x5a), "the stack of a call that was left");
}

fn timer_of_this_thread() -> libc::timer_t {
    // SAFETY: all-zero is a value of the structure.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal();
    event.sigev_notify_thread_id = super::disturb::this_thread();
    let mut timer = MaybeUninit::uninit();
    // SAFETY: the call fills it in.
    unsafe {
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr()), 0, "timer_create");
        timer.assume_init()
    }
}

/// Lets it signal after so many microseconds, and again every few milliseconds; with 0 not at all.
fn set(timer: libc::timer_t, microseconds: i64) {
    let time = |microseconds| libc::timespec { tv_sec: 0, tv_nsec: microseconds * 1000 };
    let often = libc::itimerspec { it_interval: time(3000), it_value: time(microseconds) };
    // SAFETY: the timer is there, the time lives through the call.
    assert_eq!(unsafe { libc::timer_settime(timer, 0, &raw const often, ptr::null_mut()) }, 0, "timer_settime");
}
