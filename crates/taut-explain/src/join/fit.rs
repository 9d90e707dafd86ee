//! The clock of one file on that of another, as a line: all that causality allows, and the middle of it.
//!
//! Between both places a packet takes some time, and never less than none. So what the other clock is ahead is at
//! most the difference of times of each packet that went there, and at least that of each packet that came back. A
//! line has to pass between both; all lines that do are possible, and no other is (Duda, Harrus, Haddad and Bernard,
//! 1987; Moon, Skelly and Towsley, 1999, for the hull).

use taut_time::{ClockDomain, ClockMap, Duration};

/// Clocks whose rates differ by more than this are not one clock that runs evenly: Linux slews by 500 ppm at most,
/// and two may slew apart.
const MOST_RATE: f64 = 1e-3;
/// Up to this rate, a line is looked for that explains why none is found below [`MOST_RATE`].
const WIDE_RATE: f64 = 1e-2;
/// Halvings of an interval until it is as narrow as the numbers allow.
const STEPS: usize = 100;

/// By how much the other clock was ahead when a packet passed, as far as one packet tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// On the clock of the reference.
    pub(super) at: u64,
    /// Time at the other place less time at the reference's, in nanoseconds.
    pub(super) ahead: i64,
    /// It went from the reference's place to the other one.
    pub(super) goes_there: bool,
}

/// A line, and how far it may be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// The middle of the time that it holds for, on the reference.
    pub(super) middle: u64,
    /// By how much the other clock is ahead then, in nanoseconds.
    pub(super) offset: f64,
    /// By how much faster it runs: seconds in a second.
    pub(super) rate: f64,
    /// The least and the greatest rate that are possible.
    pub(super) rates: [f64; 2],
    /// The offset may be wrong by so much at any moment of that time, in nanoseconds.
    pub(super) uncertainty: f64,
    /// The least round trip between both places, in nanoseconds.
    pub(super) round_trip: f64,
    /// The packets leave rates open that no clock should have: the error holds only if none has.
    pub(super) is_rate_open: bool,
}

/// What is said of a line that leaves such rates open.
pub(super) fn open_rate() -> String {
    format!(
        "These packets leave open whether the rates of the clocks differ by more than {:.0} ppm; the error holds only \
         if they do not.",
        MOST_RATE * 1e6
    )
}

impl Fit {
    /// By how much the other clock is ahead at a time of the reference.
    pub(super) fn ahead(&self, at: u64) -> f64 {
        self.offset + self.rate * (at as i64).wrapping_sub(self.middle as i64) as f64
    }

    /// From the clock of the other file to that of the reference.
    pub(super) fn to_clock_map(self, resolution: Duration) -> ClockMap {
        // At reference time t the other clock shows t + offset + rate (t - middle).
        let faster = self.rate / (1.0 + self.rate);
        let offset = self.middle as f64 * faster - self.offset * (1.0 - faster);
        let uncertainty = Duration::from_nanos(self.uncertainty.ceil() as u64);
        let offset_ns = offset.round() as i64;
        ClockMap { domain: ClockDomain::RealTime, offset_ns, rate_ppm: faster * 1e6, uncertainty, resolution }
    }

    /// The time that a packet took between both places, as the line has it: in the direction it went.
    pub(super) fn way(&self, point: &Point) -> f64 {
        let late = point.ahead as f64 - self.ahead(point.at);
        if point.goes_there { late } else { -late }
    }
}

/// The limits that packets set, around a moment and an offset near which all of them lie.
struct Limits {
    middle: u64,
    base: i64,
    first: f64,
    last: f64,
    /// Lower hull of what went there: nanoseconds from the middle, and at most so far ahead.
    above: Vec<(f64, f64)>,
    /// Upper hull of what came back.
    below: Vec<(f64, f64)>,
}

impl Limits {
    /// `slack` is what the clocks' steps leave open.
    fn of(points: &[Point], slack: f64) -> Option<Self> {
        let first = points.iter().map(|point| point.at).min()?;
        let last = points.iter().map(|point| point.at).max()?;
        let (middle, base) = (first + (last - first) / 2, points[0].ahead);
        let place = |point: &Point| {
            let at = (point.at as i64).wrapping_sub(middle as i64) as f64;
            let ahead = (point.ahead as i128 - base as i128) as f64;
            (at, if point.goes_there { ahead + slack } else { ahead - slack })
        };
        let of = |goes_there: bool| -> Vec<(f64, f64)> {
            points.iter().filter(|point| point.goes_there == goes_there).map(place).collect()
        };
        let above = lower_hull(of(true), 1.0);
        let below = lower_hull(of(false), -1.0);
        let half = (last - first) as f64 / 2.0;
        (!above.is_empty() && !below.is_empty()).then_some(Self {
            middle,
            base,
            first: -half,
            last: half,
            above,
            below,
        })
    }

