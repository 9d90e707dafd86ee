//! How far the beginning of a link is: what an advertiser, a scanner and an initiator know.

use alloc::vec::Vec;

use taut_time::Instant;

use crate::pdu::advertising::{Address, Kind};
use crate::time::{MS, Nanos};

/// An address with its type: a random one or not.
pub(super) type Peer = (bool, Address);

#[derive(Clone, Debug)]
pub(super) struct Advertiser {
    pub(super) stage: Stage,
    pub(super) interval: Nanos,
    pub(super) kind: Kind,
    /// Under the random address.
    pub(super) random: bool,
    pub(super) data: Vec<u8>,
    pub(super) response: Vec<u8>,
    /// Whom it is directed at.
    pub(super) target: Option<Target>,
}

/// Of directed advertising.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) peer: Peer,
    /// Of a high duty cycle: it ends by itself then, once it has begun.
    pub(super) end: Option<Instant>,
    pub(super) high_duty: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Off,
    /// Sends at that time.
    Next(Instant),
    /// Listens for an answer.
    Listening(Instant),
    /// One is coming in.
    Receiving,
    /// Answers SCAN_REQ at that time.
    Respond(Instant),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    pub(super) on: bool,
    /// Asks for more.
    pub(super) active: bool,
    /// Under the random address.
    pub(super) random: bool,
    /// Reports only what is in the accept list.
    pub(super) accept_list: bool,
    /// Reports everything once.
    pub(super) once: bool,
    pub(super) seen: Vec<(Kind, Peer)>,
    /// Sends SCAN_REQ to that one then.
    pub(super) ask: Option<(Instant, Peer)>,
    pub(super) asked: Option<Peer>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Initiator {
    /// `None`: any in the accept list.
    pub(super) peer: Option<Peer>,
    /// Under the random address.
    pub(super) random: bool,
    pub(super) interval: u16,
    pub(super) latency: u16,
    pub(super) timeout: u16,
    /// CONNECT_IND goes out to that one then.
    pub(super) answer: Option<(Instant, Peer)>,
}

impl Advertiser {
    pub(super) const fn new() -> Self {
        Self {
            stage: Stage::Off,
            interval: 100 * MS,
            kind: Kind::Connectable,
            random: false,
            data: Vec::new(),
            response: Vec::new(),
            target: None,
        }
    }
}

impl Scanner {
    pub(super) const fn new() -> Self {
        Self {
            on: false,
            active: false,
            random: false,
            accept_list: false,
            once: false,
            seen: Vec::new(),
            ask: None,
            asked: None,
        }
    }

    /// Begins or goes on with other wishes.
    pub(super) fn start(&mut self, once: bool) {
        (self.on, self.once) = (true, once);
        self.seen.clear();
    }

    pub(super) fn stop(&mut self) {
        (self.on, self.ask, self.asked) = (false, None, None);
    }
}
