use std::path::PathBuf;

use taut_report::Document;

use crate::exit::Code;
use crate::output::OutputArgs;

/// Render recordings made with --json, or compare two of them
///
/// With one file: tables, or the HTML report. With two: what became shorter, longer, or can't be told apart.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut report survey.json --html survey.html
  taut report before.json after.json")]
pub(crate) struct Args {
    /// One recording, or two to compare
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let documents = args.files.iter().map(Document::read).collect::<Result<Vec<_>, _>>()?;
    args.output.emit(&documents[0]).map(|_| Code::Ok)
}
