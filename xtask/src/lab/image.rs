//! What a guest boots into: busybox, `taut`, the kernel's modules, the user's files and the command.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::{modules, once};
use crate::architecture::Architecture;
use crate::shell;

/// A file or directory of the host and its place in the guest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Passed {
    source: PathBuf,
    /// Absolute; `None`: `/bin` for programs, the command's working directory for others.
    place: Option<String>,
}

impl Passed {
    /// A program, in the guest's PATH.
    pub(super) const fn program(source: PathBuf) -> Self {
        Self { source, place: None }
    }
}

/// What to build the image of.
pub(super) struct Contents<'a> {
    pub(super) files: &'a [Passed],
    /// Loaded before the command runs.
    pub(super) modules: &'a [String],
    /// Modules built for this kernel, by file name.
    pub(super) built: &'a BTreeMap<String, Vec<u8>>,
    /// `None` in a machine that gets it later.
    pub(super) command: Option<&'a [String]>,
}

impl FromStr for Passed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (source, place) = match text.rsplit_once(":/") {
            Some((source, place)) => (source, Some(format!("/{place}"))),
            None => (text, None),
        };
        if source.is_empty() || place.as_deref().is_some_and(|place| place.ends_with('/')) {
            return Err("write FILE, or FILE:/PLACE/IN/GUEST".to_owned());
        }
        Ok(Self { source: source.into(), place })
    }
}

/// Parts of each crate that a compiler may work on at a time. Each has copies of its own of what is inlined.
const PARTS: &str = "4";
/// Packages that the release build does not divide.
const IN_ONE_PIECE: [&str; 2] = ["taut-capture", "taut-explain"];
/// Packages that take long to optimise and do little or nothing in a guest.
const HARDLY_RUN: [&str; 7] =
    ["clap_complete", "clap_mangen", "mqtt-protocol-core", "rustls", "rustls-webpki", "taut-fleet", "taut-report"];

/// Builds `taut` for guests: it runs on any kernel, without a library beside it.
pub(super) fn taut(architecture: Architecture) -> Result<PathBuf> {
    let directory = shell::target_dir()?.join("lab");
    once::done(&format!("taut-{}", architecture.debian()), || {
        let mut build = shell::cargo();
        // No guest is an agent of a mesh.
        build.args(["build", "--quiet", "--locked", "--package", "tautline", "--no-default-features"]);
        // What is given away has these in one piece, which keeps all but one core from work.
        let in_parts = IN_ONE_PIECE.map(|package| format!("profile.release.package.{package}.codegen-units={PARTS}"));
        let hardly_run = HARDLY_RUN.map(|package| format!("profile.release.package.{package}.opt-level=1"));
        for setting in in_parts.iter().chain(&hardly_run) {
            build.args(["--config", setting]);
        }
        let mut build = for_guests(build, architecture, &directory)?;
        shell::run(&mut build).context("taut can't be built for the guest")
    })?;
    Ok(directory.join(architecture.target()).join("release/taut"))
}

/// A `cargo build` whose programs run in guests; they are in `release` below the target's name.
pub(super) fn for_guests(mut build: Command, architecture: Architecture, directory: &Path) -> Result<Command> {
    build.arg("--release");
    architecture.build(&mut build)?;
    // Runs of seconds are worth no link-time optimisation.
    build.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", PARTS);
    build.env("CARGO_TARGET_DIR", directory).env("RUSTFLAGS", "-C target-feature=+crt-static");
    Ok(build)
}

/// The first file system of a guest, as the kernel unpacks it.
pub(super) fn build(kernel: &Kernel, taut: &Path, contents: &Contents<'_>) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for directory in ["dev", "proc", "sys", "tmp", "run", "root", "etc", "out", "share", "usr"] {
        archive.directory(directory);
    }
    for place in ["sbin", "usr/bin", "usr/sbin"] {
        archive.link(place, "/bin");
    }
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
    archive.program("init", include_bytes!("init.sh").to_vec());
    if let Some(command) = contents.command {
        archive.program("lab/command", script(command).into_bytes());
    }
    archive.file("lab/modules", contents.modules.iter().flat_map(|name| [name, "\n"]).collect::<String>().into_bytes());
    busybox(kernel, &mut archive)?;
    archive.program("bin/taut", read(taut)?);
    modules::add(kernel, contents.modules, contents.built, &mut archive)?;
    for file in contents.files {
        let source = file.source.canonicalize().with_context(|| format!("cannot find {}", file.source.display()))?;
        let place = file.place.clone().map_or_else(|| default_place(&file.source), Ok)?;
        add(&source, &place, &mut archive)?;
    }
    Ok(archive.into_bytes())
}

