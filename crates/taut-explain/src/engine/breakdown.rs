//! Where the time of one direction went: each nanosecond to one holder.

use taut_event::Holder;

use super::episode::Episode;
use super::picture::Picture;
use super::trail::Trail;
use super::{Cost, Evidence};
use crate::words;

/// How many of the longest episodes are kept for each holder.
const KEPT: usize = 3;

/// What one holder had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) ns: u64,
    pub(crate) episodes: u64,
    /// The longest ones, longest first.
    pub(crate) worst: Vec<Episode>,
}

impl Cell {
    fn add(&mut self, episode: Episode) {
        self.episodes += 1;
        // Most are shorter than those that are kept.
        if self.worst.get(KEPT - 1).is_some_and(|least| least.length() >= episode.length()) {
            return;
        }
        self.keep(episode);
    }

    fn keep(&mut self, episode: Episode) {
        let place = self.worst.partition_point(|known| known.length() >= episode.length());
        if place < KEPT {
            if self.worst.len() == self.worst.capacity() {
                // Many have one episode only.
                self.worst.reserve_exact(if self.worst.is_empty() { 1 } else { KEPT - self.worst.len() });
            }
            self.worst.truncate(KEPT - 1);
            self.worst.insert(place, episode);
        }
    }

    fn take_over(&mut self, other: Self) {
        self.ns += other.ns;
        let count = self.episodes + other.episodes;
        other.worst.into_iter().for_each(|episode| self.add(episode));
        self.episodes = count;
    }
}

/// The time breakdown of one direction. Parts are booked one after another, so they add up to the
/// whole; what is moved between holders stays in the sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakdown {
    cells: Box<[(Holder, Cell)]>,
    /// Not yet finished: the next part may continue it.
    open: Option<(Holder, Episode)>,
    /// All stretches, where a picture is wanted.
    trail: Option<Box<Trail>>,
}

impl Breakdown {
    /// Books a part. One that continues the last one of the same holder lengthens that episode,
    /// unless each part of this holder is an event of its own.
    pub(crate) fn book(&mut self, holder: Holder, part: Episode) {
        if part.from >= part.to {
            return;
        }
        if let Some(trail) = &mut self.trail {
            trail.add(holder, part, is_continuous(holder), true);
        }
        let place = self.place(holder);
        let cell = &mut self.cells[place].1;
        cell.ns += part.length();
        match &mut self.open {
            Some((open, episode)) if *open == holder && episode.to == part.from && is_continuous(holder) => {
                episode.to = part.to;
                episode.places.1 = part.places.1;
            }
            Some((open, episode)) if *open == holder => cell.add(std::mem::replace(episode, part)),
            open => {
                if let Some((other, done)) = open.replace((holder, part)) {
                    self.cell(other).add(done);
                }
            }
        }
    }

    /// Books time of an episode that ends here, of which the parts were not next to each other. It
    /// counts as long as its parts are together.
    pub(crate) fn book_sum(&mut self, holder: Holder, ns: u64, episode: Episode) {
        if ns > 0 {
            self.close();
            let cell = self.cell(holder);
            cell.ns += ns;
            cell.add(Episode { to: episode.from.saturating_add(ns), ..episode });
        }
    }

    /// A part that [`Self::book_sum`] will book; so far it looks as if this holder had it.
    pub(crate) fn draw(&mut self, looks_like: Holder, part: Episode) {
        if let Some(trail) = self.trail.as_mut().filter(|_| part.from < part.to) {
            trail.add(looks_like, part, true, false);
        }
    }

    /// What was drawn since the last decision was all of this holder, or what it looked like.
    pub(crate) fn decide(&mut self, all_of: Option<Holder>) {
        if let Some(trail) = &mut self.trail {
            trail.decide(all_of);
        }
    }

    /// From now on it keeps so many stretches for a picture.
    pub(crate) fn keep_trail(&mut self, limit: usize) {
        match &mut self.trail {
            Some(trail) => trail.limit(limit),
            None => self.trail = Some(Box::new(Trail::new(limit))),
        }
    }

    /// At most so many of the longest stretches, if they were kept.
    pub(crate) fn picture(&self, start: u64, most: usize) -> Option<Picture> {
        Some(self.trail.as_ref()?.picture(start, most))
    }

    /// Gives all that one holder had to another.
    pub(crate) fn rename(&mut self, from: Holder, to: Holder) {
        self.close();
        if let Some(trail) = &mut self.trail {
            trail.rename(from, to);
        }
        if let Some(index) = self.cells.iter().position(|(holder, _)| *holder == from) {
            let mut cells = std::mem::take(&mut self.cells).into_vec();
            let (_, cell) = cells.swap_remove(index);
            self.cells = cells.into_boxed_slice();
            self.cell(to).take_over(cell);
        }
    }

    /// When the episode began that the next part may continue, if it is one of this holder.
    pub(crate) fn open_since(&self, holder: Holder) -> Option<u64> {
        self.open.filter(|(open, _)| *open == holder).map(|(_, episode)| episode.from)
    }

