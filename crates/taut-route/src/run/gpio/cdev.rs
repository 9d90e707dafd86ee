//! Lines through the character device: edges with the kernel's times and numbers, read in batches.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use gpiocdev_uapi::Name;
use gpiocdev_uapi::v2::{
    self, LineConfig, LineEdgeEvent, LineEdgeEventKind, LineFlags, LineInfo, LineRequest, LineValues, Offsets,
};
use taut_link::{Error, Result};

use super::chip::{Chip, answer, refused};
use super::interrupts::{self, Tally};
use crate::route::{Bias, Edge, GpioEdges, GpioLine};
use crate::run::event::{self, Event, Next};

/// Events that the kernel keeps for us: the most that it does.
const BUFFERED: u32 = 1024;
/// Events of one reading, and words of each.
const BATCH: usize = 64;
const EVENT: usize = size_of::<LineEdgeEvent>() / size_of::<u64>();

/// A line that is kept open.
#[derive(Debug)]
pub(crate) struct Line {
    file: File,
}

/// Edges of a line.
pub(in crate::run) struct Edges {
    events: File,
    batch: [u64; BATCH * EVENT],
    /// Words of the batch that were taken, and that there are.
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

fn flags(line: &GpioLine) -> LineFlags {
    let bias = match line.bias {
        None => LineFlags::empty(),
        Some(Bias::Off) => LineFlags::BIAS_DISABLED,
        Some(Bias::PullUp) => LineFlags::BIAS_PULL_UP,
        Some(Bias::PullDown) => LineFlags::BIAS_PULL_DOWN,
    };
    if line.active_low { bias | LineFlags::ACTIVE_LOW } else { bias }
}

/// A request for one line. `debounce_us` of 0 is none; `buffered` is the number of events that the
/// kernel keeps, 0 for its own choice (16).
fn request(offset: u32, consumer: &str, flags: LineFlags, debounce_us: u32, buffered: u32) -> LineRequest {
    let mut config = LineConfig { flags, ..LineConfig::default() };
    if debounce_us > 0 {
        config.add_debounce(debounce_us, 1);
    }
    LineRequest {
        offsets: Offsets::from_slice(&[offset]),
        consumer: Name::from(consumer),
        config,
        num_lines: 1,
        event_buffer_size: buffered,
        ..LineRequest::default()
    }
}

impl Line {
    /// Takes a line to read it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: somebody else holds it, or the chip can't.
    pub(crate) fn input(chip: &Chip, line: &GpioLine) -> Result<Self> {
        Self::request(chip, line, LineFlags::INPUT)
    }

    /// Takes a line to set it; it is inactive then.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub(crate) fn output(chip: &Chip, line: &GpioLine) -> Result<Self> {
        Self::request(chip, line, LineFlags::OUTPUT)
    }

    fn request(chip: &Chip, line: &GpioLine, direction: LineFlags) -> Result<Self> {
        let request = request(line.offset, &consumer(), flags(line) | direction, 0, 0);
        let file = v2::get_line(chip.file(), request);
        file.map(|file| Self { file }).map_err(|error| refused(line, chip, &answer(error)))
    }

    #[inline]
    pub(crate) fn get(&self) -> io::Result<bool> {
        let mut values = LineValues { bits: 0, mask: 1 };
        v2::get_line_values(&self.file, &mut values).map_err(answer)?;
        Ok(values.bits & 1 != 0)
    }

    #[inline]
    pub(crate) fn set(&self, active: bool) -> io::Result<()> {
        v2::set_line_values(&self.file, &LineValues { bits: active.into(), mask: 1 }).map_err(answer)
    }
}

impl Edges {
    pub(super) fn open(chip: &Chip, source: &GpioEdges) -> Result<Self> {
        let edges = match source.edge {
            Edge::Both => LineFlags::EDGE_RISING | LineFlags::EDGE_FALLING,
            Edge::Rising => LineFlags::EDGE_RISING,
            Edge::Falling => LineFlags::EDGE_FALLING,
        };
        let flags = flags(&source.line) | LineFlags::INPUT | edges;
        // Less than a second.
        let debounce = source.debounce.map_or(0, |time| time.as_micros() as u32);
        let consumer = consumer();
        let request = request(source.line.offset, &consumer, flags, debounce, BUFFERED);
        let events = v2::get_line(chip.file(), request).map_err(|error| refused(&source.line, chip, &answer(error)))?;
        let tally =
            if debounce > 0 { Tally::without_interrupts() } else { Tally::begin(&interrupts::handled_by(&consumer)) };
        rustix::io::ioctl_fionbio(&events, true)
            .map_err(|errno| Error::Host { what: format!("prepare {source}"), error: errno.into() })?;
        Ok(Self { events, batch: [0; BATCH * EVENT], at: 0, filled: 0, seqno: 0, tally })
    }

    #[inline]
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        if self.at + EVENT > self.filled && !self.fill()? {
            let lost = self.tally.quiet();
            return Ok(if lost > 0 { Next::Lost(lost) } else { Next::Nothing });
        }
        self.take(buffer)
    }

    /// Reads what is there, after waiting for a while; whether anything came.
    fn fill(&mut self) -> io::Result<bool> {
        if !event::wait(&[self.events.as_fd()])?[0] {
            return Ok(false);
        }
        self.read()
    }

    fn read(&mut self) -> io::Result<bool> {
        (self.at, self.filled) = (0, 0);
        match gpiocdev_uapi::read_event(&self.events, &mut self.batch).map_err(answer) {
            Ok(words) => self.filled = words,
            Err(error) if event::is_quiet(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.filled >= EVENT)
    }

    /// The next event of the batch.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        let event = LineEdgeEvent::from_slice(&self.batch[self.at..self.at + EVENT]).map_err(answer)?;
        self.at += EVENT;
        let at_ns = event.timestamp_ns.cast_signed();
        let is_rising = event.kind == LineEdgeEventKind::RisingEdge as u32;
        // The first one has number 1.
        let lost = u64::from(event.line_seqno.wrapping_sub(self.seqno).saturating_sub(1));
        self.seqno = event.line_seqno;
        self.tally.take(lost);
        buffer[..8].copy_from_slice(&i64::from(is_rising).to_ne_bytes());
        Ok(Next::Event(Event { bytes: 8, at_ns, now_ns: at_ns, from: None, hops: None, lost }))
    }

    /// What is in the queue comes after the end, and is not lost.
    pub(super) fn finish(&mut self) -> u64 {
        let mut rest = [0; 8];
        // Bounded by the kernel's queue.
        for _ in 0..=BUFFERED {
            if self.at + EVENT > self.filled && !self.read().unwrap_or(false) {
                break;
            }
            let _ = self.take(&mut rest);
        }
        self.tally.finish()
    }
}

// The kernel's (linux/gpio.h).
const _: () =
    assert!(size_of::<LineEdgeEvent>() == 48 && size_of::<LineRequest>() == 592 && size_of::<LineInfo>() == 256);

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
            batch: [0; BATCH * EVENT],
            at: 0,
            filled: 0,
            seqno: 0,
            tally: Tally::without_interrupts(),
        };
        let mut writer = File::from(writer);
        let mut bytes = Vec::new();
        for (at_ns, id, line_seqno) in [(1_000_u64, 1_u32, 1_u32), (2_000, 2, 2), (3_000, 1, 5)] {
            let mut event = [0; 8 * EVENT];
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
