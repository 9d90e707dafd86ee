use crate::time::{Nanos, SECOND};

/// Virtual time that links and channels may take to come up.
pub(super) const SETUP: Nanos = 300 * SECOND;
