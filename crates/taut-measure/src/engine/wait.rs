use std::io;

use taut_time::Instant;

/// Waits for links to become ready.
pub trait Engine {
    /// Waits until a link can be read, `writer` can be written, or it is `until`. Puts the indices of links that may be
    /// readable into `ready`; reading one of them may still find nothing.
    ///
    /// # Errors
    /// As the system call underneath. A signal is no error: nothing is ready then.
    fn wait(&mut self, until: Option<Instant>, writer: Option<usize>, ready: &mut Vec<usize>) -> io::Result<()>;

    /// Tells that a read of this link found nothing more.
    fn drained(&mut self, _link: usize) {}
}

/// Time left until an instant, as the kernel takes it.
pub(super) fn time_left(until: Instant) -> rustix::time::Timespec {
    let left = until.saturating_since(taut_link::clock::now());
    rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
}
