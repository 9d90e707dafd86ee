use taut_time::Duration;

/// How often a waiting thread looks whether it should stop or a client's time is over.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(100);
