use std::io::{self, Read, Seek, SeekFrom};

use taut_time::Duration;

use crate::archive::{self, Member};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::format::{self, Format};
use crate::input;
use crate::packet::{Ending, Packet};
use crate::step::{Record, Step};

/// Packets of a file, one after another.
pub struct Reader<'a> {
    buffer: Buffer<Box<dyn Read + Send + 'a>>,
    format: Format,
    frames: u64,
    ending: Option<Ending>,
    /// What [`Self::seek`] has found last.
    found: Record,
    member: Option<Member>,
}

impl<'a> Reader<'a> {
    /// Reads the file's header.
    ///
    /// # Errors
    ///
    /// When the stream can't be read, or is no capture of packets.
    pub fn new(from: impl Read + Send + 'a) -> Result<Self, Error> {
        Self::of_buffer(Buffer::new(input::open(from)?))
    }

    pub(crate) fn of_buffer(mut buffer: Buffer<Box<dyn Read + Send + 'a>>) -> Result<Self, Error> {
        let format = format::recognise(&mut buffer)?;
        Ok(Self { buffer, format, frames: 0, ending: None, found: Record::default(), member: None })
    }

    /// The same of a file in which one can go back and forth; so the file may be a zip archive too, whose directory
    /// stands at its end. Of its files one is read: see [`Self::member`].
    ///
    /// # Errors
    ///
    /// When the stream can't be read, is no capture of packets, or an archive without one.
    pub fn of_file(mut from: impl Read + Seek + Send + 'a) -> Result<Self, Error> {
        let start = from.stream_position()?;
        let mut begin = Vec::new();
        from.by_ref().take(4).read_to_end(&mut begin)?;
        from.seek(SeekFrom::Start(start))?;
        if !archive::is_zip(&begin) {
            return Self::new(from);
        }
        let (from, member) = archive::open(from)?;
        Ok(Self { member: Some(member), ..Self::new(from)? })
    }

    /// Of an archive the file that is read.
    pub const fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// The next packet; `None` at the end, of which [`Self::ending`] tells more.
    ///
    /// # Errors
    ///
    /// When the stream can't be read.
    #[inline(always)]
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, Error> {
        let record = match self.format.next_held(&mut self.buffer) {
            Some(record) => record,
            None if self.seek()? => self.found.clone(),
            None => return Ok(None),
        };
        self.frames += 1;
        let Record { at, link, bytes, original_length, flags, lost } = record;
        Ok(Some(Packet { frame: self.frames, at, link, bytes: self.buffer.taken(bytes), original_length, flags, lost }))
    }

    /// Finds the next packet, wherever it is. It is apart, and puts it down, so that those of the plainest form pass
    /// through the caller's loop without having been in memory.
    #[inline(never)]
    fn seek(&mut self) -> Result<bool, Error> {
        while self.ending.is_none() {
            // A compressed stream that stops in the middle tells so by an error of its own.
            let at = self.buffer.position();
            match self.format.step(&mut self.buffer) {
                Err(error) => self.ending = Some(ended_by(error, at)?),
                Ok(Step::Nothing) => {}
                Ok(Step::End(ending)) => self.ending = Some(ending),
                Ok(Step::Packet(record)) => {
                    self.found = record;
                    return Ok(true);
                }
            }
        }
        Ok(false)
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

/// Damage ends the reading, and what else goes wrong is an error.
#[cold]
fn ended_by(error: io::Error, at: u64) -> io::Result<Ending> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(Ending::Truncated { at }),
        io::ErrorKind::InvalidData => Ok(Ending::Damaged { at, why: error.to_string() }),
        _ => Err(error),
    }
}
