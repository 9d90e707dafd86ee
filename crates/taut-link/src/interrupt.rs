use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use taut_time::Duration;

/// The user's wish to stop: every loop looks at it, ends early and hands over what it has.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// How often one who waits looks at it.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(100);

impl Interrupt {
    /// Whether the user wants to stop.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