fn busybox(kernel: &Kernel, archive: &mut Archive) -> Result<()> {
    let own = shell::find("busybox").context("there is no busybox: install busybox-static")?;
    // That of another machine has the same applets, of which this one can tell.
    let applets = shell::output(Command::new(&own).arg("--list"))?;
    let program = kernel.busybox().unwrap_or(own);
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    if !libraries(&program)?.is_empty() {
        bail!("{} needs libraries: install busybox-static", program.display());
    }
    archive.program("bin/busybox", read(&program)?);
    Ok(())
}

fn default_place(source: &Path) -> Result<String> {
    let name = source.file_name().with_context(|| format!("{} has no name", source.display()))?.to_string_lossy();
    let metadata = fs::metadata(source).with_context(|| format!("cannot read {}", source.display()))?;
    let is_program = metadata.is_file() && is_program(&metadata);
    Ok(format!("/{}/{name}", if is_program { "bin" } else { "root" }))
}

/// Adds a file, a directory with all in it, or a program with its libraries.
fn add(source: &Path, place: &str, archive: &mut Archive) -> Result<()> {
    let metadata = fs::metadata(source).with_context(|| format!("cannot read {}", source.display()))?;
    if metadata.is_dir() {
        archive.directory(place);
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            add(&entry.path(), &format!("{place}/{}", entry.file_name().to_string_lossy()), archive)?;
        }
    } else if !is_program(&metadata) {
        archive.file(place, read(source)?);
    } else {
        archive.program(place, read(source)?);
        for library in libraries(source)? {
            archive.program(&library.to_string_lossy(), read(&library)?);
        }
    }
    Ok(())
}

fn is_program(metadata: &fs::Metadata) -> bool {
    metadata.permissions().mode() & 0o111 != 0
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The shared libraries of a program, its loader among them; none for a static one or a script.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut begin = [0; 4];
    let is_elf = fs::File::open(program)?.read_exact(&mut begin).is_ok() && begin == *b"\x7FELF";
    let ldd = || Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("cannot run ldd");
    match is_elf.then(ldd).transpose()? {
        // It fails on a static program.
        Some(output) if output.status.success() => named(&String::from_utf8_lossy(&output.stdout), program),
        _ => Ok(BTreeSet::new()),
    }
}

/// The files in what ldd(1) prints.
fn named(listing: &str, program: &Path) -> Result<BTreeSet<PathBuf>> {
    if let Some(line) = listing.lines().find(|line| line.contains("not found")) {
        bail!("{}: a library is missing: {}", program.display(), line.trim());
    }
    let files = listing.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(files.map(PathBuf::from).collect())
}

/// A script that becomes the command.
pub(super) fn script(command: &[String]) -> String {
    let later = env::var(LATER).ok().and_then(|turns| turns.parse::<u32>().ok()).unwrap_or(0);
    let later =
        if later > 0 { format!("i={later}; while [ $i -gt 0 ]; do i=$((i - 1)); done\n") } else { String::new() };
    format!("#!/bin/sh\n{later}exec{}\n", words(command))
}

/// The variable with a number of turns that a guest's shell takes before the command. In virtual time every
/// run is equal, so that a test can stand on the luck of one build; a few numbers here show whether it does.
const LATER: &str = "TAUT_LAB_LATER";

/// Words as a shell takes them, each with a space in front.
pub(super) fn words(words: &[String]) -> String {
    words.iter().map(|word| format!(" '{}'", word.replace('\'', r"'\''"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guest_as_they_are() {
        let words = ["printf", "%s|", "a b", "it's", "$HOME", "", "\\n\n"].map(str::to_owned);
        let output = Command::new("sh").args(["-c", &script(&words)]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b|it's|$HOME||\\n\n|");
    }

    #[test]
    fn a_file_has_a_place_or_none() {
        let parse = |text: &str| text.parse::<Passed>();
        assert_eq!(parse("a/b").unwrap(), Passed { source: "a/b".into(), place: None });
        assert_eq!(parse("/a:b:/c/d").unwrap(), Passed { source: "/a:b".into(), place: Some("/c/d".to_owned()) });
        assert!(parse("").is_err());
        assert!(parse(":/x").is_err());
        assert!(parse("x:/").is_err());
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let listing = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        let files = named(listing, Path::new("x")).unwrap();
        assert_eq!(files, ["/lib/x/libc.so.6", "/lib64/ld.so.2"].map(PathBuf::from).into());
        let error = named("\tlibgone.so => not found\n", Path::new("/bin/x")).unwrap_err().to_string();
        assert!(error.contains("libgone.so"), "{error}");
    }
}
