//! Which link of one file is which of the other, and what its PDUs tell of the clocks.

use std::collections::HashSet;

use super::align::{Aligned, align};
use super::crossings::{Crossings, Link};
use super::pdu::Pdu;
use crate::join::fit::{Fit, Point};
use crate::join::matching::Match;
use crate::join::stretches::{Placed, Stretches};
use crate::join::why::{LEAST, NotJoined};

/// Runs that are apart tell the offset of other times; meanwhile clocks gain so much on each other, in seconds per
/// second.
const APART: f64 = 1e-4;

/// Sniffers stamp PDUs with clocks of their own, and not to the nanosecond.
const SNIFFERS_NS: u64 = 20_000;

/// One direction of a link that is in both files.
#[derive(Debug)]
pub(super) struct PairedWay {
    /// The direction's number in each file.
    pub(super) ways: [usize; 2],
    pub(super) pairs: Vec<[u32; 2]>,
    /// Its data passes the reference's place first.
    pub(super) goes_there: bool,
    /// PDUs on the air, up to the last one of both files, that the log lacks.
    pub(super) unlogged: u64,
    /// The first pair behind them. From there on the controller's reports count packets that the log lacks, so that
    /// nothing tells whose they are.
    pub(super) first_unsure: usize,
}

/// A link that is in both files.
#[derive(Debug)]
pub(super) struct PairedLink {
    /// Its number in each file.
    pub(super) links: [usize; 2],
    pub(super) ways: Vec<PairedWay>,
    /// Whether the host is the central, where one file is that of the air and addresses tell that it is an end.
    is_of_central: Option<bool>,
    /// PDUs told by their bytes.
    pub(super) by_bytes: u64,
}

/// The links that are in both files.
#[derive(Debug)]
pub(super) struct Paired {
    pub(super) all: Vec<PairedLink>,
    /// Pairs that were left out although they tell the same PDUs with the same clock as one that is here.
    pub(super) copies: u64,
}

/// A PDU that is in both files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing<'a> {
    pub(super) reference: &'a Pdu,
    pub(super) other: &'a Pdu,
    /// Both the acknowledgement and the controller's report of it are known.
    pub(super) is_reported: bool,
    /// The acknowledgement on the air, if it is known, is of the stretch that is joined.
    pub(super) is_acknowledged: bool,
}

/// What of a PDU tells of the clocks: which of its times at both places.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u32)]
pub(super) enum Tells {
    Begin,
    /// Of its last part; where both have only what came, the end.
    Last,
    Report,
}

impl Tells {
    /// What the PDU itself tells in one direction, without the controller's report.
    pub(super) const fn of(is_air: [bool; 2], goes_there: bool) -> &'static [Self] {
        match (is_air, goes_there) {
            // Of the place that it passes first when its parts were there to go, of the other when they had.
            ([false, true], true) | ([true, false], false) => &[Self::Begin, Self::Last],
            ([true, true], _) => &[Self::Begin],
            _ => &[Self::Last],
        }
    }
}

impl Crossing<'_> {
    /// The packets that tell it in both files.
    pub(super) const fn frames(&self, what: Tells) -> [u64; 2] {
        let Self { reference, other, .. } = self;
        match what {
            Tells::Begin => [reference.frames[0], other.frames[0]],
            Tells::Last => [reference.frames[1], other.frames[1]],
            Tells::Report => [reference.done_frame, other.done_frame],
        }
    }
}

impl Paired {
    pub(super) fn between(reference: &Crossings, other: &Crossings) -> Result<Self, NotJoined> {
        let mut candidates = Vec::new();
        for (ours, one) in reference.links.iter().enumerate() {
            for (theirs, two) in other.links.iter().enumerate() {
                if one.is_classic != two.is_classic
                    && !one.is_air()
                    && !two.is_air()
                    && one.from_start
                    && two.from_start
                    || one.is_classic && two.is_air()
                    || two.is_classic && one.is_air()
                {
                    continue;
                }
                let is_of_central = match (one.is_air(), two.is_air()) {
                    (true, false) => end_of(two, one),
                    (false, true) => end_of(one, two),
                    _ => None,
                };
                candidates.extend(pair(one, two).map(|(ways, by_bytes)| PairedLink {
                    links: [ours, theirs],
                    ways,
                    is_of_central,
                    by_bytes,
                }));
            }
        }
        candidates.sort_by_key(|link| std::cmp::Reverse((link.by_bytes, link.pdus())));
        let chosen = chosen(candidates, reference, other)?;
        if !chosen.all.is_empty() {
            return Ok(chosen);
        }
        let is_sealed = |link: &Link| link.is_air() && link.ways.iter().flatten().any(|pdu| pdu.hash == 0);
        let is_either_sealed = reference.links.iter().chain(&other.links).any(is_sealed);
        Err(if is_either_sealed { NotJoined::Sealed } else { NotJoined::OtherLinks })
    }

