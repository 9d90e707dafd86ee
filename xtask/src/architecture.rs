//! The machines that a guest may be: what Debian, Rust and QEMU call each, and what it is made of.

use std::process::Command;

use anyhow::Result;

use crate::dist;
use crate::packages::{GCC_AARCH64, LIBC_AARCH64, Package, QEMU, QEMU_ARM};

/// An instruction set, as Debian names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The target for which programs of guests are linked with all that they need, C library included.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// What a guest of it needs of Debian besides what all need.
    pub(crate) const fn packages(self) -> &'static [&'static Package] {
        match self {
            Self::Amd64 => &[&QEMU],
            Self::Arm64 => &[&QEMU_ARM, &GCC_AARCH64, &LIBC_AARCH64],
        }
    }

    /// Has cargo build for it.
    pub(crate) fn build(self, cargo: &mut Command) -> Result<()> {
        cargo.args(["--target", self.target()]);
        if self == Self::Arm64 {
            dist::ensure_target(self.target())?;
            cargo.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc");
            cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
        }
        Ok(())
    }

    pub(crate) const fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The machine and its processor: for Arm that of a Raspberry Pi 4. That of the PC claims no fast `rep movsb` and
    /// `rep stosb`: where it does, kernels copy and clear by the byte, and QEMU emulates each byte as an instruction of
    /// its own. Nor does it check that the kernel leaves memory of programs alone (SMAP), since then QEMU keeps two
    /// tables of addresses for the kernel, each to be filled anew after each switch to another program.
    pub(crate) const fn machine(self) -> [&'static str; 4] {
        match self {
            Self::Amd64 => ["-machine", "q35", "-cpu", "max,-erms,-smap"],
            Self::Arm64 => ["-machine", "virt", "-cpu", "cortex-a72"],
        }
    }

    /// Four serial ports that write to files of these names: `/dev/ttyS0` to `/dev/ttyS3`.
    pub(crate) fn serial_ports(self, names: &[&str], command: &mut Command) {
        for name in names {
            command.arg("-chardev").arg(format!("file,id={name},path={name}"));
            if self == Self::Amd64 {
                command.arg("-serial").arg(format!("chardev:{name}"));
            }
        }
        if self == Self::Arm64 {
            // The machine has one port of its own, which is of another kind.
            let ports = names.iter().enumerate().map(|(number, name)| format!(",chardev{}={name}", number + 1));
            command.arg("-device").arg(format!("pci-serial-4x{}", ports.collect::<String>()));
        }
    }

    /// Whether a machine of it can be saved when it has booted, for others to start from there: it stops itself by a
    /// port of the PC (`init.sh`).
    pub(crate) const fn can_be_saved(self) -> bool {
        matches!(self, Self::Amd64)
    }
}
