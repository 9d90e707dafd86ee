use std::io::{self, Write};

use taut_time::Instant;

use super::air::{Connection, Sender};

/// 1970-01-01 in microseconds since the year 0, where btsnoop counts from (BlueZ, src/shared/btsnoop.c).
const UNIX_EPOCH_US: u64 = 0x00dc_ddb3_0f2f_8000;
/// H4: each packet with the octet that tells its type.
const TYPE_H4: u32 = 1002;

/// Which way a packet goes between host and controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Towards {
    /// Sent by the host.
    Controller,
    /// Received by the host.
    Host,
}

/// Writes the packets between one host and its controller as btsnoop (RFC 1761's form with Bluetooth's types), which Wireshark
/// and `btmon --read` show.
pub struct HostCapture<W> {
    out: W,
}

impl<W: Write> HostCapture<W> {
    /// Begins a capture.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"btsnoop\0")?;
        out.write_all(&1u32.to_be_bytes())?;
        out.write_all(&TYPE_H4.to_be_bytes())?;
        Ok(Self { out })
    }

    /// The LE Connection Complete event with which the connection began (Core Specification, Vol 4, Part E, 7.7.65.1), for
    /// recordings of a connection that stands from the start. `host` is the role of this side.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn connected(&mut self, at: Instant, handle: u16, host: Sender, connection: &Connection) -> io::Result<()> {
        const RANDOM_ADDRESS: u8 = 1;
        let (role, peer) = match host {
            Sender::Central => (0, connection.peripheral),
            Sender::Peripheral => (1, connection.central),
        };
        let mut event = vec![4, 0x3e, 19, 0x01, 0];
        event.extend(handle.to_le_bytes());
        event.extend([role, RANDOM_ADDRESS]);
        event.extend(peer.iter().rev());
        event.extend(connection.interval_units());
        event.extend(connection.latency.to_le_bytes());
        event.extend(connection.timeout_units());
        // The central's clock accuracy: 20 ppm.
        event.push(7);
        self.packet(at, Towards::Host, &event)
    }

    /// A packet at the moment at which the host's driver had it. `packet` begins with the octet of its H4 type: 1 command, 2 ACL
    /// data, 4 event.
    ///
    /// # Errors
    ///
    /// When it can't be written, or is longer than 4 GiB.
    pub fn packet(&mut self, at: Instant, towards: Towards, packet: &[u8]) -> io::Result<()> {
        const RECEIVED: u32 = 1;
        const COMMAND_OR_EVENT: u32 = 2;
        let is_data = packet.first() == Some(&2);
        let direction = if towards == Towards::Host { RECEIVED } else { 0 };
        let flags = direction | if is_data { 0 } else { COMMAND_OR_EVENT };
        let length = u32::try_from(packet.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        for word in [length, length, flags, 0] {
            self.out.write_all(&word.to_be_bytes())?;
        }
        self.out.write_all(&(UNIX_EPOCH_US + at.as_nanos() / 1000).to_be_bytes())?;
        self.out.write_all(packet)
    }

    /// Writes what is still to be written and hands the writer back.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_direction_and_its_time() {
        let mut capture = HostCapture::begin(Vec::new()).unwrap();
        capture.packet(Instant::from_nanos(1_500_999), Towards::Controller, &[2, 0x40, 0, 0, 0]).unwrap();
        capture.packet(Instant::from_nanos(2_000_000), Towards::Host, &[4, 0x13, 0]).unwrap();
        let bytes = capture.finish().unwrap();
        let records = &bytes[16..];
        assert_eq!((&bytes[..8], records.len()), (&b"btsnoop\0"[..], 24 + 5 + 24 + 3));
        let word = |at: usize| u32::from_be_bytes(records[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(8), word(29), word(29 + 8)), (5, 0, 3, 3));
        let time = u64::from_be_bytes(records[16..24].try_into().unwrap());
        assert_eq!(time - UNIX_EPOCH_US, 1500);
    }
}
