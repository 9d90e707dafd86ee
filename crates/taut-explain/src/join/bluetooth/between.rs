//! Two files of links of Bluetooth, held against each other.

use super::crossings::Crossings;
use super::pair::Paired;
use super::report::{WayOnAir, report};
use crate::join::fit::Fit;
use crate::join::report::Joined;
use crate::join::why::NotJoined;

/// The stretch that is joined has one in so many of the PDUs that are in both, or more.
const LEAST_SHARE: usize = 5;

/// Puts the links of `other` on the timeline of `reference`.
///
/// # Errors
///
/// When they do not hold the same PDUs, in both directions, with clocks that a line can explain.
pub fn join_bluetooth(reference: &Crossings, other: &Crossings) -> Result<Joined, NotJoined> {
    joined(reference, other, &mut |_| {}).map(|(joined, _)| joined)
}

/// The same with the line of the clocks, and with each direction whose sender's controller and air were seen.
pub(super) fn joined(
    reference: &Crossings,
    other: &Crossings,
    each: &mut impl FnMut(WayOnAir),
) -> Result<(Joined, Fit), NotJoined> {
    let paired = Paired::between(reference, other)?;
    let (stretches, is_early) = paired.stretches(reference, other)?;
    // PDUs of two runs that look alike fit a line now and then; those of one run fit few lines.
    let all: usize = stretches.all.iter().map(|stretch| stretch.packets.len()).sum();
    let (longest, fit) = stretches.longest();
    if stretches.all[longest].packets.len() * LEAST_SHARE < all + stretches.strays as usize {
        return Err(NotJoined::NoEvenClock);
    }
    Ok((report(reference, other, &paired, &stretches, is_early, each), fit))
}
