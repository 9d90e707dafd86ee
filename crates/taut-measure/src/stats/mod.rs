//! Statistics: distributions of times, exceedance of limits, and what can be said across rounds.

mod across;
mod distribution;
mod exceedance;

pub use across::{LEAST_ROUNDS, interval, median, ratio_across};
pub use distribution::{Distribution, Summary};
pub use exceedance::{Exceedance, ExceedanceCounter};
