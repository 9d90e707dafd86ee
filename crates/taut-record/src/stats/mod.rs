//! Statistics: distributions of times, exceedance of limits, and what can be said across rounds.

mod across;
mod apart;
mod distribution;
mod exceedance;
mod exponential;
mod figures;
mod loss;
mod quantile;
mod ratio;
mod summary;

pub use across::{Interval, LEAST_ROUNDS, interval, median, narrowest, sign_test_level};
pub use apart::{apart_by_chance, moved, rounds_to_be_apart};
pub use distribution::Distribution;
pub use exceedance::{Exceedance, ExceedanceCounter};
pub use exponential::{ExponentialHistogram, SCALE};
pub use figures::Figures;
pub use loss::{Losses, losses_differ, losses_differ_at};
pub use quantile::{Percentile, Quantile};
pub use ratio::{Figure, LEAST_DIFFERENCE, MOST_FALSE, Ratio, rounds_needed, usual_rounds};
pub use summary::{Rounds, Summary};
