//! `taut`: find the slack in a data path, name the layer that holds it, pull it tight.
//!
//! One file for each command: parse, call, print.

mod account;
mod again;
mod assertion;
mod cause_limit;
mod commands;
mod destination;
#[cfg(test)]
mod documented;
mod exit;
mod figures;
mod findings;
mod first_screen;
mod held_limit;
mod host_watch;
mod input;
mod joining;
mod kept;
mod link_args;
mod local_server;
mod model_file;
mod output;
mod published;
mod run;
mod scenario;
mod times_limit;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

/// Find the slack in a data path, name the layer that holds it, pull it tight
#[derive(Debug, Parser)]
#[command(name = "taut", version, propagate_version = true, max_term_width = 100, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Survey(commands::survey::Args),
    Serve(commands::serve::Args),
    #[command(visible_alias = "ping")]
    Echo(commands::echo::Args),
    Pace(commands::pace::Args),
    #[command(visible_alias = "throughput")]
    Stream(commands::stream::Args),
    #[command(name = "connections", alias = "crowd")]
    Crowd(commands::crowd::Args),
    Tune(commands::tune::Args),
    Route(commands::route::Args),
    #[command(visible_alias = "relay")]
    Pipe(commands::pipe::Args),
    Web(commands::web::Args),
    #[command(visible_alias = "ble")]
    Air(commands::air::Args),
    Check(commands::check::Args),
    Mesh(commands::mesh::Args),
    #[cfg(feature = "fleet")]
    Agent(commands::agent::Args),
    Doctor(commands::doctor::Args),
    Explain(commands::explain::Args),
    Sockets(commands::sockets::Args),
    Trace(commands::trace::Args),
    Watch(commands::watch::Args),
    Demo(commands::demo::Args),
    Report(commands::report::Args),
    Generate(commands::generate::Args),
    CrowdHost(commands::crowd_host::Args),
    CheckServer(commands::check_server::Args),
}

fn main() -> ExitCode {
    if std::env::args_os().len() <= 1 {
        // As any usage error; but whoever types it wants to know what there is.
        let printed = output::print(&first_screen::text());
        return printed.map_or_else(|error| failed(&error, ""), |()| exit::Code::Usage.into());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return told(&with_names(answer)),
    };
    let _restored = Restored;
    execute(cli)
}

/// Puts adapters back, however the command ends: what is told on a terminal that is gone panics.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        taut_link::bluetooth::restore_adapters();
    }
}

/// Of a name that is none, the error says which there are.
fn with_names(mut answer: clap::Error) -> clap::Error {
    if answer.kind() == ErrorKind::InvalidSubcommand && answer.get(ContextKind::SuggestedSubcommand).is_none() {
        let Some(ContextValue::String(wrong)) = answer.get(ContextKind::InvalidSubcommand) else { return answer };
        let mut command = Cli::command();
        for word in std::env::args_os().skip(1).take_while(|word| word != wrong.as_str()) {
            if let Some(inner) = command.find_subcommand(&word) {
                command = inner.clone();
            }
        }
        let names = command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(clap::Command::get_name);
        let tip = format!("there are {}", names.collect::<Vec<_>>().join(", "));
        answer.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    answer
}

/// Prints a usage error, or the help that was asked for: a help that can't be written is no success.
fn told(answer: &clap::Error) -> ExitCode {
    match answer.print() {
        Err(error) if !answer.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            anstream::eprintln!("taut: write to stdout: {error}");
            exit::Code::Failed.into()
        }
        _ => u8::try_from(answer.exit_code()).map_or_else(|_| exit::Code::Usage.into(), ExitCode::from),
    }
}

fn execute(cli: Cli) -> ExitCode {
    let asks_a_server =
        matches!(cli.command, Command::Echo(_) | Command::Pace(_) | Command::Stream(_) | Command::Tune(_));
    let outcome = match cli.command {
        Command::Survey(args) => commands::survey::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Echo(args) => commands::echo::run(args),
        Command::Pace(args) => commands::pace::run(args),
        Command::Stream(args) => commands::stream::run(args),
        Command::Crowd(args) => commands::crowd::run(args),
        Command::Tune(args) => commands::tune::run(args),
        Command::Route(args) => commands::route::run(args),
        Command::Pipe(args) => commands::pipe::run(args),
        Command::Web(args) => commands::web::run(args),
        Command::Air(args) => commands::air::run(args),
        Command::Check(args) => commands::check::run(args, Cli::command()),
        Command::Mesh(args) => commands::mesh::run(args),
        #[cfg(feature = "fleet")]
        Command::Agent(args) => commands::agent::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Explain(args) => commands::explain::run(args),
        Command::Sockets(args) => commands::sockets::run(args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Watch(args) => commands::watch::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Report(args) => commands::report::run(args),
        Command::Generate(args) => commands::generate::run(args, Cli::command()),
        Command::CrowdHost(args) => Ok(commands::crowd_host::run(args)),
        Command::CheckServer(args) => commands::check_server::run(args),
    };
    match outcome {
        Ok(code) => code.into(),
        Err(error) if asks_a_server && exit::is_refused(&error) => {
            failed(&error, " (the other side of a test is `taut serve`: does it run there?)")
        }
        Err(error) => failed(&error, ""),
    }
}

/// Says what went wrong, and what might help.
fn failed(error: &anyhow::Error, hint: &str) -> ExitCode {
    if !exit::is_broken_pipe(error) {
        // Where stderr is gone as well nobody can be told.
        let _ = writeln!(anstream::stderr(), "taut: {}{hint}", output::message(error));
    }
    exit::Code::of(error).into()
}
