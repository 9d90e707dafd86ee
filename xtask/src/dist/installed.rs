//! Debian packages as their user has them: installed, at work, installed over themselves, and purged.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::machine::Machine;
use crate::shell;

/// The package of the program. Its files are where other programs look for them, and the program does its work there.
pub(super) fn program(machine: Machine, package: &Path) -> Result<()> {
    life(machine, package, |root| {
        for file in ["usr/lib/systemd/system/taut-watch.service", "usr/share/man/man1/taut.1.gz"] {
            if !root.join(file).is_file() {
                bail!("{} does not install {file}", package.display());
            }
        }
        let taut = root.join("usr/bin/taut");
        let version = shell::output(machine.runner(&taut).arg("--version"))?;
        if !version.contains(env!("CARGO_PKG_VERSION")) {
            bail!("the installed program says that it is {version}");
        }
        shell::output(machine.runner(&taut).args(["air", "run", "--time", "1s"])).map(drop)
    })
}

/// The package of the library: a program is linked with what it installs, and serves a connection.
pub(super) fn library(machine: Machine, package: &Path) -> Result<()> {
    life(machine, package, |root| {
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", machine.name()));
        let work = tempfile::tempdir()?;
        let server = work.path().join("echo");
        let mut compiler = Command::new("cc");
        compiler.arg(shell::root().join("examples/aio/echo_waitcomplete.c")).arg("-I").arg(root.join("usr/include"));
        shell::run(compiler.arg("-L").arg(&libraries).arg("-ltautaio").arg("-o").arg(&server))?;
        echoes(Command::new(server).env("LD_LIBRARY_PATH", libraries))
    })
}

/// The package of the kernel module, as far as it can be tried without a kernel's headers: its scripts are read. `xtask
/// lab dkms` installs it where DKMS and headers are.
pub(super) fn module(package: &Path) -> Result<()> {
    let unpacked = tempfile::tempdir()?;
    shell::run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(unpacked.path()))?;
    for script in ["postinst", "prerm"] {
        shell::run(Command::new("sh").arg("-n").arg(unpacked.path().join("DEBIAN").join(script)))?;
    }
    let sources = files_below(&unpacked.path().join("usr/src"))?;
    for file in ["dkms.conf", "Kbuild", "Makefile", "main.c", "taut_path.h"] {
        if !sources.iter().any(|path| path.ends_with(file)) {
            bail!("{} does not install {file}", package.display());
        }
    }
    Ok(())
}

/// Installs into a root of its own, tries, installs again and purges: nothing of it may be left.
fn life(machine: Machine, package: &Path, works: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let root = tempfile::tempdir()?;
    let state = root.path().join("var/lib/dpkg");
    for directory in ["info", "updates", "triggers"] {
        fs::create_dir_all(state.join(directory))?;
    }
    fs::write(state.join("status"), "")?;
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        // The root has no other package, not even the C library, and may be another machine's.
        dpkg.args(["--log=/dev/null", "--force-depends", "--force-architecture", "--force-not-root", "--root"]);
        dpkg.arg(root.path());
        dpkg
    };
    shell::output(dpkg().arg("--install").arg(package))?;
    works(root.path())?;
    shell::output(dpkg().arg("--install").arg(package))?;
    let changed = shell::output(dpkg().arg("--verify"))?;
    if !changed.trim().is_empty() {
        bail!("{} is not what it says it installs: {changed}", package.display());
    }
    let name = shell::output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Package"))?;
    shell::output(dpkg().args(["--purge", name.trim()]))?;
    let left = files_below(&root.path().join("usr"))?;
    if !left.is_empty() {
        bail!("{} leaves behind: {left:?}", package.display());
    }
    println!("{}: {} installed, tried, installed again and purged", machine.name(), name.trim());
    Ok(())
}

fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !directory.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Starts a server that prints its port, and has it answer.
fn echoes(server: &mut Command) -> Result<()> {
    let mut server = Killed(server.stdout(Stdio::piped()).spawn().context("start the linked program")?);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().context("no output")?).read_line(&mut line)?;
    let port = line.rsplit(|letter: char| !letter.is_ascii_digit()).find(|part| !part.is_empty());
    let port: u16 = port.with_context(|| format!("the linked program names no port: {line}"))?.parse()?;
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(Duration::from_secs(30)))?;
    client.write_all(b"taut")?;
    let mut answer = [0; 4];
    client.read_exact(&mut answer).context("the linked program does not answer")?;
    if answer != *b"taut" {
        bail!("the linked program answers {answer:?}");
    }
    Ok(())
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
