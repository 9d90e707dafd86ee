//! From when on time that was held is told.

use crate::engine::Cost;

/// Less is no finding.
const LEAST_SHARE: f64 = 0.01;
/// Fewer stretches are chance.
const LEAST_EPISODES: u64 = 3;
/// A single stretch as long as this is told whatever its share.
const STALL_NS: u64 = 200_000_000;

/// Whether so much was held that it counts, the longest stretch being `longest_ns`.
pub(crate) fn is_enough(cost: &Cost, longest_ns: u64) -> bool {
    // Windows and losses hold in one long stretch as well as in many short ones.
    let is_often = cost.share >= LEAST_SHARE && (cost.episodes >= LEAST_EPISODES || cost.share >= 0.05);
    cost.held_ns > 0 && (is_often || longest_ns >= STALL_NS)
}
