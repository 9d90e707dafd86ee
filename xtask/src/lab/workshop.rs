//! Kernel modules of ours, built for a kernel of the lab with that kernel's headers and the
//! compiler of its Debian release.
//!
//! A workshop is a directory with the files of some Debian packages, in which make runs as if it
//! were the root. Nothing is configured in it and nothing installed here: apt works out which
//! packages are needed, and their files are unpacked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::kernel::{Kernel, Series};
use super::once;
use crate::apt::Apt;
use crate::{shell, tools};

/// What make and the kernel's makefiles call, but for the compiler; and sparse, which looks at our modules.
pub(super) const TOOLS: [&str; 14] = [
    "base-files",
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "make",
    "mawk",
    "pahole",
    "perl-base",
    "sed",
    "sparse",
];
/// Where a workshop finds the sources.
pub(super) const BENCH: &str = "bench";
/// Entered with the workshop's root and the directory of sources; the mounts are gone with the process.
const ENTER: &str = r#"set -e
root=$1 sources=$2; shift 2
mount --bind /dev/null "$root/dev/null"
mount --bind "$sources" "$root/bench"
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin LC_ALL=C "$@""#;

/// The files of packages, for one kernel.
pub(super) struct Workshop {
    root: PathBuf,
    release: String,
}

impl Workshop {
    /// The workshop from the cache; made now when it is not there.
    pub(super) fn ensure(series: Series, kernel: &Kernel) -> Result<Self> {
        let Some(compiler) = series.compiler() else {
            bail!("modules are not built for Linux {}: Tautline's need 6.1 or newer", series.name());
        };
        let root = place(&kernel.release)?;
        if matches!(series, Series::V6_12Debug) && !root.is_dir() {
            bail!("{} is missing: cargo xtask lab debug-kernel --again", root.display());
        }
        once::done(&format!("workshop-{}", kernel.release), || {
            if !root.is_dir() {
                put(series, &kernel.release, compiler, &root)?;
            }
            Ok(())
        })?;
        Ok(Self { root, release: kernel.release.clone() })
    }

    /// Where its files are.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Builds the modules of a directory with a Kbuild file; their contents by file name.
    ///
    /// # Errors
    /// They can't be built, or not without a warning.
    pub(super) fn build(&self, sources: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
        let bench = tempfile::Builder::new().prefix("taut-module-").tempdir()?;
        let directory = bench.path().join("kernel");
        copy(sources.parent().context("a directory of modules has one above it")?, &directory)?;
        let name = sources.file_name().context("a directory of modules has a name")?;
        let arguments = [
            "make".to_owned(),
            "-s".to_owned(),
            // sparse(1) before the compiler; what it says is a warning, too.
            "C=1".to_owned(),
            format!("M=/{BENCH}/{}", name.to_string_lossy()),
            "-C".to_owned(),
            format!("/lib/modules/{}/build", self.release),
            "modules".to_owned(),
        ];
        let mut command = inside(&self.root, &directory);
        let output = command.args(arguments).output().context("cannot run unshare (util-linux)")?;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let complaints: Vec<&str> = said.lines().filter(|line| !is_expected(line)).collect();
        if !output.status.success() || complaints.iter().any(|line| is_complaint(line)) {
            let what = if output.status.success() { "with warnings" } else { "not" };
            bail!("{} builds {what} for Linux {}:\n{}", sources.display(), self.release, complaints.join("\n"));
        }
        let mut modules = BTreeMap::new();
        for entry in fs::read_dir(directory.join(name))?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "ko") {
                modules.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
            }
        }
        if modules.is_empty() {
            bail!("{} has no modules", sources.display());
        }
        Ok(modules)
    }
}

/// Whether a line of a build is a warning.
pub(super) fn is_complaint(line: &str) -> bool {
    line.to_lowercase().contains("warning")
}

/// Debian 12's packages have no vmlinux to take types from, and kbuild says so at each module.
fn is_expected(line: &str) -> bool {
    line.contains("Skipping BTF generation")
}

/// Where the workshop of a kernel is in the cache. Those made before sparse(1) belonged into them had a shorter name.
pub(super) fn place(release: &str) -> Result<PathBuf> {
    Ok(tools::user_cache()?.join("lab").join(format!("workshop-sparse-{release}")))
}

/// A command in a workshop, with a directory at `/bench`.
pub(super) fn inside(root: &Path, bench: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !shell::is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", ENTER, "enter"]).arg(root).arg(bench).stdin(Stdio::null());
    command
}

/// Unpacks packages and what they need, and does by hand what their scripts would have done.
pub(super) fn furnish(apt: &Apt, packages: &[&str], compiler: &str, root: &Path) -> Result<()> {
    apt.unpack_all(packages.iter().chain([&compiler]).copied(), root)?;
    // Packages up to Debian 12 bring these as directories of their own; later ones have everything in /usr.
    for name in ["bin", "sbin", "lib", "lib64"] {
        let link = root.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(format!("usr/{name}"), link)?;
        }
    }
    for directory in ["dev", "tmp", BENCH] {
        fs::create_dir_all(root.join(directory))?;
    }
    File::create(root.join("dev/null"))?;
    for (name, target) in [("awk", "mawk"), ("gcc", compiler)] {
        let link = root.join("usr/bin").join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(target, link)?;
        }
    }
    Ok(())
}

/// Makes a workshop in its place.
fn put(series: Series, release: &str, compiler: &str, root: &Path) -> Result<()> {
    let cache = root.parent().context("a cache above its workshops")?;
    let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
    let made = making.path().join("root");
    make(series, release, compiler, making.path(), &made)
        .with_context(|| format!("what builds modules for Linux {release}"))?;
    // Another process may have been as quick; then this one's work is dropped.
    if let Err(error) = fs::rename(&made, root)
        && !root.is_dir()
    {
        return Err(error).with_context(|| format!("cannot create {}", root.display()));
    }
    Ok(())
}

fn make(series: Series, release: &str, compiler: &str, making: &Path, root: &Path) -> Result<()> {
    let lists = making.join("apt");
    fs::create_dir(&lists)?;
    let apt = Apt::of_release(series.debian(), series.architecture(), series.with_security_updates(), &lists)?;
    eprintln!("fetching headers and a compiler for Linux {release}, once");
    furnish(&apt, &TOOLS, compiler, root)?;
    let flavour = release.strip_suffix("-amd64").context("the kernel's release does not end in -amd64")?;
    let (version, common) = match flavour.strip_suffix("-rt") {
        Some(version) => (version, format!("{version}-common-rt")),
        None => (flavour, format!("{flavour}-common")),
    };
    let kbuild = format!("linux-kbuild-{}", series.kbuild(version));
    for package in [format!("linux-headers-{release}"), format!("linux-headers-{common}"), kbuild] {
        apt.unpack(&package, root).with_context(|| {
            format!("Debian has no headers of Linux {release} any longer: remove its kernel from the lab's cache")
        })?;
    }
    Ok(())
}

/// Copies a directory of sources, without what was built in it.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let (entry, place) = {
            let entry = entry?;
            let place = to.join(entry.file_name());
            (entry, place)
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else if ["c", "h", "conf"].iter().any(|kind| name.ends_with(&format!(".{kind}"))) || !name.contains('.') {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}
