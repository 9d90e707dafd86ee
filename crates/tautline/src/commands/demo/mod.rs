//! What can be shown on any machine: slow programs, staged for others to find; and the published experiments.

mod aio;
mod ble;
mod experiment;
mod latency;
mod nagle;
mod published;
mod route;
mod staged;

use experiment::{Experiment, Output};

use crate::exit::Code;

/// Stage a slow program, to see taut find out what is wrong with it; or repeat a published experiment
///
/// Without an experiment, a client and a server in this process talk over loopback, and one of them makes a mistake
/// that programs make. It is staged, but the stall is the kernel's own. The output has the process number and the
/// lines to try on it. With one, its figures are printed beside those measured here now, in less than a minute.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "EXPERIMENT")]
#[command(subcommand_help_heading = "Published experiments", disable_help_subcommand = true)]
#[command(after_help = "Examples:
  taut demo --explain                the answer at once; with root from the kernel's events, else from samples
  taut demo                          60 s to find it yourself, from another terminal
  taut demo --cured                  the same program without the mistake: nothing is found any more
  taut demo --case slow-reader --explain
  taut demo nagle                    a published experiment, beside the figures of this machine

docs/trace.md says how the holder of the data is found; docs/experiments.md has the experiments.")]
pub(crate) struct Args {
    #[command(subcommand)]
    experiment: Option<Paper>,
    #[command(flatten)]
    staged: staged::Args,
}

/// The published experiments.
#[derive(Debug, clap::Subcommand)]
enum Paper {
    /// Nagle's algorithm in real-time sending: 128 bytes every 10 ms, with it and without
    Nagle(Output),
    /// POSIX network AIO: a server of 10,000 connections, few of them active, by poll and AIO
    Aio(Output),
    /// Latency of links: 1,000 echoes over TCP and UDP, and the late frames of a game
    Latency(Output),
    /// Throughput of Bluetooth LE: five connection intervals, on a model of the link
    Ble(Output),
    /// The direct path: files opened anew, kept open, and a condition in the kernel; as root
    Route(Output),
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let Some(paper) = args.experiment else { return staged::run(&args.staged) };
    let (command, output, measure): (_, Output, fn(&mut Experiment) -> anyhow::Result<()>) = match paper {
        Paper::Nagle(output) => ("demo nagle", output, nagle::measure),
        Paper::Aio(output) => ("demo aio", output, aio::measure),
        Paper::Latency(output) => ("demo latency", output, latency::measure),
        Paper::Ble(output) => ("demo ble", output, ble::measure),
        Paper::Route(output) => ("demo route", output, route::measure),
    };
    experiment::run(command, output, measure)
}
