use std::time::Duration;

use super::process::Cores;
use super::taut::Taut;

/// What every bench needs to know.
pub(super) struct Setting {
    pub(super) taut: Taut,
    pub(super) cores: Cores,
    pub(super) rounds: u32,
    pub(super) time: Duration,
}
