//! Where the two ends of a link are put.

use std::fs;
use std::str::FromStr;

use taut_link::affinity::allowed_cores;
use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Error, Request, Result, Session};
use taut_time::Duration;

use crate::interrupt::Interrupt;
use taut_record::{Placement, PlacementKind};

/// Where the two ends of a link are put.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Spot {
    /// How they stand to each other.
    pub kind: PlacementKind,
    /// Processor that this end is put on.
    pub core: Option<usize>,
    /// Processor that the peer is asked to be on.
    pub peer_core: Option<usize>,
    /// Why the peer is left where it is, where it should have been placed.
    pub why_free: Option<String>,
}

/// What the user wants of placements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wish {
    /// Both ends on one processor.
    SameCore,
    /// Each on one of its own.
    TwoCores,
    /// The peer where the system puts it.
    Free,
    /// Both on one, and each on one of its own: two rows.
    Both,
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "same-core" => Ok(Self::SameCore),
            "two-cores" => Ok(Self::TwoCores),
            "free" => Ok(Self::Free),
            "both" => Ok(Self::Both),
            _ => Err(format!("`{text}`: same-core, two-cores, both or free")),
        }
    }
}

impl Wish {
    const fn includes(self, kind: PlacementKind) -> bool {
        match kind {
            PlacementKind::Free => matches!(self, Self::Free),
            PlacementKind::SameCore => matches!(self, Self::SameCore | Self::Both),
            PlacementKind::TwoCores => matches!(self, Self::TwoCores | Self::Both),
        }
    }
}

impl Spot {
    /// This end on a processor, or where the system puts it; the peer as it is.
    pub const fn free(core: Option<usize>) -> Self {
        Self { kind: PlacementKind::Free, core, peer_core: None, why_free: None }
    }

    fn unplaced(core: Option<usize>, why: &str) -> Self {
        Self { why_free: Some(why.to_owned()), ..Self::free(core) }
    }

    /// Each end on this processor.
    pub const fn on(core: usize, peer_core: usize) -> Self {
        let kind = if core == peer_core { PlacementKind::SameCore } else { PlacementKind::TwoCores };
        Self { kind, core: Some(core), peer_core: Some(peer_core), why_free: None }
    }

    /// As it stands in a row; where the peer was somewhere else after all, it says so.
    pub fn told(&self, peer_was_there: bool) -> Placement {
        if peer_was_there {
            let Self { kind, core, peer_core, why_free } = self.clone();
            return Placement { kind, core, peer_core, why_free };
        }
        let why = "the peer was not in every round where it was asked to be".to_owned();
        Placement { kind: PlacementKind::Free, core: self.core, peer_core: None, why_free: Some(why) }
    }

    /// Whether these links go to a peer that is where it should be.
    pub fn is_met<'a>(&self, sessions: impl IntoIterator<Item = &'a Session>) -> bool {
        self.peer_core.is_none() || sessions.into_iter().all(|session| session.peer_core() == self.peer_core)
    }
}

