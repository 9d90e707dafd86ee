//! How the stress ends when something is wrong: at once, with the seed that repeats it.
#![expect(unsafe_code, reason = "write and _exit in signal handlers")]

use std::sync::atomic::{AtomicU64, Ordering};

static SEED: AtomicU64 = AtomicU64::new(0);

/// The seed of the round that is on.
pub(crate) fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// Ends the process. May be called in a signal handler.
pub(crate) fn fault(what: &str, first: u64, second: u64) -> ! {
    say("\nstress: ");
    say(what);
    for (name, number) in [(" (", first), (", ", second), ("); TAUT_SEED=", SEED.load(Ordering::Relaxed))] {
        say(name);
        say_hexadecimal(number);
    }
    say("\n");
    // SAFETY: ends the process.
    unsafe { libc::_exit(101) }
}

/// A panic in any thread ends the process with the seed.
pub(crate) fn end_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        fault("a check failed", 0, 0);
    }));
}

fn say(text: &str) {
    // SAFETY: the text is as long as it says.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

fn say_hexadecimal(number: u64) {
    let mut text = *b"0x0000000000000000";
    for (digit, place) in text[2..].iter_mut().enumerate() {
        *place = b"0123456789abcdef"[(number >> (60 - 4 * digit) & 15) as usize];
    }
    say(std::str::from_utf8(&text).unwrap_or("?"));
}
