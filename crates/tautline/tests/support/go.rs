//! Programs in Go that tests build from modules which are pinned, once, into the user's cache.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{has, text, tools};

/// Go, which has a path of its own.
pub(crate) fn go() -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/local/go/bin/go");
    if has("go") { Some("go".into()) } else { usual.exists().then_some(usual) }
}

/// The program of `xtask/NAME`; built where it is not there. Else why it can't be had.
pub(crate) fn built(name: &str) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask").join(name);
    let mut hasher = DefaultHasher::new();
    for name in ["go.mod", "go.sum", "main.go"] {
        fs::read(source.join(name)).unwrap().hash(&mut hasher);
    }
    let tools = tools();
    let program = tools.join(format!("{name}-{:016x}", hasher.finish()));
    fs::create_dir_all(&tools).map_err(|error| format!("{}: {error}", tools.display()))?;
    // Other tests want it at the same time, and one of them builds it.
    let lock = File::create(tools.join(format!("{name}.lock"))).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    if program.is_file() {
        return Ok(program);
    }
    let go = go().ok_or("there is no Go to build it with")?;
    println!("building {}, some minutes", program.display());
    let half = tools.join(format!("{name}.half"));
    let mut build = Command::new(go);
    build.args(["build", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o"]).arg(&half).arg(".");
    // The one that is there is new enough, and no other one is fetched.
    build.current_dir(source).env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    let output = build.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = text(&output.stderr);
        return Err(said.trim().lines().last().unwrap_or("go build says nothing").to_owned());
    }
    fs::rename(&half, &program).map_err(|error| error.to_string())?;
    Ok(program)
}
