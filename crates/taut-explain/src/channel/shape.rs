//! What a log shows of a direction in figures, and how far those of two logs are apart.

use taut_event::Holder;

use super::facts::Facts;

/// Holders whose shares tell links apart.
const HOLDERS: [Holder; 6] = [
    Holder::Credits,
    Holder::ControllerBuffers,
    Holder::ConnectionInterval,
    Holder::Air,
    Holder::SendingProgram,
    Holder::NotKnown,
];

/// A part of a whole that is not worth telling apart.
const SMALL_SHARE: f64 = 0.02;
/// The same of a rate or a count, as a ratio.
const SMALL_RATIO: f64 = 0.015;
/// One figure that is this far off does not outweigh all others.
const MOST_SQUARE: f64 = 36.0;

/// A figure with the least difference that means anything.
#[derive(Clone, Copy, Debug)]
struct Figure {
    value: f64,
    least: f64,
}

/// The figures of a direction, in a fixed order.
#[derive(Clone, Debug)]
pub(super) struct Shape(Vec<Figure>);

/// A share of so many cases, which chance moves by its standard deviation.
fn share(part: f64, cases: u64) -> Figure {
    let part = part.clamp(0.0, 1.0);
    let chance = part.max(0.01) * (1.0 - part.min(0.99)) / cases.max(1) as f64;
    Figure { value: part, least: (SMALL_SHARE * SMALL_SHARE + chance).sqrt() }
}

fn ratio(value: f64, least: f64) -> Figure {
    Figure { value: value.max(1e-3).ln(), least }
}

impl Shape {
    pub(super) fn of(facts: &Facts<'_>) -> Self {
        let tally = &facts.half.tally;
        let used = (facts.whole_ns as f64 - facts.ns(Holder::Handshake)).max(1.0);
        let interval = facts.interval().max(1) as f64;
        let packets = facts.through().max(1);
        let mut all = vec![ratio(facts.rate(), SMALL_RATIO)];
        // Time comes in episodes of about an interval.
        let episodes = (used / interval) as u64;
        all.extend(HOLDERS.iter().map(|&holder| share(facts.ns(holder) / used, episodes)));
        all.push(share(tally.queued_ns as f64 / used, episodes));
        for counts in [&tally.rhythm.gaps[..], &tally.rhythm.groups[..], &tally.rhythm.paces[..]] {
            let sum: u64 = counts.iter().sum();
            all.extend(counts.iter().map(|&count| share(count as f64 / sum.max(1) as f64, sum)));
        }
        let reports = tally.reported.count();
        all.push(share(tally.close_reports as f64 / reports.max(1) as f64, reports));
        all.push(share(reports as f64 / packets as f64, packets));
        all.push(share(tally.cut_short as f64 / packets as f64, packets));
        all.push(share(tally.credit_waits.count() as f64 / packets as f64, packets));
        let in_intervals = |value: Option<u64>| value.map_or(0.0, |ns| (ns as f64 / interval).min(8.0));
        all.push(ratio(0.5 + in_intervals(tally.credit_waits.median()), 0.1));
        all.push(ratio(0.5 + in_intervals(tally.completions.median()), 0.1));
        // Times of hosts and of the way to the controller, beside what a clock or a wake-up scatters.
        let in_ms = |value: Option<u64>| value.map_or(0.0, |ns| ns as f64 / 1e6);
        let is_rare = facts.half.is_sent_here();
        all.push(ratio(0.3 + in_ms(tally.least_way.map(|(_, least)| least)), if is_rare { 0.15 } else { 0.04 }));
        all.push(ratio(0.5 + in_ms(tally.wakes.median()), 0.1));
        all.push(ratio(0.5 + in_ms(tally.resumes.median()), 0.1));
        all.push(ratio(0.5 + in_ms(tally.refills.median()), 0.1));
        all.push(ratio(facts.per_interval.max(1) as f64, 0.15));
        let pace = tally.rhythm.pace.median().unwrap_or(0);
        all.push(ratio(0.2 + pace as f64 / 1e3, 0.02));
        Self(all)
    }

    /// How far another one is from this one: squares of differences, each in units of what means nothing.
    pub(super) fn distance(&self, other: &Self) -> f64 {
        let squares = self.0.iter().zip(&other.0).map(|(own, other)| {
            let least = own.least.hypot(other.least);
            ((own.value - other.value) / least).powi(2).min(MOST_SQUARE)
        });
        squares.sum()
    }
}
