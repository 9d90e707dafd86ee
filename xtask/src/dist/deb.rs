//! Debian packages: `tautline`, the static program with its manual, completions and units, `libtautaio` with what is
//! needed to link it, and `tautline-dkms` with the sources of the kernel module. The first two have no scripts: nothing
//! is started, enabled or left behind. Those of the last one hand the sources to DKMS, and take them back.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::machine::Machine;
use crate::shell;

/// The settings of the agent's unit.
pub(super) const SETTINGS: &str = "etc/taut/agent";

/// Where units of packages lie.
const UNITS: &str = "usr/lib/systemd/system";

/// The format asks for an address. There is none yet.
const MAINTAINER: &str = "The Tautline developers <tautline@invalid.invalid>";

/// Its name as programs that are linked with it look for it: a change of its interface changes the number.
pub(super) const LIBRARY: &str = "libtautaio.so.0";

/// A package that is being put together.
struct Package<'a> {
    name: &'static str,
    /// As Debian calls it, or `all`.
    architecture: &'static str,
    section: &'static str,
    depends: String,
    /// One line, and what follows it.
    description: (&'static str, &'static str),
    /// What will be the root of the system.
    tree: &'a Path,
    /// Seconds since 1970-01-01 UTC: the time of all files.
    time: u64,
}

/// What lintian would call an error. Of the machines only x86_64 has static programs that can be moved, and those it
/// does not know as static.
const OVERRIDES: &str = "# It runs on hosts with any C library.\ntautline: statically-linked-binary [usr/bin/taut]\n";

/// Packs the static program: `unpacked` is what its archive holds.
pub(super) fn program(machine: Machine, unpacked: &Path, directory: &Path, time: u64) -> Result<PathBuf> {
    let tree = tempfile::tempdir_in(directory)?;
    let package = Package {
        name: "tautline",
        architecture: machine.debian(),
        section: "net",
        depends: String::new(),
        description: (
            "finds out who holds late data, and proves what helps",
            " Every small request takes 40 ms, and nothing is busy? taut names the layer\n that holds the data: the \
             program, the algorithm of Nagle, a window, a loss,\n the path or the peer. It looks at running programs, \
             hosts, captures and\n Bluetooth logs, or at traffic of its own.\n",
        ),
        tree: tree.path(),
        time,
    };
    package.add(&unpacked.join("taut"), "usr/bin/taut")?;
    package.add_zipped(&unpacked.join("man/taut.1"), "usr/share/man/man1/taut.1")?;
    for (file, place) in [
        ("taut.bash", "usr/share/bash-completion/completions/taut"),
        ("_taut", "usr/share/zsh/vendor-completions/_taut"),
        ("taut.fish", "usr/share/fish/vendor_completions.d/taut.fish"),
    ] {
        package.add(&unpacked.join("completions").join(file), place)?;
    }
    for unit in fs::read_dir(unpacked.join("systemd"))? {
        let unit = unit?;
        package.add(&unit.path(), &format!("{UNITS}/{}", unit.file_name().to_string_lossy()))?;
    }
    package.add(&unpacked.join("etc/agent"), SETTINGS)?;
    // What was edited there stays when the package is upgraded.
    package.write(&format!("/{SETTINGS}\n"), "DEBIAN/conffiles")?;
    for file in ["README.md", "SECURITY.md"] {
        package.add(&unpacked.join(file), &format!("usr/share/doc/tautline/{file}"))?;
    }
    package.add(&unpacked.join("schema.json"), "usr/share/doc/tautline/schema.json")?;
    package.write(OVERRIDES, "usr/share/lintian/overrides/tautline")?;
    package.finish(directory)
}

