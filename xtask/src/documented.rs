//! Every `cargo xtask` of README and docs is a line that this xtask takes.

#[path = "../../crates/tautline/tests/pages_support/blocks.rs"]
mod blocks;
#[path = "../../crates/tautline/tests/pages_support/cut.rs"]
mod cut;

use clap::CommandFactory;

use crate::Cli;

/// The arguments of xtask in those of cargo.
fn of_xtask(command: &[String]) -> Option<&[String]> {
    let arguments = cut::of("cargo", command)?;
    arguments.first().is_some_and(|first| first == "xtask").then(|| &arguments[1..])
}

fn refusal(arguments: &[String]) -> Option<String> {
    let line = std::iter::once("xtask").chain(arguments.iter().map(String::as_str));
    let error = Cli::command().try_get_matches_from(line).err()?;
    error.use_stderr().then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

#[test]
fn every_line_of_the_pages_is_taken() {
    let (mut seen, mut refused) = (0, Vec::new());
    for block in blocks::all() {
        for command in cut::commands(&block.text) {
            let Some(arguments) = of_xtask(&command) else { continue };
            seen += 1;
            let why = refusal(arguments);
            refused.extend(why.map(|why| format!("{}: {}: {why}", block.place(), command.join(" "))));
        }
    }
    assert!(seen > 20, "{seen}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn an_option_that_is_not_there_is_refused() {
    let refused = |line: &str| refusal(of_xtask(&cut::commands(line)[0]).unwrap());
    assert!(refused("cargo xtask lab pair --kernle 6.12").is_some_and(|why| why.contains("--kernle")));
    assert_eq!(refused("cargo xtask test --quick"), None);
    assert!(of_xtask(&cut::commands("cargo build --release")[0]).is_none());
}
