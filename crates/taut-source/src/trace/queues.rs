//! The listening sockets of this network, and what waits to be accepted by them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use taut_event::Listening;

use super::scope::Scope;
use super::told::{Ends, canonical};
use crate::{Owners, SocketTable, is_own_address};

#[derive(Debug, Default)]
pub(super) struct Queues {
    listeners: Vec<Listener>,
    /// Connections that no program has.
    unaccepted: HashSet<Ends>,
    /// Of those that are asked for the ones that are of this network.
    known: HashSet<Ends>,
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    local: SocketAddr,
    inode: u32,
    listening: Listening,
}

impl Listener {
    /// How well it fits an address, if it does: one bound to the address itself goes before one for all of its family,
    /// and that before one of IPv6 that takes IPv4 as well.
    fn fits(&self, address: SocketAddr) -> Option<u8> {
        let own = self.local.ip();
        match own.is_unspecified() {
            _ if self.local.port() != address.port() => None,
            false => (own == address.ip()).then_some(2),
            true if own.is_ipv4() == address.is_ipv4() => Some(1),
            true => address.is_ipv4().then_some(0),
        }
    }
}

/// Which listening sockets traced programs accept from.
#[derive(Debug)]
pub(super) struct Accepting {
    /// By the inode, of processes; nothing where a port is traced, whoever has it.
    known: Option<HashMap<u32, bool>>,
}

impl Accepting {
    pub(super) fn new(scope: Scope) -> Self {
        Self { known: (scope == Scope::Processes).then(HashMap::new) }
    }

    /// Looks for those that connections to these ends wait for, as far as they are not known yet.
    pub(super) fn learn(&mut self, queues: &Queues, ends: &[(u64, Ends)], is_traced: impl Fn(i32) -> bool) {
        let Some(known) = &mut self.known else { return };
        let inodes = ends.iter().flat_map(|(_, ends)| queues.fitting(ends.0)).map(|one| one.inode);
        let new: HashSet<u32> = inodes.filter(|inode| !known.contains_key(inode)).collect();
        if new.is_empty() {
            return;
        }
        let owners = Owners::of_those(is_traced);
        for inode in new {
            let is_ours = owners.of(inode).is_some();
            // Who may not be looked at may have it.
            if is_ours || owners.hidden == 0 {
                known.insert(inode, is_ours);
            }
        }
    }

    /// Whether they do, if that is known.
    fn accepts(&self, inode: u32) -> Option<bool> {
        self.known.as_ref().map_or(Some(true), |known| known.get(&inode).copied())
    }
}

impl Queues {
    /// As they are now, with what is to be told of these connections; `None` without the list.
    pub(super) fn now(asked: &HashSet<Ends>) -> Option<Self> {
        let mut queues = Self::default();
        let looked = SocketTable::open().and_then(|mut table| {
            table.look(|socket| {
                let [local, peer] = [socket.local, socket.peer].map(canonical);
                if asked.contains(&(local, peer)) {
                    queues.known.insert((local, peer));
                }
                if let Some(queue) = socket.accept_queue {
                    let listening = Listening { waiting: queue.waiting, backlog: queue.backlog };
                    queues.listeners.push(Listener { local, inode: socket.inode, listening });
                } else if socket.is_unaccepted() {
                    queues.unaccepted.insert((local, peer));
                }
            })
        });
        looked.is_ok().then_some(queues)
    }

    /// What one of those that were asked for is connected to, if that is on this host. Elsewhere a socket may listen at
    /// the same port, or at the same address of another network.
    pub(super) fn of_peer(&self, ends: Ends) -> Option<Listening> {
        let is_here = self.known.contains(&ends) && is_own_address(ends.1.ip());
        is_here.then(|| self.at(ends.1))?
    }

    /// What is connected to at this address of this host; of several the fullest, which is most likely to refuse.
    fn at(&self, address: SocketAddr) -> Option<Listening> {
        let queues = self.fitting(address).map(|one| one.listening);
        queues.max_by_key(|queue| (queue.is_full(), queue.waiting))
    }

