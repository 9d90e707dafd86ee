//! Machines for which there are archives.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::packages::{GCC_AARCH64, LIBC_AARCH64, Package, QEMU_USER};
use crate::shell;

/// A C compiler for musl, which ring's sources take.
const MUSL: Package = Package { name: "musl-tools", command: "musl-gcc" };

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Machine {
    #[value(name = "x86_64")]
    X86,
    #[value(name = "aarch64")]
    Arm,
}

impl Machine {
    pub(super) const ALL: [Self; 2] = [Self::X86, Self::Arm];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// What its archive is called, and the directory in it.
    pub(super) fn archive(self) -> String {
        format!("taut-{}-linux-{}", env!("CARGO_PKG_VERSION"), self.name())
    }

    /// What Debian calls it.
    pub(super) const fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    pub(super) const fn triple(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm => "aarch64-unknown-linux-musl",
        }
    }

    /// Where libraries for Debian's C library are built.
    pub(super) const fn gnu(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-gnu",
            Self::Arm => "aarch64-unknown-linux-gnu",
        }
    }

    /// A compiler for it, or a tool that comes with one, by its name on this machine.
    pub(super) fn tool(self, name: &str) -> Command {
        match self {
            Self::X86 => Command::new(name),
            Self::Arm => Command::new(format!("aarch64-linux-gnu-{name}")),
        }
    }

    pub(super) const fn packages(self) -> &'static [&'static Package] {
        match self {
            Self::X86 => &[&MUSL],
            Self::Arm => &[&GCC_AARCH64, &LIBC_AARCH64, &QEMU_USER],
        }
    }

    /// What cargo and the build of C sources are told.
    const fn compilers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::X86 => &[("CC_x86_64_unknown_linux_musl", "musl-gcc")],
            Self::Arm => &[
                ("CC_aarch64_unknown_linux_musl", "aarch64-linux-gnu-gcc"),
                ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "aarch64-linux-gnu-gcc"),
                ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
            ],
        }
    }

    /// A command of cargo that compiles what is given away.
    pub(super) fn cargo(self, command: &str, flags: &[String]) -> Result<Command> {
        let mut cargo = shell::cargo();
        cargo.arg(command).envs(self.compilers().iter().copied());
        // Panics name the source's place, which is not to tell where it was built.
        let home = std::env::var("CARGO_HOME").map_or_else(
            |_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cargo")),
            |home| Ok(PathBuf::from(home)),
        )?;
        let from = [(shell::root(), "/tautline"), (home, "/cargo")];
        let remapped = from.map(|(path, to)| format!("--remap-path-prefix={}={to}", path.display()));
        let flags = [&remapped[..], flags].concat().join(" ");
        cargo.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
        Ok(cargo)
    }

    /// The emulator; none where this machine runs the program itself.
    pub(super) fn emulator(self) -> Option<&'static str> {
        (self.name() != std::env::consts::ARCH).then_some(match self {
            Self::X86 => "qemu-x86_64-static",
            Self::Arm => "qemu-aarch64-static",
        })
    }

    /// Runs a program of this machine.
    pub(super) fn runner(self, program: &Path) -> Command {
        self.emulator().map_or_else(
            || Command::new(program),
            |emulator| {
                let mut command = Command::new(emulator);
                command.arg(program);
                command
            },
        )
    }
}

/// Makes sure that the toolchain has the standard library for a target.
pub(crate) fn ensure_target(triple: &str) -> Result<()> {
    let has = || {
        let directory = shell::output(Command::new("rustc").args(["--print", "target-libdir", "--target", triple]));
        directory.is_ok_and(|directory| Path::new(directory.trim()).is_dir())
    };
    let add = || shell::run(Command::new("rustup").args(["target", "add", triple]).current_dir(shell::root()));
    if !has() && (shell::find("rustup").is_none() || add().is_err() || !has()) {
        bail!("the standard library for {triple} is missing; install it with: rustup target add {triple}");
    }
    Ok(())
}