/// Packs the library that was built for Debian's C library.
pub(super) fn library(machine: Machine, library: &Path, directory: &Path, time: u64) -> Result<PathBuf> {
    let tree = tempfile::tempdir_in(directory)?;
    let package = Package {
        name: "libtautaio",
        architecture: machine.debian(),
        section: "libs",
        depends: format!("libc6 (>= {}), libgcc-s1", newest_symbol(machine, library)?),
        description: (
            "POSIX asynchronous I/O that serves sockets",
            " It implements aio.h on io_uring, or on epoll where io_uring is refused: to\n link, or to preload under \
             programs as they are. One thread serves ten thousand\n connections. The package holds the library, its \
             header and its manual.\n",
        ),
        tree: tree.path(),
        time,
    };
    let root = shell::root();
    let place = format!("usr/lib/{}-linux-gnu", machine.name());
    package.add(library, &format!("{place}/{LIBRARY}"))?;
    fs::set_permissions(package.place(&format!("{place}/{LIBRARY}"))?, Permissions::from_mode(0o644))?;
    package.write("activate-noawait ldconfig\n", "DEBIAN/triggers")?;
    let (name, number) = LIBRARY.split_once(".so.").context("the library has no number")?;
    let provided = format!("{name} {number} {} (>= {})\n", package.name, env!("CARGO_PKG_VERSION"));
    package.write(&provided, "DEBIAN/shlibs")?;
    // What is linked with, and preloaded.
    symlink(LIBRARY, package.place(&format!("{place}/libtautaio.so"))?)?;
    package.add(&root.join("include/tautaio.h"), "usr/include/tautaio.h")?;
    package.add_zipped(&root.join("man/tautaio.3"), "usr/share/man/man3/tautaio.3")?;
    let link = format!(
        "includedir=/usr/include\nlibdir=/{place}\n\nName: tautaio\nDescription: {}\nVersion: {}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -ltautaio\n",
        package.description.0,
        env!("CARGO_PKG_VERSION")
    );
    package.write(&link, &format!("{place}/pkgconfig/tautaio.pc"))?;
    package.finish(directory)
}

/// Packs the sources of the kernel module: DKMS builds it for each kernel where they are installed.
pub(crate) fn module(directory: &Path, time: u64) -> Result<PathBuf> {
    let sources = shell::root().join("kernel/taut_path");
    let conf = fs::read_to_string(sources.join("dkms.conf")).context("read the module's dkms.conf")?;
    let value = |name: &str| {
        let line = conf.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"')).with_context(|| format!("dkms.conf has no {name}"))
    };
    let (name, version) = (value("PACKAGE_NAME")?, value("PACKAGE_VERSION")?);
    let tree = tempfile::tempdir_in(directory)?;
    let package = Package {
        name: "tautline-dkms",
        architecture: "all",
        section: "kernel",
        depends: "dkms (>= 3)".to_owned(),
        description: (
            "runs routes of taut inside the kernel",
            " The sources of the module taut_path, which DKMS builds for each kernel: from\n an edge of a GPIO line or \
             an event of an input device to GPIO lines, LEDs and\n datagrams, under a condition, without a program in \
             between. It needs Linux\n 6.1 or newer and its headers (linux-headers-amd64, or that of your kernel).\n",
        ),
        tree: tree.path(),
        time,
    };
    // Of a build in place there is more.
    for file in shell::output(Command::new("git").args(["ls-files"]).current_dir(&sources))?.lines() {
        let place = if file == "README.md" {
            "usr/share/doc/tautline-dkms".to_owned()
        } else {
            format!("usr/src/{name}-{version}")
        };
        package.add(&sources.join(file), &format!("{place}/{file}"))?;
    }
    // What dh_dkms(1) would write; the second version is the one that was configured before.
    package.script(
        "postinst",
        &format!(
            "case \"$1\" in configure | abort-upgrade | abort-remove | abort-deconfigure)\n    \
             /usr/lib/dkms/common.postinst {name} {version} '' '' \"$2\"\nesac\n"
        ),
    )?;
    package.script(
        "prerm",
        &format!(
            "case \"$1\" in remove | upgrade | deconfigure)\n    if [ -n \"$(dkms status -m {name} -v {version})\" ]; \
             then\n        dkms remove -m {name} -v {version} --all\n    fi\nesac\n"
        ),
    )?;
    package.finish(directory)
}

/// What a package's file is called.
pub(super) fn archive(name: &str, architecture: &str) -> String {
    format!("{name}_{}_{architecture}.deb", env!("CARGO_PKG_VERSION"))
}

