//! What one host asks servers of DNS: each question followed to its answer, or to the next try.

mod queries;
mod report;
mod servers;
#[cfg(test)]
mod tests;
mod verdict;

use taut_event::{Content, Event, Flow, Holder, What};

use crate::engine::{Breakdown, Episode};
use crate::tcp::{Sample, Spread};
use queries::{Queries, Query, Seen, State};
use servers::Servers;

pub(crate) use report::{direction, times};
pub(crate) use verdict::CAUSES;

/// A question that was neither answered nor asked again for so long is given up.
const GIVEN_UP_NS: u64 = 30_000_000_000;

/// What is known of a host's questions, in bounded memory.
#[derive(Debug)]
pub(crate) struct Resolver {
    flow: Flow,
    queries: Queries,
    servers: Servers,
    pub(crate) breakdown: Breakdown,
    tally: Tally,
    /// Up to where time is booked.
    booked: Option<Seen>,
    pub(crate) begin: Option<u64>,
    last: Seen,
    pub(crate) datagrams: u64,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    bytes: u64,
    questions: u64,
    answers: u64,
    /// Answers to questions that the capture lacks.
    strays: u64,
    /// Packets that the capture has twice.
    copies: u64,
    /// Asked once more before an answer came.
    repeated: u64,
    /// Of those, how many were one of a pair (A and AAAA) of which the other one was answered.
    of_pairs: u64,
    /// Answered after they had been asked once more.
    late: u64,
    /// Neither answered nor asked again.
    given_up: u64,
    /// Not followed any more, as too many waited at once.
    forgotten: u64,
    /// Of those, how many have had no answer yet.
    forgotten_unanswered: u64,
    first_place: u64,
    last_place: u64,
    /// From a question to its next try.
    waits: Sample,
    times: Spread,
}

impl Resolver {
    pub(crate) fn new(flow: Flow) -> Self {
        Self {
            flow,
            queries: Queries::default(),
            servers: Servers::default(),
            breakdown: Breakdown::default(),
            tally: Tally::default(),
            booked: None,
            begin: None,
            last: (0, 0),
            datagrams: 0,
        }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let What::Datagram(datagram) = event.what else { return };
        let Content::Dns(dns) = datagram.content else { return };
        // Packets of several queues or interfaces may be written out of order.
        let now = (event.at.as_nanos().max(self.last.0), event.place);
        self.last = now;
        self.begin.get_or_insert(now.0);
        self.booked.get_or_insert(now);
        self.datagrams += 1;
        while let Some(old) = self.queries.take_older(now.0.saturating_sub(GIVEN_UP_NS)) {
            self.give_up(&old);
        }
        if self.datagrams == 1 {
            self.tally.first_place = now.1;
        }
        self.tally.last_place = now.1;
        if dns.is_answer {
            return self.answered(now, &dns);
        }
        let asked = Query::new(now, &dns, self.servers.index(dns.server.ip));
        if self.queries.has_copy(&asked) {
            self.tally.copies += 1;
            return;
        }
        self.tally.questions += 1;
        self.tally.bytes = self.tally.bytes.saturating_add(event.bytes.len());
        self.servers.asked(asked.server);
        if let Some(before) = self.queries.repeated(&asked, self.tally.answers > 0) {
            self.tried_again(now, &before);
        } else if self.queries.first_waiting().is_none() {
            self.book(Holder::SendingProgram, now);
        }
        // Its answer may still come.
        if let Some(old) = self.queries.add(asked).filter(|old| old.state == State::Waiting) {
            self.servers.forgotten(old.server);
            self.tally.forgotten += 1;
            self.tally.forgotten_unanswered += 1;
        }
    }

    fn answered(&mut self, now: Seen, dns: &taut_event::Dns) {
        let server = self.servers.index(dns.server.ip);
        let Some((query, was)) = self.queries.answered(dns, server) else {
            // The same answer once more is a copy of the capture, or of the network.
            let tally = &mut self.tally;
            match () {
                () if self.queries.has(dns, server) => tally.copies += 1,
                () if self.servers.answered_forgotten(server, dns.code) => {
                    tally.answers += 1;
                    tally.forgotten_unanswered -= 1;
                }
                () => tally.strays += 1,
            }
            return;
        };
        self.tally.answers += 1;
        self.servers.answered(server, now.0 - query.at.0, dns.code);
        if was == State::AskedAgain {
            self.tally.late += 1;
            return;
        }
        self.tally.times.add(now.0 - query.at.0);
        // What an older question still waits for, its own end tells.
        let end = self.queries.first_waiting().filter(|first| first.0 < now.0).unwrap_or(now);
        self.book(Holder::PeerTurn, end);
    }

    fn tried_again(&mut self, now: Seen, before: &Query) {
        self.tally.repeated += 1;
        self.tally.waits.add(now.0 - before.at.0);
        self.tally.of_pairs += u64::from(self.queries.has_answered_twin(before));
        self.servers.silent(before.server);
        // Up to there another question waited, of which nothing is known yet.
        self.book(Holder::NotKnown, before.at);
        self.book(Holder::Unanswered, now);
    }

    /// Nobody knows for how long somebody waited.
    fn give_up(&mut self, query: &Query) {
        if query.state == State::Waiting {
            self.tally.given_up += 1;
            self.servers.silent(query.server);
            let end = (query.at.0.saturating_add(GIVEN_UP_NS).min(self.last.0), query.at.1);
            self.book(Holder::NotKnown, end);
        }
    }

    /// Books what is not booked yet, up to then.
    fn book(&mut self, holder: Holder, to: Seen) {
        if let Some(from) = self.booked.filter(|from| from.0 < to.0) {
            self.breakdown.book(holder, Episode { from: from.0, to: to.0, places: (from.1, to.1) });
            self.booked = Some(to);
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        let waits = self.queries.first_waiting().is_some() || self.tally.questions == 0;
        self.book(if waits { Holder::NotKnown } else { Holder::SendingProgram }, self.last);
        self.breakdown.close();
    }
}
