use std::collections::HashMap;
use std::io::{self, Write};

use super::pcapng::Pcapng;

/// `LINKTYPE_IPV4`: packets begin with their IPv4 header.
const LINK_TYPE: u16 = 228;
/// The most payload of one made-up packet: IPv4's total length less both headers.
const SEGMENT: usize = 65_535 - 40;

/// Writes what passes through pipes as pcapng, so that Wireshark can follow each as a stream: made-up TCP
/// segments over IPv4, from 10.0.0.1 (the first end) to 10.0.0.2 and back, port 40000 and more for the
/// number of the pipe. There is no handshake and checksums are left out (0), since none of it was on a wire.
pub struct StreamCapture<W: Write> {
    file: Pcapng<W>,
    /// Bytes so far, each way, by pipe.
    positions: HashMap<u64, [u32; 2]>,
    failed: Option<io::Error>,
}

impl<W: Write> StreamCapture<W> {
    /// Begins a capture.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn begin(out: W) -> io::Result<Self> {
        let comment = "Bytes that passed through taut pipe; the TCP and IPv4 headers are made up.";
        let file = Pcapng::begin(out, &[(LINK_TYPE, "taut pipe")], comment)?;
        Ok(Self { file, positions: HashMap::new(), failed: None })
    }

    /// Bytes that one end of a pipe has sent, at a time in nanoseconds since 1970.
    pub fn bytes(&mut self, pipe: u64, from_first: bool, at_ns: u64, bytes: &[u8]) {
        for segment in bytes.chunks(SEGMENT) {
            if self.failed.is_none() {
                self.failed = self.segment(pipe, from_first, at_ns, segment).err();
            }
        }
    }

    fn segment(&mut self, pipe: u64, from_first: bool, at_ns: u64, bytes: &[u8]) -> io::Result<()> {
        const ACK_AND_PUSH: u8 = 0x18;
        let (ours, theirs) = if from_first { (0, 1) } else { (1, 0) };
        let positions = self.positions.entry(pipe).or_default();
        let (sequence, acknowledged) = (positions[ours].wrapping_add(1), positions[theirs].wrapping_add(1));
        positions[ours] = positions[ours].wrapping_add(bytes.len() as u32);
        let (client, server) = (([10, 0, 0, 1], 40_000 + (pipe % 20_000) as u16), ([10, 0, 0, 2], 1));
        let (from, to) = if from_first { (client, server) } else { (server, client) };
        // RFC 791: version and length, service, total length, identification, fragment, time to
        // live, protocol, checksum.
        let mut ip = vec![0x45, 0];
        ip.extend(((40 + bytes.len()) as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend(from.0);
        ip.extend(to.0);
        // RFC 9293: ports, sequence, acknowledgement, length of the header, flags, window, checksum, urgent.
        ip.extend(from.1.to_be_bytes());
        ip.extend(to.1.to_be_bytes());
        ip.extend(sequence.to_be_bytes());
        ip.extend(acknowledged.to_be_bytes());
        ip.extend([0x50, ACK_AND_PUSH, 0xff, 0xff, 0, 0, 0, 0]);
        self.file.packet(0, at_ns, &[&ip, bytes])
    }

    /// Writes what is still to be written and hands the writer back.
    ///
    /// # Errors
    ///
    /// When something could not be written.
    pub fn finish(self) -> io::Result<W> {
        match self.failed {
            Some(error) => Err(error),
            None => self.file.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_continue_each_other() {
        let mut capture = StreamCapture::begin(Vec::new()).unwrap();
        capture.bytes(1, true, 5, b"abc");
        capture.bytes(1, true, 6, b"d");
        capture.bytes(1, false, 7, b"xy");
        let bytes = capture.finish().unwrap();
        let mut segments = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let length = word(at + 4) as usize;
            if word(at) == 6 {
                let packet = &bytes[at + 28..at + 28 + word(at + 20) as usize];
                let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
                segments.push((packet[15], number(24), number(28), packet[40..].to_vec()));
            }
            at += length;
        }
        let expected = [(1, 1, 1, b"abc".to_vec()), (1, 4, 1, b"d".to_vec()), (2, 1, 5, b"xy".to_vec())];
        assert_eq!(segments, expected);
    }
}
