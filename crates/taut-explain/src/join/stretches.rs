//! Stretches in which both clocks run evenly, and which place is on which side.

use super::fit::{Fit, Point, apart, fit};
use super::matching::{Match, Matches};
use super::sightings::Sightings;
use super::why::{LEAST, NotJoined};

/// Clocks that are set more often have no timeline.
const MOST_STRETCHES: usize = 32;
/// Packets that fit no line; more of them than one in so many are no accident.
const STRAY_SHARE: usize = 50;

/// A match with what it tells of the clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) found: Match,
    pub(super) point: Point,
}

/// A time in which both clocks run evenly.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) packets: Vec<Placed>,
    pub(super) fit: Fit,
}

#[derive(Debug)]
pub(super) struct Stretches {
    pub(super) all: Vec<Stretch>,
    /// Packets that no line explains.
    pub(super) strays: u64,
    /// Packets of such flows.
    pub(super) of_one_direction: u64,
    /// Of each connection of the reference whether it was taken on the side of the smaller end.
    pub(super) sides: Vec<Option<bool>>,
}

impl Stretches {
    pub(super) fn of(reference: &Sightings, other: &Sightings, matches: &Matches) -> Result<Self, NotJoined> {
        let sides = sides(reference, other, matches);
        let found = Self::by_sides(reference, other, matches, sides)?;
        if found.of_one_direction == 0 {
            return Ok(found);
        }
        // A flow of one direction only, as a stream of UDP: once the clocks are known, its packets come late or early.
        let sides = found.sides_by_clock(reference, other, matches);
        let with_more = Self::by_sides(reference, other, matches, sides);
        Ok(with_more.ok().filter(|with_more| with_more.steps() == found.steps()).unwrap_or(found))
    }

    fn by_sides(
        reference: &Sightings,
        other: &Sightings,
        matches: &Matches,
        sides: Vec<Option<bool>>,
    ) -> Result<Self, NotJoined> {
        let mut placed = Vec::with_capacity(matches.all.len());
        let mut of_one_direction = 0;
        for &found in &matches.all {
            let (seen, there) = (&reference.seen[found.reference as usize], &other.seen[found.other as usize]);
            match sides[seen.flow as usize] {
                Some(is_near_first) => {
                    let ahead = there.at.wrapping_sub(seen.at) as i64;
                    let point = Point { at: seen.at, ahead, goes_there: seen.is_from_first == is_near_first };
                    placed.push(Placed { found, point });
                }
                None => of_one_direction += 1,
            }
        }
        if placed.is_empty() {
            return Err(NotJoined::OneDirection);
        }
        if placed.len() < LEAST {
            return Err(NotJoined::TooFew { common: placed.len() as u64 });
        }
        let slack = reference.resolution_ns + other.resolution_ns;
        Ok(Self { of_one_direction, sides, ..Self::along(&placed, slack)? })
    }

    /// Of packets in order, whatever they are of. `slack` is what the clocks' steps leave open, in nanoseconds.
    pub(super) fn along(placed: &[Placed], slack: u64) -> Result<Self, NotJoined> {
        let points: Vec<Point> = placed.iter().map(|placed| placed.point).collect();
        is_not_apart(&points, slack)?;
        let (mut all, mut strays): (Vec<Stretch>, u64) = (Vec::new(), 0);
        let mut rest = placed;
        while !rest.is_empty() {
            let (length, line) = longest_even(rest, slack);
            let (even, later) = rest.split_at(length);
            rest = later;
            match line.filter(|_| length >= LEAST) {
                Some(fit) => all.push(Stretch { packets: even.to_vec(), fit }),
                None => strays += length as u64,
            }
            if all.len() > MOST_STRETCHES || strays as usize * STRAY_SHARE > placed.len() + 50 * STRAY_SHARE {
                return Err(NotJoined::NoEvenClock);
            }
        }
        if all.is_empty() {
            return Err(NotJoined::NoEvenClock);
        }
        // Two stretches may be one, of a clock that was also set; then neither has the right rate.
        for two in all.windows(2) {
            let points: Vec<Point> = two.iter().flat_map(|one| &one.packets).map(|placed| placed.point).collect();
            is_not_apart(&points, slack)?;
        }
        let mut stretches = Self { all, strays, of_one_direction: 0, sides: Vec::new() };
        stretches.part(slack);
        Ok(stretches)
    }

    /// The one with the most packets, by its number, with its line.
    pub(super) fn longest(&self) -> (usize, Fit) {
        let longest = (0..self.all.len()).rev().max_by_key(|&number| self.all[number].packets.len()).unwrap_or(0);
        (longest, self.all[longest].fit)
    }

    /// How often a clock was set.
    pub(super) fn steps(&self) -> u64 {
        self.all.len() as u64 - 1
    }

