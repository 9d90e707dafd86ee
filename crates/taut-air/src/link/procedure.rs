//! Where the procedures of link layer control stand (Core Specification, Vol 6, Part B, section 5).

use super::clock::Clock;
use super::terms::Update;
use crate::phy::Phy;
use crate::time::Nanos;

/// Procedures that wait for an instant or an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Procedures {
    pub(super) connection: Option<(u16, Change)>,
    pub(super) phy: Option<(u16, [u8; 2])>,
    /// PHY masks that this side asked for, tx and rx.
    pub(super) asked: Option<[u8; 2]>,
    /// This side asked for the peer's features.
    pub(super) asked_features: bool,
    /// Longest payload that the peer sends, once that was agreed on.
    pub(super) rx_length: Option<u16>,
    /// Longest payload that the host wants to be sent; `None` leaves it to the controller.
    pub(super) tx_wanted: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) interval: Nanos,
    pub(super) latency: u16,
    pub(super) timeout: Nanos,
    pub(super) offset: Nanos,
    pub(super) window: Nanos,
}

impl Procedures {
    pub(crate) const fn is_idle(&self) -> bool {
        self.connection.is_none() && self.phy.is_none()
    }

    /// Whether the event that the clock has come to is an instant.
    pub(crate) fn instant(&mut self, clock: &mut Clock, phy: &mut [Phy; 2], s2: bool) -> Option<Update> {
        let mut update = None;
        if let Some((_, change)) = self.connection.take_if(|(instant, _)| *instant == clock.counter) {
            clock.update(change.interval, change.latency, change.timeout, change.offset, change.window);
            update = Some(Update::Connection);
        }
        if let Some((_, masks)) = self.phy.take_if(|(instant, _)| *instant == clock.counter) {
            for (phy, mask) in phy.iter_mut().zip(masks) {
                *phy = match mask {
                    1 => Phy::Le1M,
                    2 => Phy::Le2M,
                    4 if s2 => Phy::CodedS2,
                    4 => Phy::CodedS8,
                    _ => *phy,
                };
            }
            update = Some(Update::Phy);
        }
        update
    }
}
