//! Debian's kernels: fetched once, kept in the user's cache; and the one that is built of Debian's source.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::architecture::Architecture;
use crate::packages::BUSYBOX;
use crate::{shell, tools};

/// The kernels of the lab, as Debian has them when they are fetched.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Series {
    /// Of Debian 11.
    #[value(name = "5.10")]
    V5_10,
    /// Of Debian 12.
    #[value(name = "6.1")]
    V6_1,
    /// Of Debian 12, with PREEMPT_RT.
    #[value(name = "6.1-rt")]
    V6_1Rt,
    /// Of Debian 13.
    #[value(name = "6.12")]
    V6_12,
    /// Of Debian 13, for the machine that a Raspberry Pi 4 is.
    #[value(name = "6.12-arm64")]
    V6_12Arm64,
    /// Debian 13's source, built to find faults of locks and memory: `cargo xtask lab debug-kernel`.
    #[value(name = "6.12-debug")]
    V6_12Debug,
}

/// A kernel in the cache.
pub(super) struct Kernel {
    directory: PathBuf,
    /// As `uname -r` says it.
    pub(super) release: String,
}

/// What the debug kernel is configured with; all else is off.
pub(super) const DEBUG_CONFIG: &str = include_str!("debug.config");
/// That of a kernel in the cache, beside it.
pub(super) const CONFIG_FILE: &str = "config";
/// A kernel that only its own setup code can start.
pub(super) const BOOTED_IMAGE: &str = "bzImage";

/// Begin of an xz stream (The .xz File Format, section 2.1.1.1).
const XZ_MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
/// Begin of a Zstandard frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Begin of an ELF file.
const ELF_MAGIC: [u8; 4] = *b"\x7FELF";

impl Series {
    /// Those that are fetched for the tests of this machine.
    pub(super) const STOCK: [Self; 4] = [Self::V5_10, Self::V6_1, Self::V6_1Rt, Self::V6_12];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_1Rt => "6.1-rt",
            Self::V6_12 => "6.12",
            Self::V6_12Arm64 => "6.12-arm64",
            Self::V6_12Debug => "6.12-debug",
        }
    }

    /// Its number, without its flavour.
    pub(super) const fn version(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 | Self::V6_1Rt => "6.1",
            Self::V6_12 | Self::V6_12Arm64 | Self::V6_12Debug => "6.12",
        }
    }

    pub(crate) const fn architecture(self) -> Architecture {
        match self {
            Self::V6_12Arm64 => Architecture::Arm64,
            _ => Architecture::Amd64,
        }
    }

    /// The Debian release with a kernel of this series.
    pub(super) const fn debian(self) -> &'static str {
        match self {
            Self::V5_10 => "bullseye",
            Self::V6_1 | Self::V6_1Rt => "bookworm",
            Self::V6_12 | Self::V6_12Arm64 | Self::V6_12Debug => "trixie",
        }
    }

    /// Whether the newest kernel is wanted, as against that of the release's last state.
    ///
    /// 5.10's later ones give a number to each credit packet of L2CAP and never free it ("Unable to allocate
    /// ident: -28"): a channel stands still after 254 of them. 6.1 had the same fault before 6.1.178.
    pub(super) const fn with_security_updates(self) -> bool {
        !matches!(self, Self::V5_10)
    }

    /// The package of the compiler that built it; `None` where no modules are built.
    pub(super) const fn compiler(self) -> Option<&'static str> {
        match self {
            Self::V5_10 | Self::V6_12Arm64 => None,
            Self::V6_1 | Self::V6_1Rt => Some("gcc-12"),
            Self::V6_12 | Self::V6_12Debug => Some("gcc-14"),
        }
    }

    /// How the package of the kernel's build tools names its version: from 6.12 on in full.
    pub(super) fn kbuild(self, version: &str) -> &str {
        if matches!(self, Self::V6_12) { version } else { self.version() }
    }

    /// Where it is in the cache, or will be.
    pub(super) fn place(self) -> Result<PathBuf> {
        Ok(tools::user_cache()?.join("lab").join(format!("linux-{}", self.name())))
    }

    /// The kernel from the cache; fetched now when it is not there.
    ///
    /// # Errors
    /// It can't be had; the debug kernel is not there, since that takes a command of its own.
    pub(super) fn ensure(self) -> Result<Kernel> {
        let directory = self.place()?;
        if matches!(self, Self::V6_12Debug) {
            return self.built()?.context("it is not built here: cargo xtask lab debug-kernel");
        }
        if !directory.is_dir() {
            let cache = directory.parent().context("a cache above its kernels")?;
            fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
            let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
            self.fetch(making.path()).with_context(|| format!("Linux {} of Debian", self.name()))?;
            // Another process may have been as quick; then this one's work is dropped.
            if let Err(error) = fs::rename(making.path().join("kernel"), &directory)
                && !directory.is_dir()
            {
                return Err(error).with_context(|| format!("cannot create {}", directory.display()));
            }
        }
        Kernel::open(directory)
    }

    /// The debug kernel, if it is there and of the configuration that it would have now.
    pub(super) fn built(self) -> Result<Option<Kernel>> {
        let directory = self.place()?;
        let is_current = fs::read_to_string(directory.join(CONFIG_FILE)).is_ok_and(|config| config == DEBUG_CONFIG);
        is_current.then(|| Kernel::open(directory)).transpose()
    }

    fn fetch(self, making: &Path) -> Result<()> {
        let lists = making.join("apt");
        fs::create_dir(&lists)?;
        let architecture = self.architecture();
        let apt = Apt::of_release(self.debian(), architecture, self.with_security_updates(), &lists)?;
        let flavour = if matches!(self, Self::V6_1Rt) { "rt-" } else { "" };
        let metapackage = format!("linux-image-{flavour}{}", architecture.debian());
        let package = apt.dependency(&metapackage, &format!("linux-image-{}.", self.version()))?;
        eprintln!("fetching {package}, once");
        let unpacked = making.join("unpacked");
        apt.unpack(&package, &unpacked)?;

        let release = package.trim_start_matches("linux-image-");
        let kernel = making.join("kernel");
        let modules = kernel.join("lib/modules");
        fs::create_dir_all(&modules)?;
        let image = fs::read(unpacked.join(format!("boot/vmlinuz-{release}")))?;
        match architecture {
            Architecture::Amd64 => fs::write(kernel.join("vmlinux"), uncompressed(&image)?)?,
            // It is not compressed there; and the guest's shell is another program.
            Architecture::Arm64 => {
                fs::write(kernel.join("vmlinux"), image)?;
                apt.unpack(BUSYBOX.name, &unpacked)?;
                fs::copy(unpacked.join("usr/bin").join(BUSYBOX.command), kernel.join(BUSYBOX.command))?;
            }
        }
        let places = ["usr/lib/modules", "lib/modules"].map(|place| unpacked.join(place).join(release));
        let place = places.iter().find(|place| place.is_dir()).context("the package has no modules")?;
        fs::rename(place, modules.join(release))?;
        uncompress_modules(&modules)?;
        shell::run(Command::new("depmod").arg("-b").arg(&kernel).arg(release))?;
        Ok(())
    }
}

