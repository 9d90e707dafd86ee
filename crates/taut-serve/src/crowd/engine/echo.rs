//! What the engines that wait for readiness do with a link that is ready.

use rustix::io::Errno;
use taut_link::Link;

use super::buffer::BUFFER_BYTES;

/// What of a link's reply found no room and is still to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsent(Vec<u8>);

/// What to wait for next on a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// Something to read.
    Read,
    /// Room to write.
    Write,
    /// Nothing any more: it is closed.
    Over,
}

impl Unsent {
    /// Goes on with a link that is ready: writes what is still to be written, or reads once and writes that back.
    #[inline]
    pub(super) fn turn(&mut self, link: &Link) -> Next {
        if !self.0.is_empty() {
            let bytes = std::mem::take(&mut self.0);
            return self.write(link, &bytes);
        }
        let mut buffer = [0; BUFFER_BYTES];
        match link.receive(&mut buffer) {
            Ok(0) => Next::Over,
            Ok(length) => self.write(link, &buffer[..length]),
            Err(Errno::AGAIN | Errno::INTR) => Next::Read,
            Err(_) => Next::Over,
        }
    }

    #[inline]
    fn write(&mut self, link: &Link, bytes: &[u8]) -> Next {
        let sent = match link.send(bytes) {
            Ok(sent) if sent == bytes.len() => return Next::Read,
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return Next::Over,
        };
        self.0 = bytes[sent..].to_vec();
        Next::Write
    }
}
