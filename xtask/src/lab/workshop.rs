//! Kernel modules of ours, built for a kernel of the lab with that kernel's headers and the compiler of its Debian release.
//!
//! A workshop is a directory with the files of some Debian packages, in which make runs as if it were the root. Nothing is
//! configured in it and nothing installed here: apt works out which packages are needed, and their files are unpacked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use super::kernel::{Kernel, Series};
use crate::{shell, tools};

/// What make and the kernel's makefiles call, but for the compiler.
const TOOLS: [&str; 13] = [
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
];
/// Where a workshop finds the sources.
const BENCH: &str = "bench";
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
        let cache = tools::user_cache()?.join("lab");
        let root = cache.join(format!("workshop-{}", kernel.release));
        if !root.is_dir() {
            let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(&cache)?;
            let made = making.path().join("root");
            make(series, &kernel.release, compiler, making.path(), &made)
                .with_context(|| format!("what builds modules for Linux {}", kernel.release))?;
            // Another process may have been as quick; then this one's work is dropped.
            if let Err(error) = fs::rename(&made, &root)
                && !root.is_dir()
            {
                return Err(error).with_context(|| format!("cannot create {}", root.display()));
            }
        }
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
            format!("M=/{BENCH}/{}", name.to_string_lossy()),
            "-C".to_owned(),
            format!("/lib/modules/{}/build", self.release),
            "modules".to_owned(),
        ];
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !shell::is_root() {
            command.arg("--map-root-user");
        }
        command.args(["sh", "-c", ENTER, "enter"]).arg(&self.root).arg(&directory).args(arguments);
        let output = command.stdin(Stdio::null()).output().context("cannot run unshare (util-linux)")?;
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

fn make(series: Series, release: &str, compiler: &str, making: &Path, root: &Path) -> Result<()> {
    let lists = making.join("apt");
    fs::create_dir(&lists)?;
    let apt = Apt::of_release(series.debian(), series.with_security_updates(), &lists)?;
    eprintln!("fetching headers and a compiler for Linux {release}, once");
    apt.unpack_all(TOOLS.iter().chain([&compiler]).copied(), root)?;
    // Packages up to Debian 12 bring these as directories of their own; later ones have everything in /usr.
    for name in ["bin", "sbin", "lib", "lib64"] {
        let link = root.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(format!("usr/{name}"), link)?;
        }
    }
    let flavour = release.strip_suffix("-amd64").context("the kernel's release does not end in -amd64")?;
    let short = series.kbuild(flavour);
    for package in
        [format!("linux-headers-{release}"), format!("linux-headers-{flavour}-common"), format!("linux-kbuild-{short}")]
    {
        apt.unpack(&package, root).with_context(|| {
            format!("Debian has no headers of Linux {release} any longer: remove its kernel from the lab's cache")
        })?;
    }
    for directory in ["dev", "tmp", BENCH] {
        fs::create_dir_all(root.join(directory))?;
    }
    File::create(root.join("dev/null"))?;
    // What the packages' scripts would have made.
    for (name, target) in [("awk", "mawk"), ("gcc", compiler)] {
        let link = root.join("usr/bin").join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(target, link)?;
        }
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