    pub(super) fn crossings<'a>(
        link: &PairedLink,
        way: &'a PairedWay,
        reference: &'a Crossings,
        other: &'a Crossings,
    ) -> impl Iterator<Item = Crossing<'a>> {
        let ours = &reference.links[link.links[0]].ways[way.ways[0]];
        let theirs = &other.links[link.links[1]].ways[way.ways[1]];
        let has_both = reference.links[link.links[0]].is_air() != other.links[link.links[1]].is_air();
        way.pairs.iter().enumerate().map(move |(place, &[one, two])| {
            let (reference, other) = (&ours[one as usize], &theirs[two as usize]);
            let is_reported = has_both && place < way.first_unsure && reference.done > 0 && other.done > 0;
            Crossing { reference, other, is_reported, is_acknowledged: true }
        })
    }

    /// The lines through all, and whether a controller told that packets were through before they were acknowledged:
    /// then what it told has no part in them.
    pub(super) fn stretches(&self, reference: &Crossings, other: &Crossings) -> Result<(Stretches, bool), NotJoined> {
        let slack = reference.resolution_ns + other.resolution_ns;
        let pdus = self.all.iter().flat_map(|link| &link.ways).map(|way| way.pairs.len() as u64).sum();
        if pdus < LEAST as u64 {
            return Err(NotJoined::TooFew { common: pdus });
        }
        let with = self.placed(reference, other, true);
        let has_both = |placed: &[Placed]| {
            let first = placed.first().map(|placed| placed.point.goes_there);
            placed.iter().any(|placed| Some(placed.point.goes_there) != first)
        };
        if !has_both(&with) {
            return Err(NotJoined::OneDirection);
        }
        let all = Stretches::along(&with, slack);
        // What the clocks explain is not the controller's doing.
        if let Err(apart @ NotJoined::Apart { .. }) = all {
            return Err(apart);
        }
        let is_even = |stretches: &Stretches| stretches.steps() == 0 && stretches.strays == 0;
        if all.as_ref().is_ok_and(is_even) {
            return all.map(|all| (all, false));
        }
        let without = self.placed(reference, other, false);
        if without.len() < with.len()
            && has_both(&without)
            && let Ok(fewer) = Stretches::along(&without, slack)
            && (is_even(&fewer) || all.is_err())
        {
            return Ok((fewer, true));
        }
        if self.is_of_sniffers(reference, other)
            && let Ok(looser) = Stretches::along(&with, slack + SNIFFERS_NS)
        {
            return Ok((looser, false));
        }
        all.map(|all| (all, false))
    }

    pub(super) fn is_of_sniffers(&self, reference: &Crossings, other: &Crossings) -> bool {
        self.all.iter().all(|link| reference.links[link.links[0]].is_air() && other.links[link.links[1]].is_air())
    }

    /// What each PDU tells, in the order of the reference's packets: a clock that is set back shows times again. Each
    /// has the number of its PDU, and which of its times it is.
    fn placed(&self, reference: &Crossings, other: &Crossings, with_reports: bool) -> Vec<Placed> {
        let mut all = Vec::new();
        let mut number = 0;
        for link in &self.all {
            let is_air = [reference.links[link.links[0]].is_air(), other.links[link.links[1]].is_air()];
            for way in &link.ways {
                for crossing in Self::crossings(link, way, reference, other) {
                    let Crossing { reference, other, is_reported, .. } = crossing;
                    let mut tells = |what: Tells, ours: u64, theirs: u64, goes_there: bool| {
                        let found = Match { reference: number, other: what as u32 };
                        let point = Point { at: ours, ahead: theirs.wrapping_sub(ours) as i64, goes_there };
                        all.push((crossing.frames(what)[0], Placed { found, point }));
                    };
                    let own = Tells::of(is_air, way.goes_there);
                    for &what in own {
                        match what {
                            Tells::Begin => tells(what, reference.begin, other.begin, way.goes_there),
                            _ if own.len() > 1 => tells(what, reference.last, other.last, way.goes_there),
                            _ => tells(what, reference.end, other.end, way.goes_there),
                        }
                    }
                    if own.len() > 1 && with_reports && is_reported {
                        tells(Tells::Report, reference.done, other.done, !way.goes_there);
                    }
                    number += 1;
                }
            }
        }
        all.sort_by_key(|(frame, placed)| (*frame, placed.point.at));
        all.into_iter().map(|(_, placed)| placed).collect()
    }
}

