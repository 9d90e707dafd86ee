//! Lines through the character device: edges with the kernel's times and numbers, read in batches.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use taut_link::{Error, Result};

use super::abi::{self, EVENT_BYTES};
use super::interrupts::{self, Tally};
use super::{Chip, refused};
use crate::route::{Bias, Edge, GpioEdges, GpioLine};
use crate::run::source::{self, Event, Next};

/// Events that the kernel keeps for us: the most that it does.
const BUFFERED: u32 = 1024;
/// Events of one reading.
const BATCH: usize = 64;

/// A line that is kept open.
#[derive(Debug)]
pub(crate) struct Line {
    fd: OwnedFd,
}

/// Edges of a line.
pub(in crate::run) struct Edges {
    events: File,
    batch: [u8; BATCH * EVENT_BYTES],
    at: usize,
    filled: usize,
    seqno: u32,
    tally: Tally,
}

/// A name that nobody else has, by which our interrupt is found.
fn consumer() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("taut-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn flags(line: &GpioLine) -> u64 {
    let bias = match line.bias {
        None => 0,
        Some(Bias::Off) => abi::BIAS_DISABLED,
        Some(Bias::PullUp) => abi::BIAS_PULL_UP,
        Some(Bias::PullDown) => abi::BIAS_PULL_DOWN,
    };
    if line.active_low { bias | abi::ACTIVE_LOW } else { bias }
}

impl Line {
    /// Takes a line to read it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: somebody else holds it, or the chip can't.
    pub(crate) fn input(chip: &Chip, line: &GpioLine) -> Result<Self> {
        Self::request(chip, line, abi::INPUT)
    }

    /// Takes a line to set it; it is inactive then.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub(crate) fn output(chip: &Chip, line: &GpioLine) -> Result<Self> {
        Self::request(chip, line, abi::OUTPUT)
    }

    fn request(chip: &Chip, line: &GpioLine, direction: u64) -> Result<Self> {
        let fd = abi::request(chip.as_fd(), line.offset, &consumer(), flags(line) | direction, 0, 0);
        fd.map(|fd| Self { fd }).map_err(|error| refused(line, chip, &error))
    }

    #[inline]
    pub(crate) fn get(&self) -> io::Result<bool> {
        abi::get(self.fd.as_fd())
    }

    #[inline]
    pub(crate) fn set(&self, active: bool) -> io::Result<()> {
        abi::set(self.fd.as_fd(), active)
    }
}

impl Edges {
    pub(super) fn open(chip: &Chip, source: &GpioEdges) -> Result<Self> {
        let edges = match source.edge {
            Edge::Both => abi::EDGE_RISING | abi::EDGE_FALLING,
            Edge::Rising => abi::EDGE_RISING,
            Edge::Falling => abi::EDGE_FALLING,
        };
        let flags = flags(&source.line) | abi::INPUT | edges;
        // Less than a second.
        let debounce = source.debounce.map_or(0, |time| time.as_micros() as u32);
        let consumer = consumer();
        let fd = abi::request(chip.as_fd(), source.line.offset, &consumer, flags, debounce, BUFFERED)
            .map_err(|error| refused(&source.line, chip, &error))?;
        let tally =
            if debounce > 0 { Tally::without_interrupts() } else { Tally::begin(&interrupts::handled_by(&consumer)) };
        rustix::io::ioctl_fionbio(&fd, true)
            .map_err(|errno| Error::Host { what: format!("prepare {source}"), error: errno.into() })?;
        Ok(Self { events: fd.into(), batch: [0; BATCH * EVENT_BYTES], at: 0, filled: 0, seqno: 0, tally })
    }

    #[inline]
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        if self.at + EVENT_BYTES > self.filled && !self.fill()? {
            let lost = self.tally.quiet();
            return Ok(if lost > 0 { Next::Lost(lost) } else { Next::Nothing });
        }
        Ok(self.take(buffer))
    }

    /// Reads what is there, after waiting for a while; whether anything came.
    fn fill(&mut self) -> io::Result<bool> {
        if !source::wait(&[self.events.as_fd()])?[0] {
            return Ok(false);
        }
        self.read()
    }

    fn read(&mut self) -> io::Result<bool> {
        (self.at, self.filled) = (0, 0);
        match self.events.read(&mut self.batch) {
            Ok(length) => self.filled = length,
            Err(error) if source::is_quiet(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.filled >= EVENT_BYTES)
    }

    /// The next event of the batch (`struct gpio_v2_line_event`).
    fn take(&mut self, buffer: &mut [u8]) -> Next {
        let event = &self.batch[self.at..self.at + EVENT_BYTES];
        self.at += EVENT_BYTES;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| event[at + byte]));
        let at_ns = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| event[byte])).cast_signed();
        // GPIO_V2_LINE_EVENT_RISING_EDGE; the other one is 2.
        let (is_rising, line_seqno) = (word(8) == 1, word(20));
        // The first one has number 1.
        let lost = u64::from(line_seqno.wrapping_sub(self.seqno).saturating_sub(1));
        self.seqno = line_seqno;
        self.tally.take(lost);
        buffer[..8].copy_from_slice(&i64::from(is_rising).to_ne_bytes());
        Next::Event(Event { bytes: 8, at_ns, now_ns: at_ns, from: None, hops: None, lost })
    }

    /// What is in the queue comes after the end, and is not lost.
    pub(super) fn finish(&mut self) -> u64 {
        let mut rest = [0; 8];
        // Bounded by the kernel's queue.
        for _ in 0..=BUFFERED {
            if self.at + EVENT_BYTES > self.filled && !self.read().unwrap_or(false) {
                break;
            }
            let _ = self.take(&mut rest);
        }
        self.tally.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn events_come_in_batches_with_gaps_counted() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut edges = Edges {
            events: reader.into(),
            batch: [0; BATCH * EVENT_BYTES],
            at: 0,
            filled: 0,
            seqno: 0,
            tally: Tally::without_interrupts(),
        };
        let mut writer = File::from(writer);
        let mut bytes = Vec::new();
        for (at_ns, id, line_seqno) in [(1_000_u64, 1_u32, 1_u32), (2_000, 2, 2), (3_000, 1, 5)] {
            let mut event = [0; EVENT_BYTES];
            event[..8].copy_from_slice(&at_ns.to_ne_bytes());
            event[8..12].copy_from_slice(&id.to_ne_bytes());
            event[20..24].copy_from_slice(&line_seqno.to_ne_bytes());
            bytes.extend(event);
        }
        writer.write_all(&bytes).unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 8];
        for _ in 0..3 {
            let Next::Event(event) = edges.next(&mut buffer).unwrap() else { panic!("no event") };
            seen.push((event.at_ns, i64::from_ne_bytes(buffer), event.lost));
        }
        assert_eq!(seen, [(1_000, 1, 0), (2_000, 0, 0), (3_000, 1, 2)]);
        assert!(matches!(edges.next(&mut buffer).unwrap(), Next::Nothing));
    }
}
