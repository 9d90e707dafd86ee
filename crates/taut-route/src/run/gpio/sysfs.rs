//! Lines through `/sys/class/gpio` (Documentation/userspace-api/gpio/sysfs.rst).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::event::PollFlags;
use taut_link::{Error, Result};

use super::chip::{Chip, refused};
use super::interrupts::{self, Tally};
use crate::route::{Edge, GpioEdges, GpioLine};
use crate::run::event::{self, Event, Next};

const CLASS: &str = "/sys/class/gpio";
/// What the interrupts of all such lines are handled by.
const HANDLER: &str = "gpiolib";

/// A line that is exported, and kept open.
#[derive(Debug)]
pub(crate) struct Line {
    value: File,
    directory: PathBuf,
    number: u32,
}

/// Edges of a line.
pub(in crate::run) struct Edges {
    line: Line,
    edge: Edge,
    level: bool,
    tally: Tally,
}

fn entries() -> BTreeSet<PathBuf> {
    fs::read_dir(CLASS).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The number of the chip's first line.
fn base(chip: &Chip) -> Option<u32> {
    let read = |directory: &Path, name: &str| fs::read_to_string(directory.join(name)).ok();
    let is_it =
        |directory: &PathBuf| read(directory, "label").is_some_and(|label| label.trim_end_matches('\n') == chip.label);
    let mut found = entries().into_iter().filter(is_it);
    let first = found.next()?;
    // With two of that label it can't be told which is meant.
    let base = read(&first, "base")?.trim_end().parse().ok();
    base.filter(|_| found.next().is_none())
}

impl Line {
    /// Exports a line.
    fn export(chip: &Chip, line: &GpioLine, direction: &str) -> Result<Self> {
        let missing = || {
            let text = format!(
                "{}: not in {CLASS} (the kernel has no CONFIG_GPIO_SYSFS, or the label is not the only one)",
                line.place()
            );
            Error::Unavailable(text)
        };
        let number = base(chip).ok_or_else(missing)?.saturating_add(line.offset);
        let before = entries();
        fs::write(format!("{CLASS}/export"), number.to_string()).map_err(|error| refused(line, chip, &error))?;
        // Named lines have their name there.
        let usual = PathBuf::from(format!("{CLASS}/gpio{number}"));
        let directory = match entries().difference(&before).next() {
            Some(new) if !usual.exists() => new.clone(),
            _ => usual,
        };
        let configure = || {
            fs::write(directory.join("active_low"), if line.active_low { "1" } else { "0" })?;
            // `low` and `high` are levels as they are on the wire.
            fs::write(directory.join("direction"), direction)?;
            File::options().read(true).write(direction != "in").open(directory.join("value"))
        };
        match configure() {
            Ok(value) => Ok(Self { value, directory, number }),
            Err(error) => {
                unexport(number);
                Err(refused(line, chip, &error))
            }
        }
    }

    /// Exports a line to read it.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: there is no such interface, or the line is taken.
    pub(crate) fn input(chip: &Chip, line: &GpioLine) -> Result<Self> {
        Self::export(chip, line, "in")
    }

    /// Exports a line to set it; it is inactive then.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub(crate) fn output(chip: &Chip, line: &GpioLine) -> Result<Self> {
        Self::export(chip, line, if line.active_low { "high" } else { "low" })
    }

    /// The file of its level.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("value")
    }

    #[inline]
    pub(crate) fn get(&self) -> io::Result<bool> {
        let mut text = [0; 4];
        self.value.read_at(&mut text, 0)?;
        Ok(text[0] == b'1')
    }

    #[inline]
    pub(crate) fn set(&self, active: bool) -> io::Result<()> {
        self.value.write_all_at(if active { b"1" } else { b"0" }, 0)
    }
}

/// Gives a line back; one that is gone needs nothing.
fn unexport(number: u32) {
    let _ = fs::write(format!("{CLASS}/unexport"), number.to_string());
}

impl Drop for Line {
    fn drop(&mut self) {
        unexport(self.number);
    }
}

impl Edges {
    pub(super) fn open(chip: &Chip, source: &GpioEdges) -> Result<Self> {
        let line = Line::input(chip, &source.line)?;
        let before = interrupts::handled_by(HANDLER);
        let edge = match source.edge {
            Edge::Both => "both",
            Edge::Rising => "rising",
            Edge::Falling => "falling",
        };
        let begin = || {
            fs::write(line.directory.join("edge"), edge)?;
            // Nothing is told of before it has been read once.
            line.get()
        };
        let level = begin().map_err(|error| refused(&source.line, chip, &error))?;
        let after = interrupts::handled_by(HANDLER);
        let tally = Tally::begin(&after.difference(&before).copied().collect());
        Ok(Self { line, edge: source.edge, level, tally })
    }

    #[inline]
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        if !event::wait_for(&[self.line.value.as_fd()], PollFlags::PRI)?[0] {
            let lost = self.tally.quiet();
            return Ok(if lost > 0 { Next::Lost(lost) } else { Next::Nothing });
        }
        let level = self.line.get()?;
        let (value, lost) = match self.edge {
            Edge::Rising => (true, 0),
            Edge::Falling => (false, 0),
            // The level is as it was: there was another edge in between.
            Edge::Both => (level, self.tally.concluded(u64::from(level == self.level))),
        };
        self.level = level;
        self.tally.take(lost);
        buffer[..8].copy_from_slice(&i64::from(value).to_ne_bytes());
        let now_ns = event::now_ns();
        Ok(Next::Event(Event { bytes: 8, at_ns: now_ns, now_ns, from: None, hops: None, lost }))
    }

    pub(super) fn finish(&mut self) -> u64 {
        self.tally.finish()
    }
}
