//! An archive as its user has it: unpacked, in a root without any library, and at work; and the program as
//! `cargo install --path` leaves it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::machine::Machine;
use crate::shell;

/// Fails if the program needs a library, has a wrong version, or does not measure.
pub(super) fn run(machine: Machine, archive: &Path) -> Result<()> {
    let root = tempfile::tempdir()?;
    shell::run(Command::new("tar").args(["-xzf"]).arg(archive).args(["--strip-components=1", "-C"]).arg(root.path()))?;
    let program = root.path().join("taut");
    expect(machine.runner(&program).arg("--version"), env!("CARGO_PKG_VERSION"))?;
    in_an_empty_root(machine, root.path())?;
    let server = Server::start(machine, &program)?;
    expect(machine.runner(&program).args(["echo", "--count", "500", &server.endpoint]), "Across rounds")?;
    expect(machine.runner(&program).args(["stream", "--time", "200ms", &server.endpoint]), "bit/s")?;
    expect(machine.runner(&program).args(["air", "parameters"]), "interval")?;
    println!("{}: unpacked, and echo, stream and air do their work", machine.name());
    Ok(())
}

/// `cargo install --path`, as README has it, into a root of its own. What was built for the archive is at hand, and the
/// registry is not asked, so it compiles nothing again: it comes to the same program.
pub(super) fn installed_by_cargo(machine: Machine, target: &Path) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut cargo = machine.cargo("install", &[])?;
    cargo.args(["--locked", "--path", "crates/tautline", "--root"]).arg(root.path());
    cargo.args(["--offline", "--profile", "dist", "--target", machine.triple(), "--target-dir"]).arg(target);
    shell::run(&mut cargo)?;
    let program = root.path().join("bin/taut");
    if fs::read(&program)? != fs::read(target.join(machine.triple()).join("dist/taut"))? {
        bail!("`cargo install --path crates/tautline` does not install what `cargo build` makes");
    }
    expect(machine.runner(&program).arg("--version"), env!("CARGO_PKG_VERSION"))?;
    println!("{}: cargo install --path crates/tautline installs this program", machine.name());
    Ok(())
}

/// Where nothing is but the program, and its emulator where it takes one.
fn in_an_empty_root(machine: Machine, root: &Path) -> Result<()> {
    if !shell::is_root() {
        return shell::left_out(&format!("{}: not tried without libraries: chroot(2) takes root", machine.name()));
    }
    let mut command = Command::new("chroot");
    command.arg(root);
    if let Some(emulator) = machine.emulator() {
        let found = shell::find(emulator).with_context(|| format!("{emulator} is not there"))?;
        fs::copy(found, root.join(emulator))?;
        command.arg(format!("/{emulator}"));
    }
    expect(command.args(["/taut", "--version"]), env!("CARGO_PKG_VERSION"))
}

fn expect(command: &mut Command, part: &str) -> Result<()> {
    let line = shell::line(command);
    let text = shell::output(command.stdin(Stdio::null()))?;
    if !text.contains(part) {
        bail!("`{line}` printed nothing of `{part}`:\n{text}");
    }
    Ok(())
}

/// `taut serve` of the same archive.
struct Server {
    child: Child,
    endpoint: String,
}

impl Server {
    fn start(machine: Machine, program: &Path) -> Result<Self> {
        let mut command = machine.runner(program);
        command.args(["serve", "--json", "tcp://127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().context("start taut serve")?;
        let mut line = String::new();
        let output = child.stdout.take().context("taut serve has no output")?;
        let read = BufReader::new(output).read_line(&mut line);
        let endpoint = line.split('"').find(|part| part.starts_with("tcp://")).map(str::to_owned);
        let mut server = Self { child, endpoint: String::new() };
        read?;
        server.endpoint = endpoint.with_context(|| format!("taut serve names no endpoint: {line}"))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
