//! Which sockets are the two ends of one connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::told::Ends;

/// So many with the same ends are told apart.
const MOST_ALIKE: usize = 64;

/// Sockets by their ends. Several have the same ones where each is in a network namespace of its own.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<Ends, Vec<u64>>);

impl Peers {
    pub(super) fn meet(&mut self, ends: Ends, address: u64) {
        let same = self.0.entry(ends).or_default();
        if same.len() < MOST_ALIKE && !same.contains(&address) {
            same.push(address);
        }
    }

    pub(super) fn forget(&mut self, ends: Ends, address: u64) {
        if let Entry::Occupied(mut same) = self.0.entry(ends) {
            same.get_mut().retain(|known| *known != address);
            if same.get().is_empty() {
                same.remove();
            }
        }
    }

    /// Whether a socket has these ends.
    pub(super) fn has(&self, ends: Ends) -> bool {
        self.0.contains_key(&ends)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that may be the other end of a connection.
    pub(super) fn of(&self, (own, peer): Ends) -> &[u64] {
        self.0.get(&(peer, own)).map_or(&[][..], Vec::as_slice)
    }
}
