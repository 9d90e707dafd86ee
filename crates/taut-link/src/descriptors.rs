//! Room for many links: the limit of open files.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::error::{Error, Result};

/// Descriptors that a process has besides its links, with room to spare.
const OTHERS: u64 = 64;

/// Makes room for so many links, raising the soft limit as far as the hard one lets it.
///
/// # Errors
/// [`Error::Unavailable`] when the hard limit does not suffice.
pub fn make_room(connections: usize) -> Result<()> {
    let needed = connections as u64 + OTHERS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|&hard| hard < needed) {
        return Err(Error::Unavailable(format!(
            "{connections} connections need {needed} open files, and this process may have {hard} (RLIMIT_NOFILE): raise \
             the hard limit (ulimit -Hn as root, limits.conf, LimitNOFILE= of a service), or take {} connections at most",
            hard.saturating_sub(OTHERS)
        )));
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| Error::Unavailable(format!("the limit of open files can't be raised to {needed}: {error}")))
}

/// Links that the hard limit has room for.
pub fn most_connections() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    usize::try_from(hard.saturating_sub(OTHERS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_hard_limit_is_refused_with_what_to_do() {
        let most = most_connections();
        assert!(make_room(most.min(100)).is_ok());
        if most < usize::MAX / 2 {
            let error = make_room(most + 1).unwrap_err().to_string();
            assert!(
                error.contains("RLIMIT_NOFILE") && error.contains(&format!("{most} connections at most")),
                "{error}"
            );
        }
    }
}