/// The newest version of the C library that one of the symbols takes.
fn newest_symbol(machine: Machine, library: &Path) -> Result<String> {
    let symbols = shell::output(machine.tool("objdump").arg("-T").arg(library))?;
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split([')', ' ']).next()?;
        version.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    });
    let newest = versions.max().context("the library takes nothing of the C library")?;
    Ok(newest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

impl Package<'_> {
    fn place(&self, place: &str) -> Result<PathBuf> {
        let path = self.tree.join(place);
        fs::create_dir_all(path.parent().unwrap_or(self.tree))?;
        Ok(path)
    }

    fn add(&self, from: &Path, place: &str) -> Result<()> {
        fs::copy(from, self.place(place)?).with_context(|| format!("copy {}", from.display()))?;
        Ok(())
    }

    fn write(&self, text: &str, place: &str) -> Result<()> {
        Ok(fs::write(self.place(place)?, text)?)
    }

    /// A maintainer script, which dpkg runs.
    fn script(&self, name: &str, text: &str) -> Result<()> {
        let place = format!("DEBIAN/{name}");
        self.write(&format!("#!/bin/sh\nset -e\n{text}"), &place)?;
        Ok(fs::set_permissions(self.place(&place)?, Permissions::from_mode(0o755))?)
    }

    /// As policy has it for manuals and lists of changes.
    fn add_zipped(&self, from: &Path, place: &str) -> Result<()> {
        self.add(from, place)?;
        shell::run(Command::new("gzip").arg("-9n").arg(self.tree.join(place)))
    }

    fn finish(&self, directory: &Path) -> Result<PathBuf> {
        let root = shell::root();
        let papers = format!("usr/share/doc/{}", self.name);
        self.add_zipped(&root.join("CHANGELOG.md"), &format!("{papers}/CHANGELOG.md"))?;
        self.write(&self.changes()?, &format!("{papers}/changelog"))?;
        shell::run(Command::new("gzip").arg("-9n").arg(self.tree.join(&papers).join("changelog")))?;
        let licence = fs::read_to_string(root.join("LICENSE"))? + "\n" + &fs::read_to_string(root.join("LICENSE-MIT"))?;
        let apache = "\nOn Debian systems the Apache License is in /usr/share/common-licenses/Apache-2.0.\n";
        self.write(&(licence + apache), &format!("{papers}/copyright"))?;
        // Whatever the modes are in the clone.
        shell::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(self.tree))?;
        let list = "find usr -type f | LC_ALL=C sort | xargs md5sum";
        let sums = shell::output(Command::new("sh").args(["-c", list]).current_dir(self.tree))?;
        let count = "find usr -type f -printf '%s\\n' | awk '{ size += int(($1 + 1023) / 1024) } END { print size }'";
        let size = shell::output(Command::new("sh").args(["-c", count]).current_dir(self.tree))?;
        self.write(&format!("{}\n", sums.trim_end()), "DEBIAN/md5sums")?;
        self.write(&self.control(size.trim())?, "DEBIAN/control")?;
        let archive = directory.join(archive(self.name, self.architecture));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "-Zxz", "--build"]).arg(self.tree).arg(&archive);
        shell::output(build.env("SOURCE_DATE_EPOCH", self.time.to_string()))?;
        Ok(archive)
    }

    /// In Debian's own format, which names the list that people read.
    fn changes(&self) -> Result<String> {
        let date = shell::output(
            Command::new("date").args(["--utc", "--rfc-email", "--date"]).arg(format!("@{}", self.time)),
        )?;
        Ok(format!(
            "{} ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {}\n",
            self.name,
            env!("CARGO_PKG_VERSION"),
            date.trim()
        ))
    }

    fn control(&self, kibibytes: &str) -> Result<String> {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nSection: {}\n\
             Priority: optional\nInstalled-Size: {kibibytes}\n",
            self.name,
            env!("CARGO_PKG_VERSION"),
            self.architecture,
            self.section
        );
        if !self.depends.is_empty() {
            writeln!(text, "Depends: {}", self.depends)?;
        }
        write!(text, "Description: {}\n{}", self.description.0, self.description.1)?;
        Ok(text)
    }
}
