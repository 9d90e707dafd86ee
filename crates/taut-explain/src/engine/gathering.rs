//! Gathers what stands out over all directions, in bounded memory: also of those whose reports were not kept.

use std::collections::BTreeMap;

use taut_event::Holder;

use super::detect;
use super::over_all::{CauseTime, HostPair, LongStall, MostHeld, OverAll};
use super::parts::New;
use super::times::{AllTimes, Timed};
use super::{Direction, Verdict};

/// So many pairs are told apart at least; where there are twice as many, those go of which least was found.
const PAIRS: usize = 1024;
/// So many are reported, and so many stalls.
const REPORTED: usize = 10;
/// A stretch that people notice.
const LONG_NS: u64 = 200_000_000;

/// Gathers it, direction by direction.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    all: OverAll,
    times: AllTimes,
    pairs: BTreeMap<[String; 2], (u64, HostPair)>,
}

impl Gathering {
    /// Adds a direction, or a part of one, in which so much time could be had back.
    pub(super) fn add(&mut self, direction: &Direction, weight: u64, timed: &[Timed<'_>], new: &New) {
        let name = format!("{} > {}", direction.from, direction.to);
        timed.iter().for_each(|timed| self.times.add(timed, &name));
        for held in &direction.breakdown {
            let longest = held.longest.iter().map(|stall| stall.held_ns).max().unwrap_or_default();
            most(&mut self.all.most_held, &held.holder, (held.share, held.held_ns, longest), &name);
            let is_noticed = ![Holder::SendingProgram, Holder::Delivery, Holder::NotKnown]
                .iter()
                .any(|holder| holder.name() == held.holder);
            for stall in held.longest.iter().filter(|stall| is_noticed && stall.held_ns >= LONG_NS) {
                let stalls = &mut self.all.long_stalls;
                let place = stalls.partition_point(|known| known.held_ns >= stall.held_ns);
                if place < REPORTED {
                    stalls.truncate(REPORTED - 1);
                    stalls.insert(
                        place,
                        LongStall {
                            holder: held.holder.clone(),
                            direction: name.clone(),
                            begin_ns: stall.begin_ns,
                            held_ns: stall.held_ns,
                            frames: stall.frames,
                            timer: timer(&held.holder, stall.held_ns).map(str::to_owned),
                        },
                    );
                }
            }
        }
        let mut hosts = [host(&direction.from).to_owned(), host(&direction.to).to_owned()];
        hosts.sort_unstable();
        if self.pairs.len() >= 2 * PAIRS && !self.pairs.contains_key(&hosts) {
            self.forget_lightest();
        }
        let (heaviest, pair) = self.pairs.entry(hosts).or_insert_with_key(|hosts| {
            let first = name.clone();
            let hosts = hosts.clone();
            (weight, HostPair { hosts, directions: 0, causes: Vec::new(), first, first_frames: direction.frames })
        });
        pair.directions += u64::from(new.direction);
        if weight > *heaviest {
            *heaviest = weight;
            (pair.first, pair.first_frames) = (name, direction.frames);
        }
        for (on, &is_new) in direction.verdicts.iter().zip(&new.verdicts) {
            if let Verdict::Found(found) = &on.verdict {
                let cost = (found.cost.held_ns, is_new);
                time(&mut self.all.causes, &on.cause, cost);
                time(&mut pair.causes, &on.cause, cost);
            }
        }
    }

    /// Leaves as many pairs as are told apart: those of which most was found.
    fn forget_lightest(&mut self) {
        let mut sums: Vec<u64> = self.pairs.values().map(|(_, pair)| found_ns(pair)).collect();
        sums.sort_unstable_by_key(|&sum| std::cmp::Reverse(sum));
        let Some(&least) = sums.get(PAIRS - 1) else { return };
        // Of those that are alike the first ones stay.
        let mut alike = PAIRS - sums.iter().take_while(|&&sum| sum > least).count();
        let mut gone = 0;
        self.pairs.retain(|_, (_, pair)| {
            let is_alike = found_ns(pair) == least;
            let stays = if is_alike { alike > 0 } else { found_ns(pair) > least };
            alike -= usize::from(stays && is_alike);
            gone += if stays { 0 } else { pair.directions };
            stays
        });
        self.all.other_directions += gone;
    }

    pub(super) fn finish(mut self) -> OverAll {
        if self.pairs.len() > PAIRS {
            self.forget_lightest();
        }
        let mut all = self.all;
        // The turns of programs last: two directions that wait for each other have the same time twice.
        let order = |cause: &CauseTime| (detect::is_a_program(&cause.cause), std::cmp::Reverse(cause.held_ns));
        all.causes.sort_by_key(order);
        let mut pairs: Vec<HostPair> = self.pairs.into_values().map(|(_, pair)| pair).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(found_ns(pair)));
        pairs.truncate(REPORTED);
        pairs.iter_mut().for_each(|pair| pair.causes.sort_by_key(order));
        OverAll { pairs, times: self.times.finish(), ..all }
    }
}

