//! GPIO lines from user space, by the faster of the kernel's two interfaces that can do what is asked for.
//!
//! Lines are set sooner through the character device, with no text in between. Edges too, unless the thread
//! that waits for them is a real-time one: then sysfs is, which tells of them in the interrupt handler, where
//! the character device has a thread in between (`taut route bench --over gpio` with and without `--fifo`).

mod cdev;
mod chip;
mod interrupts;
mod sysfs;

use std::io;

use taut_link::Result;

use super::event::Next;
use crate::route::{Access, GpioEdges, GpioLine};

pub(crate) use cdev::Line as CdevLine;
pub(crate) use chip::{described, find};
pub(crate) use sysfs::Line as SysfsLine;

/// Edges of a line.
pub(super) enum Edges {
    Cdev(Box<cdev::Edges>),
    Sysfs(sysfs::Edges),
}

/// A line to set.
pub(super) enum Output {
    Cdev(CdevLine),
    Sysfs(SysfsLine),
}

impl Edges {
    /// Takes the line. Through sysfs, edges that follow each other closely melt into one and have
    /// no times of their own; so it will only do for conditions that remember nothing.
    pub(super) fn open(source: &GpioEdges, sysfs_will_do: bool) -> Result<Self> {
        let chip = find(&source.line)?;
        let by_sysfs = || sysfs::Edges::open(&chip, source).map(Self::Sysfs);
        let by_cdev = || cdev::Edges::open(&chip, source).map(|edges| Self::Cdev(Box::new(edges)));
        let needs_cdev = !sysfs_will_do || source.debounce.is_some() || source.line.bias.is_some();
        match source.line.by {
            Access::Cdev => by_cdev(),
            Access::Sysfs => by_sysfs(),
            Access::Auto if needs_cdev => by_cdev(),
            Access::Auto => by_sysfs().or_else(|_| by_cdev()),
        }
    }

    /// Waits for an edge, for a while.
    #[inline]
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        match self {
            Self::Cdev(edges) => edges.next(buffer),
            Self::Sysfs(edges) => edges.next(buffer),
        }
    }

    /// Edges that were lost and have not been told of, when nothing more is taken.
    pub(super) fn finish(&mut self) -> u64 {
        match self {
            Self::Cdev(edges) => edges.finish(),
            Self::Sysfs(edges) => edges.finish(),
        }
    }
}

impl Output {
    /// Takes the line and makes it inactive.
    pub(super) fn open(line: &GpioLine) -> Result<Self> {
        let chip = find(line)?;
        match line.by {
            Access::Auto | Access::Cdev => CdevLine::output(&chip, line).map(Self::Cdev),
            Access::Sysfs => SysfsLine::output(&chip, line).map(Self::Sysfs),
        }
    }

    #[inline]
    pub(super) fn set(&self, active: bool) -> io::Result<()> {
        match self {
            Self::Cdev(line) => line.set(active),
            Self::Sysfs(line) => line.set(active),
        }
    }
}
