//! The simulated GPIO chip of the lab: edges at given times, and the times of the outputs that came of them.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use taut_link::{Error, Result};

use crate::route::{Access, GpioLine};

/// Label of the simulated chip.
pub const CHIP: &str = "taut-gpio-sim";

/// Its line with edges, and that of the output.
pub const IN: u32 = 3;
/// The line of the output.
pub const OUT: u32 = 5;
/// Turns of a loop that are timed together: one is shorter than reading the clock twice.
pub const TURNS: usize = 16;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct GpioPlan {
    /// Samples of a loop, each of [`TURNS`] turns.
    pub samples: usize,
    /// Edges of one measurement, of which every second one passes.
    pub edges: usize,
    /// From one edge to the next, 1 us to 1 s.
    pub period: Duration,
    /// `SCHED_FIFO` priority of the thread under test.
    pub fifo: Option<u8>,
    /// Processor of the thread under test.
    pub core: Option<usize>,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct GpioMeasured {
    /// Times in ns: of a turn, or from an edge that passes to its output.
    pub ns: Vec<u64>,
    /// Turns taken, or edges made that pass.
    pub sent: u64,
    /// Edges that pass without an output before the next edge.
    pub lost: u64,
    /// Edges, passing or not, that the path itself says it lost; none where it can't know.
    pub reported_lost: Option<u64>,
}

/// An edge and the output that came of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// When the edge was made (`CLOCK_MONOTONIC`, ns).
    pub edge_ns: u64,
    /// When an output was set first after it and before the next edge.
    pub output_ns: Option<u64>,
}

/// The simulated chip.
#[derive(Debug)]
pub struct Simulation {
    directory: PathBuf,
}

pub(super) fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Host { what: what.to_owned(), error }
}

/// A line of the simulated chip.
pub fn line(offset: u32) -> GpioLine {
    GpioLine { chip: CHIP.to_owned(), offset, active_low: false, bias: None, by: Access::Auto }
}

impl Simulation {
    /// Finds the chip.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: there is none here, or debugfs is not mounted, or closed to us.
    pub fn find() -> Result<Self> {
        let directory = PathBuf::from("/sys/kernel/debug/taut_gpio_sim");
        fs::metadata(directory.join("run")).map_err(|error| {
            let text = "there is no simulated GPIO chip (cargo xtask lab run --kernel 6.12 --icount --module taut_gpio_sim -- \
                        taut route bench --over gpio)";
            Error::Unavailable(format!("{text}: {}: {error}", directory.display()))
        })?;
        Ok(Self { directory })
    }

    /// Makes edges, the first one to 0, and waits for a period after the last one.
    ///
    /// # Errors
    /// The chip refuses, or is gone.
    pub fn run(&self, line: u32, edges: usize, period: Duration) -> Result<Vec<Stamp>> {
        let order = format!("{line} {edges} {}", period.as_nanos());
        // In one piece: the file takes what one write brings.
        fs::write(self.directory.join("run"), order).map_err(failed("make edges on the simulated chip"))?;
        let bytes = fs::read(self.directory.join("stamps")).map_err(failed("read the simulated chip's stamps"))?;
        let word = |bytes: &[u8]| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| bytes[at]));
        let stamp = |both: &[u8]| {
            let output = word(&both[8..]);
            Stamp { edge_ns: word(both), output_ns: (output > 0).then_some(output) }
        };
        Ok(bytes.chunks_exact(16).map(stamp).collect())
    }

    /// Makes the edges of a plan and takes the times of those that pass, the first tenth excepted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn measure(&self, plan: &GpioPlan) -> Result<GpioMeasured> {
        let warm_up = plan.edges / 20 * 2;
        let stamps = self.run(IN, warm_up + plan.edges, plan.period)?;
        let mut measured = GpioMeasured::default();
        // To 0, to 1, and so on: every second one is to 0.
        for stamp in stamps.iter().skip(warm_up).step_by(2) {
            measured.sent += 1;
            match stamp.output_ns {
                Some(output) => measured.ns.push(output.saturating_sub(stamp.edge_ns)),
                None => measured.lost += 1,
            }
        }
        Ok(measured)
    }
}
