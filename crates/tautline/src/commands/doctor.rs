use taut_measure::{doctor, floor};
use taut_record::{Ended, FloorRow, Row};
use taut_report::Document;

use crate::exit::Code;
use crate::output::OutputArgs;
use crate::run::Run;

/// This host: what the tool itself costs here, what of Tautline works, and what is missing and why
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let run = Run::start("doctor")?;
    let rows = rows();
    let recording = run.finish(Ended::Complete, rows);
    args.output.emit(&Document::new(recording, Vec::new()))
}

/// Floor and checks, for this command and the survey.
pub(crate) fn rows() -> Vec<Row> {
    // First, while the process has one thread: without root the foreign peer's trial needs that.
    let checks = doctor::checks().into_iter().map(Row::Check).collect::<Vec<_>>();
    let floor = floor::rows().into_iter().map(|row: FloorRow| Row::Floor(Box::new(row)));
    floor.chain(checks).collect()
}