impl PairedLink {
    fn pdus(&self) -> u64 {
        self.ways.iter().map(|way| way.pairs.len() as u64).sum()
    }

    /// Both can't be: they have a link in common.
    fn excludes(&self, other: &Self) -> bool {
        !self.is_other_end(other) && (0..2).any(|file| self.links[file] == other.links[file])
    }

    /// Of one link on the air each has another end: both adapters are of one host.
    fn is_other_end(&self, other: &Self) -> bool {
        let ends = self.is_of_central.zip(other.is_of_central);
        let common = (0..2).filter(|&file| self.links[file] == other.links[file]).count();
        ends.is_some_and(|(one, other)| one != other) && common == 1
    }

    /// Nearly as many PDUs are told alike.
    fn rivals(&self, other: &Self) -> bool {
        let nearly = |one: u64, other: u64| 10 * one.min(other) >= 9 * one.max(other);
        self.excludes(other) && nearly(self.by_bytes, other.by_bytes) && nearly(self.pdus(), other.pdus())
    }
}

/// Each link once, those with the most PDUs first. Runs of the same test look alike; then the clock decides that most
/// PDUs agree on, and nothing where another one has nearly as many.
fn chosen(candidates: Vec<PairedLink>, reference: &Crossings, other: &Crossings) -> Result<Paired, NotJoined> {
    let has_rival = |(number, one): (usize, &PairedLink)| {
        candidates.iter().enumerate().any(|(place, two)| place != number && one.rivals(two))
    };
    let with_rival: Vec<bool> = candidates.iter().enumerate().map(has_rival).collect();
    let mut clocks: Vec<(Fit, u64)> = Vec::new();
    let mut clock_of = vec![None; candidates.len()];
    let mut links: Vec<PairedLink> = Vec::with_capacity(candidates.len());
    for (number, candidate) in candidates.into_iter().enumerate() {
        let paired = Paired { all: vec![candidate], copies: 0 };
        if with_rival[number]
            && let Ok((stretches, _)) = paired.stretches(reference, other)
            && stretches.steps() == 0
        {
            let (_, fit) = stretches.longest();
            let agrees = |(known, _): &(Fit, u64)| {
                let drift = APART * known.middle.abs_diff(fit.middle) as f64;
                (known.offset - fit.offset).abs() <= known.uncertainty + fit.uncertainty + drift
            };
            let place = clocks.iter().position(agrees).unwrap_or(clocks.len());
            if place == clocks.len() {
                clocks.push((fit, 0));
            }
            clocks[place].1 += paired.all[0].pdus();
            clock_of[number] = Some(place);
        }
        links.extend(paired.all);
    }
    let best = (0..clocks.len()).rev().max_by_key(|&place| clocks[place].1);
    if let Some(best) = best
        && clocks.iter().enumerate().any(|(place, clock)| place != best && 10 * clock.1 >= 9 * clocks[best].1)
    {
        return Err(NotJoined::SeveralLinks);
    }
    let of_best = |number: usize| !with_rival[number] || best.is_none() || clock_of[number] == best;
    let (first, later): (Vec<_>, Vec<_>) = links.into_iter().enumerate().partition(|(number, _)| of_best(*number));
    let mut all: Vec<PairedLink> = Vec::new();
    let mut copies = 0;
    for (number, candidate) in first.into_iter().chain(later) {
        if !all.iter().any(|known| known.excludes(&candidate)) {
            all.push(candidate);
        } else if clock_of[number].is_some() && clock_of[number] == best {
            copies += u64::from(all.iter().any(|known| known.rivals(&candidate)));
        }
    }
    Ok(Paired { all, copies })
}

