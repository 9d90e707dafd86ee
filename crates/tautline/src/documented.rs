//! Every `taut` of README, docs and help is a line that this `taut` takes: no page names an option that is not there.

#[path = "../tests/pages_support/blocks.rs"]
mod blocks;
#[path = "../tests/pages_support/cut.rs"]
mod cut;

use clap::CommandFactory;

use crate::Cli;

/// Why this `taut` does not take these arguments, if it does not.
fn refusal(arguments: &[String]) -> Option<String> {
    let line = std::iter::once("taut".to_owned()).chain(arguments.iter().map(|word| filled(word)));
    let error = Cli::command().try_get_matches_from(line).err()?;
    error.use_stderr().then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// A word of a page, with something in the place of what a reader puts there.
fn filled(word: &str) -> String {
    match word {
        "A" | "B" | "HOST" => "tcp://127.0.0.1:9100".to_owned(),
        "mqtt://…" => "mqtt://127.0.0.1/t".to_owned(),
        "P" => "1".to_owned(),
        // `PID`, `FILE`.
        _ if word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()) => "1".to_owned(),
        _ => word.replace("CAUSE=", "nagle_delayed_ack="),
    }
}

/// The lines of `taut` in a page's tables.
fn of_tables(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    // Every second part is within backticks.
    rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|code| code.starts_with("taut ")).collect()
}

/// These are in no block, and so are not run by the test of the pages.
#[test]
fn every_command_of_the_tables_of_readme_is_taken() {
    assert_eq!(of_tables("| a | [`taut echo A`](x.md) | `ss -ti` |\n`taut x`\n"), ["taut echo A"]);
    let lines = of_tables(include_str!("../../../README.md"));
    let mut refused = Vec::new();
    for line in &lines {
        let command = &cut::commands(line)[0];
        let arguments = cut::of("taut", command).unwrap_or_else(|| panic!("{line}"));
        // The name of a command alone stands for all that it can do.
        let is_name = matches!(arguments, [name] if Cli::command().find_subcommand(name).is_some());
        refused.extend(refusal(arguments).filter(|_| !is_name).map(|why| format!("{line}: {why}")));
    }
    assert!(lines.len() > 20, "{lines:?}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_line_of_the_pages_is_taken() {
    let (mut seen, mut refused) = (0, Vec::new());
    for block in blocks::all() {
        for command in cut::commands(&cut::without_documents(&block.text)) {
            let Some(arguments) = cut::of("taut", &command) else { continue };
            seen += 1;
            let why = refusal(arguments);
            refused.extend(why.map(|why| format!("{}: {}: {why}", block.place(), command.join(" "))));
        }
    }
    assert!(seen > 50, "{seen}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// What is asked stands before it, in a column of its own.
#[test]
fn every_line_of_the_first_screen_is_taken() {
    let screen = crate::first_screen::text();
    let commands = screen.lines().filter_map(|line| line.strip_prefix("  ")?.find("  taut ").map(|at| &line[at + 4..]));
    let commands: Vec<&str> = commands.collect();
    let refused = commands.iter().filter_map(|line| refusal(cut::of("taut", &cut::commands(line)[0])?));
    assert_eq!(refused.collect::<Vec<_>>(), [""; 0], "{screen}");
    assert_eq!(commands.len(), 9, "{screen}");
}

/// The examples below the help of each command; what an example is for follows after two blanks.
#[test]
fn every_example_of_the_help_is_taken() {
    fn walk(command: &clap::Command, seen: &mut usize, refused: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        for line in lines.filter(|line| line.starts_with("taut ") || line.starts_with("sudo taut ")) {
            for command in cut::commands(line.split("  ").next().unwrap_or_default()) {
                let Some(arguments) = cut::of("taut", &command) else { continue };
                *seen += 1;
                refused.extend(refusal(arguments).map(|why| format!("{line}: {why}")));
            }
        }
        command.get_subcommands().for_each(|one| walk(one, seen, refused));
    }
    let (mut seen, mut refused) = (0, Vec::new());
    walk(&Cli::command(), &mut seen, &mut refused);
    assert!(seen > 50, "{seen}");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Nobody needs a terminal of more than 100 columns to read it.
#[test]
fn no_line_of_the_help_is_too_wide() {
    fn walk(command: &mut clap::Command, seen: &mut usize, wide: &mut Vec<String>) {
        *seen += 1;
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            let lines = help.lines().filter(|line| line.chars().count() > 100);
            wide.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        }
        command.get_subcommands_mut().for_each(|one| walk(one, seen, wide));
    }
    let (mut seen, mut wide) = (0, Vec::new());
    let mut cli = Cli::command();
    // Before that the commands beneath do not know how wide they may be.
    cli.build();
    walk(&mut cli, &mut seen, &mut wide);
    assert!(seen > 40, "{seen}");
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn an_option_that_is_not_there_is_refused() {
    let refused = |line: &str| refusal(cut::of("taut", &cut::commands(line)[0]).unwrap());
    assert!(refused("taut echo 127.0.0.1 --siez 3").is_some_and(|why| why.contains("--siez")));
    assert!(refused("taut eco").is_some() && refused("taut echo").is_some());
    assert_eq!((refused("taut echo 127.0.0.1 --size 3"), refused("taut --help")), (None, None));
}
