//! What a live trace saw, as a file of text: a line for each flow, event and end, in the order in which they were seen.
//!
//! ```text
//! taut-events 5
//! f 0 3780 - tcp 127.0.0.1:53382 127.0.0.1:7900
//! b> 0 81273645 4711 7132295856 0
//! q> 0 0 4711 16;0;0;0;10;2147483647;65536;32768;0;0;0;0;0;0;0;0;0
//! g> 0 120 -
//! z 0 ended
//! m {"traced": "port 7900"}
//! p 4711 "python3 (4711)"
//! . 81300000
//! ```
//!
//! docs/recording.md tells what each line has. Written by [`Recorder`], which is a [`taut_event::Sink`], and read by
//! [`Recorded`] for one, a line at a time. Only what live traces report is written: connections of TCP, sockets
//! and pipes that are known by their calls, and channels and links of Bluetooth.

mod channel;
mod fields;
mod line;
mod link;
mod read;
mod state;
mod write;

#[cfg(test)]
mod tests;

use std::io::{self, Read};

use crate::buffer::Buffer;
pub(crate) use line::MARK;
pub use read::{Recorded, RecordedEnd};
pub use write::Recorder;

/// Whether the stream is such a file, of whatever version.
pub(crate) fn is_recorded<R: Read>(buffer: &mut Buffer<R>) -> io::Result<bool> {
    Ok(buffer.ahead(MARK.len())?.starts_with(MARK.as_bytes()))
}