    /// The queue in which a connection to this end waits, if traced programs accept from it: with `SO_REUSEPORT`, or at
    /// another address, others may listen at the same port.
    pub(super) fn waits_in(&self, end: SocketAddr, traced: &Accepting) -> Option<Listening> {
        // It is among those that wait in its own.
        let mut fitting: Vec<&Listener> = self.fitting(end).collect();
        if fitting.iter().any(|one| one.listening.waiting > 0) {
            fitting.retain(|one| one.listening.waiting > 0);
        }
        let is_traced = match fitting.as_slice() {
            [one] => traced.accepts(one.inode).unwrap_or(true),
            several => several.iter().all(|one| traced.accepts(one.inode) == Some(true)),
        };
        let fullest = fitting.iter().map(|one| one.listening).max_by_key(|queue| queue.waiting);
        fullest.filter(|_| is_traced)
    }

    /// Those that a connection to this address may be accepted from.
    fn fitting(&self, address: SocketAddr) -> impl Iterator<Item = &Listener> {
        let best = self.listeners.iter().filter_map(|one| one.fits(address)).max();
        self.listeners.iter().filter(move |one| best.is_some() && one.fits(address) == best)
    }

    /// Whether the connection waits to be accepted.
    pub(super) fn has(&self, ends: Ends) -> bool {
        self.unaccepted.contains(&ends)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_waits_for_a_traced_program_only_if_it_waits_in_its_queue() {
        let listener = |local: &str, inode, waiting| {
            let listening = Listening { waiting, backlog: 128 };
            Listener { local: local.parse().unwrap(), inode, listening }
        };
        let told = |listeners: &[Listener], known: &[(u32, bool)]| {
            let queues = Queues { listeners: listeners.to_vec(), ..Queues::default() };
            let accepting = Accepting { known: Some(known.iter().copied().collect()) };
            queues.waits_in("10.0.0.1:80".parse().unwrap(), &accepting).map(|queue| queue.waiting)
        };
        let (ours, theirs) = ((1, true), (2, false));
        let two = |first, second| [listener("10.0.0.1:80", 1, first), listener("10.0.0.1:80", 2, second)];
        assert_eq!(told(&two(3, 0), &[ours, theirs]), Some(3));
        assert_eq!(told(&two(0, 3), &[ours, theirs]), None);
        assert_eq!(told(&two(3, 4), &[ours, theirs]), None, "it may wait in either");
        assert_eq!(told(&two(3, 4), &[ours, (2, true)]), Some(4));
        // One that nobody may look at is taken for its own, as long as there is no other.
        assert_eq!((told(&two(3, 0), &[]), told(&two(3, 4), &[ours])), (Some(3), None));
        // At its address, at any of its family, at any.
        let all = [listener("[::]:80", 1, 1), listener("0.0.0.0:80", 2, 2), listener("10.0.0.1:80", 3, 3)];
        let each = |number: usize| told(&all[..number], &[ours, (2, true), (3, true)]);
        assert_eq!([1, 2, 3].map(each), [Some(1), Some(2), Some(3)]);
        assert_eq!(told(&all, &[ours, (2, true), (3, false)]), None);
        let others = [listener("[fd00::1]:80", 1, 1), listener("10.0.0.2:80", 1, 1), listener("10.0.0.1:81", 1, 1)];
        assert_eq!(told(&others, &[ours]), None);
    }

    #[test]
    fn a_peer_elsewhere_has_no_queue_here() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let own = client.local_addr().unwrap();
        let ends = |peer: [u8; 4]| (own, SocketAddr::from((peer, port)));
        // Of TEST-NET-1 (RFC 5737), and one that is not there.
        let [here, elsewhere] = [[127, 0, 0, 1], [192, 0, 2, 9]].map(ends);
        let gone = (SocketAddr::from(([127, 0, 0, 1], 1)), here.1);
        let mut queues = Queues::now(&HashSet::from([here, elsewhere, gone])).unwrap();
        assert_eq!(queues.of_peer(here).map(|queue| queue.waiting), Some(1));
        assert_eq!((queues.of_peer(elsewhere), queues.of_peer(gone)), (None, None));
        queues.known.insert(elsewhere);
        assert_eq!((queues.at(elsewhere.1).is_some(), queues.of_peer(elsewhere)), (true, None));
        assert!(queues.has((here.1, own)));
    }
}
