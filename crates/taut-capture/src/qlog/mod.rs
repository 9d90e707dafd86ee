//! Logs that an end of a connection of QUIC writes of itself: qlog 0.3 and 0.4
//! (draft-ietf-quic-qlog-main-schema, draft-ietf-quic-qlog-quic-events), as one JSON object or as a sequence of JSON
//! texts, each behind a separator (RFC 7464) or on a line of its own (NDJSON). Read as a stream: of the events what the
//! newest thousand tell is held in memory, since those may not stand in the order of their times.

mod counts;
mod event;
mod log;
mod order;
mod read;

use std::io::{self, Read};

use taut_event::{Sink, VantageId};

use crate::buffer::Buffer;
use crate::error::Error;
use crate::packet::Ending;
pub use counts::QlogCounts;
use counts::SEPARATOR;
use log::Log;

/// The names that tell a log stand within so many bytes.
const NAMED_WITHIN: usize = 64 << 10;

/// Whether the stream is such a log.
pub(crate) fn is_qlog<R: Read>(buffer: &mut Buffer<R>) -> io::Result<bool> {
    let may_be = |begin: &[u8]| {
        let first = begin.iter().find(|byte| !byte.is_ascii_whitespace());
        matches!(first, Some(b'{' | &SEPARATOR)) || begin.starts_with(b"\xef\xbb\xbf{")
    };
    if !may_be(buffer.ahead(4)?) {
        return Ok(false);
    }
    // A pipe may not have so much yet, so no more is waited for than is needed.
    let mut wanted = 64;
    loop {
        let begin = buffer.ahead(wanted)?;
        let names: [&[u8]; 3] = [b"\"qlog_version\"", b"\"qlog_format\"", b"urn:ietf:params:qlog"];
        let has = |name: &&[u8]| begin.windows(name.len()).any(|bytes| bytes == *name);
        if names.iter().any(has) {
            return Ok(true);
        }
        if begin.len() < wanted || wanted >= NAMED_WITHIN {
            return Ok(false);
        }
        wanted = (2 * begin.len()).min(NAMED_WITHIN);
    }
}

/// A log of QUIC.
pub struct Qlog<'a> {
    from: Buffer<Box<dyn Read + Send + 'a>>,
}

impl<'a> Qlog<'a> {
    pub(crate) const fn new(from: Buffer<Box<dyn Read + Send + 'a>>) -> Self {
        Self { from }
    }

    /// Hands over all events. Their places are the numbers of the log's events, from 1; several events may be of one.
    /// `tick` is called every few thousand.
    ///
    /// # Errors
    ///
    /// When the stream can't be read, is of a version that is not read, or its events are far from the order of time.
    pub fn read(
        mut self,
        seen_by: VantageId,
        sink: &mut impl Sink,
        tick: &mut dyn FnMut(),
    ) -> Result<(QlogCounts, Ending), Error> {
        let mut log = Log::new(seen_by, sink, tick);
        let is_sequence = self.from.ahead(64)?.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&SEPARATOR);
        let ending = if is_sequence { read::sequence(self.from, &mut log) } else { read::object(self.from, &mut log) };
        let ending = ending?;
        if ending == Ending::Complete {
            log.check_version()?;
        }
        Ok((log.finish(), ending))
    }
}
