//! The newer form (draft-ietf-opsawg-pcapng): sections, each with its order of bytes and its
//! interfaces, each with its link type and its clock.

use std::io::{self, Read};

use taut_time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::bytes::Order;
use crate::packet::{Ending, LinkType};
use crate::step::{LONGEST, Record, Step};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const MAGIC: u32 = 0x1a2b_3c4d;

const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;
const OPTION_DROPPED: u16 = 5;

/// More interfaces in one section are damage.
const MOST_INTERFACES: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Pcapng {
    order: Option<Order>,
    interfaces: Vec<Interface>,
    coarsest_ns: u64,
    lost_by_capture: u64,
}

struct Interface {
    link: LinkType,
    /// Bytes kept of a packet; 0 for all.
    kept: u32,
    unit: Unit,
    offset_s: i64,
    /// The last that its statistics told.
    dropped: u64,
}

/// What a count of the clock is worth.
#[derive(Clone, Copy)]
enum Unit {
    /// 10 to the power of minus so much, in seconds.
    Decimal(u8),
    /// 2 to the power of minus so much, in seconds.
    Binary(u8),
}

impl Pcapng {
    pub(super) fn recognise(begin: &[u8]) -> bool {
        Order::Big.u32(begin, 0) == Some(SECTION) && order_of(begin).is_some()
    }

    pub(super) fn resolution(&self) -> Duration {
        Duration::from_nanos(self.coarsest_ns)
    }

    pub(super) const fn lost_by_capture(&self) -> u64 {
        self.lost_by_capture
    }

    pub(super) fn step<R: Read>(&mut self, buffer: &mut Buffer<R>) -> io::Result<Step> {
        let position = buffer.position();
        let damaged = |why: String| Ok(Step::End(Ending::Damaged { at: position, why }));
        let truncated = Ok(Step::End(Ending::Truncated { at: position }));
        let header = buffer.ahead(12)?;
        if header.is_empty() {
            return Ok(Step::End(Ending::Complete));
        }
        if header.len() < 12 {
            return truncated;
        }
        if Order::Big.u32(header, 0) == Some(SECTION) {
            let Some(order) = order_of(header) else {
                return damaged("a section without its mark of byte order".to_owned());
            };
            self.order = Some(order);
            self.interfaces.clear();
        }
        let Some(order) = self.order else { return damaged("no section".to_owned()) };
        let kind = order.u32(header, 0).unwrap_or_default();
        let length = order.u32(header, 4).unwrap_or_default();
        if length < 12 || length % 4 != 0 {
            return damaged(format!("a block of {length} bytes"));
        }
        let is_read =
            matches!(kind, SECTION | INTERFACE | OBSOLETE_PACKET | SIMPLE_PACKET | STATISTICS | ENHANCED_PACKET);
        if !is_read || kind == SECTION {
            return if buffer.skip(length.into())? { Ok(Step::Nothing) } else { truncated };
        }
        if length > LONGEST {
            return damaged(format!("a block of {length} bytes"));
        }
        let block = buffer.ahead(length as usize)?;
        if block.len() < length as usize {
            return truncated;
        }
        let block = &block[..length as usize];
        if order.u32(block, length as usize - 4) != Some(length) {
            return damaged("a block with two different lengths".to_owned());
        }
        let body = &block[8..length as usize - 4];
        let found = match kind {
            INTERFACE => self.interface(order, body),
            STATISTICS => self.statistics(order, body),
            _ => self.packet(order, kind, body),
        };
        let Some(found) = found else { return damaged(self.why_unread(order, kind, body)) };
        let whole = buffer.take(length as usize);
        match found {
            Found::Nothing => Ok(Step::Nothing),
            Found::Packet { at, link, from, kept, original_length } => {
                let start = whole.start + 8 + from;
                let (bytes, lost) = (start..start + kept, self.lost_by_capture);
                Ok(Step::Packet(Record { at, link, bytes, original_length, flags: 0, lost }))
            }
        }
    }

    /// What is wrong with a block that can't be read.
    fn why_unread(&self, order: Order, kind: u32, body: &[u8]) -> String {
        let interface = match kind {
            INTERFACE if self.interfaces.len() >= MOST_INTERFACES => {
                return format!("more than {MOST_INTERFACES} interfaces in a section");
            }
            INTERFACE => None,
            SIMPLE_PACKET => Some(0),
            OBSOLETE_PACKET => order.u16(body, 0).map(usize::from),
            _ => order.u32(body, 0).map(|interface| interface as usize),
        };
        match interface {
            Some(interface) if interface >= self.interfaces.len() => {
                format!("a block of interface {interface}, which no block before it describes")
            }
            _ => "a block that is too short for what it is".to_owned(),
        }
    }

