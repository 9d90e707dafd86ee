//! Captures that others made: the test data of Debian's source packages, fetched once and kept in the user's cache.
//! They are read where they are, and none is part of this repository: licences differ, and some hold addresses of
//! private devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::{shell, tools};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// The release whose packages they are.
const RELEASE: &str = "bookworm";

/// A source package, and its files that are captures, as tar's patterns.
struct Source {
    package: &'static str,
    files: &'static [&'static str],
}

const SOURCES: [Source; 2] = [
    Source { package: "wireshark", files: &["*/test/captures/*"] },
    Source { package: "tcpdump", files: &["*/tests/*.pcap", "*/tests/*.pcapng"] },
];

/// Prints where they are: a directory with one for each package.
pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    match ensure() {
        Ok(directory) => {
            println!("{}", directory.display());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("captures: {error:#}");
            Ok(shell::NOT_HERE.into())
        }
    }
}

/// The captures in the cache; fetched now when they are not there.
fn ensure() -> Result<PathBuf> {
    let directory = tools::user_cache()?.join(format!("captures-{RELEASE}"));
    if directory.is_dir() {
        return Ok(directory);
    }
    let cache = directory.parent().context("a cache above its captures")?;
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
    let captures = making.path().join("captures");
    let lists = making.path().join("apt");
    fs::create_dir(&lists)?;
    let apt = Apt::of_sources(RELEASE, &lists)?;
    for Source { package, files } in SOURCES {
        eprintln!("fetching the source of {package}, once");
        let source = making.path().join(package);
        fs::create_dir(&source)?;
        apt.download_source(package, &source)?;
        let into = captures.join(package);
        fs::create_dir_all(&into)?;
        unpack(&upstream(&source)?, files, &into)?;
    }
    // Another process may have been as quick; then this one's work is dropped.
    if let Err(error) = fs::rename(&captures, &directory)
        && !directory.is_dir()
    {
        return Err(error).with_context(|| format!("cannot create {}", directory.display()));
    }
    Ok(directory)
}

/// The archive with what the package's authors released: `NAME.orig.tar.*`.
fn upstream(directory: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let is_upstream = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".orig.tar.") && !name.ends_with(".asc")
    };
    files.find(is_upstream).context("the source package has no archive of its authors")
}

/// Unpacks only these files, without the directories above them.
fn unpack(archive: &Path, files: &[&str], into: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(into);
    tar.args(["--no-same-owner", "--no-same-permissions", "--wildcards", "--transform", "flags=r;s,.*/,,"]).args(files);
    shell::output(&mut tar)?;
    if fs::read_dir(into)?.next().is_none() {
        bail!("there are no captures in {}", archive.display());
    }
    Ok(())
}
