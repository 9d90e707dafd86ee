//! A connection of QUIC, followed event by event in the log of one of its ends (qlog).

mod flight;
mod half;
mod report;
mod sender;
#[cfg(test)]
mod tests;
mod verdict;

use taut_event::{Address, Event, Flow, FlowKey, Quic, What};

use crate::engine::Breakdown;
use half::Half;
pub(crate) use report::direction;
use sender::{Sender, State};
pub(crate) use verdict::CAUSES;

/// What is known of a connection, in bounded memory. The direction with index 0 is what the end sends that logs.
#[derive(Debug)]
pub(crate) struct Logged {
    flow: Flow,
    halves: [Half; 2],
    /// What that end knows of what it sends.
    sender: Sender,
    is_client: Option<bool>,
    ends: Option<(Address, Address)>,
    version: Option<u32>,
    /// A packet of application data was sent or received.
    is_open: bool,
    last: u64,
    pub(crate) packets: u64,
}

impl Logged {
    pub(crate) fn new(flow: Flow) -> Self {
        let (halves, sender) = (<[Half; 2]>::default(), Sender::default());
        Self { flow, halves, sender, is_client: None, ends: None, version: None, is_open: false, last: 0, packets: 0 }
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let What::Quic(what) = event.what else { return };
        // Threads may log out of order.
        let at = event.at.as_nanos().max(self.last);
        self.last = at;
        let seen = (at, event.place);
        let way = event.direction.index();
        for (way, half) in self.halves.iter_mut().enumerate() {
            let state = match (self.is_open, way) {
                (false, _) => State::Handshake,
                (true, 0) => self.sender.state(half.is_blocked()),
                _ if half.is_blocked() => State::ReceiveWindow,
                _ => State::NotKnown,
            };
            half.advance(seen, state);
        }
        match what {
            Quic::Role { is_client } => self.is_client = Some(is_client),
            Quic::Ends(near, far) => self.ends = Some((near, far)),
            Quic::Version(version) => {
                self.version.get_or_insert(version);
            }
            Quic::Packet(packet) => {
                self.packets += 1;
                let bytes = event.bytes.len();
                let is_probe = way == 0 && self.sender.is_probe(&packet);
                self.is_open |= packet.is_application;
                if packet.takes_turn && bytes > 0 {
                    self.halves[1 - way].other(seen);
                }
                let pacing = (way == 0).then(|| self.sender.pacing(at));
                self.halves[way].packet(seen, &packet, bytes, is_probe, pacing);
                if way == 0 {
                    self.sender.sent(at, &packet, bytes);
                }
            }
            Quic::Acknowledged { from, to } if way == 0 => {
                if self.sender.acknowledged(from, to) {
                    self.halves[0].arrived(seen);
                }
            }
            Quic::Lost { number, is_application } if way == 0 => self.sender.lost(number, is_application),
            Quic::TimerExpired if way == 0 => self.sender.timer_expired(),
            Quic::Blocked { stream, limit } => self.halves[way].blocked(stream, limit),
            Quic::Allowed { stream, limit } => self.halves[way].allowed(stream, limit),
            Quic::Metric(metric, value) if way == 0 => self.sender.metric(metric, value),
            Quic::Congestion(state) if way == 0 => self.sender.congestion(state),
            Quic::Acknowledged { .. }
            | Quic::Lost { .. }
            | Quic::TimerExpired
            | Quic::Metric(..)
            | Quic::Congestion(_)
            | Quic::Ended => {}
        }
    }

    /// The breakdowns of both directions.
    pub(crate) fn breakdowns(&mut self) -> [&mut Breakdown; 2] {
        self.halves.each_mut().map(|half| &mut half.breakdown)
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        self.halves.iter_mut().enumerate().for_each(|(way, half)| half.finish(way == 0));
    }

    /// The key of the flow; it is of QUIC.
    fn id(&self) -> String {
        let FlowKey::Quic(key) = self.flow.key else { return String::new() };
        key.id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
