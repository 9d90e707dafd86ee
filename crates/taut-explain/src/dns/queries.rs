//! The questions of the last half minute, in bounded memory.

use taut_event::Dns;

/// A time and the packet of that time.
pub(super) type Seen = (u64, u64);

/// So many are kept: more than resolvers have under way at once, but for those of whole networks.
pub(super) const MOST: usize = 512;
/// Sooner than this no resolver tries again: the same question is a copy of the capture.
const COPY_NS: u64 = 50_000_000;
/// Resolvers wait for a second at least; a question with another transaction that comes sooner is another program's.
const LEAST_TIMEOUT_NS: u64 = 900_000_000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Waiting,
    Answered,
    AskedAgain,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) at: Seen,
    pub(super) state: State,
    pub(super) server: usize,
    id: u16,
    port: u16,
    /// 0 where it is not known.
    name: u32,
    kind: u16,
}

impl Query {
    pub(super) const fn new(at: Seen, dns: &Dns, server: usize) -> Self {
        Self { at, state: State::Waiting, server, id: dns.id, port: dns.port, name: dns.name, kind: dns.kind }
    }

    /// Whether both ask for the same.
    const fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.kind == other.kind
    }
}

/// In the order in which they were asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Queries(Vec<Query>);

impl Queries {
    /// Takes out one that was asked before then.
    pub(super) fn take_older(&mut self, then: u64) -> Option<Query> {
        self.0.first().is_some_and(|query| query.at.0 < then).then(|| self.0.remove(0))
    }

    /// When the first one was asked that has no answer yet.
    pub(super) fn first_waiting(&self) -> Option<Seen> {
        self.0.iter().find(|query| query.state == State::Waiting).map(|query| query.at)
    }

    /// Whether it is the same packet once more.
    pub(super) fn has_copy(&self, asked: &Query) -> bool {
        self.0.iter().rev().take_while(|query| asked.at.0 - query.at.0 < COPY_NS).any(|query| {
            (query.id, query.port, query.server) == (asked.id, asked.port, asked.server) && query.is_same(asked)
        })
    }

    /// The try before this one, if that had no answer yet; it does not wait any more. That a question of another
    /// transaction is the next try can only be said where answers are seen.
    pub(super) fn repeated(&mut self, asked: &Query, sees_answers: bool) -> Option<Query> {
        let is_next_try = |query: &Query| {
            let waited = asked.at.0 - query.at.0;
            let is_same_transaction = query.id == asked.id && waited >= COPY_NS;
            // Without its name a question is known by its transaction, from one port to one server.
            let is_nameless = asked.name == 0 && (query.port, query.server) != (asked.port, asked.server);
            let is_later = sees_answers && asked.name != 0 && waited >= LEAST_TIMEOUT_NS;
            query.state == State::Waiting && query.is_same(asked) && (is_same_transaction && !is_nameless || is_later)
        };
        let before = self.0.iter_mut().rev().find(|query| is_next_try(query))?;
        before.state = State::AskedAgain;
        Some(*before)
    }

    /// The question of an answer, and what it was before.
    pub(super) fn answered(&mut self, dns: &Dns, server: usize) -> Option<(Query, State)> {
        let is_its = |query: &&mut Query| {
            let is_same = query.name == dns.name || query.name == 0 || dns.name == 0;
            (query.id, query.port, query.server) == (dns.id, dns.port, server)
                && query.state != State::Answered
                && is_same
        };
        // The one that waits before the one that nobody waits for.
        let its = self.0.iter_mut().filter(is_its).min_by_key(|query| query.state == State::AskedAgain)?;
        let was = std::mem::replace(&mut its.state, State::Answered);
        Some((*its, was))
    }

    /// Whether a question of this transaction is known, answered or not.
    pub(super) fn has(&self, dns: &Dns, server: usize) -> bool {
        self.0.iter().any(|query| (query.id, query.port, query.server) == (dns.id, dns.port, server))
    }

    /// Whether the other one of a pair (A and AAAA), sent together with this one, was answered.
    pub(super) fn has_answered_twin(&self, query: &Query) -> bool {
        self.0.iter().any(|other| {
            other.state == State::Answered
                && other.kind != query.kind
                && (other.name, other.port) == (query.name, query.port)
                && other.at.0.abs_diff(query.at.0) < COPY_NS
        })
    }

    /// Adds a question; if there were too many, the one that went for it, which need not be done.
    pub(super) fn add(&mut self, asked: Query) -> Option<Query> {
        let gone = (self.0.len() >= MOST).then(|| {
            let done = self.0.iter().position(|query| query.state != State::Waiting);
            self.0.remove(done.unwrap_or(0))
        });
        self.0.push(asked);
        gone
    }
}
