//! Figures of runs that have no end: into files, to collectors, interval by interval.

mod args;
mod exports;
mod intervals;
mod lines;

pub(crate) use args::{ExportArgs, IntervalArgs, interval};
pub(crate) use exports::Exports;
pub(crate) use intervals::{Measured, due, each_in_turn, refuse_slower, run, unix_ns};
