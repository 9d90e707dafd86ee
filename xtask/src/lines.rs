//! `cargo xtask lines`: lines of product code by crate, as of some commits. Comments, empty lines and tests are none.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::bench::outcome::table;
use crate::house::lengths;
use crate::shell;

/// What to count.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Commits, each a column
    #[arg(default_value = "HEAD")]
    commits: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut by_crate: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (column, commit) in args.commits.iter().enumerate() {
        let tree = git(&["ls-tree", "-r", "--name-only", commit, "crates"])?;
        for file in tree.lines().filter(|file| is_product(file)) {
            let lines = lengths::of_product(file, &git(&["show", &format!("{commit}:{file}")])?)?;
            let name = file.split('/').nth(1).unwrap_or_default().to_owned();
            by_crate.entry(name).or_insert_with(|| vec![0; args.commits.len()])[column] += lines;
        }
    }
    let sums = (0..args.commits.len()).map(|column| by_crate.values().map(|lines| lines[column]).sum()).collect();
    by_crate.insert("~ all".to_owned(), sums);
    let head: Vec<&str> = std::iter::once("crate").chain(args.commits.iter().map(String::as_str)).collect();
    let rows: Vec<Vec<String>> = by_crate
        .into_iter()
        .map(|(name, lines)| {
            let name = name.trim_start_matches("~ ").to_owned();
            std::iter::once(name).chain(lines.iter().map(usize::to_string)).collect()
        })
        .collect();
    print!("{}", table(&head, &rows));
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is part of what ships: tests that have files of their own are not.
fn is_product(file: &str) -> bool {
    let is_test = file.contains("/tests/") || file.ends_with("/tests.rs") || file.contains("/benches/");
    file.contains("/src/") && file.ends_with(".rs") && !is_test
}

fn git(args: &[&str]) -> Result<String> {
    shell::output(Command::new("git").args(args).current_dir(shell::root()))
}
