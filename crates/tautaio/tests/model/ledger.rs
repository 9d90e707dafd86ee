//! Every request has an entry here from its submission until its owner is done with it and its
//! notification came. A notification names the entry and the entry's generation, so that a lost, doubled
//! or foreign one is seen. The functions that run in signal handlers take no lock and allocate nothing.
#![expect(unsafe_code, reason = "signal handlers, and requests looked at from there")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::fault::fault;
use super::ffi::{self, Aiocb, Sigevent};
use super::raised;

/// More than there are ever requests at one time.
const CAPACITY: usize = 1 << 17;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Its owner is done with it; a notification may be under way.
const DONE: u32 = 2;

struct Entry {
    state: AtomicU32,
    generation: AtomicU32,
    /// Notifications that are to come: none or one.
    expected: AtomicU32,
    notified: AtomicU32,
    /// The only thread that may be signalled; 0 for any.
    thread: AtomicI32,
    signal: AtomicI32,
    /// Requests that must be complete when the notification comes.
    watched: AtomicPtr<*const Aiocb>,
    watched_length: AtomicUsize,
    /// How often and with what `aio_waitcomplete` gave it.
    given: AtomicU32,
    value: AtomicI64,
    error: AtomicI32,
    /// When its owner had called `aio_return`, on [`CLOCK`]; 0 before.
    returned_at: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            generation: AtomicU32::new(0),
            expected: AtomicU32::new(0),
            notified: AtomicU32::new(0),
            thread: AtomicI32::new(0),
            signal: AtomicI32::new(0),
            watched: AtomicPtr::new(ptr::null_mut()),
            watched_length: AtomicUsize::new(0),
            given: AtomicU32::new(0),
            value: AtomicI64::new(0),
            error: AtomicI32::new(0),
            returned_at: AtomicU64::new(0),
        }
    }

    fn is_settled(&self) -> bool {
        self.notified.load(Ordering::Acquire) == self.expected.load(Ordering::Relaxed)
    }
}

static ENTRIES: [Entry; CAPACITY] = [const { Entry::new() }; CAPACITY];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Counts up with every event whose order matters.
static CLOCK: AtomicU64 = AtomicU64::new(1);
/// This process, for handlers; a forked child must not get its parent's signals.
static PROCESS: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// Signal handlers that ran in this thread.
    static HANDLED: Cell<u64> = const { Cell::new(0) };
}

/// How a request says that it is complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Notify {
    Nothing,
    /// A signal with a handler.
    Handler,
    /// A signal that a thread waits for.
    Waited,
    /// A signal to one thread.
    Thread(c_int),
    /// A function in a new thread.
    Function,
}

/// Names an entry; what `sigev_value` holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ticket(u64);

pub(crate) fn signal_with_handler() -> c_int {
    libc::SIGRTMIN() + 3
}

pub(crate) fn signal_waited_for() -> c_int {
    libc::SIGRTMIN() + 4
}

pub(crate) fn signal_to_thread() -> c_int {
    libc::SIGRTMIN() + 5
}

/// Interrupts, and has the handler use the library.
pub(crate) const NOISE: c_int = libc::SIGUSR1;