/// The spots of each of these peers. When nobody says where (`wish` is none), both placements of peers on this
/// host, where there are two processors and each of the peers can be placed in both ways; otherwise one of each,
/// as it is, so that all can be held against each other. `core` is the processor that the user puts this end on.
///
/// # Errors
/// [`Error::Input`] for a wish that can't be fulfilled whatever the peer says.
pub fn of_peers(
    wish: Option<Wish>,
    core: Option<usize>,
    peers: &[&Endpoint],
    work: Work,
    plain: bool,
    interrupt: &Interrupt,
) -> Result<Vec<Vec<Spot>>> {
    let free = |spot: Spot| vec![vec![spot]; peers.len()];
    let cores = allowed_cores();
    match wish {
        Some(Wish::Free) => return Ok(free(Spot::free(core))),
        Some(_) if plain => {
            return Err(Error::Input(
                "--place puts the server on a processor too, which only taut serve lets one do: leave --plain or --place \
                 out"
                .into(),
            ));
        }
        Some(Wish::TwoCores | Wish::Both) if cores.len() < 2 => {
            return Err(Error::Input("--place two-cores needs two processors, and this process may use one".into()));
        }
        None if plain || cores.len() < 2 || !peers.iter().all(|peer| peer.is_of_this_host()) => {
            return Ok(free(Spot::free(core)));
        }
        _ => {}
    }
    let wanted = wish.unwrap_or(Wish::Both);
    let mut all = Vec::new();
    for peer in peers {
        let spots = match of_peer(peer, core, &cores, work, interrupt) {
            // That it can't be reached is told when it is measured, once.
            Err(_) => vec![Spot::unplaced(core, "the peer could not be asked")],
            Ok(spots) => {
                let spots: Vec<Spot> = spots.into_iter().filter(|spot| wanted.includes(spot.kind)).collect();
                let wants = if wanted == Wish::Both { 2 } else { 1 };
                match (spots.len() == wants, wish) {
                    (true, _) => spots,
                    // The user has put both where they are.
                    (false, None) if core.is_some() && !spots.is_empty() => spots,
                    (false, None) => return Ok(free(Spot::unplaced(core, NOT_PLACED))),
                    (false, Some(_)) if spots.is_empty() => vec![Spot::unplaced(core, NOT_PLACED)],
                    (false, Some(_)) => spots,
                }
            }
        };
        all.push(spots);
    }
    Ok(all)
}

const NOT_PLACED: &str = "the peer was not placed: it is no taut serve of this host, may not use that processor, serves others \
    elsewhere, or is of an older version";

/// The spots of a peer that runs on a thread of this process.
///
/// # Errors
/// As [`of_peers`].
pub fn of_threads(wish: Option<Wish>, core: Option<usize>) -> Result<Vec<Spot>> {
    let cores = allowed_cores();
    if wish == Some(Wish::Free) || wish.is_none() && cores.len() < 2 {
        return Ok(vec![Spot::free(core)]);
    }
    let mine = core.or_else(|| usual(&cores)).unwrap_or(0);
    let spots = std::iter::once(Spot::on(mine, mine)).chain(other(mine, &cores).map(|other| Spot::on(mine, other)));
    let spots: Vec<Spot> = spots.filter(|spot| wish.unwrap_or(Wish::Both).includes(spot.kind)).collect();
    if spots.is_empty() {
        return Err(Error::Input("--place two-cores needs two processors, and this process may use one".into()));
    }
    Ok(spots)
}

/// Where this end and a peer can be, on the same processor first; nothing where the peer can't be placed.
fn of_peer(
    peer: &Endpoint,
    core: Option<usize>,
    cores: &[usize],
    work: Work,
    interrupt: &Interrupt,
) -> Result<Vec<Spot>> {
    let ask = |core: usize| {
        let request = Request {
            endpoint: peer.clone(),
            work,
            acks: AckPolicy::System,
            message_bytes: ASKED_BYTES,
            duration: Duration::from_millis(1),
            options: Vec::new(),
            plain: false,
            timeout: Duration::from_secs(2),
            core: Some(core),
        };
        Session::ask_core(&request, interrupt)
    };
    let Some(mine) = core.or_else(|| usual(cores)) else { return Ok(Vec::new()) };
    let Some(found) = ask(mine)? else { return Ok(Vec::new()) };
    let elsewhere = match other(mine, cores) {
        Some(other) if found == mine => ask(other)?,
        _ => None,
    };
    // A server that stays where it is: then this end goes to it, or away from it.
    let is_fixed = elsewhere.is_none_or(|elsewhere| elsewhere == found);
    let mut spots = Vec::new();
    if is_fixed {
        let here =
            core.map_or_else(|| cores.contains(&found).then_some(found), |core| Some(core).filter(|_| core == found));
        spots.extend(here.map(|here| Spot::on(here, found)));
        let apart = core.filter(|&core| core != found).or_else(|| other(found, cores).filter(|_| core.is_none()));
        spots.extend(apart.map(|apart| Spot::on(apart, found)));
    } else {
        spots.push(Spot::on(mine, mine));
        spots.extend(elsewhere.map(|elsewhere| Spot::on(mine, elsewhere)));
    }
    Ok(spots)
}

