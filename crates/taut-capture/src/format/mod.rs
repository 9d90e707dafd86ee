//! The forms of files.

mod btsnoop;
mod pcap;
mod pcapng;
mod snoop;

use std::io::{self, Read};

use taut_time::Duration;

use crate::archive;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::recorded::MARK;
use crate::step::{Record, Step};

pub(crate) enum Format {
    Btsnoop(btsnoop::Btsnoop),
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
    Snoop(snoop::Snoop),
}

/// What files begin with, and how long the header is that begins so.
const BEGINS: [(&[u8], usize); 10] = [
    (&[0xa1, 0xb2, 0xc3, 0xd4], pcap::HEADER),
    (&[0xd4, 0xc3, 0xb2, 0xa1], pcap::HEADER),
    (&[0xa1, 0xb2, 0x3c, 0x4d], pcap::HEADER),
    (&[0x4d, 0x3c, 0xb2, 0xa1], pcap::HEADER),
    (&[0xa1, 0xb2, 0xcd, 0x34], pcap::HEADER),
    (&[0x34, 0xcd, 0xb2, 0xa1], pcap::HEADER),
    (&[0x0a, 0x0d, 0x0d, 0x0a], 12),
    (b"btsnoop\0", btsnoop::HEADER),
    (b"snoop\0\0\0", snoop::HEADER),
    (MARK.as_bytes(), MARK.len()),
];

/// Whether a file ends before its header does. Of fewer than four bytes nobody knows what they begin.
fn is_cut_off(begin: &[u8]) -> bool {
    BEGINS.iter().any(|(magic, length)| {
        let known = magic.len().min(begin.len());
        known >= 4 && begin.len() < *length && begin[..known] == magic[..known]
    })
}

/// Reads as much of a file as tells what it is.
pub(crate) fn recognise<R: Read>(buffer: &mut Buffer<R>) -> Result<Format, Error> {
    let begin = buffer.ahead(24)?;
    if begin.is_empty() {
        return Err(Error::Empty);
    }
    if is_cut_off(begin) {
        return Err(Error::CutOff);
    }
    if let Some(pcap) = pcap::Pcap::recognise(begin) {
        buffer.take(pcap::HEADER);
        return Ok(Format::Pcap(pcap));
    }
    if pcapng::Pcapng::recognise(begin) {
        return Ok(Format::Pcapng(pcapng::Pcapng::default()));
    }
    let not_yet = |form, instead| Err(Error::NotYet { form, instead });
    if let Some(btsnoop) = btsnoop::Btsnoop::recognise(begin) {
        let btsnoop = btsnoop?;
        buffer.take(btsnoop::HEADER);
        return Ok(Format::Btsnoop(btsnoop));
    }
    if let Some(snoop) = snoop::Snoop::recognise(begin) {
        let snoop = snoop?;
        buffer.take(snoop::HEADER);
        return Ok(Format::Snoop(snoop));
    }
    if archive::is_zip(begin) {
        return not_yet("a zip archive within another file or from a pipe", "store it as a file and name that");
    }
    if begin.starts_with(b"{") {
        return not_yet("JSON and no qlog", "`taut report FILE` shows a recording of Tautline");
    }
    let begin: Vec<String> = begin.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    Err(Error::Unknown { begin: begin.join(" ") })
}

impl Format {
    /// The next packet of the plainest form, if all of its record is held.
    #[inline(always)]
    pub(crate) fn next_held<R: Read>(&self, buffer: &mut Buffer<R>) -> Option<Record> {
        match self {
            Self::Pcap(pcap) => pcap.next_held(buffer),
            _ => None,
        }
    }

    pub(crate) fn step<R: Read>(&mut self, buffer: &mut Buffer<R>) -> io::Result<Step> {
        match self {
            Self::Btsnoop(btsnoop) => btsnoop.step(buffer),
            Self::Pcap(pcap) => pcap.step(buffer),
            Self::Pcapng(pcapng) => pcapng.step(buffer),
            Self::Snoop(snoop) => snoop.step(buffer),
        }
    }

    pub(crate) fn resolution(&self) -> Duration {
        match self {
            Self::Btsnoop(_) | Self::Snoop(_) => Duration::from_micros(1),
            Self::Pcap(pcap) => pcap.resolution(),
            Self::Pcapng(pcapng) => pcapng.resolution(),
        }
    }

    pub(crate) const fn lost_by_capture(&self) -> u64 {
        match self {
            Self::Btsnoop(btsnoop) => btsnoop.lost_by_capture(),
            Self::Pcap(_) => 0,
            Self::Pcapng(pcapng) => pcapng.lost_by_capture(),
            Self::Snoop(snoop) => snoop.lost_by_capture(),
        }
    }
}
