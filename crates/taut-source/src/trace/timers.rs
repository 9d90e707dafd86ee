//! The kernel's timers of TCP by name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use taut_event::Timer;

/// The functions of TCP's timers by their addresses; none where the kernel hides them (`kernel.kptr_restrict`).
pub(super) fn timers() -> HashMap<u64, Timer> {
    let Ok(file) = File::open("/proc/kallsyms") else { return HashMap::new() };
    let mut found = HashMap::new();
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if let Some((address, timer)) = timer(&line) {
            found.insert(address, timer);
            if found.len() == TIMERS.len() {
                break;
            }
        }
    }
    found
}

const TIMERS: [(&[u8], Timer); 3] =
    [(b"tcp_delack_timer", Timer::DelayedAck), (b"tcp_write_timer", Timer::Write), (b"tcp_pace_kick", Timer::Pacing)];

/// `ffffffff81c3a2b0 t tcp_delack_timer`
pub(super) fn timer(line: &[u8]) -> Option<(u64, Timer)> {
    let (_, timer) =
        TIMERS.iter().find(|(name, _)| line.strip_suffix(*name).is_some_and(|before| before.ends_with(b" ")))?;
    let digits = line.split(|&byte| byte == b' ').next()?;
    let address = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (address != 0).then_some((address, *timer))
}
