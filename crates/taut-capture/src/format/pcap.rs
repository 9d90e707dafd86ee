//! The classic form (draft-ietf-opsawg-pcap), with times in microseconds or nanoseconds, in either
//! order of bytes, and the one with longer record headers that patched versions of libpcap wrote.

use std::io::{self, Read};

use taut_time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::bytes::Order;
use crate::packet::{Ending, LinkType};
use crate::step::{LONGEST, Record, Step};

pub(super) const HEADER: usize = 24;

pub(crate) struct Pcap {
    order: Order,
    is_nanoseconds: bool,
    record_header: usize,
    link: LinkType,
}

impl Pcap {
    pub(super) fn recognise(begin: &[u8]) -> Option<Self> {
        let (order, is_nanoseconds, record_header) = match Order::Big.u32(begin, 0)? {
            0xa1b2_c3d4 => (Order::Big, false, 16),
            0xd4c3_b2a1 => (Order::Little, false, 16),
            0xa1b2_3c4d => (Order::Big, true, 16),
            0x4d3c_b2a1 => (Order::Little, true, 16),
            0xa1b2_cd34 => (Order::Big, false, 24),
            0x34cd_b2a1 => (Order::Little, false, 24),
            _ => return None,
        };
        // The upper half tells of checksums at the end of frames.
        let link = LinkType(order.u32(begin, 20)? as u16);
        Some(Self { order, is_nanoseconds, record_header, link })
    }

    pub(super) fn resolution(&self) -> Duration {
        Duration::from_nanos(if self.is_nanoseconds { 1 } else { 1000 })
    }

    /// The next record if all of it is held, as of nearly all; [`Self::step`] tells of the others.
    #[inline(always)]
    pub(super) fn next_held<R: Read>(&self, buffer: &mut Buffer<R>) -> Option<Record> {
        let held = buffer.held();
        let fields: &[u8; 16] = held.first_chunk()?;
        let (seconds, fraction) = (self.field(fields, 0), self.field(fields, 4));
        let (kept, original_length) = (self.field(fields, 8), self.field(fields, 12));
        let whole = self.record_header + kept as usize;
        if kept > LONGEST || held.len() < whole {
            return None;
        }
        let record = buffer.take(whole);
        let unit = if self.is_nanoseconds { 1 } else { 1000 };
        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit;
        let at = Some(Instant::from_nanos(nanos));
        let bytes = record.start + self.record_header..record.end;
        Some(Record { at, link: self.link, bytes, original_length, flags: 0, lost: 0 })
    }

    #[inline(always)]
    fn field(&self, fields: &[u8; 16], at: usize) -> u32 {
        let field = u32::from_le_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]]);
        if self.order == Order::Big { field.swap_bytes() } else { field }
    }

    pub(super) fn step<R: Read>(&self, buffer: &mut Buffer<R>) -> io::Result<Step> {
        let at = buffer.position();
        let header = buffer.ahead(self.record_header)?;
        let fields = header.first_chunk::<16>().filter(|_| header.len() >= self.record_header);
        let Some(fields) = fields else {
            let is_over = header.is_empty();
            return Ok(Step::End(if is_over { Ending::Complete } else { Ending::Truncated { at } }));
        };
        let kept = self.field(fields, 8);
        if kept > LONGEST {
            return Ok(Step::End(Ending::Damaged { at, why: format!("a packet of {kept} bytes") }));
        }
        buffer.ahead(self.record_header + kept as usize)?;
        Ok(self.next_held(buffer).map_or(Step::End(Ending::Truncated { at }), Step::Packet))
    }
}
