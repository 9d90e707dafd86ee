//! Telling the application that an operation is complete, as its `aio_sigevent` asks (POSIX.1-2017, 2.4.1).
#![expect(unsafe_code, reason = "signals and threads with the application's arguments")]

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;

use crate::interface::control_block::SigEvent;
use crate::lockfree::completions::Completed;
use crate::service::queue::Queue;
use crate::service::starter::Starter;
use crate::system;

/// `sigev_notify` of the safe face: into a queue, whose `Arc` is in `sigev_notify_function`.
pub(crate) const NOTIFY_QUEUE: c_int = 0x7461;

/// What an operation's `aio_sigevent` asks for; all that is used of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    value: usize,
    function: usize,
    attributes: usize,
    signal: c_int,
    notify: c_int,
}

impl From<&SigEvent> for Event {
    fn from(&SigEvent { value, signal, notify, function, attributes, .. }: &SigEvent) -> Self {
        Self { value, function, attributes, signal, notify }
    }
}

impl Event {
    /// Whether it is one of the safe face, with a queue of its own or none.
    pub(crate) const fn is_private(&self) -> bool {
        matches!(self.notify, NOTIFY_QUEUE | NOTIFY_NOBODY)
    }
}

/// `sigev_notify` of the safe face: nobody, not even aio_waitcomplete(2).
pub(crate) const NOTIFY_NOBODY: c_int = 0x7462;

/// How to tell.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Silent,
    Signal {
        signal: c_int,
        value: usize,
    },
    /// `SIGEV_THREAD_ID`: to one thread.
    ThreadSignal {
        thread: libc::pid_t,
        signal: c_int,
        value: usize,
    },
    /// `SIGEV_THREAD`: a function in a thread of its own.
    Function {
        function: usize,
        value: usize,
        attributes: usize,
    },
    Queue {
        queue: Arc<Queue>,
        completed: Completed,
    },
}

/// What became of a notice.
#[derive(Debug)]
pub(crate) enum Delivery {
    Done,
    /// The kernel is out of room (`RLIMIT_SIGPENDING`, threads) or the queue is full: once more later.
    Later,
}

/// Who signals come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    process: libc::pid_t,
}

impl Notice {
    /// As an event asks for it; the event was checked.
    pub(crate) fn new(event: &Event, result: isize) -> Self {
        let &Event { value, signal, notify, function, attributes } = event;
        match notify {
            libc::SIGEV_SIGNAL if signal != 0 => Self::Signal { signal, value },
            libc::SIGEV_THREAD => Self::Function { function, value, attributes },
            // The union's first four bytes.
            libc::SIGEV_THREAD_ID => Self::ThreadSignal { thread: function as u32 as libc::pid_t, signal, value },
            NOTIFY_QUEUE => {
                // SAFETY: made by `Arc::into_raw`, or taken from an `Arc` that outlives the
                // operation, when the operation was submitted; the count was raised for us.
                let queue = unsafe { Arc::from_raw(function as *const Queue) };
                Self::Queue { queue, completed: Completed { request: value, result } }
            }
            _ => Self::Silent,
        }
    }

    /// The line that it waits in, as a bit: one for each signal, and one for functions. A queue needs none.
    pub(crate) const fn line(&self) -> u128 {
        match *self {
            Self::Silent | Self::Queue { .. } => 0,
            Self::Signal { signal, .. } | Self::ThreadSignal { signal, .. } => 1 << signal,
            Self::Function { .. } => 1,
        }
    }
}

/// Checks an event as POSIX asks: `EINVAL` for what can't be.
pub(crate) fn check(event: &SigEvent) -> Result<(), c_int> {
    let valid = match event.notify {
        libc::SIGEV_NONE => true,
        // Signal 0 with SIGEV_SIGNAL (0) is what a program has that zeroes its aiocb and thinks of nothing: none.
        libc::SIGEV_SIGNAL => event.signal == 0 || is_signal(event.signal),
        libc::SIGEV_THREAD_ID => is_signal(event.signal) && event.function as u32 as i32 > 0,
        libc::SIGEV_THREAD => event.function != 0,
        _ => false,
    };
    if valid { Ok(()) } else { Err(libc::EINVAL) }
}

fn is_signal(number: c_int) -> bool {
    (1..=libc::SIGRTMAX()).contains(&number)
}