/// Takes an entry.
pub(crate) fn issue(notify: Notify) -> Ticket {
    for _ in 0..4 * CAPACITY {
        let index = NEXT.fetch_add(1, Ordering::Relaxed) % CAPACITY;
        let entry = &ENTRIES[index];
        let state = entry.state.load(Ordering::Acquire);
        if state == HELD || (state == DONE && !entry.is_settled()) {
            continue;
        }
        if entry.state.compare_exchange(state, HELD, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        // First, so that a notification too many for the last holder is seen.
        let generation = entry.generation.load(Ordering::Relaxed).wrapping_add(1);
        entry.generation.store(generation, Ordering::SeqCst);
        let (thread, signal) = match notify {
            Notify::Nothing | Notify::Function => (0, 0),
            Notify::Handler => (0, signal_with_handler()),
            Notify::Waited => (0, signal_waited_for()),
            Notify::Thread(thread) => (thread, signal_to_thread()),
        };
        entry.thread.store(thread, Ordering::Relaxed);
        entry.signal.store(signal, Ordering::Relaxed);
        entry.watched_length.store(0, Ordering::Relaxed);
        entry.given.store(0, Ordering::Relaxed);
        entry.returned_at.store(0, Ordering::Relaxed);
        entry.notified.store(0, Ordering::Relaxed);
        entry.expected.store(u32::from(notify != Notify::Nothing), Ordering::Release);
        return Ticket((u64::from(generation) << 32) | index as u64);
    }
    panic!("{CAPACITY} requests wait for notifications");
}

impl Ticket {
    fn index(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn entry(self) -> &'static Entry {
        &ENTRIES[self.index()]
    }

    /// The event that notifies this entry.
    pub(crate) fn event(self, notify: Notify) -> Sigevent {
        let entry = self.entry();
        let mut event = Sigevent::new(libc::SIGEV_NONE, entry.signal.load(Ordering::Relaxed), self.0);
        match notify {
            Notify::Nothing => {}
            Notify::Handler | Notify::Waited => event.notify = libc::SIGEV_SIGNAL,
            Notify::Function => {
                event.notify = libc::SIGEV_THREAD;
                event.function = on_thread as extern "C" fn(u64) as usize;
            }
            Notify::Thread(thread) => {
                event.notify = libc::SIGEV_THREAD_ID;
                event.function = usize::try_from(thread).expect("a thread's number");
            }
        }
        event
    }

    /// These must be complete when the notification comes. They and the list live until then.
    pub(crate) fn watch(self, requests: &[*const Aiocb]) {
        self.entry().watched.store(requests.as_ptr().cast_mut(), Ordering::Relaxed);
        self.entry().watched_length.store(requests.len(), Ordering::Release);
    }

    pub(crate) fn is_notified(self) -> bool {
        self.entry().is_settled()
    }

    /// What `aio_waitcomplete` gave for it: result and errno.
    pub(crate) fn given(self) -> Option<(isize, c_int)> {
        let entry = self.entry();
        (entry.given.load(Ordering::Acquire) > 0).then(|| {
            let value = entry.value.load(Ordering::Relaxed);
            (isize::try_from(value).expect("64 bits"), entry.error.load(Ordering::Relaxed))
        })
    }

    /// The owner has called `aio_return`.
    pub(crate) fn returned(self) {
        self.entry().returned_at.store(CLOCK.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
    }

    /// The owner is done with it. A request that was never submitted is not notified.
    pub(crate) fn done(self, submitted: bool) {
        if !submitted {
            self.entry().expected.store(0, Ordering::Relaxed);
        }
        self.entry().state.store(DONE, Ordering::Release);
    }
}

/// Time on the clock on which `aio_return` is noted.
pub(crate) fn now() -> u64 {
    CLOCK.fetch_add(1, Ordering::SeqCst)
}

/// `aio_waitcomplete`, called at `since`, gave the request that holds this ticket.
pub(crate) fn give(ticket: u64, value: isize, error: c_int, since: u64) {
    let ticket = Ticket(ticket);
    if ticket.index() >= CAPACITY || ticket.generation() != ticket.entry().generation.load(Ordering::SeqCst) {
        fault("aio_waitcomplete gave a request that is long gone", ticket.0, 0);
    }
    let entry = ticket.entry();
    let returned = entry.returned_at.load(Ordering::SeqCst);
    if returned != 0 && returned < since {
        fault("aio_waitcomplete gave a request after its aio_return", ticket.0, returned);
    }
    entry.value.store(value as i64, Ordering::Relaxed);
    entry.error.store(error, Ordering::Relaxed);
    let before = entry.given.fetch_add(1, Ordering::AcqRel);
    if before != 0 {
        fault("aio_waitcomplete gave a request twice", ticket.0, u64::from(before));
    }
}

/// Requests whose owners are done and whose notifications did not come yet.
pub(crate) fn outstanding() -> usize {
    ENTRIES.iter().filter(|entry| entry.state.load(Ordering::Acquire) == DONE && !entry.is_settled()).count()
}

/// What the outstanding ones wait for, some of them.
pub(crate) fn describe_outstanding() -> String {
    let waits = |entry: &&Entry| entry.state.load(Ordering::Acquire) == DONE && !entry.is_settled();
    let one = |entry: &Entry| {
        format!(
            "signal {} thread {} notified {}",
            entry.signal.load(Ordering::Relaxed),
            entry.thread.load(Ordering::Relaxed),
            entry.notified.load(Ordering::Relaxed)
        )
    };
    ENTRIES.iter().filter(waits).take(8).map(one).collect::<Vec<_>>().join("; ")
}

fn notified(value: u64, signal: c_int) {
    let ticket = Ticket(value);
    if ticket.index() >= CAPACITY || ticket.generation() != ticket.entry().generation.load(Ordering::SeqCst) {
        fault("a notification for a request that is long gone", value, u64::try_from(signal).unwrap_or(0));
    }
    let entry = ticket.entry();
    let expected = entry.expected.load(Ordering::Acquire);
    if signal != entry.signal.load(Ordering::Relaxed) {
        fault("a notification of another kind than asked for", value, u64::try_from(signal).unwrap_or(0));
    }
    let thread = entry.thread.load(Ordering::Relaxed);
    // SAFETY: asks for a number.
    if thread != 0 && thread != unsafe { libc::gettid() } {
        fault("a signal to another thread than asked for", value, u64::try_from(thread).unwrap_or(0));
    }
    let watched = entry.watched.load(Ordering::Relaxed);
    for index in 0..entry.watched_length.load(Ordering::Acquire) {
        // SAFETY: whoever asked to watch keeps the list and the requests in it until the notification.
        let error = unsafe { ffi::aio_error(*watched.add(index)) };
        if error == libc::EINPROGRESS {
            fault("a notification before the request was complete", value, index as u64);
        }
    }
    if entry.notified.fetch_add(1, Ordering::AcqRel) >= expected {
        fault("a notification too many", value, u64::from(expected));
    }
}

/// What both ways of receiving a signal check.
fn signalled(signal: c_int, info: &libc::siginfo_t) {
    // SAFETY: signals that were queued with a value have these fields, and all signals are big enough to be asked.
    let (value, process, user) = unsafe { (info.si_value(), info.si_pid(), info.si_uid()) };
    let value = value.sival_ptr.addr() as u64;
    if info.si_code != libc::SI_ASYNCIO {
        fault("a signal whose si_code isn't SI_ASYNCIO", value, u64::from(info.si_code.unsigned_abs()));
    }
    // SAFETY: asks for a number.
    if process != PROCESS.load(Ordering::Relaxed) || user != unsafe { libc::getuid() } {
        fault("a signal whose si_pid or si_uid isn't ours", value, u64::from(user));
    }
    notified(value, signal);
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let before = ffi::errno();
    HANDLED.with(|handled| handled.set(handled.get() + 1));
    // SAFETY: the kernel gives a valid one to an SA_SIGINFO handler.
    signalled(signal, unsafe { &*info });
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = before };
}

extern "C" fn on_noise(_signal: c_int) {
    HANDLED.with(|handled| handled.set(handled.get() + 1));
    raised::act();
}

extern "C" fn on_broken_pipe(_signal: c_int) {
    fault("SIGPIPE", 0, 0);
}

extern "C" fn on_thread(value: u64) {
    // SAFETY: all-zero is a value of the type, and the call fills it in.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &raw mut mask) };
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the set was filled in.
        if unsafe { libc::sigismember(&raw const mask, signal) } == 1 {
            fault("a notification's thread with a signal blocked", value, u64::try_from(signal).unwrap_or(0));
        }
    }
    notified(value, 0);
}