    /// The same with flows of one direction: if packets are late at the other place by a quarter of the round trip and
    /// none is early, or the other way round.
    fn sides_by_clock(&self, reference: &Sightings, other: &Sightings, matches: &Matches) -> Vec<Option<bool>> {
        let (number, fit) = self.longest();
        let times = || self.all[number].packets.iter().map(|placed| placed.point.at);
        let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let mut votes: Vec<[u64; 3]> = vec![[0; 3]; reference.ends.len()];
        for found in &matches.all {
            let (seen, there) = (&reference.seen[found.reference as usize], &other.seen[found.other as usize]);
            if !(first..=last).contains(&seen.at) {
                continue;
            }
            let late = there.at.wrapping_sub(seen.at) as i64 as f64 - fit.ahead(seen.at);
            let is_clear = late.abs() > fit.round_trip / 4.0;
            let goes_there = late > 0.0;
            let kind = if is_clear { usize::from(goes_there == seen.is_from_first) } else { 2 };
            votes[seen.flow as usize][kind] += 1;
        }
        let side = |(side, votes): (&Option<bool>, &[u64; 3])| match *votes {
            _ if side.is_some() => *side,
            [0, late, unclear] if late > unclear => Some(true),
            [early, 0, unclear] if early > unclear => Some(false),
            _ => None,
        };
        self.sides.iter().zip(&votes).map(side).collect()
    }

    /// While a clock is set packets are on their way; those that went in the direction of the step fit the line
    /// before it, as very late ones. They belong to neither.
    fn part(&mut self, slack: u64) {
        for number in 0..self.all.len() {
            let neighbours = [number.checked_sub(1), Some(number + 1)];
            let lines: Vec<Fit> =
                neighbours.into_iter().flatten().filter_map(|next| Some(self.all.get(next)?.fit)).collect();
            let stretch = &mut self.all[number];
            let (fit, before) = (stretch.fit, stretch.packets.len());
            let is_of_other = |placed: &Placed| {
                let own = fit.way(&placed.point);
                lines.iter().any(|line| (-line.uncertainty..own - fit.uncertainty).contains(&line.way(&placed.point)))
            };
            stretch.packets.retain(|placed| !is_of_other(placed));
            self.strays += (before - stretch.packets.len()) as u64;
        }
        // On the clock that was set they lie far away, and the error would be that of the time up to them.
        for stretch in &mut self.all {
            let points: Vec<Point> = stretch.packets.iter().map(|placed| placed.point).collect();
            stretch.fit = fit(&points, slack).unwrap_or(stretch.fit);
        }
    }
}

fn is_not_apart(points: &[Point], slack: u64) -> Result<(), NotJoined> {
    apart(points, slack).map_or(Ok(()), |rate| Err(NotJoined::Apart { ppm: (rate * 1e6).round() as i64 }))
}

/// How many of the first packets one line explains, and that line.
fn longest_even(placed: &[Placed], slack: u64) -> (usize, Option<Fit>) {
    let points: Vec<Point> = placed.iter().map(|placed| placed.point).collect();
    let is_even = |length: usize| is_one_sided(&points[..length]) || fit(&points[..length], slack).is_some();
    if is_even(points.len()) {
        return (points.len(), fit(&points, slack));
    }
    let (mut good, mut bad) = (1, 2);
    while bad < points.len() && is_even(bad) {
        (good, bad) = (bad, 2 * bad);
    }
    bad = bad.min(points.len());
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if is_even(middle) { good = middle } else { bad = middle }
    }
    (good, fit(&points[..good], slack))
}

fn is_one_sided(points: &[Point]) -> bool {
    points.iter().all(|point| point.goes_there == points[0].goes_there)
}

/// Of each connection of the reference whether it was taken on the side of the smaller end; `None` where only one
/// direction is in both files. What goes away from it is late at the other place,
/// and what comes is early there, whatever the clocks say. Packets that pass soon after each other vote.
fn sides(reference: &Sightings, other: &Sightings, matches: &Matches) -> Vec<Option<bool>> {
    #[derive(Clone, Default)]
    struct Votes {
        last: [Option<i64>; 2],
        first_is_late: u64,
        second_is_late: u64,
    }
    let mut votes = vec![Votes::default(); reference.ends.len()];
    for found in &matches.all {
        let (seen, there) = (&reference.seen[found.reference as usize], &other.seen[found.other as usize]);
        let ahead = there.at.wrapping_sub(seen.at) as i64;
        let votes = &mut votes[seen.flow as usize];
        let (own, across) = (usize::from(!seen.is_from_first), usize::from(seen.is_from_first));
        if let Some(back) = votes.last[across] {
            let (first, second) = if seen.is_from_first { (ahead, back) } else { (back, ahead) };
            votes.first_is_late += u64::from(first > second);
            votes.second_is_late += u64::from(first < second);
        }
        votes.last[own] = Some(ahead);
    }
    let side = |votes: &Votes| {
        let has_both = votes.last.iter().all(Option::is_some);
        has_both.then_some(votes.first_is_late >= votes.second_is_late)
    };
    votes.iter().map(side).collect()
}
