//! What is fetched or built once and kept in the user's cache; among it Cargo's own tools that the toolchain lacks.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Where tools are kept.
pub(crate) fn cache() -> Result<PathBuf> {
    Ok(user_cache()?.join("tools"))
}

/// The user's cache: `$XDG_CACHE_HOME/tautline`, else `~/.cache/tautline`.
pub(crate) fn user_cache() -> Result<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache"))) {
        Some(base) => base,
        None => shell::target_dir()?.join("cache"),
    };
    Ok(base.join("tautline"))
}

/// A tool of exactly this version; built now when it is not there yet.
pub(crate) fn ensure(name: &str, version: &str) -> Result<PathBuf> {
    let root = cache()?;
    let file = root.join("bin").join(name);
    if has_version(&file, version) {
        return Ok(file);
    }
    println!("{name} {version} is not in {}: building it, some minutes", root.display());
    let mut install = shell::cargo();
    install.args(["install", "--quiet", "--locked", "--version", version, "--root"]).arg(&root).arg(name);
    // What the caller set for this workspace's build is not meant for the tool's.
    install.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    // It runs for two seconds: what optimises it takes longer than it saves.
    for (setting, value) in [("LTO", "off"), ("OPT_LEVEL", "0"), ("CODEGEN_UNITS", "16"), ("DEBUG", "false")] {
        install.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    shell::run(&mut install).with_context(|| format!("{name} {version} could not be built"))?;
    if !has_version(&file, version) {
        bail!("{} was built but does not run as version {version}", file.display());
    }
    Ok(file)
}

/// Makes sure that the toolchain has a component, by asking the command that it brings (`cargo fmt`).
pub(crate) fn ensure_component(component: &str, subcommand: &str) -> Result<()> {
    let present = || shell::succeeds(shell::cargo().args([subcommand, "--version"]));
    if present() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.args(["component", "add", component]);
    if shell::find("rustup").is_some() && shell::run(&mut add).is_ok() && present() {
        return Ok(());
    }
    bail!("`cargo {subcommand}` is missing; install it with: rustup component add {component}")
}

fn has_version(file: &PathBuf, version: &str) -> bool {
    file.is_file()
        && shell::output(Command::new(file).arg("--version"))
            .is_ok_and(|text| text.split_whitespace().nth(1).map(|said| said.trim_start_matches('v')) == Some(version))
}