/// The time of all causes that were found.
fn found_ns(pair: &HostPair) -> u64 {
    pair.causes.iter().fold(0, |sum, cause| sum.saturating_add(cause.held_ns))
}

fn most(all: &mut Vec<MostHeld>, holder: &str, (share, held_ns, longest_ns): (f64, u64, u64), name: &str) {
    let Some(known) = all.iter_mut().find(|known| known.holder == holder) else {
        all.push(MostHeld {
            holder: holder.to_owned(),
            share,
            share_direction: name.to_owned(),
            held_ns,
            held_direction: name.to_owned(),
            longest_ns,
            longest_direction: name.to_owned(),
        });
        return;
    };
    if share > known.share {
        (known.share, known.share_direction) = (share, name.to_owned());
    }
    if held_ns > known.held_ns {
        (known.held_ns, known.held_direction) = (held_ns, name.to_owned());
    }
    if longest_ns > known.longest_ns {
        (known.longest_ns, known.longest_direction) = (longest_ns, name.to_owned());
    }
}

fn time(all: &mut Vec<CauseTime>, cause: &str, (held_ns, is_new): (u64, bool)) {
    match all.iter_mut().find(|known| known.cause == cause) {
        Some(known) => {
            known.held_ns = known.held_ns.saturating_add(held_ns);
            known.directions += u64::from(is_new);
        }
        None => all.push(CauseTime { cause: cause.to_owned(), held_ns, directions: is_new.into() }),
    }
}

/// An end without its port.
fn host(end: &str) -> &str {
    match end.parse::<std::net::SocketAddr>() {
        Ok(_) => end.rsplit_once(':').map_or(end, |(host, _)| host),
        Err(_) => end,
    }
}