    /// Of lines of this rate, the highest one and the lowest one at the middle.
    fn between(&self, rate: f64) -> (f64, f64) {
        let highest = self.above.iter().map(|(at, ahead)| ahead - rate * at).fold(f64::INFINITY, f64::min);
        let lowest = self.below.iter().map(|(at, ahead)| ahead - rate * at).fold(f64::NEG_INFINITY, f64::max);
        (highest, lowest)
    }

    fn gap(&self, rate: f64) -> f64 {
        let (highest, lowest) = self.between(rate);
        highest - lowest
    }

    fn fit(&self) -> Option<Fit> {
        // Of clocks that are known to run differently, nothing that is possible may be cut off.
        let limit = if self.gap(0.0) >= 0.0 { MOST_RATE } else { 2.0 * MOST_RATE };
        let widest = peak(-limit, limit, |rate| self.gap(rate));
        let most = self.gap(widest);
        if most < 0.0 || limit > MOST_RATE && widest.abs() > MOST_RATE {
            return None;
        }
        let is_possible = |rate: f64| self.gap(rate) >= 0.0;
        let rates = [edge(widest, -limit, is_possible), edge(widest, limit, is_possible)];
        let is_rate_open = is_possible(-limit) || is_possible(limit);
        // Of rates that are as good, the one nearest to none.
        let near = |limit: f64| edge(widest, limit, |rate| self.gap(rate) >= most - 1.0);
        let rate = 0.0_f64.clamp(near(-limit), near(limit));
        let (highest, lowest) = self.between(rate);
        let middle = f64::midpoint(highest, lowest);
        let wrong_at = |at: f64| {
            let line = middle + rate * at;
            let top = |rate: f64| self.between(rate).0 + rate * at;
            let bottom = |rate: f64| -(self.between(rate).1 + rate * at);
            let most = top(peak(rates[0], rates[1], top));
            let least = -bottom(peak(rates[0], rates[1], bottom));
            (most - line).max(line - least)
        };
        let offset = self.base as f64 + middle;
        // Years apart, a number of this kind has steps of several nanoseconds.
        let rounding = 1.0 + 4.0 * f64::EPSILON * offset.abs();
        let uncertainty = wrong_at(self.first).max(wrong_at(self.last)) + rounding;
        Some(Fit { middle: self.middle, offset, rate, rates, uncertainty, round_trip: most, is_rate_open })
    }

    /// The rate of the widest line, where lines explain all packets and are beyond what clocks should have.
    fn apart(&self) -> Option<f64> {
        if self.gap(0.0) >= 0.0 {
            return None;
        }
        let widest = peak(-WIDE_RATE, WIDE_RATE, |rate| self.gap(rate));
        (widest.abs() > MOST_RATE && self.gap(widest) >= 0.0).then_some(widest)
    }
}

/// The line through the limits that these packets set, if there is one. `slack` is what the clocks' steps leave open,
/// in nanoseconds.
pub(super) fn fit(points: &[Point], slack: u64) -> Option<Fit> {
    let fit = Limits::of(points, slack as f64)?.fit()?;
    Some(Fit { round_trip: (fit.round_trip - 2.0 * slack as f64).max(0.0), ..fit })
}

/// By how much faster the other clock runs, if both run evenly and more differently than clocks should: seconds in a
/// second.
pub(super) fn apart(points: &[Point], slack: u64) -> Option<f64> {
    Limits::of(points, slack as f64)?.apart()
}

/// Where a function that rises and then falls is highest.
fn peak(mut from: f64, mut to: f64, of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..STEPS {
        let third = (to - from) / 3.0;
        if of(from + third) < of(to - third) {
            from += third;
        } else {
            to -= third;
        }
    }
    f64::midpoint(from, to)
}

/// The last place on the way to a limit at which something still holds.
fn edge(from: f64, limit: f64, holds: impl Fn(f64) -> bool) -> f64 {
    if holds(limit) {
        return limit;
    }
    let (mut good, mut bad) = (from, limit);
    for _ in 0..STEPS {
        let middle = f64::midpoint(good, bad);
        if holds(middle) { good = middle } else { bad = middle }
    }
    // What lies just beyond can't be told from it.
    bad
}

/// The lower side of the hull of points, or the upper one with a sign of -1.
fn lower_hull(mut points: Vec<(f64, f64)>, sign: f64) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0).then((sign * one.1).total_cmp(&(sign * other.1))));
    points.dedup_by(|next, one| next.0 == one.0);
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., one, two] = hull[..] {
            let turns = (two.0 - one.0) * (point.1 - one.1) - (two.1 - one.1) * (point.0 - one.0);
            if sign * turns > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}
