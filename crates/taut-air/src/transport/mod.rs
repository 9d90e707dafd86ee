//! What carries HCI packets between host and controller, one direction at a time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::time::{NEVER, Nanos, SECOND, after, deadline};

/// A kind of host transport.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transport {
    /// Takes no time.
    #[default]
    None,
    /// UART with flow control: ten bit times for each byte, one packet after another.
    Uart {
        /// Bits per second.
        baud: u32,
    },
    /// USB: each packet arrives that much later, without waiting for the one before it.
    Usb {
        /// From handing over to arrival.
        delay: Nanos,
    },
}

/// One direction of a transport.
#[derive(Clone, Debug)]
pub struct Pipe {
    transport: Transport,
    packets: VecDeque<(Instant, Vec<u8>)>,
    busy_until: Instant,
}

impl Pipe {
    /// An empty one.
    pub const fn new(transport: Transport) -> Self {
        Self { transport, packets: VecDeque::new(), busy_until: Instant::from_nanos(0) }
    }

    /// The same transport with nothing under way.
    pub const fn emptied(&self) -> Self {
        Self::new(self.transport)
    }

    /// Takes a packet, H4 indicator and all, that is handed over now.
    pub fn push(&mut self, now: Instant, packet: Vec<u8>) {
        let arrival = match self.transport {
            Transport::None => now,
            Transport::Uart { baud } => {
                let nanos = packet.len() as u64 * 10 * SECOND / u64::from(baud.max(1));
                after(now.max(self.busy_until), nanos)
            }
            Transport::Usb { delay } => after(now, delay),
        };
        self.busy_until = arrival;
        self.packets.push_back((arrival, packet));
    }

    /// The next packet that has arrived.
    pub fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.packets.pop_front_if(|(arrival, _)| *arrival <= now).map(|(_, packet)| packet)
    }

    /// When the next packet arrives.
    pub fn deadline(&self) -> Option<Instant> {
        deadline(self.due())
    }

    /// The same, and the end of time for none.
    #[inline]
    pub(crate) fn due(&self) -> Instant {
        self.packets.front().map_or(NEVER, |(arrival, _)| *arrival)
    }

    /// Whether something is under way.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Packets under way.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.packets.iter().map(|(_, packet)| &packet[..])
    }
}
