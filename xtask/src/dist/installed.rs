//! Debian packages as their user has them: installed, at work, installed over themselves, and purged.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::deb::SETTINGS;
use super::machine::Machine;
use crate::packages::PKGCONF;
use crate::{packages, shell};

/// The completions of bash, which loads them by the name of this file.
const COMPLETIONS: &str = "usr/share/bash-completion/completions/taut";
/// Files of the program's package, where others look for them.
const PROGRAM: [&str; 7] = [
    "usr/lib/systemd/system/taut-agent.service",
    "usr/lib/systemd/system/taut-watch.service",
    SETTINGS,
    "usr/share/man/man1/taut.1.gz",
    COMPLETIONS,
    "usr/share/zsh/vendor-completions/_taut",
    "usr/share/fish/vendor_completions.d/taut.fish",
];

/// The package of the program. Its files are where other programs look for them, and the program does its work there.
pub(super) fn program(machine: Machine, package: &Path) -> Result<()> {
    life(machine, package, |root| {
        for file in PROGRAM {
            if !fs::metadata(root.join(file)).is_ok_and(|found| found.is_file() && found.len() > 0) {
                bail!("{} does not install {file}", package.display());
            }
        }
        let settings = fs::read_to_string(root.join("var/lib/dpkg/info/tautline.conffiles"))?;
        if settings != format!("/{SETTINGS}\n") {
            bail!("{} would overwrite what is edited, but for: {settings}", package.display());
        }
        let mut bash = Command::new("bash");
        shell::output(bash.args(["-c", "source \"$0\" && complete -p taut"]).arg(root.join(COMPLETIONS)))?;
        let taut = root.join("usr/bin/taut");
        let version = shell::output(machine.runner(&taut).arg("--version"))?;
        if !version.contains(env!("CARGO_PKG_VERSION")) {
            bail!("the installed program says that it is {version}");
        }
        shell::output(machine.runner(&taut).args(["air", "run", "--time", "1s"])).map(drop)
    })
}

/// The package of the library: a program is linked with what it installs, as its pkg-config file says, and serves a
/// connection.
pub(super) fn library(machine: Machine, package: &Path) -> Result<()> {
    life(machine, package, |root| {
        let missing = packages::ensure(&[&PKGCONF]);
        if !missing.is_empty() {
            return shell::left_out(&format!("libtautaio was not linked with: not installed: {}", missing.join(", ")));
        }
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", machine.name()));
        let flags = flags(root, &libraries.join("pkgconfig"))?;
        let work = tempfile::tempdir()?;
        let server = work.path().join("echo");
        let mut compiler = machine.tool("gcc");
        compiler.arg(shell::root().join("examples/aio/echo_waitcomplete.c"));
        shell::run(compiler.args(flags.split_whitespace()).arg("-o").arg(&server))?;
        let mut server = machine.runner(&server);
        // An emulator finds the C library where that of the compiler is.
        echoes(server.env("LD_LIBRARY_PATH", libraries).env("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu"))
    })
}

/// What a compiler has to be told of the library that is installed in this root.
fn flags(root: &Path, files: &Path) -> Result<String> {
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "tautaio"]).env_remove("PKG_CONFIG_PATH");
    ask.env("PKG_CONFIG_LIBDIR", files).env("PKG_CONFIG_SYSROOT_DIR", root);
    // Places that a compiler knows by itself are left out, and in a root of its own it knows none.
    ask.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
    shell::output(&mut ask)
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
    let left = [files_below(&root.path().join("usr"))?, files_below(&root.path().join("etc"))?].concat();
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
