//! Who measures whom.

use crate::error::Error;
use crate::plan::{Pairs, Plan};
use crate::spread;

/// No mesh has more pairs, each way counted.
pub const MOST_PAIRS: usize = 2_000_000;
/// More hosts than this measure all pairs only if that is asked for.
const MOST_FOR_ALL: usize = 64;

/// Two hosts by their numbers in the plan.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Pair {
    /// Who asks.
    pub near: usize,
    /// Who answers.
    pub far: usize,
}

/// The pairs of a plan, each once (each way once with `both_ways`), in an order that spreads the work over the hosts.
///
/// Each host has k peers with `k=…`, k + 1 where both k and the number of hosts are odd. With `rack` it has at most
/// `elsewhere` peers in other racks, or one more where that is odd. Who has neighbours in common depends on the names
/// alone, so a plan has the same pairs on every machine.
///
/// # Errors
/// For all pairs of more than 64 hosts without `all_is_meant`, and for more than [`MOST_PAIRS`].
pub fn choose(plan: &Plan, all_is_meant: bool) -> Result<Vec<Pair>, Error> {
    let hosts = plan.hosts.len();
    let ways = if plan.both_ways { 2 } else { 1 };
    let too_many = |pairs: usize| {
        let text = "choose fewer peers: `pairs = \"k=8\"` or `pairs = \"rack\"`";
        Err(Error::new(format!("{pairs} pairs of {hosts} hosts are more than {MOST_PAIRS}: {text}")))
    };
    let by_name = |host: &usize| (spread::hash(&plan.hosts[*host].name), plan.hosts[*host].name.as_str());
    let mut order: Vec<usize> = (0..hosts).collect();
    order.sort_unstable_by_key(by_name);
    let mut pairs = match plan.pairs {
        Pairs::All => {
            let all = hosts * (hosts - 1) / 2;
            if hosts > MOST_FOR_ALL && !all_is_meant {
                let text = "choose fewer peers (`pairs = \"k=8\"` or `pairs = \"rack\"`), or give --all";
                return Err(Error::new(format!("all pairs of {hosts} hosts are {}: {text}", all * ways)));
            }
            if all * ways > MOST_PAIRS {
                return too_many(all * ways);
            }
            circle(&order, 1..=hosts / 2)
        }
        Pairs::Peers(peers) => {
            let peers = peers.min(hosts - 1);
            if hosts * peers / 2 * ways > MOST_PAIRS {
                return too_many(hosts * peers / 2 * ways);
            }
            circle(&order, distances(1, hosts, peers))
        }
        Pairs::Rack => {
            let racks = plan.racks();
            let mut members: Vec<Vec<usize>> = Vec::new();
            for &host in &order {
                let Some(rack) = racks[host] else { continue };
                members.resize_with(members.len().max(rack + 1), Vec::new);
                members[rack].push(host);
            }
            // Racks that stand next to each other by name are often next to each other.
            members.sort_by_cached_key(|rack| {
                rack.first().and_then(|&host| plan.hosts[host].rack.as_deref()).map(|name| (spread::hash(name), name))
            });
            let within: usize = members.iter().map(|rack| rack.len() * (rack.len() - 1) / 2).sum();
            let all = (within + hosts * plan.elsewhere.min(hosts) / 2) * ways;
            if all > MOST_PAIRS {
                return too_many(all);
            }
            let mut pairs: Vec<Pair> = members.iter().flat_map(|rack| circle(rack, 1..=rack.len() / 2)).collect();
            // A rack's hosts stand together, so from the longest rack on every step leads out of it.
            let longest = members.iter().map(Vec::len).max().unwrap_or(1);
            let order: Vec<usize> = members.into_iter().flatten().collect();
            let out = circle(&order, distances(longest.min(hosts / 2), hosts, plan.elsewhere));
            pairs.extend(out.into_iter().filter(|pair| racks[pair.near] != racks[pair.far]));
            pairs
        }
    };
    if plan.both_ways {
        let back: Vec<Pair> = pairs.iter().map(|pair| Pair { near: pair.far, far: pair.near }).collect();
        pairs.extend(back);
    }
    pairs.sort_by_cached_key(|pair| (spread::mix((pair.near as u64) << 32 | pair.far as u64), *pair));
    Ok(pairs)
}

/// Pairs of those who stand at these distances on a circle; each once, as no distance is more than half of it.
fn circle(order: &[usize], distances: impl IntoIterator<Item = usize>) -> Vec<Pair> {
    let all = order.len();
    let mut pairs = Vec::new();
    for distance in distances {
        // Halfway round, both would name each other.
        let first = if distance * 2 == all { all / 2 } else { all };
        pairs.extend((0..first).map(|at| Pair { near: order[at], far: order[(at + distance) % all] }));
    }
    pairs
}

