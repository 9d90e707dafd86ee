//! The three blocks of pcapng that a capture of a few interfaces needs (draft-ietf-opsawg-pcapng,
//! sections 4.1 to 4.3), in little endian, with times in nanoseconds.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_COMMENT: u16 = 1;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_USER_APPLICATION: u16 = 4;
const OPTION_TIME_RESOLUTION: u16 = 9;

pub(super) struct Pcapng<W> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> Pcapng<W> {
    /// Begins a capture; its interfaces, each with its link type, are numbered from 0.
    pub(super) fn begin(out: W, interfaces: &[(u16, &str)], comment: &str) -> io::Result<Self> {
        let mut file = Self { out, block: Vec::new() };
        let mut section = Vec::new();
        section.extend(0x1a2b_3c4d_u32.to_le_bytes());
        section.extend(1u16.to_le_bytes());
        section.extend(0u16.to_le_bytes());
        // The section's length is not known beforehand.
        section.extend(u64::MAX.to_le_bytes());
        option(&mut section, OPTION_COMMENT, comment.as_bytes());
        option(&mut section, OPTION_USER_APPLICATION, concat!("Tautline ", env!("CARGO_PKG_VERSION")).as_bytes());
        end_of_options(&mut section);
        file.block(SECTION_HEADER, &section)?;

        for (link_type, interface) in interfaces {
            let mut description = Vec::new();
            description.extend(link_type.to_le_bytes());
            description.extend(0u16.to_le_bytes());
            // No limit to the length of a packet.
            description.extend(0u32.to_le_bytes());
            option(&mut description, OPTION_INTERFACE_NAME, interface.as_bytes());
            option(&mut description, OPTION_TIME_RESOLUTION, &[9]);
            end_of_options(&mut description);
            file.block(INTERFACE_DESCRIPTION, &description)?;
        }
        Ok(file)
    }

    /// A packet of an interface at a time in nanoseconds since 1970.
    pub(super) fn packet(&mut self, interface: u32, at_ns: u64, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        // Packets of a radio are far below 4 GiB.
        let length = u32::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        block.extend(interface.to_le_bytes());
        block.extend(((at_ns >> 32) as u32).to_le_bytes());
        block.extend((at_ns as u32).to_le_bytes());
        block.extend(length.to_le_bytes());
        block.extend(length.to_le_bytes());
        parts.iter().for_each(|part| block.extend_from_slice(part));
        pad(&mut block);
        let written = self.block(ENHANCED_PACKET, &block);
        self.block = block;
        written
    }

    /// Hands the writer back, with everything written to it.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        // Block type, and the length at both ends.
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&length)?;
        self.out.write_all(body)?;
        self.out.write_all(&length)
    }
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend_from_slice(value);
    pad(block);
}

fn end_of_options(block: &mut Vec<u8>) {
    block.extend([0; 4]);
}

fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}
