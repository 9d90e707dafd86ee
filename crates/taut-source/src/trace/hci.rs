//! What passes between the kernel and its Bluetooth controllers meanwhile, on the clock of the records.

use std::io;
use std::os::fd::AsFd;

use taut_capture::{Flows, HostLinks, LinkType, Packet};
use taut_event::{ChannelEnd, VantageId};
use taut_link::bluetooth::{self, HciLog};
use taut_link::clock::RealtimeOffset;

use super::order::Told;
use super::other::Unnamed;
use crate::Owners;
use crate::options::lend;

/// Number of the first channel's flow: sockets and pipes have those below.
pub(super) const FIRST_FLOW: u32 = 1 << 15;
/// That of the first link.
const FIRST_LINK: u32 = FIRST_FLOW + (1 << 14);

/// Whether what passes between the kernel and its Bluetooth controllers is heard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Radio {
    /// This host has no adapter.
    NoAdapter,
    /// The right is missing (`CAP_NET_RAW`).
    NotAllowed,
    /// The kernel refuses for another reason, by its error number.
    Refused(i32),
    /// It is heard.
    Heard {
        /// How far the kernel's wall-clock times of packets may be off on the clock of the trace, in ns.
        clock_error_ns: u64,
        /// Frames that the log has lost.
        lost: u64,
    },
}

/// The log of the host controller interface, as events of channels and of links.
pub(super) struct Hci {
    log: HciLog,
    flows: Flows,
    links: HostLinks,
    frame: u64,
    offset: RealtimeOffset,
    /// The largest step between two readings of the clocks, and half of the time that a reading took.
    error_ns: u64,
    lost: u64,
}

fn error_ns(offset: RealtimeOffset) -> u64 {
    u64::try_from(offset.uncertainty().as_nanos()).unwrap_or(u64::MAX)
}

impl Hci {
    pub(super) fn open() -> io::Result<Self> {
        let log = HciLog::open()?;
        let offset = RealtimeOffset::read();
        let flows = Flows::new(FIRST_FLOW as usize);
        let links = HostLinks::new(FIRST_LINK);
        Ok(Self { log, flows, links, frame: 0, offset, error_ns: error_ns(offset), lost: 0 })
    }

    /// Takes what was logged since the last time.
    pub(super) fn read(&mut self, told: &mut Told) {
        let offset = RealtimeOffset::read();
        // The wall clock is slewed and set; what is read now lies between both readings.
        let moved = offset.moved_since(self.offset).unsigned_abs();
        self.error_ns = self.error_ns.max(error_ns(offset).max(error_ns(self.offset)).saturating_add(moved));
        self.offset = offset;
        self.lost = self.log.dropped();
        while let Some(frame) = self.log.next_frame() {
            self.frame += 1;
            let packet = Packet {
                frame: self.frame,
                at: Some(offset.to_monotonic(frame.at.0, frame.at.1)),
                link: LinkType::BTSNOOP_MONITOR,
                bytes: frame.bytes,
                original_length: frame.bytes.len() as u32,
                flags: u32::from(frame.adapter) << 16 | u32::from(frame.opcode),
                lost: self.lost,
            };
            self.flows.packet(&packet, VantageId(0), told);
            self.links.packet(&packet, VantageId(0), told);
        }
    }

    /// Ends all channels and links.
    pub(super) fn finish(&mut self, told: &mut Told) {
        self.read(told);
        self.flows.finish(told);
        self.links.finish(told);
    }

    pub(super) const fn radio(&self) -> Radio {
        Radio::Heard { clock_error_ns: self.error_ns, lost: self.lost }
    }
}

impl std::fmt::Debug for Hci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hci").field("log", &self.log).field("frame", &self.frame).finish_non_exhaustive()
    }
}

/// Which channel a socket of a program is an end of; `None` where it is not connected, or may not be borrowed.
pub(super) fn end(of: Unnamed) -> Option<ChannelEnd> {
    let inode = u32::try_from(of.inode).ok()?;
    let owners = Owners::read(Some(of.process.cast_signed()));
    let lent = lend(owners.of(inode)?, inode).ok()?;
    bluetooth::end_of(lent.as_fd()).ok()
}
