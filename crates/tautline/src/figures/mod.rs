//! Figures of runs that have no end: into files, to collectors, interval by interval.

mod args;
mod beat;
mod exports;
mod intervals;
mod lines;

pub(crate) use args::{ExportArgs, IntervalArgs, interval};
pub(crate) use beat::{Beat, BeatArgs, Head};
pub(crate) use exports::Exports;
pub(crate) use intervals::{Measured, each_in_turn, refuse_slower, run};
