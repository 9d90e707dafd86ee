//! What each server of DNS did.

use std::net::IpAddr;

use crate::tcp::Sample;

/// So many servers are told apart; the last one stands for all others.
const MOST: usize = 8;
/// RFC 1035, section 4.1.1: server failure; refused.
const FAILURES: [u8; 2] = [2, 5];

#[derive(Clone, Debug)]
pub(super) struct Server {
    /// `None` of those that have no place of their own.
    pub(super) address: Option<IpAddr>,
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// Not answered before the next try, or at all.
    pub(super) silent: u64,
    pub(super) failures: u64,
    /// Not followed any more, as too many waited at once, and not answered so far.
    forgotten: u64,
    pub(super) times: Sample,
}

impl Server {
    /// As it is told.
    pub(super) fn name(&self) -> String {
        self.address.map_or_else(|| "other servers".to_owned(), |address| address.to_string())
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Servers(Vec<Server>);

impl Servers {
    /// The server's place.
    pub(super) fn index(&mut self, address: IpAddr) -> usize {
        if let Some(known) = self.0.iter().position(|server| server.address == Some(address)) {
            return known;
        }
        if self.0.len() < MOST {
            let address = (self.0.len() + 1 < MOST).then_some(address);
            self.0.push(Server {
                address,
                asked: 0,
                answered: 0,
                silent: 0,
                failures: 0,
                forgotten: 0,
                times: Sample::default(),
            });
        }
        self.0.len() - 1
    }

    pub(super) fn asked(&mut self, index: usize) {
        self.0[index].asked += 1;
    }

    pub(super) fn answered(&mut self, index: usize, took: u64, code: u8) {
        let server = &mut self.0[index];
        server.answered += 1;
        server.failures += u64::from(FAILURES.contains(&code));
        server.times.add(took);
    }

    pub(super) fn forgotten(&mut self, index: usize) {
        self.0[index].forgotten += 1;
    }

    /// An answer to nothing that is followed: whether it may be to a question that is not any more. How long it took is
    /// not known.
    pub(super) fn answered_forgotten(&mut self, index: usize, code: u8) -> bool {
        let server = &mut self.0[index];
        let is_of_forgotten = server.forgotten > 0;
        if is_of_forgotten {
            server.forgotten -= 1;
            server.answered += 1;
            server.failures += u64::from(FAILURES.contains(&code));
        }
        is_of_forgotten
    }

    pub(super) fn silent(&mut self, index: usize) {
        self.0[index].silent += 1;
    }

    pub(super) fn all(&self) -> &[Server] {
        &self.0
    }
}