    /// Takes back what was booked last, if it was this holder's: when it began, and the packet there.
    pub(crate) fn take_back(&mut self, holder: Holder) -> Option<(u64, u64)> {
        let (_, episode) = self.open.take_if(|(open, _)| *open == holder)?;
        let cell = self.cell(holder);
        cell.ns = cell.ns.saturating_sub(episode.length());
        if let Some(trail) = &mut self.trail {
            trail.take_back(episode);
        }
        Some((episode.from, episode.places.0))
    }

    /// Ends the episode that is open.
    pub(crate) fn close(&mut self) {
        if let Some((holder, episode)) = self.open.take() {
            self.cell(holder).add(episode);
        }
    }

    pub(crate) fn get(&self, holder: Holder) -> Option<&Cell> {
        self.cells.iter().find(|(known, _)| *known == holder).map(|(_, cell)| cell)
    }

    pub(crate) fn ns(&self, holder: Holder) -> u64 {
        self.get(holder).map_or(0, |cell| cell.ns)
    }

    /// What several holders had, of a whole of so long.
    pub(crate) fn cost(&self, holders: &[Holder], whole_ns: u64) -> Cost {
        let cells = || holders.iter().filter_map(|&holder| self.get(holder));
        let held_ns = cells().map(|cell| cell.ns).sum();
        Cost {
            held_ns,
            between_ns: [held_ns; 2],
            share: held_ns as f64 / whole_ns.max(1) as f64,
            episodes: cells().map(|cell| cell.episodes).sum(),
        }
    }

    /// The longest stretch of several holders.
    pub(crate) fn longest(&self, holders: &[Holder]) -> Option<Episode> {
        let cells = holders.iter().filter_map(|&holder| self.get(holder));
        cells.filter_map(|cell| cell.worst.first()).max_by_key(|episode| episode.length()).copied()
    }

    /// The same, as something to look at.
    pub(crate) fn longest_seen(&self, holders: &[Holder]) -> Evidence {
        let longest = self.longest(holders);
        let text = longest.map_or_else(String::new, |episode| format!("Longest: {}.", words::time(episode.length())));
        Evidence { text, frames: longest.map(|episode| episode.places.into()) }
    }

    pub(crate) fn total_ns(&self) -> u64 {
        self.cells.iter().map(|(_, cell)| cell.ns).sum()
    }

    fn cell(&mut self, holder: Holder) -> &mut Cell {
        let place = self.place(holder);
        &mut self.cells[place].1
    }

    fn place(&mut self, holder: Holder) -> usize {
        self.cells.iter().position(|(known, _)| *known == holder).unwrap_or_else(|| self.begin(holder))
    }

    #[cold]
    fn begin(&mut self, holder: Holder) -> usize {
        // Few holders have time of a direction: of one without data the opening only.
        let mut cells = std::mem::take(&mut self.cells).into_vec();
        cells.reserve_exact(1);
        cells.push((holder, Cell::default()));
        self.cells = cells.into_boxed_slice();
        self.cells.len() - 1
    }
}

const fn is_continuous(holder: Holder) -> bool {
    !matches!(
        holder,
        Holder::SendingProgram
            | Holder::PeerTurn
            | Holder::Nagle
            | Holder::Cork
            | Holder::TailLossProbe
            | Holder::RetransmissionTimeout
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(from: u64, to: u64) -> Episode {
        Episode { from, to, places: (from, to) }
    }

    #[test]
    fn parts_next_to_each_other_are_one_episode() {
        let mut breakdown = Breakdown::default();
        breakdown.book(Holder::ReceiveWindow, part(0, 5));
        breakdown.book(Holder::ReceiveWindow, part(5, 9));
        breakdown.book(Holder::SendingProgram, part(9, 10));
        breakdown.book(Holder::SendingProgram, part(10, 12));
        breakdown.close();
        assert_eq!(breakdown.get(Holder::ReceiveWindow).unwrap().worst, [part(0, 9)]);
        assert_eq!(breakdown.get(Holder::SendingProgram).unwrap().episodes, 2);
        assert_eq!(breakdown.total_ns(), 12);
    }

    #[test]
    fn no_stretch_of_a_sum_is_longer_than_the_sum() {
        let mut breakdown = Breakdown::default();
        breakdown.book_sum(Holder::Pacing, 7, part(0, 100));
        let cell = breakdown.get(Holder::Pacing).unwrap();
        assert_eq!((cell.ns, cell.worst[0].length(), cell.worst[0].places), (7, 7, (0, 100)));
    }

    #[test]
    fn the_longest_are_kept_and_a_renamed_holder_loses_nothing() {
        let mut breakdown = Breakdown::default();
        for (from, length) in [(0, 5), (10, 50), (100, 1), (200, 20), (300, 30)] {
            breakdown.book(Holder::Nagle, part(from, from + length));
        }
        breakdown.rename(Holder::Nagle, Holder::SendingProgram);
        let cell = breakdown.get(Holder::SendingProgram).unwrap();
        assert_eq!(cell.worst.iter().map(Episode::length).collect::<Vec<_>>(), [50, 30, 20]);
        assert_eq!((cell.ns, cell.episodes, breakdown.total_ns()), (106, 5, 106));
        assert!(breakdown.get(Holder::Nagle).is_none());
    }
}