/// The timer of a holder that lasts as long, within 5 %: RFC 6298 has 1 s before the first round trip is known,
/// RFC 2988 had 3 s; 200 ms is Linux's `TCP_RTO_MIN` (include/net/tcp.h), to which a round trip adds; 5 s is
/// `RES_TIMEOUT` of glibc (resolv.h). A write is held for 200 ms by TCP_CORK (tcp(7)), and by delayed ACKs of BSD and
/// older Windows; RFC 6298 (2.4) lets no retransmission timeout be less than 1 s, which not all follow.
fn timer(holder: &str, ns: u64) -> Option<&'static str> {
    let is = |ms: u64| ns.abs_diff(ms * 1_000_000) <= ms * 50_000;
    let known = |holder_of: Holder| holder == holder_of.name();
    if known(Holder::Handshake) && is(1000) {
        return Some("1 s: SYN sent again (RFC 6298)");
    }
    if known(Holder::Handshake) && is(3000) {
        return Some("3 s: SYN sent again (RFC 2988), or 1 s and 2 s (RFC 6298)");
    }
    if known(Holder::RetransmissionTimeout) && is(200) {
        return Some("200 ms: least retransmission timeout of Linux");
    }
    if known(Holder::RetransmissionTimeout) && is(1000) {
        return Some("1 s: least retransmission timeout of RFC 6298");
    }
    if known(Holder::Cork) && is(200) {
        return Some("200 ms: limit of TCP_CORK on Linux");
    }
    if known(Holder::Nagle) && is(200) {
        return Some("200 ms: delayed ACK of BSD and older Windows");
    }
    if known(Holder::Unanswered) && is(5000) {
        return Some("5 s: second try of glibc's resolver");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Certainty, Cost, Found, Held, Stall, VerdictOn};

    const MS: u64 = 1_000_000;

    fn direction(from: &str, to: &str, holder: Holder, ms: u64, is_found: bool) -> Direction {
        let stall = Stall { begin_ns: 0, held_ns: ms * MS, frames: [1, 2] };
        let held = Held {
            holder: holder.name().to_owned(),
            side: holder.side().to_string(),
            held_ns: ms * MS,
            share: 0.5,
            episodes: 1,
            longest: vec![stall],
        };
        let found = Found {
            summary: String::new(),
            side: String::new(),
            certainty: Certainty::Seen,
            cost: Cost { held_ns: ms * MS, between_ns: [0; 2], share: 0.5, episodes: 1 },
            evidence: Vec::new(),
            remedy: String::new(),
        };
        let verdict = if is_found { Verdict::Found(found) } else { Verdict::Clear };
        Direction {
            from: from.to_owned(),
            to: to.to_owned(),
            breakdown: vec![held],
            verdicts: vec![VerdictOn { cause: "loss".to_owned(), verdict }],
            ..Direction::default()
        }
    }

    fn gathered(all: &[Direction]) -> OverAll {
        let mut gathering = Gathering::default();
        let new = New { direction: true, verdicts: vec![true] };
        all.iter().for_each(|one| gathering.add(one, one.breakdown[0].held_ns, &[], &new));
        gathering.finish()
    }

    #[test]
    fn both_ways_of_all_connections_between_two_hosts_are_one_pair() {
        let rto = Holder::RetransmissionTimeout;
        let all = gathered(&[
            direction("10.0.0.1:1", "10.0.0.2:2", rto, 300, true),
            direction("10.0.0.2:9", "10.0.0.1:1", rto, 500, true),
            direction("[fe80::1]:1", "[fe80::2]:2", rto, 700, true),
            direction("10.0.0.1:1", "10.0.0.9:2", rto, 900, false),
        ]);
        assert_eq!(all.pairs.len(), 3);
        let first = &all.pairs[0];
        assert_eq!((first.directions, first.causes[0].held_ns, first.causes[0].directions), (2, 800 * MS, 2));
        assert_eq!(first.first, "10.0.0.2:9 > 10.0.0.1:1");
        assert_eq!(all.pairs[1].hosts, ["[fe80::1]", "[fe80::2]"]);
        // What is not found has no time.
        assert!(all.pairs[2].causes.is_empty());
        assert_eq!((all.causes[0].held_ns, all.causes[0].directions), (1500 * MS, 3));
        let most = &all.most_held[0];
        assert_eq!((most.longest_ns, most.longest_direction.as_str()), (900 * MS, "10.0.0.1:1 > 10.0.0.9:2"));
    }

    #[test]
    fn pairs_and_stalls_are_bounded_and_the_longest_stay() {
        let all: Vec<Direction> = (0..3000_u64)
            .map(|i| direction(&format!("10.1.{}.{}:1", i / 250, i % 250), "b", Holder::Nagle, 100 + i, true))
            .collect();
        let all = gathered(&all);
        assert_eq!((all.pairs.len(), all.other_directions), (REPORTED, 3000 - PAIRS as u64));
        let lengths: Vec<u64> = all.long_stalls.iter().map(|stall| stall.held_ns / MS).collect();
        assert_eq!(lengths, (3090..3100).rev().collect::<Vec<_>>());
        assert_eq!(all.pairs[0].hosts[0], "10.1.11.249");
        // Where nothing is found in most, the others stay.
        let all: Vec<Direction> = (0..3000_u64)
            .map(|i| direction(&format!("10.1.{}.{}:1", i / 250, i % 250), "b", Holder::Nagle, 100, i % 1000 == 999))
            .collect();
        let found = gathered(&all).pairs.iter().filter(|pair| !pair.causes.is_empty()).count();
        assert_eq!(found, 3);
    }

    #[test]
    fn a_timer_is_named_where_it_fits_its_holder_and_nowhere_else() {
        let stalls = |holder, ms| gathered(&[direction("a", "b", holder, ms, true)]).long_stalls;
        let timer = |holder, ms| stalls(holder, ms)[0].timer.clone();
        assert!(timer(Holder::Handshake, 1010).unwrap().starts_with("1 s"));
        assert!(timer(Holder::Handshake, 3000).unwrap().starts_with("3 s"));
        assert!(timer(Holder::RetransmissionTimeout, 205).unwrap().starts_with("200 ms"));
        assert!(timer(Holder::Unanswered, 5003).unwrap().starts_with("5 s"));
        assert!(timer(Holder::RetransmissionTimeout, 1002).unwrap().starts_with("1 s"));
        assert!(timer(Holder::Cork, 201).unwrap().contains("TCP_CORK"));
        assert!(timer(Holder::Nagle, 202).unwrap().contains("delayed ACK"));
        assert_eq!([timer(Holder::Cork, 230), timer(Holder::ReceiveWindow, 200)], [None, None]);
        assert_eq!([timer(Holder::Handshake, 1500), timer(Holder::PeerTurn, 1000)], [None, None]);
        assert!(stalls(Holder::Nagle, 199).is_empty() && stalls(Holder::SendingProgram, 900).is_empty());
    }
}
