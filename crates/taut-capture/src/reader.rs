use std::io::Read;

use taut_time::{Duration, Instant};

use crate::Error;
use crate::buffer::Buffer;
use crate::format::{self, Format, Step};
use crate::input;

/// Packets of a file, one after another.
pub struct Reader<'a> {
    buffer: Buffer<Box<dyn Read + Send + 'a>>,
    format: Format,
    frames: u64,
    ending: Option<Ending>,
}

/// A packet as it stands in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet<'a> {
    /// Its number in the file, from 1, as Wireshark counts.
    pub frame: u64,
    /// When it was seen, in nanoseconds since 1970; `None` in a block without a time.
    pub at: Option<Instant>,
    /// What its first header is.
    pub link: LinkType,
    /// Its bytes, as many as were kept.
    pub bytes: &'a [u8],
    /// How many bytes it had.
    pub original_length: u32,
    /// Of a record of btsnoop its flags: which way it went, or adapter and opcode of the monitor; 0 elsewhere.
    pub flags: u32,
}

/// What the first header of a packet is, by the number of the registry of link types (tcpdump.org); the forms of
/// btsnoop, which it does not have, have numbers of their own from 65,001 on.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LinkType(pub u16);

impl LinkType {
    /// HCI packets with an H4 indicator, and their direction in front (`LINKTYPE_BLUETOOTH_HCI_H4_WITH_PHDR`).
    pub const HCI_H4_WITH_DIRECTION: Self = Self(201);
    /// Packets of Linux's monitor, adapter and opcode in front (`LINKTYPE_BLUETOOTH_LINUX_MONITOR`).
    pub const LINUX_MONITOR: Self = Self(254);
    /// btsnoop 1001: HCI packets without indicator.
    pub const BTSNOOP_HCI: Self = Self(65_001);
    /// btsnoop 1002: HCI packets with an H4 indicator.
    pub const BTSNOOP_H4: Self = Self(65_002);
    /// btsnoop 2001: packets of Linux's monitor.
    pub const BTSNOOP_MONITOR: Self = Self(65_003);
}

/// How the reading ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ending {
    /// At the end of the file.
    Complete,
    /// The last record is cut off.
    Truncated {
        /// Where it begins, in bytes of the uncompressed file.
        at: u64,
    },
    /// What follows makes no sense.
    Damaged {
        /// Where, in bytes of the uncompressed file.
        at: u64,
        /// What is wrong there.
        why: String,
    },
}

impl<'a> Reader<'a> {
    /// Reads the file's header.
    ///
    /// # Errors
    ///
    /// When the stream can't be read, or is no capture of packets.
    pub fn new(from: impl Read + Send + 'a) -> Result<Self, Error> {
        let mut buffer = Buffer::new(input::open(from)?);
        let format = format::recognise(&mut buffer)?;
        Ok(Self { buffer, format, frames: 0, ending: None })
    }

    /// The next packet; `None` at the end, of which [`Self::ending`] tells more.
    ///
    /// # Errors
    ///
    /// When the stream can't be read.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        while self.ending.is_none() {
            // A compressed stream that stops in the middle tells so by an error of its own.
            let at = self.buffer.position();
            let step = match self.format.step(&mut self.buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Step::End(Ending::Truncated { at }),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    Step::End(Ending::Damaged { at, why: error.to_string() })
                }
                step => step?,
            };
            match step {
                Step::Nothing => {}
                Step::End(ending) => self.ending = Some(ending),
                Step::Packet { at, link, bytes, original_length, flags } => {
                    self.frames += 1;
                    let bytes = self.buffer.taken(bytes);
                    return Ok(Some(Packet { frame: self.frames, at, link, bytes, original_length, flags }));
                }
            }
        }
        Ok(None)
    }

    /// How the reading ended; [`Ending::Complete`] until it has.
    pub fn ending(&self) -> &Ending {
        self.ending.as_ref().unwrap_or(&Ending::Complete)
    }

    /// Bytes of the uncompressed file read so far.
    pub const fn position(&self) -> u64 {
        self.buffer.position()
    }

    /// The coarsest step of the clocks in the file so far.
    pub fn resolution(&self) -> Duration {
        self.format.resolution()
    }

    /// Packets that the capturing program says it lost.
    pub const fn lost_by_capture(&self) -> u64 {
        self.format.lost_by_capture()
    }
}
