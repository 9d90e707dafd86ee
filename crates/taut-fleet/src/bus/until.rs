//! A flag that ends things, for what waits and for threads that look at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Set once, never unset.
#[derive(Clone, Default)]
pub(super) struct Until {
    flag: Arc<AtomicBool>,
    changed: Arc<Notify>,
}

impl Until {
    pub(super) fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    pub(super) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Waits until it is set.
    pub(super) async fn reached(&self) {
        loop {
            let changed = self.changed.notified();
            // What is set after this wakes it up.
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_set() {
                return;
            }
            changed.await;
        }
    }
}
