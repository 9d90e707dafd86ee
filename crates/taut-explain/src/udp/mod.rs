//! A flow of UDP, followed datagram by datagram. UDP itself holds nothing back; who did is told by whose turn it was.

mod half;
mod report;
mod spin;
mod streams;
#[cfg(test)]
mod tests;
mod turns;
mod verdict;

use taut_event::{ConnectionId, Content, Direction as Way, Event, Flow, Holder, What};

use crate::engine::Breakdown;
use half::Half;
pub(crate) use report::{direction, quic_version, rate, times};
pub(crate) use verdict::CAUSES;

/// What is known of a flow, in bounded memory.
#[derive(Debug)]
pub(crate) struct Datagrams {
    flow: Flow,
    /// The direction with index 0 is that of what was sent first.
    halves: [Half; 2],
    quic: Option<Quic>,
    last: u64,
    pub(crate) datagrams: u64,
}

/// What is known of a connection of QUIC.
#[derive(Clone, Copy, Debug)]
struct Quic {
    version: u32,
    /// The one that the first packet was sent to.
    id: ConnectionId,
    /// Whether a packet without a long header came: both ends have keys.
    is_open: bool,
}

impl Datagrams {
    pub(crate) fn new(flow: Flow) -> Self {
        Self { flow, halves: <[Half; 2]>::default(), quic: None, last: 0, datagrams: 0 }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let What::Datagram(datagram) = event.what else { return };
        // Packets of several queues or interfaces may be written out of order.
        let at = event.at.as_nanos().max(self.last);
        self.last = at;
        self.datagrams += 1;
        let way = event.direction.index();
        let place = event.place;
        if let (Content::Quic(long), None) = (datagram.content, self.quic) {
            self.quic = Some(Quic { version: long.version, id: long.destination, is_open: false });
        }
        let is_opening = self.quic.is_some_and(|quic| !quic.is_open);
        let book = match (self.quic.is_some(), is_opening) {
            (true, true) => half::Book::As(Holder::Handshake),
            (true, false) => half::Book::As(Holder::NotKnown),
            _ => half::Book::ByTurn,
        };
        self.halves[1 - way].other((at, place));
        self.halves[way].own((at, place), &datagram, event.bytes.len(), book);
        if let Some(quic) = &mut self.quic {
            quic.is_open |= !matches!(datagram.content, Content::Quic(_));
            if let Some(first) = datagram.first {
                self.halves[way].spin.packet(at, first);
            }
        }
    }

    /// Whether QUIC tried to open a connection this way, and nothing ever came back. Had answers come that the capture
    /// lacks, packets without a long header would follow.
    fn is_opening_unanswered(&self, way: Way) -> bool {
        let other = &self.halves[way.reverse().index()];
        self.quic.is_some_and(|quic| !quic.is_open) && other.tally.datagrams == 0
    }

    /// The breakdowns of both directions.
    pub(crate) fn breakdowns(&mut self) -> [&mut Breakdown; 2] {
        self.halves.each_mut().map(|half| &mut half.breakdown)
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        let is_quic = self.quic.is_some();
        let answered = [0, 1].map(|way: usize| self.halves[1 - way].tally.datagrams > 0);
        self.halves.iter_mut().zip(answered).for_each(|(half, is_answered)| half.finish(is_quic, is_answered));
    }
}
