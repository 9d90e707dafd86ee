use std::collections::VecDeque;
use std::net::SocketAddrV4;

use taut_time::{ByteRange, Instant};

/// Most entries that a log keeps: close to three hours of a segment every 10 ms, and 32 MiB.
const CAPACITY: usize = 1 << 20;

/// New data that a segment brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// Address and port of the connection's other end.
    pub client: SocketAddrV4,
    /// When the segment arrived.
    pub at: Instant,
    /// Positions of its bytes in the connection, counted from the first data byte.
    pub bytes: ByteRange,
}

/// An acknowledgement that the receiver sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AckSent {
    /// Address and port of the connection's other end.
    pub client: SocketAddrV4,
    /// When the acknowledgement was sent.
    pub at: Instant,
    /// Position after the last acknowledged byte, counted from the first data byte.
    pub up_to: u64,
}

/// What can be attributed to a connection.
pub(crate) trait Attributed {
    fn client_port(&self) -> u16;
}

impl Attributed for Arrival {
    fn client_port(&self) -> u16 {
        self.client.port()
    }
}

impl Attributed for AckSent {
    fn client_port(&self) -> u16 {
        self.client.port()
    }
}

/// The newest entries, by time.
#[derive(Debug)]
pub(crate) struct Log<T> {
    entries: VecDeque<T>,
    lost: u64,
}

impl<T: Attributed + Copy> Log<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: VecDeque::new(), lost: 0 }
    }

    pub(crate) fn push(&mut self, entry: T) {
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
            self.lost += 1;
        }
        self.entries.push_back(entry);
    }

    /// The entries of the connections from one client port.
    pub(crate) fn of(&self, client_port: u16) -> Vec<T> {
        self.entries.iter().filter(|entry| entry.client_port() == client_port).copied().collect()
    }

    /// Removes the entries of the connections from one client port.
    pub(crate) fn take(&mut self, client_port: u16) -> Vec<T> {
        let taken = self.of(client_port);
        self.entries.retain(|entry| entry.client_port() != client_port);
        taken
    }

    /// How many entries had to go because nobody took them.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_full_log_drops_the_oldest_and_counts() {
        let mut log = Log::new();
        for up_to in 0..CAPACITY as u64 + 3 {
            let client = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7);
            log.push(AckSent { client, at: Instant::default(), up_to });
        }
        assert_eq!(log.lost(), 3);
        let kept = log.take(7);
        assert_eq!((kept.len(), kept[0].up_to), (CAPACITY, 3));
        assert!(log.take(7).is_empty());
    }
}