/// Bytes of a message in a hello that only asks: any server takes so many.
const ASKED_BYTES: usize = 64;

/// The processor of this end when nobody says which: the second, as the first one has most of the interrupts.
fn usual(cores: &[usize]) -> Option<usize> {
    cores.get(1).or_else(|| cores.first()).copied()
}

/// A processor that is not this one, nor another thread of the same core, as long as there is one.
fn other(than: usize, cores: &[usize]) -> Option<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{than}/topology/thread_siblings_list");
    let siblings = fs::read_to_string(path).map(|text| listed(&text)).unwrap_or_default();
    let others = || cores.iter().copied().filter(|&core| core != than);
    others().find(|core| !siblings.contains(core)).or_else(|| others().next())
}

/// `0-1,4` as numbers.
fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?.min(4096))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taut_serve::{Server, ServerConfig};

    fn server(endpoint: &str) -> Server {
        Server::start(&[endpoint.parse().unwrap()], ServerConfig::default()).unwrap()
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(listed("0-1,4\n"), [0, 1, 4]);
        assert_eq!((listed(""), listed("x-3,2")), (vec![], vec![2]));
    }

    #[test]
    fn a_server_of_this_host_is_placed_in_both_ways() {
        let cores = allowed_cores();
        for endpoint in ["tcp://127.0.0.1:0", "udp://127.0.0.1:0", "unix:@taut-placed", "unix-dgram:@taut-placed"] {
            let server = server(endpoint);
            let peer = &server.endpoints()[0];
            let spots = of_peers(None, None, &[peer], Work::Echo, false, &Interrupt::default()).unwrap();
            if cores.len() < 2 {
                assert_eq!(spots, [[Spot::free(None)]]);
                continue;
            }
            let [same, two] = &spots[0][..] else { panic!("{endpoint}: {spots:?}") };
            assert_eq!((same.kind, two.kind), (PlacementKind::SameCore, PlacementKind::TwoCores), "{endpoint}");
            for spot in [same, two] {
                let request = Request {
                    endpoint: peer.clone(),
                    work: Work::Echo,
                    acks: AckPolicy::System,
                    message_bytes: 64,
                    duration: Duration::ZERO,
                    options: Vec::new(),
                    plain: false,
                    timeout: Duration::from_secs(5),
                    core: spot.peer_core,
                };
                let session = Session::open(&request).unwrap();
                assert!(spot.is_met([&session]), "{endpoint}: {spot:?} {:?}", session.peer_core());
                // A client of another wish is told where the server is, which stays there as long
                // as this one is served.
                let other =
                    Request { core: cores.iter().copied().find(|core| Some(*core) != spot.peer_core), ..request };
                let found = Session::ask_core(&other, &Interrupt::default()).unwrap();
                let is_datagram = peer.framing() == taut_time::Framing::Datagram;
                assert_eq!(found, if is_datagram { spot.peer_core } else { other.core }, "{endpoint}");
            }
        }
    }

    #[test]
    fn who_can_not_be_placed_is_free() {
        let server = server("tcp://127.0.0.1:0");
        let peer = &server.endpoints()[0];
        assert_eq!(
            of_peers(Some(Wish::Free), Some(0), &[peer], Work::Echo, false, &Interrupt::default()).unwrap(),
            [[Spot::free(Some(0))]]
        );
        assert_eq!(
            of_peers(None, None, &[peer], Work::Echo, true, &Interrupt::default()).unwrap(),
            [[Spot::free(None)]]
        );
        assert!(of_peers(Some(Wish::Both), None, &[peer], Work::Echo, true, &Interrupt::default()).is_err());
        // One that is far away makes all free, so that they can be held against each other; it is not even asked.
        let far = "tcp://192.0.2.1:9".parse().unwrap();
        assert_eq!(
            of_peers(None, None, &[peer, &far], Work::Echo, false, &Interrupt::default()).unwrap(),
            [[Spot::free(None)], [Spot::free(None)]]
        );
    }
}
