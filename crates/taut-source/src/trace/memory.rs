use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Before Linux 5.11 maps count against `RLIMIT_MEMLOCK`.
pub(crate) fn raise_locked_memory() {
    let limit = getrlimit(Resource::Memlock);
    let all = Rlimit { current: None, maximum: None };
    if limit.current.is_some() && setrlimit(Resource::Memlock, all).is_err() {
        // Without the right to raise it, as far as it goes.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