/// Signal handlers that ran in this thread so far.
pub(crate) fn handled() -> u64 {
    HANDLED.with(Cell::get)
}

/// Installs the handlers, and blocks the signals in this thread and those it starts.
pub(crate) fn set_up() {
    // SAFETY: asks for a number.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    let handlers = [
        (signal_with_handler(), on_signal as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART),
        // Its default action would end the process where it isn't blocked, in the threads of notifications.
        (signal_waited_for(), on_signal as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART),
        (signal_to_thread(), on_signal as *const () as usize, libc::SA_SIGINFO),
        (NOISE, on_noise as *const () as usize, 0),
        (libc::SIGPIPE, on_broken_pipe as *const () as usize, 0),
    ];
    for (signal, handler, flags) in handlers {
        install(signal, handler, flags);
    }
    // The main thread would get most of them: the kernel prefers it. And nanosleep, which adds the
    // timer's slack each time it is interrupted, would never end in it.
    mask(libc::SIG_BLOCK, &[signal_with_handler(), signal_waited_for(), NOISE]);
}

fn install(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: all-zero is a value of the structure: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handlers do only what a handler may.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) }, 0);
}

/// Handles one more signal, for a thread that sends it to itself.
pub(crate) fn handle(signal: c_int, handler: extern "C" fn(c_int)) {
    install(signal, handler as *const () as usize, libc::SA_RESTART);
}

/// Lets this thread run handlers.
pub(crate) fn accept_signals() {
    mask(libc::SIG_UNBLOCK, &[signal_with_handler(), NOISE]);
}

fn mask(how: c_int, signals: &[c_int]) {
    let set = set_of(signals);
    // SAFETY: the set lives through the call.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) }, 0);
}

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: all-zero is a value of the type; sigemptyset makes it a set, and the signals are some.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Takes the signals that are waited for, until told to stop.
pub(crate) fn receive(stop: &AtomicBool) {
    let set = set_of(&[signal_waited_for()]);
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !stop.load(Ordering::Acquire) {
        // SAFETY: all-zero is a value of the structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: all three live through the call.
        let signal = unsafe { libc::sigtimedwait(&raw const set, &raw mut info, &raw const timeout) };
        if signal > 0 {
            signalled(signal, &info);
        }
    }
}
