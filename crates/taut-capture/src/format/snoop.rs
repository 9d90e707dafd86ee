//! The form of Solaris snoop (RFC 1761), big endian, with times in microseconds.

use std::io::{self, Read};

use taut_time::Instant;

use crate::buffer::Buffer;
use crate::bytes::be32;
use crate::error::Error;
use crate::packet::{Ending, LinkType};
use crate::step::{LONGEST, Record, Step};

pub(super) const HEADER: usize = 16;
const RECORD_HEADER: usize = 24;
const VERSION: u32 = 2;
/// RFC 1761: IEEE 802.3 and Ethernet; their headers are told apart by the header itself.
const ETHERNET: [u32; 2] = [0, 4];

pub(crate) struct Snoop {
    /// As the newest record says.
    lost: u32,
}

impl Snoop {
    pub(super) fn recognise(begin: &[u8]) -> Option<Result<Self, Error>> {
        begin.starts_with(b"snoop\0\0\0").then(|| {
            let is_read =
                be32(begin, 8) == Some(VERSION) && be32(begin, 12).is_some_and(|kind| ETHERNET.contains(&kind));
            if is_read {
                return Ok(Self { lost: 0 });
            }
            Err(Error::NotYet {
                form: "a capture of Solaris snoop of another version than 2, or of another link type than Ethernet (4)",
                instead: "`editcap FILE new.pcapng` of Wireshark may rewrite it as pcapng",
            })
        })
    }

    pub(super) const fn lost_by_capture(&self) -> u64 {
        self.lost as u64
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
        let (original_length, kept, record, lost) = (field(0), field(4), field(8), field(12));
        let (seconds, micros) = (field(16), field(20));
        // Behind the packet there is as much padding as the record's length says.
        let padding = u64::from(record).checked_sub(RECORD_HEADER as u64 + u64::from(kept));
        let Some(padding) = padding.filter(|_| record <= LONGEST) else {
            let why = format!("a packet of {kept} bytes in a record of {record}");
            return Ok(Step::End(Ending::Damaged { at: position, why }));
        };
        let whole = RECORD_HEADER + kept as usize + padding as usize;
        let ahead = buffer.ahead(whole)?.len();
        // Of the last record the padding may be missing.
        if ahead < RECORD_HEADER + kept as usize {
            return Ok(Step::End(Ending::Truncated { at: position }));
        }
        buffer.take(RECORD_HEADER);
        let bytes = buffer.take(kept as usize);
        buffer.take(padding as usize);
        self.lost = lost;
        let at = Some(Instant::from_nanos(u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000));
        Ok(Step::Packet(Record {
            at,
            link: LinkType(1),
            bytes,
            original_length,
            flags: 0,
            lost: self.lost_by_capture(),
        }))
    }
}