/// Distances on a circle, from `least` to half of it, that give each of `all` so many peers, if there are enough.
/// The first is `least` itself; the others are spread evenly, each by chance within its part, so that few have
/// neighbours in common.
fn distances(least: usize, all: usize, peers: usize) -> Vec<usize> {
    // At such a distance are two others; only halfway round there is one.
    let two = least.max(1)..all.div_ceil(2);
    let half = (all.is_multiple_of(2) && all / 2 >= least).then_some(all / 2);
    let wanted = match half {
        Some(_) => peers / 2,
        None => peers.div_ceil(2),
    };
    if wanted > two.len() {
        return two.chain(half).collect();
    }
    let part = |number: usize| two.len() * number / wanted;
    let chosen = (0..wanted).map(|number| match number {
        0 => two.start,
        _ => {
            let by_chance = spread::mix((all as u64) << 20 | number as u64) % (part(number + 1) - part(number)) as u64;
            two.start + part(number) + by_chance as usize
        }
    });
    chosen.chain(half.filter(|_| peers % 2 == 1)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    pub(super) fn plan(racks: &[usize], pairs: &str, elsewhere: usize, both_ways: bool) -> Plan {
        let hosts: Vec<String> = racks
            .iter()
            .enumerate()
            .map(|(number, rack)| format!("{{ name = \"host-{number}\", rack = \"r{rack}\" }}"))
            .collect();
        let text = format!(
            "[mesh]\nhosts = [{}]\npairs = \"{pairs}\"\nelsewhere = {elsewhere}\nboth_ways = {both_ways}\n\
             [[mesh.work]]\necho = \"udp\"\n",
            hosts.join(", ")
        );
        Plan::parse(&text).unwrap()
    }

    fn degrees(hosts: usize, pairs: &[Pair]) -> Vec<usize> {
        let mut degrees = vec![0; hosts];
        for pair in pairs {
            degrees[pair.near] += 1;
            degrees[pair.far] += 1;
        }
        degrees
    }

    fn each_once(pairs: &[Pair]) -> bool {
        let mut seen = HashSet::new();
        pairs
            .iter()
            .all(|pair| pair.near != pair.far && seen.insert((pair.near.min(pair.far), pair.near.max(pair.far))))
    }

    #[test]
    fn all_pairs_of_many_hosts_have_to_be_meant() {
        let many = plan(&[0; 65], "all", 0, false);
        assert!(choose(&many, false).unwrap_err().to_string().contains("are 2080: choose fewer peers"));
        assert_eq!(choose(&many, true).unwrap().len(), 65 * 64 / 2);
        assert_eq!(choose(&plan(&[0; 64], "all", 0, true), false).unwrap().len(), 64 * 63);
        assert!(choose(&plan(&[0; 2100], "all", 0, false), true).unwrap_err().to_string().contains("are more than"));
    }

    #[test]
    fn who_is_asked_asks_as_often() {
        let pairs = choose(&plan(&[0; 41], "all", 0, false), false).unwrap();
        let mut asks = vec![0; 41];
        pairs.iter().for_each(|pair| asks[pair.near] += 1);
        assert!(asks.iter().all(|&count| count == 20), "{asks:?}");
    }

    #[test]
    fn each_host_sees_several_racks() {
        let racks: Vec<usize> = (0..400).map(|host| host / 20).collect();
        let chosen = plan(&racks, "rack", 8, false);
        let pairs = choose(&chosen, false).unwrap();
        for host in 0..400 {
            let seen: HashSet<usize> = pairs
                .iter()
                .filter_map(|pair| match host {
                    _ if pair.near == host => Some(racks[pair.far]),
                    _ if pair.far == host => Some(racks[pair.near]),
                    _ => None,
                })
                .collect();
            // Its own, and of the eight elsewhere at most two in one rack.
            assert!(seen.len() >= 5, "{host}: {seen:?}");
        }
    }

    proptest! {
        #[test]
        fn each_pair_is_there_once_and_every_host_has_as_many(hosts in 2_usize..80, peers in 1_usize..90) {
            let chosen = plan(&vec![0; hosts], &format!("k={peers}"), 0, false);
            let pairs = choose(&chosen, false).unwrap();
            prop_assert!(each_once(&pairs));
            let peers = peers.min(hosts - 1);
            let degree = peers + usize::from(peers % 2 == 1 && hosts % 2 == 1);
            prop_assert!(degrees(hosts, &pairs).iter().all(|&found| found == degree), "{degree}: {:?}", degrees(hosts, &pairs));
            prop_assert_eq!(choose(&chosen, false).unwrap(), pairs);
        }

        #[test]
        fn racks_are_whole_and_the_rest_is_bounded(
            racks in prop::collection::vec(0_usize..6, 2..60),
            elsewhere in 0_usize..20,
            both in any::<bool>(),
        ) {
            let pairs = choose(&plan(&racks, "rack", elsewhere, both), false).unwrap();
            let one_way: Vec<Pair> = pairs.iter().copied().filter(|pair| !both || pair.near < pair.far).collect();
            prop_assert_eq!(pairs.len(), one_way.len() * if both { 2 } else { 1 });
            prop_assert!(each_once(&one_way));
            let is_within = |pair: &&Pair| racks[pair.near] == racks[pair.far];
            let (within, out): (Vec<Pair>, Vec<Pair>) = one_way.iter().partition(is_within);
            let size = |rack: usize| racks.iter().filter(|&&other| other == rack).count();
            let all_within: usize = (0..6).map(|rack| size(rack) * size(rack).saturating_sub(1) / 2).sum();
            prop_assert_eq!(within.len(), all_within);
            let most = elsewhere + elsewhere % 2;
            prop_assert!(degrees(racks.len(), &out).iter().all(|&found| found <= most));
            // Where no rack has half of all hosts, there is enough room for every peer that is wanted.
            let longest = (0..6).map(size).max().unwrap();
            if longest * 2 + elsewhere <= racks.len() {
                prop_assert!(degrees(racks.len(), &out).iter().all(|&found| found >= elsewhere), "{:?}", degrees(racks.len(), &out));
            }
        }
    }
}
