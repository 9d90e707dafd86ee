use std::path::PathBuf;

use taut_report::{Document, Error, compare};

use crate::again::{Misfit, explain_again};
use crate::exit::Code;
use crate::output::{self, OutputArgs};

/// Render recordings made with --json, or compare two of them
///
/// With one file: tables, or the HTML report. What the recording keeps of its events is explained again, by what this
/// version knows. With two: what became shorter, longer, or can't be told apart.
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
    let mut documents = args.files.iter().map(Document::read).collect::<Result<Vec<_>, _>>()?;
    let [before, after] = documents.as_slice() else {
        let shape = |Misfit { at, message }| Error::Shape { path: args.files[0].clone(), at, message };
        let document = explain_again(documents.remove(0)).map_err(shape)?;
        // However that recording ended, showing it is all that is asked for now.
        return args.output.emit(&document).map(|_| Code::Ok);
    };
    let comparison = compare::render_comparison(before, after, output::style());
    if let Some(path) = &args.output.html {
        output::write_file(path, &comparison.html)?;
    }
    output::print(&if args.output.json { format!("{:#}\n", comparison.json) } else { comparison.text })?;
    Ok(Code::Ok)
}
