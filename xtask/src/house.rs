//! The rules of the house that a machine can see: which crate and which file may import which, how
//! long a file and a line may be, that the documentation's links lead somewhere, that the page of each
//! part begins with lines to copy, and that pages have no sentence too long and no empty word.

mod circles;
pub(crate) mod lengths;
pub(crate) mod links;
mod openings;
mod prose;
mod source;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::circles::Knot;
use self::source::Source;
use crate::shell;

/// The crate that all others may stand on, those beside it too: the clock and the event form.
const GROUND: &str = "taut-time";

/// The floors of docs/architecture.md. A crate imports only from floors below its own, and [`GROUND`].
const FLOORS: [(&str, u8); 20] = [
    ("taut-time", 0),
    ("taut-event", 0),
    ("taut-air", 0),
    ("nkeys", 1),
    ("taut-bpf", 1),
    ("taut-capture", 1),
    ("taut-record", 1),
    ("taut-link", 1),
    ("taut-aio", 1),
    ("taut-serve", 2),
    ("taut-explain", 2),
    ("taut-fleet", 2),
    ("taut-route", 2),
    ("taut-source", 2),
    ("taut-pipe", 2),
    ("taut-web", 2),
    ("tautaio", 2),
    ("taut-measure", 3),
    ("taut-report", 3),
    ("tautline", 4),
];

/// Crates that only reckon: they read no clock, open no socket, start no thread, and so build without these.
const PURE: [&str; 5] = ["taut-time", "taut-event", "taut-record", "taut-explain", "taut-air"];
const IMPURE: [&str; 6] = ["io-uring", "libc", "nix", "rustix", "socket2", "tokio"];

/// The help of all commands, as a test has it.
const HELP: &str = "crates/tautline/tests/snapshots/command_line__help.snap";

/// Checks the rules; every breach is named.
pub(crate) fn check() -> Result<()> {
    let metadata = shell::output(shell::cargo().args(["metadata", "--no-deps", "--format-version", "1", "--locked"]))?;
    let mut breaches = imports(&serde_json::from_str(&metadata)?);
    breaches.extend(impurities()?);
    breaches.extend(long_files()?);
    breaches.extend(pages()?);
    breaches.extend(openings::without(&shell::root())?);
    breaches.extend(lengths::too_long_readme(&fs::read_to_string(shell::root().join("README.md"))?));
    breaches.extend(circles(&serde_json::from_str(&metadata)?)?);
    if breaches.is_empty() {
        return Ok(());
    }
    bail!("{}", breaches.join("\n"));
}

/// Links of the documentation that lead nowhere, lines that are too wide, and what is said in too many words.
fn pages() -> Result<Vec<String>> {
    let listed = shell::output(Command::new("git").args(["ls-files", "*.md"]).current_dir(shell::root()))?;
    let mut breaches = Vec::new();
    for file in listed.lines() {
        let text = fs::read_to_string(shell::root().join(file)).with_context(|| format!("read {file}"))?;
        breaches.extend(links::dead(&shell::root(), Path::new(file), &text));
        breaches.extend(lengths::too_wide(file, &text));
        breaches.extend(prose::wordy(file, &text));
    }
    let help = fs::read_to_string(shell::root().join(HELP)).with_context(|| format!("read {HELP}"))?;
    breaches.extend(prose::wordy_help(HELP, &help));
    Ok(breaches)
}

fn imports(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut breaches = Vec::new();
    for package in packages.iter().filter(|package| package["name"] != "xtask") {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(floor) = floor(name) else {
            breaches.push(format!("{name} has no floor: name it in docs/architecture.md and in xtask/src/house.rs"));
            continue;
        };
        // Tests may look at anything.
        let imports =
            package["dependencies"].as_array().into_iter().flatten().filter(|import| import["kind"].is_null());
        for import in imports.filter_map(|import| import["name"].as_str()) {
            if import != GROUND && self::floor(import).is_some_and(|other| other >= floor) {
                breaches.push(format!("{name} (floor {floor}) imports {import}, which is not below it"));
            }
        }
    }
    breaches
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|&(_, floor)| floor)
}

/// What the [`PURE`] crates stand on, directly or not, and may not.
fn impurities() -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for name in PURE {
        let tree = ["tree", "--edges", "normal", "--prefix", "none", "--format", "{lib}", "--locked", "-p", name];
        let tree = shell::output(shell::cargo().args(tree))?;
        let found = IMPURE.iter().filter(|impure| tree.lines().any(|line| line.replace('_', "-") == **impure));
        breaches.extend(found.map(|impure| format!("{name} stands on {impure}: it only reckons")));
    }
    Ok(breaches)
}

fn long_files() -> Result<Vec<String>> {
    let files = shell::output(Command::new("git").args(["ls-files", "*.rs"]).current_dir(shell::root()))?;
    let mut breaches = Vec::new();
    for file in files.lines() {
        // A file removed from the work tree and not yet from the index has no lines.
        if let Ok(text) = fs::read_to_string(shell::root().join(file)) {
            breaches.extend(lengths::too_long(file, &text)?);
        }
    }
    Ok(breaches)
}

/// Circles of files of each library and program.
fn circles(metadata: &Value) -> Result<Vec<String>> {
    let root = shell::root();
    let targets =
        metadata["packages"].as_array().into_iter().flatten().flat_map(|package| package["targets"].as_array());
    let built = |target: &&Value| {
        let kinds = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
        kinds.into_iter().any(|kind| ["lib", "rlib", "cdylib", "bin"].contains(&kind))
    };
    let mut knots = Vec::new();
    for target in targets.flatten().filter(built) {
        let source = Source::read(Path::new(target["src_path"].as_str().unwrap_or_default()))?;
        knots.extend(circles::knots(&source, &root));
    }
    Ok(knots.iter().map(told).collect())
}

fn told(knot: &Knot) -> String {
    format!("{}\n  import each other in a circle: {}", knot.files.join(" "), knot.circle)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_import_from_above_or_beside_is_a_breach() {
        let crate_with = |name: &str, import: &str, kind: Value| json!({"packages": [{"name": name, "dependencies": [{"name": import, "kind": kind}]}]});
        assert_eq!(imports(&crate_with("taut-link", "taut-time", Value::Null)), Vec::<String>::new());
        assert_eq!(imports(&crate_with("taut-air", "taut-time", Value::Null)), Vec::<String>::new());
        assert_eq!(imports(&crate_with("taut-time", "taut-air", Value::Null)).len(), 1);
        assert_eq!(imports(&crate_with("taut-link", "taut-report", Value::Null)).len(), 1);
        assert_eq!(imports(&crate_with("taut-measure", "taut-report", Value::Null)).len(), 1);
        assert_eq!(imports(&crate_with("taut-link", "taut-report", json!("dev"))), Vec::<String>::new());
        assert_eq!(imports(&crate_with("taut-new", "serde", Value::Null)).len(), 1);
    }
}
