//! l2cat, of the crate bluer-tools: the program that the published measurement was made with, and a stock peer of ours.
//!
//! As published the crate needs D-Bus, which a guest does not have, to advertise over bluetoothd.
//! Here its source is built as it is, against a crate by the name of bluer that hands on the real
//! one's sockets and has no bluetoothd (`l2cat/bluer.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::image::for_guests;
use super::once;
use crate::architecture::Architecture;
use crate::{shell, tools};

const VERSION: &str = "0.17.4";
/// All files of the package but the source itself, by their place in it.
const RECIPE: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("l2cat/package.toml")),
    ("Cargo.lock", include_str!("l2cat/lock.toml")),
    ("bluer/Cargo.toml", include_str!("l2cat/bluer.toml")),
    ("bluer/src/lib.rs", include_str!("l2cat/bluer.rs")),
];

/// The program, which runs on any kernel without a library beside it; built once.
///
/// # Errors
/// It can't be fetched or built.
pub(super) fn ensure() -> Result<PathBuf> {
    let cache = tools::user_cache()?.join("lab");
    let home = cache.join(format!("l2cat-{VERSION}"));
    let (program, recipe) = (home.join("l2cat"), home.join("recipe"));
    let wanted: String = RECIPE.iter().flat_map(|(place, text)| [*place, "\n", *text]).collect();
    once::done("l2cat", || {
        if program.is_file() && fs::read_to_string(&recipe).ok().as_ref() == Some(&wanted) {
            return Ok(());
        }
        eprintln!("building l2cat {VERSION} for guests, once");
        fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
        let making = tempfile::Builder::new().prefix("l2cat-").tempdir_in(&cache)?;
        let built = build(making.path()).with_context(|| format!("l2cat {VERSION} can't be built"))?;
        // The recipe comes last: what is there without one is built anew.
        for (name, place) in [(built, &program), (kept(making.path(), &wanted)?, &recipe)] {
            fs::rename(&name, place).with_context(|| format!("cannot create {}", place.display()))?;
        }
        Ok(())
    })?;
    Ok(program)
}

fn kept(making: &Path, recipe: &str) -> Result<PathBuf> {
    let file = making.join("recipe");
    fs::write(&file, recipe)?;
    Ok(file)
}

fn build(directory: &Path) -> Result<PathBuf> {
    let main = directory.join("src/main.rs");
    for (place, text) in RECIPE.iter().copied().chain([("src/main.rs", "")]) {
        let file = directory.join(place);
        fs::create_dir_all(file.parent().context("a file of the package has a directory")?)?;
        fs::write(file, if place == "Cargo.lock" { with_sources(text)? } else { text.to_owned() })?;
    }
    let cargo = |verb: &str| {
        let mut cargo = shell::cargo();
        cargo.args([verb, "--quiet", "--locked", "--manifest-path"]).arg(directory.join("Cargo.toml"));
        cargo
    };
    shell::run(&mut cargo("fetch"))?;
    let text = shell::output(cargo("metadata").args(["--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let source = source(&metadata).context("bluer is not among the fetched crates")?;
    fs::copy(&source, &main).with_context(|| format!("cannot copy {}", source.display()))?;
    let target = directory.join("target");
    let mut build = for_guests(cargo("build"), Architecture::Amd64, &target)?;
    shell::run(&mut build)?;
    Ok(target.join(Architecture::Amd64.target()).join("release/l2cat"))
}

/// The lock file as cargo has it. Kept are versions and checksums; where packages come from is what
/// this project's own says of its.
fn with_sources(lock: &str) -> Result<String> {
    let ours = include_str!("../../../Cargo.lock");
    let source = ours.lines().find(|line| line.starts_with("source = ")).context("Cargo.lock names no source")?;
    Ok(lock.replace("\nchecksum = ", &format!("\n{source}\nchecksum = ")))
}

/// Where cargo has put l2cat's source: beside that of bluer. `cargo metadata` names no package that
/// is fetched and has no library.
fn source(metadata: &Value) -> Option<PathBuf> {
    let fetched = |package: &&Value| package["name"] == "bluer" && package["source"].is_string();
    let package = metadata["packages"].as_array()?.iter().find(fetched)?;
    let registry = Path::new(package["manifest_path"].as_str()?).parent()?.parent()?;
    Some(registry.join(format!("bluer-tools-{VERSION}/src/l2cat.rs")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_source_is_beside_that_of_the_library() {
        let ours = json!({ "name": "bluer", "source": null, "manifest_path": "/tmp/x/bluer/Cargo.toml" });
        let theirs = json!({ "name": "bluer", "source": "registry", "manifest_path": "/r/bluer-0.17.4/Cargo.toml" });
        let found = source(&json!({ "packages": [ours, theirs] }));
        assert_eq!(found, Some(PathBuf::from(format!("/r/bluer-tools-{VERSION}/src/l2cat.rs"))));
        assert_eq!(source(&json!({ "packages": [ours] })), None);
    }

    #[test]
    fn what_has_a_checksum_has_a_source() {
        let lock = with_sources(RECIPE[1].1).unwrap();
        assert!(lock.matches("\nchecksum = ").count() > 100);
        assert_eq!(lock.matches("\nsource = ").count(), lock.matches("\nchecksum = ").count());
    }

    #[test]
    fn the_recipe_is_of_one_version() {
        for (place, text) in RECIPE.iter().filter(|(place, _)| place.ends_with("Cargo.toml")) {
            assert!(text.contains(&format!("\"={VERSION}\"")), "{place}");
        }
        assert!(RECIPE[1].1.contains(&format!("name = \"bluer-tools\"\nversion = \"{VERSION}\"")));
    }
}