/// `siginfo_t` of a queued signal (include/uapi/asm-generic/siginfo.h, `_rt`), LP64.
#[repr(C)]
struct QueuedSignal {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    process: libc::pid_t,
    user: libc::uid_t,
    value: usize,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<QueuedSignal>() == size_of::<libc::siginfo_t>());

impl Sender {
    pub(crate) fn this_process() -> Self {
        Self { process: system::process() }
    }

    /// Delivers a notice, or says that it has to wait. What can't ever be delivered is done. Threads for functions are
    /// the `starter`'s.
    pub(crate) fn deliver(self, notice: &Notice, starter: &Starter) -> Delivery {
        match *notice {
            Notice::Silent => Delivery::Done,
            Notice::Signal { signal, value } => {
                let info = self.signal(signal, value);
                // SAFETY: the struct outlives the call.
                later_if_full(unsafe {
                    libc::syscall(libc::SYS_rt_sigqueueinfo, self.process, signal, &raw const info)
                })
            }
            Notice::ThreadSignal { thread, signal, value } => {
                let info = self.signal(signal, value);
                // SAFETY: the struct outlives the call.
                later_if_full(unsafe {
                    libc::syscall(libc::SYS_rt_tgsigqueueinfo, self.process, thread, signal, &raw const info)
                })
            }
            Notice::Function { function, value, attributes } => {
                starter.ask(Box::new(move || call(function, value, attributes)));
                Delivery::Done
            }
            Notice::Queue { ref queue, completed } => {
                if queue.completions().is_full() {
                    return Delivery::Later;
                }
                let position = queue.completions().reserve(completed);
                queue.completions().publish(position);
                Delivery::Done
            }
        }
    }

    fn signal(self, signal: c_int, value: usize) -> QueuedSignal {
        QueuedSignal {
            signal,
            errno: 0,
            code: libc::SI_ASYNCIO,
            padding: 0,
            process: self.process,
            // SAFETY: no arguments. It may have changed (setuid(2)).
            user: unsafe { libc::getuid() },
            value,
            rest: [0; 12],
        }
    }
}

fn later_if_full(result: libc::c_long) -> Delivery {
    // ESRCH: the thread is gone. EINVAL: the signal is none, which was checked.
    if result == -1 && system::errno() == libc::EAGAIN { Delivery::Later } else { Delivery::Done }
}

/// What the new thread is to call.
struct Call {
    function: extern "C" fn(usize),
    value: usize,
    joinable: bool,
}

/// Calls the function in a thread of its own; false when the system has no room for one now.
fn call(function: usize, value: usize, attributes: usize) -> bool {
    // SAFETY: the application gave a `void (*)(union sigval)`, which is passed like an integer of its size.
    let function = unsafe { mem::transmute::<usize, extern "C" fn(usize)>(function) };
    // Asked for now: the function may destroy the attributes.
    let call = Box::into_raw(Box::new(Call { function, value, joinable: is_joinable(attributes) }));
    // SAFETY: the attributes are the application's, null or valid until now (POSIX); `call` goes over to the thread.
    let created = unsafe {
        let mut thread: libc::pthread_t = mem::zeroed();
        let attributes = attributes as *const libc::pthread_attr_t;
        libc::pthread_create(&raw mut thread, attributes, start, call.cast::<c_void>())
    };
    if created == 0 {
        return true;
    }
    // SAFETY: no thread has it.
    drop(unsafe { Box::from_raw(call) });
    created != libc::EAGAIN
}

fn is_joinable(attributes: usize) -> bool {
    if attributes == 0 {
        return true;
    }
    let mut state = 0;
    // SAFETY: as for their use above.
    let known = unsafe { pthread_attr_getdetachstate(attributes as *const libc::pthread_attr_t, &raw mut state) };
    known != 0 || state == libc::PTHREAD_CREATE_JOINABLE
}

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
}

extern "C" fn start(call: *mut c_void) -> *mut c_void {
    // SAFETY: made by `Box::into_raw`, and given to this thread alone.
    let call = unsafe { Box::from_raw(call.cast::<Call>()) };
    let Call { function, value, joinable } = *call;
    system::take_programs_name();
    // Our threads have all signals blocked; the application's function must not.
    // SAFETY: the set is filled by sigemptyset. Nobody knows this thread to join it.
    unsafe {
        if joinable {
            libc::pthread_detach(libc::pthread_self());
        }
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    function(value);
    ptr::null_mut()
}
