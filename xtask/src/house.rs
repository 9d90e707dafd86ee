//! The rules of the house that a machine can see: who may import whom, how long a file may be.

use std::fs;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::shell;

/// The crate that all others may stand on, those beside it too: the clock and the event form.
const GROUND: &str = "taut-time";

/// The floors of docs/architecture.md. A crate imports only from floors below its own, and [`GROUND`].
const FLOORS: [(&str, u8); 16] = [
    ("taut-time", 0),
    ("taut-event", 0),
    ("taut-air", 0),
    ("taut-bpf", 1),
    ("taut-capture", 1),
    ("taut-link", 1),
    ("taut-aio", 1),
    ("taut-measure", 2),
    ("taut-explain", 2),
    ("taut-route", 2),
    ("taut-source", 2),
    ("taut-pipe", 2),
    ("taut-web", 2),
    ("tautaio", 2),
    ("taut-report", 3),
    ("tautline", 4),
];

/// A source file with more lines has a wall missing.
const LONGEST: usize = 800;

/// Checks the rules; every breach is named.
pub(crate) fn check() -> Result<()> {
    let metadata = shell::output(shell::cargo().args(["metadata", "--no-deps", "--format-version", "1", "--locked"]))?;
    let mut breaches = imports(&serde_json::from_str(&metadata)?);
    breaches.extend(long_files()?);
    if breaches.is_empty() {
        return Ok(());
    }
    bail!("{}", breaches.join("\n"));
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

fn long_files() -> Result<Vec<String>> {
    let files = shell::output(std::process::Command::new("git").args(["ls-files", "*.rs"]).current_dir(shell::root()))?;
    let mut breaches = Vec::new();
    for file in files.lines() {
        // A file removed from the work tree and not yet from the index has no lines.
        let lines = fs::read_to_string(shell::root().join(file)).map_or(0, |text| text.lines().count());
        if lines > LONGEST {
            breaches.push(format!("{file} has {lines} lines, more than {LONGEST}: is a wall missing?"));
        }
    }
    Ok(breaches)
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
        assert_eq!(imports(&crate_with("taut-measure", "taut-explain", Value::Null)).len(), 1);
        assert_eq!(imports(&crate_with("taut-link", "taut-report", json!("dev"))), Vec::<String>::new());
        assert_eq!(imports(&crate_with("taut-new", "serde", Value::Null)).len(), 1);
    }
}
