//! Packages of other Debian releases than this machine's, from the mirrors that this machine's apt is set up for.
//!
//! apt itself fetches and verifies them, with a configuration of its own beside the system's: nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::architecture::Architecture;
use crate::shell;

/// The archive's keys, those of older and newer releases among them.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt as a machine of another release would run it, with everything it keeps under a directory of ours.
pub(crate) struct Apt {
    directory: PathBuf,
    /// Of its packages.
    architecture: Architecture,
}

/// Where this machine's apt finds Debian.
#[derive(Debug, Eq, PartialEq)]
struct Mirrors {
    main: String,
    security: Option<String>,
}

impl Apt {
    /// Fetches the package lists of a release, `trixie`, into a directory that is there and empty.
    pub(crate) fn of_release(
        release: &str,
        architecture: Architecture,
        with_security: bool,
        directory: &Path,
    ) -> Result<Self> {
        Self::of(release, architecture, directory, |mirrors| mirrors.lines(release, architecture, with_security))
    }

    /// The same with the lists of source packages alone.
    pub(crate) fn of_sources(release: &str, directory: &Path) -> Result<Self> {
        let architecture = Architecture::Amd64;
        let lines = |mirrors: &Mirrors| Mirrors::line("deb-src", &mirrors.main, release, architecture);
        Self::of(release, architecture, directory, lines)
    }

    fn of(
        release: &str,
        architecture: Architecture,
        directory: &Path,
        lines: impl FnOnce(&Mirrors) -> String,
    ) -> Result<Self> {
        if shell::find("apt-get").is_none() || shell::find("dpkg-deb").is_none() {
            bail!("it comes from Debian's packages, and there is no apt here");
        }
        if !Path::new(KEYRING).is_file() {
            bail!("{KEYRING} is missing: apt-get install debian-archive-keyring");
        }
        let apt = Self { directory: directory.to_owned(), architecture };
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(part))?;
        }
        fs::write(apt.sources(), lines(&Mirrors::of_this_machine()?))?;
        shell::output(apt.command("apt-get").args(["-q", "update"]))
            .with_context(|| format!("cannot fetch the package lists of Debian {release}"))?;
        Ok(apt)
    }

    /// The package on which a metapackage depends, the one whose name begins so.
    pub(crate) fn dependency(&self, metapackage: &str, begin: &str) -> Result<String> {
        let text = shell::output(self.command("apt-cache").args(["depends", metapackage]))?;
        let found =
            text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).find(|n| n.starts_with(begin));
        found.map(str::to_owned).with_context(|| format!("{metapackage} depends on no {begin}…"))
    }

    /// Fetches a package, verified, and unpacks its files into a directory.
    pub(crate) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let downloads = self.directory.join("downloads");
        fs::create_dir_all(&downloads)?;
        let mut download = self.command("apt-get");
        // apt would rather download as a user of its own, who may not write here.
        download.args(["-q", "-o", "APT::Sandbox::User=root", "download", package]).current_dir(&downloads);
        shell::output(&mut download)?;
        let mut archives = fs::read_dir(&downloads)?.flatten().map(|entry| entry.path());
        let archive = archives.next().with_context(|| format!("apt-get download {package} left no file"))?;
        shell::run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(into))?;
        fs::remove_file(archive)?;
        Ok(())
    }

    /// Fetches the files of a source package, verified, into a directory.
    pub(crate) fn download_source(&self, package: &str, into: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        download.args(["-q", "-o", "APT::Sandbox::User=root", "source", "--download-only", "--only-source", package]);
        shell::output(download.current_dir(into))?;
        Ok(())
    }

    /// Fetches packages with all that they need, verified, and unpacks their files into a directory.
    pub(crate) fn unpack_all<'a>(&self, packages: impl Iterator<Item = &'a str>, into: &Path) -> Result<()> {
        let mut download = self.command("apt-get");
        let options = ["APT::Sandbox::User=root", "APT::Install-Recommends=false", "Debug::NoLocking=true"];
        for option in options {
            download.args(["-o", option]);
        }
        // With nothing installed, which is what `status` says, it fetches everything.
        shell::output(download.args(["-q", "-y", "--download-only", "install"]).args(packages))?;
        for archive in fs::read_dir(self.directory.join("cache/archives"))?.flatten() {
            if archive.path().extension().is_some_and(|extension| extension == "deb") {
                shell::run(Command::new("dpkg-deb").arg("-x").arg(archive.path()).arg(into))?;
            }
        }
        Ok(())
    }

    fn sources(&self) -> PathBuf {
        self.directory.join("sources.list")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let mut set = |name: &str, value: &Path| {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        };
        set("Dir::Etc::sourcelist", &self.sources());
        set("Dir::Etc::sourceparts", Path::new("/dev/null"));
        set("Dir::State::lists", &self.directory.join("lists"));
        set("Dir::State::status", Path::new("/dev/null"));
        set("Dir::Cache", &self.directory.join("cache"));
        let architecture = format!("APT::Architecture={}", self.architecture.debian());
        command.args(["-o", &architecture, "-o", "Acquire::Languages=none"]);
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }
}

/// Where this machine's apt finds Debian.
pub(crate) fn main_mirror() -> Result<String> {
    Ok(Mirrors::of_this_machine()?.main)
}

impl Mirrors {
    fn of_this_machine() -> Result<Self> {
        let mut command = Command::new("apt-get");
        command.args(["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]);
        Self::parse(&shell::output(&mut command)?).context(
            "apt here knows no repository of Debian (Label: Debian), from which it comes; \
             on Debian, run `apt-get update` as root first",
        )
    }

    /// From lines of `Label URI`. Labels are those of the repositories' Release files.
    fn parse(targets: &str) -> Option<Self> {
        let of = |label: &str| {
            let mut uris = targets.lines().filter_map(|line| line.split_once(' ')).filter(|(found, _)| *found == label);
            uris.next().map(|(_, uri)| uri.trim().to_owned())
        };
        Some(Self { main: of("Debian")?, security: of("Debian-Security") })
    }

    /// sources.list(5) for a release.
    fn lines(&self, release: &str, architecture: Architecture, with_security: bool) -> String {
        let mut lines = Self::line("deb", &self.main, release, architecture);
        if let Some(security) = self.security.as_ref().filter(|_| with_security) {
            lines += &Self::line("deb", security, &format!("{release}-security"), architecture);
        }
        lines
    }

    /// One of its lines, of binary (`deb`) or source packages (`deb-src`).
    fn line(kind: &str, uri: &str, suite: &str, architecture: Architecture) -> String {
        format!("{kind} [signed-by={KEYRING} arch={}] {uri} {suite} main\n", architecture.debian())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirrors_of_debian_are_found_among_others() {
        let targets = "apt https://packages.example/apt/\nDebian http://mirror.example/debian/\n\
                       Debian http://mirror.example/debian/\nDebian-Security http://mirror.example/security/\n";
        let mirrors = Mirrors::parse(targets).unwrap();
        assert_eq!(mirrors.lines("bullseye", Architecture::Amd64, false).lines().count(), 1);
        let lines = mirrors.lines("trixie", Architecture::Arm64, true);
        assert_eq!(lines.lines().count(), 2);
        assert!(lines.contains(" arch=arm64] http://mirror.example/debian/ trixie main"));
        assert!(lines.contains("http://mirror.example/security/ trixie-security main"));
    }

    #[test]
    fn a_machine_of_another_distribution_has_none() {
        assert_eq!(Mirrors::parse("Ubuntu http://mirror.example/ubuntu/\n"), None);
        assert_eq!(Mirrors::parse(""), None);
    }
}
