use std::io::{Read, Seek, SeekFrom};

use crate::archive;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::input;
use crate::qlog::{self, Qlog};
use crate::reader::Reader;
use crate::recorded::{self, Recorded};

/// What a file is, by its content.
pub enum Source<'a> {
    /// A capture of packets.
    Packets(Reader<'a>),
    /// A log of QUIC.
    Qlog(Qlog<'a>),
    /// What a live trace saw.
    Recorded(Recorded<'a>),
}

impl<'a> Source<'a> {
    /// Reads as much as tells what it is.
    ///
    /// # Errors
    ///
    /// When the stream can't be read, or is none of these.
    pub fn new(from: impl Read + Send + 'a) -> Result<Self, Error> {
        let mut buffer = Buffer::new(input::open(from)?);
        if recorded::is_recorded(&mut buffer)? {
            return Ok(Self::Recorded(Recorded::new(buffer)));
        }
        if qlog::is_qlog(&mut buffer)? {
            return Ok(Self::Qlog(Qlog::new(buffer)));
        }
        Reader::of_buffer(buffer).map(Self::Packets)
    }

    /// The same of a file in which one can go back and forth; a zip archive is one too, of which a capture is read.
    ///
    /// # Errors
    ///
    /// When the stream can't be read, is none of these, or an archive without a capture.
    pub fn of_file(mut from: impl Read + Seek + Send + 'a) -> Result<Self, Error> {
        let start = from.stream_position()?;
        let mut begin = Vec::new();
        from.by_ref().take(4).read_to_end(&mut begin)?;
        from.seek(SeekFrom::Start(start))?;
        if archive::is_zip(&begin) { Reader::of_file(from).map(Self::Packets) } else { Self::new(from) }
    }
}
