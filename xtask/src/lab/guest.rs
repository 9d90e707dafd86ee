//! A guest as the command line asks for it: what it is made of, and one command run in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::image::{self, Contents, Passed};
use super::kernel::{Kernel, Series};
use super::machine::{self, Boot, Ending, Plan};
use super::resume::Start;
use super::workshop::Workshop;
use super::{booted, l2cat, once};
use crate::architecture::Architecture;
use crate::packages::{self, BUSYBOX, KMOD, Package, QEMU, UTIL_LINUX, XZ, ZSTD};
use crate::shell;

/// What the lab needs of Debian.
pub(crate) const PACKAGES: [&Package; 6] = [&QEMU, &BUSYBOX, &KMOD, &XZ, &ZSTD, &UTIL_LINUX];

/// As timeout(1) has it.
const TIME_IS_UP: u8 = 124;
/// As with programs that run programs, env(1) and timeout(1): the failure is not the command's.
pub(super) const LAB_FAILED: u8 = 125;
/// As a shell has it for SIGINT.
const INTERRUPTED: u8 = 130;
/// The machine, and what is in it.
#[derive(clap::Args, Clone)]
pub(super) struct GuestArgs {
    /// The kernel's series.
    #[arg(long, value_name = "SERIES")]
    pub(super) kernel: Series,
    /// Virtual time: an instruction takes 2^SHIFT ns, and idle time passes at once.
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=10))]
    pub(super) icount: Option<u8>,
    /// The guest's processors; more than one only in the host's time.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4),
          conflicts_with = "icount")]
    pub(super) cpus: u8,
    /// The guest's memory.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=16384))]
    pub(super) memory: u32,
    /// Ends the guest after so long, in the host's time.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = humantime::parse_duration)]
    pub(super) timeout: Duration,
    /// A file or directory for the guest; a program comes with its libraries. Places: /bin for programs, else /root,
    /// where the command runs.
    #[arg(long = "file", value_name = "FILE[:/PLACE]")]
    pub(super) files: Vec<Passed>,
    /// Have l2cat (of the crate bluer-tools) in the guest, which is built once. It can't advertise
    /// there: --no-advertise.
    #[arg(long)]
    pub(super) l2cat: bool,
    /// A kernel module to load before the command; those it needs come with it. Those of this repository (taut_path,
    /// taut_gpio_sim) are built for the kernel.
    #[arg(long = "module", value_name = "NAME")]
    pub(super) modules: Vec<String>,
    /// A directory with a Kbuild file, whose modules are built for the kernel and can be loaded in the guest.
    #[arg(long = "module-source", value_name = "DIR")]
    pub(super) module_sources: Vec<PathBuf>,
    /// Where files go that the command writes to the directory $OUT [default: target/lab/out, emptied before].
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Show the kernel's console on stderr.
    #[arg(long)]
    pub(super) console: bool,
}

pub(super) fn ensure_packages(architecture: Architecture) -> Result<()> {
    once::done(&format!("packages-{}", architecture.debian()), || {
        let missing = packages::ensure(&[&PACKAGES, architecture.packages()].concat());
        if !missing.is_empty() {
            bail!("the lab needs these packages: {}", missing.join(", "));
        }
        Ok(())
    })
}

pub(super) fn run_command(args: &GuestArgs, command: &[String]) -> Result<u8> {
    // What has files of its own is there for one command, as a rule, and to save it takes longer than to boot it.
    let is_shared = args.files.is_empty() && !args.l2cat && args.kernel.architecture().can_be_saved();
    let Some(directory) = booted::directory(args.icount).filter(|_| is_shared) else {
        let made = Made::new(args, Some(command))?;
        let out = place_for_files(args.out.as_ref())?;
        return Ok(code(machine::run(&made.plan(args, &out))?, &made.kernel, args.timeout));
    };
    let made = Made::new(args, None)?;
    let out = place_for_files(args.out.as_ref())?;
    let plan = made.plan(args, &out);
    let state = booted::ensure(&Plan { boot: Boot::UpToCommand, ..plan }, &directory)?;
    let boot = Boot::From(Start { state: &state, command: &image::script(command) });
    Ok(code(machine::run(&Plan { boot, ..plan })?, &made.kernel, args.timeout))
}

