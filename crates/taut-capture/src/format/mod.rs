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
use crate::step::Step;

pub(crate) enum Format {
    Btsnoop(btsnoop::Btsnoop),
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
    Snoop(snoop::Snoop),
}

/// Reads as much of a file as tells what it is.
pub(crate) fn recognise<R: Read>(buffer: &mut Buffer<R>) -> Result<Format, Error> {
    let begin = buffer.ahead(24)?;
    if begin.is_empty() {
        return Err(Error::Empty);
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
    #[inline(always)]
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

    #[inline(always)]
    pub(crate) const fn lost_by_capture(&self) -> u64 {
        match self {
            Self::Btsnoop(btsnoop) => btsnoop.lost_by_capture(),
            Self::Pcap(_) => 0,
            Self::Pcapng(pcapng) => pcapng.lost_by_capture(),
            Self::Snoop(snoop) => snoop.lost_by_capture(),
        }
    }
}
