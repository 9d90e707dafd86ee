use clap_complete::Shell;

use crate::exit::Code;
use crate::output;

/// Print what packages ship: man page, shell completions, JSON schema
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The man page of taut and all its commands
    Man,
    /// Completions for a shell
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: Shell,
    },
    /// JSON Schema of what --json prints
    Schema,
}

/// `command` is the whole of `taut`.
pub(crate) fn run(args: Args, mut command: clap::Command) -> anyhow::Result<Code> {
    command.build();
    let mut bytes = Vec::new();
    match args.what {
        What::Man => {
            clap_mangen::Man::new(command.clone()).render(&mut bytes)?;
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
                clap_mangen::Man::new(sub.clone()).render(&mut bytes)?;
            }
        }
        What::Completions { shell } => clap_complete::generate(shell, &mut command, "taut", &mut bytes),
        What::Schema => bytes = format!("{:#}\n", taut_report::schema()).into_bytes(),
    }
    output::print(&String::from_utf8_lossy(&bytes))?;
    Ok(Code::Ok)
}
