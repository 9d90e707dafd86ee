use std::io::Read;

use taut_time::Duration;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::format::{self, Format};
use crate::input;
use crate::packet::{Ending, Packet};
use crate::step::Step;

/// Packets of a file, one after another.
pub struct Reader<'a> {
    buffer: Buffer<Box<dyn Read + Send + 'a>>,
    format: Format,
    frames: u64,
    ending: Option<Ending>,
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
                    let (frame, lost) = (self.frames, self.format.lost_by_capture());
                    let bytes = self.buffer.taken(bytes);
                    return Ok(Some(Packet { frame, at, link, bytes, original_length, flags, lost }));
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
