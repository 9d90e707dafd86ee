//! The tests as built for aarch64, run by QEMU's user mode on this kernel; and those in a guest of that machine, which
//! has a kernel of its own.
//!
//! Each runs where the kernel itself starts programs of that machine with QEMU, so those that a test starts are of it,
//! too: as set up by the user's own binfmt_misc, or in a namespace of its own (Linux 6.7 and newer). QEMU hands system
//! calls on, but for io_uring(7) and bpf(2), which it does not know: tests of these say that they can't run; in the
//! guest they do.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::architecture::Architecture;
use crate::packages::{self, GCC_AARCH64, LIBC_AARCH64, QEMU_USER};
use crate::shell;

/// There if the user's machine starts such programs anyhow.
const REGISTERED: &str = "/proc/sys/fs/binfmt_misc/qemu-aarch64";
/// How Debian's package has it registered: binfmt.d(5) and binfmt_misc agree on the form.
const FORM: &str = "/usr/lib/binfmt.d/qemu-aarch64.conf";
/// Registers the form for the process and those that it starts.
const ENTER: &str = r#"set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
cat "$1" >/proc/sys/fs/binfmt_misc/register
shift
exec "$@""#;

/// Makes sure of compiler, C library, standard library and emulator.
///
/// # Errors
/// One of them can't be had, or the kernel does not start what is built.
pub(super) fn prepare() -> Result<()> {
    let missing = packages::ensure(&[&GCC_AARCH64, &LIBC_AARCH64, &QEMU_USER]);
    if !missing.is_empty() {
        bail!("not installed: {}", missing.join(", "));
    }
    if !shell::succeeds(&mut command(Path::new("/bin/true"))) {
        bail!("no namespace with binfmt_misc of its own (it takes Linux 6.7), and no {REGISTERED} either");
    }
    Ok(())
}

/// Has cargo build for it.
pub(super) fn build(cargo: &mut Command) -> Result<()> {
    // What starts virtual machines and builds packages of this machine has no use there.
    Architecture::Arm64.build(cargo.args(["--exclude", "xtask"]))
}

/// Runs a program of it.
pub(super) fn command(program: &Path) -> Command {
    let mut command = if Path::new(REGISTERED).exists() {
        Command::new(program)
    } else {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", ENTER, "enter", FORM]).arg(program);
        command
    };
    // Where its dynamic linker and C library are.
    command.env("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu").env("CC", "aarch64-linux-gnu-gcc");
    command
}