    fn interface(&mut self, order: Order, body: &[u8]) -> Option<Found> {
        let mut interface = Interface {
            link: LinkType(order.u16(body, 0)?),
            kept: order.u32(body, 4)?,
            unit: Unit::Decimal(6),
            offset_s: 0,
            dropped: 0,
        };
        for (code, value) in Options(order, body.get(8..)?) {
            match (code, value) {
                (OPTION_TIME_RESOLUTION, &[unit, ..]) if unit & 0x80 != 0 => interface.unit = Unit::Binary(unit & 0x7f),
                (OPTION_TIME_RESOLUTION, &[unit, ..]) => interface.unit = Unit::Decimal(unit),
                (OPTION_TIME_OFFSET, value) => interface.offset_s = order.u64(value, 0).unwrap_or_default() as i64,
                _ => {}
            }
        }
        self.coarsest_ns = self.coarsest_ns.max(interface.unit.nanos(1).max(1));
        if self.interfaces.len() >= MOST_INTERFACES {
            return None;
        }
        self.interfaces.push(interface);
        Some(Found::Nothing)
    }

    fn statistics(&mut self, order: Order, body: &[u8]) -> Option<Found> {
        let interface = self.interfaces.get_mut(order.u32(body, 0)? as usize)?;
        for (code, value) in Options(order, body.get(12..)?) {
            if let (OPTION_DROPPED, Some(dropped)) = (code, order.u64(value, 0)) {
                self.lost_by_capture += dropped.saturating_sub(interface.dropped);
                interface.dropped = dropped;
            }
        }
        Some(Found::Nothing)
    }

    fn packet(&self, order: Order, kind: u32, body: &[u8]) -> Option<Found> {
        let (interface, time, kept, original_length, from) = match kind {
            ENHANCED_PACKET => (order.u32(body, 0)?, Some(4), order.u32(body, 12)?, order.u32(body, 16)?, 20),
            OBSOLETE_PACKET => (order.u16(body, 0)?.into(), Some(4), order.u32(body, 12)?, order.u32(body, 16)?, 20),
            _ => (0, None, u32::MAX, order.u32(body, 0)?, 4),
        };
        let interface = self.interfaces.get(interface as usize)?;
        let kept = if time.is_none() {
            let limit = if interface.kept == 0 { u32::MAX } else { interface.kept };
            original_length.min(limit)
        } else {
            kept
        };
        let kept = kept as usize;
        body.get(from..)?.get(..kept)?;
        let at = match time {
            None => None,
            Some(at) => {
                let count = u64::from(order.u32(body, at)?) << 32 | u64::from(order.u32(body, at + 4)?);
                let offset = interface.offset_s.saturating_mul(1_000_000_000);
                Some(Instant::from_nanos(interface.unit.nanos(count).saturating_add_signed(offset)))
            }
        };
        Some(Found::Packet { at, link: interface.link, from, kept, original_length })
    }
}

enum Found {
    Nothing,
    Packet { at: Option<Instant>, link: LinkType, from: usize, kept: usize, original_length: u32 },
}

fn order_of(section: &[u8]) -> Option<Order> {
    [Order::Little, Order::Big].into_iter().find(|order| order.u32(section, 8) == Some(MAGIC))
}

impl Unit {
    fn nanos(self, count: u64) -> u64 {
        match self {
            Self::Decimal(power @ 0..=9) => count.saturating_mul(10_u64.pow(9 - u32::from(power))),
            Self::Decimal(power) => count / 10_u64.checked_pow(u32::from(power) - 9).unwrap_or(u64::MAX),
            Self::Binary(power) => {
                let nanos = (u128::from(count) * 1_000_000_000).checked_shr(power.into()).unwrap_or(0);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Options of a block: a code and a value each, until the end.
struct Options<'a>(Order, &'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let code = self.0.u16(self.1, 0)?;
        let length = usize::from(self.0.u16(self.1, 2)?);
        if code == 0 {
            return None;
        }
        let value = self.1.get(4..4 + length)?;
        self.1 = self.1.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    }
}