/// A guest's kernel and what it boots into.
pub(super) struct Made {
    pub(super) kernel: Kernel,
    image: Vec<u8>,
    vmlinux: PathBuf,
}

impl Made {
    pub(super) fn new(args: &GuestArgs, command: Option<&[String]>) -> Result<Self> {
        let architecture = args.kernel.architecture();
        ensure_packages(architecture)?;
        let kernel = args.kernel.ensure()?;
        let taut = image::taut(architecture)?;
        let own = own_modules()?.into_iter().filter(|path| args.modules.iter().any(|name| path.ends_with(name)));
        let sources: BTreeSet<PathBuf> = own.chain(args.module_sources.iter().cloned()).collect();
        let built = built_modules(args.kernel, &kernel, &sources)?;
        let mut files = args.files.clone();
        if args.l2cat {
            if architecture != Architecture::Amd64 {
                bail!("l2cat is built for amd64 alone");
            }
            files.push(Passed::program(l2cat::ensure()?));
        }
        let contents = Contents { files: &files, modules: &args.modules, built: &built, command };
        let image = image::build(&kernel, &taut, &contents)?;
        Ok(Self { vmlinux: kernel.image(), kernel, image })
    }

    pub(super) fn plan<'a>(&'a self, args: &GuestArgs, out: &'a Path) -> Plan<'a> {
        Plan {
            architecture: args.kernel.architecture(),
            kernel: &self.vmlinux,
            image: &self.image,
            memory: args.memory,
            cpus: args.cpus,
            icount: args.icount,
            timeout: args.timeout,
            out,
            show_console: args.console,
            radio: None,
            forward: &[],
            boot: Boot::Whole,
        }
    }
}

/// Our exit code for the end of a guest; what was wrong is said.
pub(super) fn code(ending: Ending, kernel: &Kernel, timeout: Duration) -> u8 {
    match ending {
        Ending::Exited(code) => code,
        Ending::TimedOut { began } => {
            let when = if began { "while the command ran" } else { "before the command began" };
            eprintln!("lab: time is up after {} {when}", humantime::format_duration(timeout));
            TIME_IS_UP
        }
        Ending::Interrupted => {
            eprintln!("lab: interrupted");
            INTERRUPTED
        }
        Ending::Died(why) => {
            eprintln!("lab: Linux {}: {why}", kernel.release);
            LAB_FAILED
        }
    }
}

/// Directories of this repository's modules, by the name of which each is.
pub(super) fn own_modules() -> Result<BTreeSet<PathBuf>> {
    let directory = shell::root().join("kernel");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.join("Kbuild").is_file()).collect())
}

pub(super) fn built_modules(
    series: Series,
    kernel: &Kernel,
    sources: &BTreeSet<PathBuf>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut built = BTreeMap::new();
    if !sources.is_empty() {
        let workshop = Workshop::ensure(series, kernel)?;
        for source in sources {
            let source = absolute(source)?;
            let mut hasher = DefaultHasher::new();
            source.hash(&mut hasher);
            let name = format!("modules-{}-{:016x}", kernel.release, hasher.finish());
            built.extend(once::made(&name, || workshop.build(&source))?);
        }
    }
    Ok(built)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

/// Removes what a directory has, and not the directory: another guest may be about to share it.
fn empty(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_directory = entry.file_type()?.is_dir();
        let removed = if is_directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        // Whoever else empties it may have been as quick.
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    }
    Ok(())
}

pub(super) fn place_for_files(asked: Option<&PathBuf>) -> Result<PathBuf> {
    let out = match asked {
        Some(out) => out.clone(),
        None => {
            let out = shell::target_dir()?.join("lab/out");
            if out.is_dir() {
                empty(&out).with_context(|| format!("cannot empty {}", out.display()))?;
            }
            out
        }
    };
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    Ok(out)
}
