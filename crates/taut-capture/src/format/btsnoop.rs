//! btsnoop: the form of RFC 1761 with Bluetooth's own types (BlueZ, src/shared/btsnoop.c), big endian, with times in
//! microseconds since the year 0.

use std::io::{self, Read};

use taut_time::Instant;

use crate::buffer::Buffer;
use crate::bytes::{Order, be32};
use crate::error::Error;
use crate::packet::{Ending, LinkType};
use crate::step::{LONGEST, Record, Step};

pub(super) const HEADER: usize = 16;
const RECORD_HEADER: usize = 24;
/// 1970-01-01 in microseconds since the year 0.
const UNIX_EPOCH_US: u64 = 0x00dc_ddb3_0f2f_8000;

pub(crate) struct Btsnoop {
    link: LinkType,
    /// Up to the newest record.
    lost: u64,
}

impl Btsnoop {
    pub(super) fn recognise(begin: &[u8]) -> Option<Result<Self, Error>> {
        begin.starts_with(b"btsnoop\0").then(|| {
            let link = match (be32(begin, 8), be32(begin, 12)) {
                (Some(1), Some(1001)) => LinkType::BTSNOOP_HCI,
                (Some(1), Some(1002)) => LinkType::BTSNOOP_H4,
                (Some(1), Some(2001)) => LinkType::BTSNOOP_MONITOR,
                _ => {
                    return Err(Error::NotYet {
                        form: "a btsnoop log of another version or type than 1001 (HCI), 1002 (H4) and 2001 (monitor)",
                        instead: "`btmon -r FILE -w new.btsnoop` rewrites it",
                    });
                }
            };
            Ok(Self { link, lost: 0 })
        })
    }

    pub(super) const fn lost_by_capture(&self) -> u64 {
        self.lost
    }

    pub(super) fn step<R: Read>(&mut self, buffer: &mut Buffer<R>) -> io::Result<Step> {
        let position = buffer.position();
        let header = buffer.ahead(RECORD_HEADER)?;
        if header.is_empty() {
            return Ok(Step::End(Ending::Complete));
        }
        if header.len() < RECORD_HEADER {
            return Ok(Step::End(Ending::Truncated { at: position }));
        }
        let field = |at| be32(header, at).unwrap_or_default();
        let (original_length, kept, flags, lost) = (field(0), field(4), field(8), field(12));
        let micros = Order::Big.u64(header, 16).unwrap_or_default();
        if kept > LONGEST {
            let why = format!("a packet of {kept} bytes");
            return Ok(Step::End(Ending::Damaged { at: position, why }));
        }
        let whole = RECORD_HEADER + kept as usize;
        if buffer.ahead(whole)?.len() < whole {
            return Ok(Step::End(Ending::Truncated { at: position }));
        }
        buffer.take(RECORD_HEADER);
        let bytes = buffer.take(kept as usize);
        // Monitors tell of those since the record before (Zephyr, subsys/bluetooth/host/monitor.c), others of all so
        // far.
        let so_far = if self.link == LinkType::BTSNOOP_MONITOR { self.lost } else { 0 };
        self.lost = so_far.saturating_add(lost.into());
        // What lies before 1970 or beyond the 64 bits of nanoseconds is no time.
        let nanos = micros.checked_sub(UNIX_EPOCH_US).and_then(|micros| micros.checked_mul(1000));
        Ok(Step::Packet(Record {
            at: nanos.map(Instant::from_nanos),
            link: self.link,
            bytes,
            original_length,
            flags,
            lost: self.lost_by_capture(),
        }))
    }
}
