use std::io::{self, Write};

use taut_air::{AirEvent, Happening, Observer, Role};
use taut_time::Instant;

/// 1970-01-01 in microseconds since the year 0, where btsnoop counts from (BlueZ, src/shared/btsnoop.c).
const UNIX_EPOCH_US: u64 = 0x00dc_ddb3_0f2f_8000;
/// H4: each packet with the octet that tells its type.
const TYPE_H4: u32 = 1002;
const ACL_DATA: u8 = 2;

/// Writes the packets between one host and its controller as btsnoop (RFC 1761's form with
/// Bluetooth's types), which Wireshark and `btmon --read` show. The time is that at the host, as in
/// a capture made there: of a packet sent when the driver had it, of one received when it had come
/// over the transport. Of several links' peripherals it is the first one.
pub struct HostCapture<W> {
    out: W,
    side: Role,
    failed: Option<io::Error>,
}

impl<W: Write> HostCapture<W> {
    /// Begins a capture of one side.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn begin(mut out: W, side: Role) -> io::Result<Self> {
        out.write_all(b"btsnoop\0")?;
        out.write_all(&1u32.to_be_bytes())?;
        out.write_all(&TYPE_H4.to_be_bytes())?;
        Ok(Self { out, side, failed: None })
    }

    /// Writes what is still to be written and hands the writer back.
    ///
    /// # Errors
    ///
    /// When something could not be written.
    pub fn finish(mut self) -> io::Result<W> {
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }

    fn packet(&mut self, at: Instant, to_host: bool, packet: &[u8]) -> io::Result<()> {
        const RECEIVED: u32 = 1;
        const COMMAND_OR_EVENT: u32 = 2;
        let direction = if to_host { RECEIVED } else { 0 };
        let flags = direction | if packet.first() == Some(&ACL_DATA) { 0 } else { COMMAND_OR_EVENT };
        let length = u32::try_from(packet.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        for word in [length, length, flags, 0] {
            self.out.write_all(&word.to_be_bytes())?;
        }
        self.out.write_all(&(UNIX_EPOCH_US + at.as_nanos() / 1000).to_be_bytes())?;
        self.out.write_all(packet)
    }
}

impl<W: Write> Observer for HostCapture<W> {
    fn event(&mut self, event: &AirEvent<'_>) {
        let (side, to_host, bytes) = match event.what {
            Happening::HciSent { side, to_host: false, bytes } => (side, false, bytes),
            Happening::HciArrived { side, to_host: true, bytes } => (side, true, bytes),
            _ => return,
        };
        if side == self.side && event.link == 0 && self.failed.is_none() {
            self.failed = self.packet(event.at, to_host, bytes).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_direction_and_its_time() {
        let mut capture = HostCapture::begin(Vec::new(), Role::Central).unwrap();
        let mut tell = |at: u64, what: Happening<'_>| {
            capture.event(&AirEvent { at: Instant::from_nanos(at), link: 0, what });
        };
        let (data, event) = ([2, 0x40, 0, 0, 0], [4, 0x13, 0]);
        tell(1_500_999, Happening::HciSent { side: Role::Central, to_host: false, bytes: &data });
        tell(1_600_000, Happening::HciArrived { side: Role::Central, to_host: false, bytes: &data });
        tell(1_700_000, Happening::HciSent { side: Role::Peripheral, to_host: false, bytes: &data });
        tell(2_000_000, Happening::HciArrived { side: Role::Central, to_host: true, bytes: &event });
        let bytes = capture.finish().unwrap();
        let records = &bytes[16..];
        assert_eq!((&bytes[..8], records.len()), (&b"btsnoop\0"[..], 24 + 5 + 24 + 3));
        let word = |at: usize| u32::from_be_bytes(records[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(8), word(29), word(29 + 8)), (5, 0, 3, 3));
        let time = u64::from_be_bytes(records[16..24].try_into().unwrap());
        assert_eq!(time - UNIX_EPOCH_US, 1500);
    }
}
