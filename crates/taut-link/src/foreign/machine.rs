//! The foreign peer without I/O: packets and times in, packets and times out.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use taut_time::Instant;

use super::connection::{Answer, Connection};
use super::policy::AckTimer;
use super::record::{AckSent, Arrival, Log};
use super::segment::{Flags, Segment};

/// Connections at a time. One more takes the place of the oldest.
const MAX_CONNECTIONS: usize = 64;
/// Packets that wait for [`ForeignPeer::poll`]. More are lost, as on a full transmit queue.
const MAX_WAITING: usize = 256;
/// Distance of the initial sequence numbers of successive connections.
const SEQUENCE_STEP: u32 = 64_000;

/// Who a [`ForeignPeer`] is and how it acknowledges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Its own address. Packets to any other are ignored.
    pub address: Ipv4Addr,
    /// The port on which it accepts connections. Segments to any other are answered with a RST.
    pub port: u16,
    /// When it acknowledges data.
    pub policy: AckTimer,
    /// Sequence number of its first SYN. Later connections follow in steps of 64,000.
    pub initial_sequence: u32,
}

/// A TCP receiver (RFC 9293) that takes in all data at once, sends none and acknowledges late, as its [`AckTimer`]
/// says.
///
/// It grants a window of 65,535 bytes, accepts segments of 1460 bytes and knows no other option: no window scaling, no
/// timestamps, no SACK. Data after a gap is dropped, for the sender to repeat. It closes a connection when the client
/// does.
///
/// The owner calls [`handle`](Self::handle) for each packet, then [`poll`](Self::poll) until it returns `None`, and
/// `poll` again at the [`deadline`](Self::deadline). All times are on one clock of the owner's choice.
#[derive(Debug)]
pub struct ForeignPeer {
    config: Config,
    next_sequence: u32,
    /// The oldest first.
    connections: Vec<Connection>,
    waiting: VecDeque<Waiting>,
    arrivals: Log<Arrival>,
    acks: Log<AckSent>,
}

/// A packet on its way out.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    packet: Vec<u8>,
    acknowledges: Option<(SocketAddrV4, u64)>,
}

impl ForeignPeer {
    /// A peer without connections.
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            next_sequence: config.initial_sequence,
            connections: Vec::new(),
            waiting: VecDeque::new(),
            arrivals: Log::new(),
            acks: Log::new(),
        }
    }

    /// Takes in an IPv4 packet that arrived at `now`. Packets that are malformed, damaged, fragments, not TCP or for
    /// another address are ignored.
    pub fn handle(&mut self, now: Instant, packet: &[u8]) {
        let Some(segment) = Segment::parse(packet) else { return };
        if *segment.destination.ip() != self.config.address {
            return;
        }
        let known = self.connections.iter().position(|connection| connection.client == segment.source);
        let Flags { syn, ack, rst, .. } = segment.flags;
        if segment.destination.port() != self.config.port {
            self.reset(now, &segment);
        } else if let Some(index) = known {
            self.receive(now, &segment, index);
        } else if syn && !ack && !rst {
            self.accept(now, &segment);
        } else {
            self.reset(now, &segment);
        }
    }

    /// The next packet to emit at `now`, if one is due.
    pub fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.waiting.is_empty() {
            let is_due = |connection: &Connection| connection.ack_due().is_some_and(|due| due <= now);
            let index = self.connections.iter().position(is_due)?;
            self.acknowledge(now, index);
        }
        let Waiting { packet, acknowledges, .. } = self.waiting.pop_front()?;
        if let Some((client, up_to)) = acknowledges {
            self.acks.push(AckSent { client, at: now, up_to });
        }
        Some(packet)
    }

    /// When [`poll`](Self::poll) will have a packet, as far as is known. In the past when it has one now.
    pub fn deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.front().map(|waiting| waiting.since);
        waiting.into_iter().chain(self.connections.iter().filter_map(Connection::ack_due)).min()
    }

    /// Takes the record of the new data that came from a client's port, in the order of time. Repeated and dropped
    /// segments are not in it: each byte arrives once.
    pub fn take_arrivals(&mut self, client_port: u16) -> Vec<Arrival> {
        self.arrivals.take(client_port)
    }

    /// Takes the record of the acknowledgements that went to a client's port, in the order of time, repeated ones
    /// included. The SYN of the peer is none.
    pub fn take_acks(&mut self, client_port: u16) -> Vec<AckSent> {
        self.acks.take(client_port)
    }

    /// The same as [`take_acks`](Self::take_acks), but the record stays.
    pub fn acks(&self, client_port: u16) -> Vec<AckSent> {
        self.acks.of(client_port)
    }

    /// How many entries of the records are gone because nobody took them in time: each record keeps the newest 2^20.
    pub const fn lost_records(&self) -> u64 {
        self.arrivals.lost() + self.acks.lost()
    }

    fn accept(&mut self, now: Instant, syn: &Segment<'_>) {
        if self.connections.len() == MAX_CONNECTIONS {
            self.connections.remove(0);
        }
        let connection = Connection::open(syn, self.next_sequence);
        self.next_sequence = self.next_sequence.wrapping_add(SEQUENCE_STEP);
        let answer = connection.synchronize();
        self.connections.push(connection);
        self.send(now, answer, None);
    }

    fn receive(&mut self, now: Instant, segment: &Segment<'_>, index: usize) {
        let connection = &mut self.connections[index];
        let (arrived, answer) = connection.receive(now, segment, self.config.policy);
        if let Some(bytes) = arrived {
            self.arrivals.push(Arrival { client: segment.source, at: now, bytes });
        }
        match answer {
            Answer::Nothing => {}
            Answer::Synchronize => {
                let answer = connection.synchronize();
                self.send(now, answer, None);
            }
            Answer::Acknowledge => self.acknowledge(now, index),
            Answer::Reset => self.reset(now, segment),
            Answer::Forget => drop(self.connections.remove(index)),
        }
    }

    fn acknowledge(&mut self, now: Instant, index: usize) {
        let connection = &mut self.connections[index];
        let answer = connection.acknowledge();
        let acknowledges = (connection.client, connection.received());
        self.send(now, answer, Some(acknowledges));
    }

    /// Answers a segment that belongs to no connection (RFC 9293, section 3.10.7.1).
    fn reset(&mut self, now: Instant, segment: &Segment<'_>) {
        if segment.flags.rst {
            return;
        }
        let (sequence, acknowledgment) = if segment.flags.ack {
            (segment.acknowledgment, 0)
        } else {
            (0, segment.sequence.wrapping_add(segment.sequence_length()))
        };
        let flags = Flags { rst: true, ack: !segment.flags.ack, ..Flags::default() };
        let (source, destination) = (segment.destination, segment.source);
        let answer = Segment { source, destination, sequence, acknowledgment, flags, payload: &[] };
        self.send(now, answer, None);
    }

    fn send(&mut self, now: Instant, segment: Segment<'_>, acknowledges: Option<(SocketAddrV4, u64)>) {
        // A segment without data always fits into a packet.
        let Some(packet) = segment.to_packet() else { return };
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(Waiting { since: now, packet, acknowledges });
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