impl Kernel {
    fn open(directory: PathBuf) -> Result<Self> {
        let mut releases = fs::read_dir(directory.join("lib/modules"))?.flatten();
        let release = releases.next().with_context(|| format!("{} has no modules: remove it", directory.display()))?;
        Ok(Self { release: release.file_name().to_string_lossy().into_owned(), directory })
    }

    /// What QEMU starts: the uncompressed kernel, which boots in half of the time of the compressed
    /// one. The debug kernel is compressed: by the PVH entry, on its way to where KASAN is set up,
    /// it calls functions that KASAN watches.
    pub(super) fn image(&self) -> PathBuf {
        let booted = self.directory.join(BOOTED_IMAGE);
        if booted.is_file() { booted } else { self.directory.join("vmlinux") }
    }

    /// The guest's shell, where this machine's is for another one.
    pub(super) fn busybox(&self) -> Option<PathBuf> {
        Some(self.directory.join(BUSYBOX.command)).filter(|program| program.is_file())
    }

    /// The directory of `modules.dep` and the modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.directory.join("lib/modules").join(&self.release)
    }
}

/// The ELF kernel in a bzImage (the kernel's Documentation/arch/x86/boot.rst, fields `setup_sects`, `payload_offset`
/// and `payload_length`). It has the PVH entry, by which QEMU starts it without its real-mode code.
fn uncompressed(image: &[u8]) -> Result<Vec<u8>> {
    let payload = payload(image).context("this is no bzImage")?;
    let (program, arguments): (&str, &[&str]) = if payload.starts_with(&XZ_MAGIC) {
        // The payload's last four bytes, the uncompressed size, are not the stream's.
        ("xz", &["-dc", "--single-stream"])
    } else if payload.starts_with(&ZSTD_MAGIC) {
        ("zstd", &["-dcq"])
    } else {
        bail!("the kernel is compressed in a way that is not known here: {:02x?}", &payload[..payload.len().min(6)]);
    };
    let kernel = filter(Command::new(program).args(arguments), &payload[..payload.len() - 4])?;
    if !kernel.starts_with(&ELF_MAGIC) {
        bail!("the uncompressed kernel is no ELF file");
    }
    Ok(kernel)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let setup_sectors = match usize::from(*image.get(0x1F1)?) {
        0 => 4,
        sectors => sectors,
    };
    let begin = (setup_sectors + 1) * 512 + word(0x248)?;
    image.get(begin..begin.checked_add(word(0x24C)?)?).filter(|payload| payload.len() > 4)
}

/// Sends bytes through a program.
fn filter(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let output = tempfile::NamedTempFile::new()?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(File::create(output.path())?)
        .spawn()
        .with_context(|| format!("cannot run `{}`", shell::line(command)))?;
    child.stdin.take().context("a program without input")?.write_all(input)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("`{}` failed: {status}", shell::line(command));
    }
    Ok(fs::read(output.path())?)
}

/// Debian compresses modules since 6.12, and what loads them in the guest should not need to know.
fn uncompress_modules(directory: &Path) -> Result<()> {
    let mut compressed = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)?.flatten() {
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "xz") {
                compressed.push(entry.path());
            }
        }
    }
    for some in compressed.chunks(500) {
        shell::run(Command::new("xz").arg("-d").args(some))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage's header with one setup sector and a payload 16 bytes into the protected-mode code.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * 512 + 16];
        image[0x1F1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24C].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24C..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn the_payload_is_where_the_header_says() {
        assert_eq!(payload(&image(b"compressed")), Some(b"compressed".as_slice()));
        assert_eq!(payload(&image(b"compressed")[..1045]), None);
        assert_eq!(payload(b"no kernel"), None);
        assert_eq!(payload(&[]), None);
    }

    #[test]
    fn an_unknown_compression_is_named() {
        let error = uncompressed(&image(b"BZh91AY")).unwrap_err().to_string();
        assert!(error.contains("not known"), "{error}");
    }
}