/// The directions of two links that hold the same PDUs, with how many were told by their bytes.
fn pair(one: &Link, other: &Link) -> Option<(Vec<PairedWay>, u64)> {
    // Direction 0 of the air is the central's, of a log what its host sends.
    let [straight, crossed] = [[[0, 0], [1, 1]], [[0, 1], [1, 0]]];
    let orientations = match (one.is_air(), other.is_air()) {
        (true, true) => vec![straight],
        (false, false) => vec![crossed, straight],
        (is_first, _) => match if is_first { other.is_central } else { one.is_central } {
            Some(true) => vec![straight],
            Some(false) => vec![crossed],
            None => vec![straight, crossed],
        },
    };
    let from_start = one.from_start && other.from_start && !are_others(one, other);
    let aligned = |ways: [[usize; 2]; 2]| {
        let both = ways.map(|[ours, theirs]| align(&one.ways[ours], &other.ways[theirs], from_start));
        (ways, both)
    };
    let count = |both: &[Aligned; 2]| {
        let sum = |of: fn(&Aligned) -> u64| both.iter().map(of).sum::<u64>();
        (sum(|aligned| aligned.by_bytes), sum(|aligned| aligned.pairs.len() as u64))
    };
    let (ways, both) = orientations.into_iter().map(aligned).max_by_key(|(_, both)| count(both))?;
    let (by_bytes, all) = count(&both);
    // By their order alone links with other ends are not the same.
    if all == 0 || by_bytes == 0 && are_others(one, other) {
        return None;
    }
    let is_first_late = ways == straight && first_is_late(one, other, &both);
    let goes_there = |ours: usize| match (one.is_air(), other.is_air()) {
        // What its host sends leaves a log's place; of a host's own two logs, times tell.
        (false, true) => ours == 0,
        (true, false) => ways[ours][1] == 1,
        (false, false) if ways == crossed => ours == 0,
        _ => (ours == 0) == is_first_late,
    };
    let ways = ways.into_iter().zip(both).filter(|(_, aligned)| !aligned.pairs.is_empty());
    let ways = ways.map(|(ways, Aligned { pairs, .. })| {
        let (unlogged, first_unsure) = match [one.is_air(), other.is_air()] {
            [true, false] => unlogged([one, other], ways, pairs.iter().copied()),
            [false, true] => unlogged([other, one], [ways[1], ways[0]], pairs.iter().map(|&[host, air]| [air, host])),
            _ => (0, pairs.len()),
        };
        PairedWay { ways, pairs, goes_there: goes_there(ways[0]), unlogged, first_unsure }
    });
    Some((ways.collect(), by_bytes))
}

/// Of the air and a log: PDUs on the air that the log lacks, and the first pair behind one.
fn unlogged([air, host]: [&Link; 2], ways: [usize; 2], pairs: impl ExactSizeIterator<Item = [u32; 2]>) -> (u64, usize) {
    let (on_air, in_log) = (&air.ways[ways[0]], &host.ways[ways[1]]);
    let (mut count, mut first_unsure) = (0, pairs.len());
    // Where the log has the link's begin, it should have all that was on the air before the first pair.
    let mut before = host.from_start.then_some([0, 0]);
    for (place, pair) in pairs.enumerate() {
        let [air, host] = pair.map(|number| number as usize);
        if let Some([from_air, from_host]) = before {
            let (aired, logged) = (&on_air[from_air..air], &in_log[from_host..host]);
            // By their number, and where bytes are known by those.
            let is_known = logged.iter().all(|pdu| pdu.hash > 0);
            let known: HashSet<u64> = logged.iter().map(|pdu| pdu.hash).collect();
            let is_lacking = |pdu: &&Pdu| is_known && pdu.hash > 0 && !known.contains(&pdu.hash);
            let lacking = aired.iter().filter(is_lacking).count().max(aired.len().saturating_sub(logged.len()));
            count += lacking as u64;
            if lacking > 0 {
                first_unsure = first_unsure.min(place);
            }
        }
        before = Some([air + 1, host + 1]);
    }
    (count, first_unsure)
}

/// Whether both tell addresses that can't be of one link. An address that a controller resolved is another one than
/// that on the air, so this alone says little.
fn are_others(one: &Link, other: &Link) -> bool {
    let (host, air) = match (one.is_air(), other.is_air()) {
        (false, true) => (one, other),
        (true, false) => (other, one),
        (true, true) => return one.ends.zip(other.ends).is_some_and(|(one, other)| one != other),
        (false, false) => return false,
    };
    match (host.peer, air.ends, host.is_central) {
        (Some(peer), Some(ends), Some(is_central)) => peer != ends[usize::from(is_central)],
        _ => false,
    }
}

/// Which end of a link on the air a host is, if the addresses of both say that it is one.
fn end_of(host: &Link, air: &Link) -> Option<bool> {
    let (peer, ends, is_central) = (host.peer?, air.ends?, host.is_central?);
    (peer == ends[usize::from(is_central)]).then_some(is_central)
}

/// Of one place twice: whether what goes in direction 0 is later in the other file than what goes in direction 1.
fn first_is_late(one: &Link, other: &Link, both: &[Aligned; 2]) -> bool {
    let median = |way: usize| {
        let ahead = |&[ours, theirs]: &[u32; 2]| {
            other.ways[way][theirs as usize].begin.wrapping_sub(one.ways[way][ours as usize].begin) as i64
        };
        let mut all: Vec<i64> = both[way].pairs.iter().map(ahead).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    };
    median(0).zip(median(1)).is_none_or(|(first, second)| first >= second)
}
