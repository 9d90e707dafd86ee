use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::Error;

/// Fails where programs may not read the kernel's memory. Newer kernels refuse the programs, without a word why; in
/// older ones they would read zeroes, and seem to find nothing.
pub(crate) fn may_read_memory() -> Result<(), Error> {
    let state = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if is_confidential(&state) { Err(Error::LockedDown) } else { Ok(()) }
}

/// Whether that is the chosen one of the words (security/lockdown/lockdown.c).
fn is_confidential(state: &str) -> bool {
    state.contains("[confidentiality]")
}

/// Before Linux 5.11 maps count against `RLIMIT_MEMLOCK`.
pub(crate) fn raise_locked_memory() {
    let limit = getrlimit(Resource::Memlock);
    let all = Rlimit { current: None, maximum: None };
    if limit.current.is_some() && setrlimit(Resource::Memlock, all).is_err() {
        // Without the right to raise it, as far as it goes.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::is_confidential;

    #[test]
    fn only_the_strictest_lockdown_keeps_memory_from_programs() {
        assert!(is_confidential("none integrity [confidentiality]\n"));
        for state in ["[none] integrity confidentiality\n", "none [integrity] confidentiality\n", ""] {
            assert!(!is_confidential(state), "{state}");
        }
    }
}
