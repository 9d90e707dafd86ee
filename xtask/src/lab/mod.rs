//! `cargo xtask lab`: commands on Debian's stock kernels, in a virtual machine that is made for one command.
//!
//! - [`apt`] and [`kernel`]: the kernels, fetched once. [`modules`]: what of theirs a guest needs.
//! - [`image`]: the guest's first and only file system, packed by [`cpio`]; `init.sh` is its first process.
//! - [`machine`]: QEMU, from its start to its end. [`booted`]: machines that start where others
//!   have booted, over [`qmp`].
//! - [`workshop`]: modules of ours, built for a kernel; [`dkms`]: the same as its users have it done.
//! - [`debug`]: a kernel that finds faults, built of Debian's source.
//! - [`l2cat`]: a program of others, built for guests.
//! - [`pair`]: two Bluetooth adapters and a server in a guest; [`two`]: in two guests;
//!   [`bluetooth`]: measurements with them.

mod apt;
mod bluetooth;
mod booted;
mod cpio;
mod debug;
mod dkms;
mod image;
mod kernel;
mod l2cat;
mod machine;
mod modules;
mod pair;
mod qmp;
mod two;
mod workshop;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use crate::packages::{self, BUSYBOX, KMOD, Package, QEMU, UTIL_LINUX, XZ, ZSTD};
use crate::shell;
use bluetooth::BluetoothArgs;
pub(crate) use booted::DIRECTORY as BOOTED;
use booted::Start;
use image::{Contents, Passed};
use kernel::{Kernel, Series};
use machine::{Boot, Ending, Plan};
use pair::PairArgs;
use two::TwoArgs;
use workshop::Workshop;

/// What to do in the lab.
#[derive(Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Run a command on a kernel, with `taut` in its PATH. Exit codes: the command's; 124 time is up, 125 the guest
    /// or the lab failed, 130 interrupted.
    Run(RunArgs),
    /// Run a command with two virtual Bluetooth adapters, whose controllers share one simulated
    /// radio: `@peer` in it is the endpoint of a `taut serve` on the other side. With
    /// `--peer-kernel` the other side is a kernel of its own. Exit codes as with `run`.
    Pair(Box<PairCommand>),
    /// Throughput of L2CAP channels by connection interval under the kernels, beside the model of
    /// the same scenario. Exit code 3 when a bar is missed.
    Bluetooth(BluetoothArgs),
    /// Add, build, install and remove kernel/taut_path with DKMS for a kernel, in a root of its
    /// own; the module that was installed goes to a directory.
    Dkms(DkmsArgs),
    /// Build the kernel `6.12-debug`, which finds faults of locks and memory (lockdep, KASAN, kmemleak), of Debian's
    /// source and keep it. Takes minutes, and longer on a busy machine. Exit code 77 when that can't be had here.
    DebugKernel(DebugKernelArgs),
    /// Fetch and build what the lab needs, but for the debug kernel. Exit code 77 when that can't be had here.
    Fetch(FetchArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// The command; for more than one: sh -c '…'.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct PairCommand {
    #[command(flatten)]
    pair: PairArgs,
    #[command(flatten)]
    two: TwoArgs,
    #[command(flatten)]
    guest: GuestArgs,
    /// The command, with @peer where the endpoint of the other side belongs: taut stream @peer --json.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The machine, and what is in it.
#[derive(clap::Args, Clone)]
struct GuestArgs {
    /// The kernel's series.
    #[arg(long, value_name = "SERIES")]
    kernel: Series,
    /// Virtual time: an instruction takes 2^SHIFT ns, and idle time passes at once.
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=10))]
    icount: Option<u8>,
    /// The guest's processors; more than one only in the host's time.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4),
          conflicts_with = "icount")]
    cpus: u8,
    /// The guest's memory.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=16384))]
    memory: u32,
    /// Ends the guest after so long, in the host's time.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// A file or directory for the guest; a program comes with its libraries. Places: /bin for programs, else /root,
    /// where the command runs.
    #[arg(long = "file", value_name = "FILE[:/PLACE]")]
    files: Vec<Passed>,
    /// Have l2cat (of the crate bluer-tools) in the guest, which is built once. It can't advertise
    /// there: --no-advertise.
    #[arg(long)]
    l2cat: bool,
    /// A kernel module to load before the command; those it needs come with it. Those of this repository (taut_path,
    /// taut_gpio_sim) are built for the kernel.
    #[arg(long = "module", value_name = "NAME")]
    modules: Vec<String>,
    /// A directory with a Kbuild file, whose modules are built for the kernel and can be loaded in the guest.
    #[arg(long = "module-source", value_name = "DIR")]
    module_sources: Vec<PathBuf>,
    /// Where files go that the command writes to the directory $OUT [default: target/lab/out, emptied before].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show the kernel's console on stderr.
    #[arg(long)]
    console: bool,
}

#[derive(clap::Args)]
struct DkmsArgs {
    /// The kernel's series.
    #[arg(long, value_name = "SERIES")]
    kernel: Series,
    /// Where the module goes [default: target/lab/out, emptied before].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
struct DebugKernelArgs {
    /// Build it again, of the newest source, though it is there.
    #[arg(long)]
    again: bool,
    /// Compilers at once [default: the processors].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

#[derive(clap::Args)]
struct FetchArgs {
    /// Only this kernel.
    #[arg(long, value_name = "SERIES")]
    kernel: Option<Series>,
    /// Also what builds kernel modules for them, and build those of this repository.
    #[arg(long)]
    modules: bool,
    /// Also l2cat.
    #[arg(long)]
    l2cat: bool,
}

/// What the lab needs of Debian.
pub(crate) const PACKAGES: [&Package; 6] = [&QEMU, &BUSYBOX, &KMOD, &XZ, &ZSTD, &UTIL_LINUX];

/// As timeout(1) has it.
const TIME_IS_UP: u8 = 124;
/// As with programs that run programs, env(1) and timeout(1): the failure is not the command's.
const LAB_FAILED: u8 = 125;
/// As a shell has it for SIGINT.
const INTERRUPTED: u8 = 130;
/// As benches have it.
const BAR_MISSED: u8 = 3;
/// As tests have it.
const NOT_HERE: u8 = 77;

/// Runs a command of the lab.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let code = match &args.command {
        LabCommand::Run(args) => ended(run_command(&args.guest, &args.command)),
        LabCommand::Pair(args) => ended(run_pair(args)),
        LabCommand::Bluetooth(args) => ended(bluetooth::run(args).map(|met| if met { 0 } else { BAR_MISSED })),
        LabCommand::Dkms(args) => ended(run_dkms(args)),
        LabCommand::DebugKernel(args) => had(ensure_packages().and_then(|()| debug::ensure(args.again, args.jobs))),
        LabCommand::Fetch(args) => had(fetch(args)),
    };
    Ok(code.into())
}

/// Whether the debug kernel is there, and of the configuration that it would have now.
pub(crate) fn has_debug_kernel() -> bool {
    Series::V6_12Debug.built().is_ok_and(|kernel| kernel.is_some())
}

fn had(result: Result<()>) -> u8 {
    result.map_or_else(
        |error| {
            eprintln!("lab: {error:#}");
            NOT_HERE
        },
        |()| 0,
    )
}

fn ended(code: Result<u8>) -> u8 {
    code.unwrap_or_else(|error| {
        eprintln!("lab: {error:#}");
        LAB_FAILED
    })
}

fn fetch(args: &FetchArgs) -> Result<()> {
    ensure_packages()?;
    for series in args.kernel.map_or_else(|| Series::STOCK.to_vec(), |only| vec![only]) {
        let kernel = series.ensure()?;
        eprintln!("lab: Linux {} is there", kernel.release);
        if args.modules && series.compiler().is_some() {
            let built = built_modules(series, &kernel, &own_modules()?)?;
            if Series::STOCK.contains(&series) {
                dkms::ensure_tools(series)?;
            }
            eprintln!("lab: built for it: {}", built.into_keys().collect::<Vec<_>>().join(", "));
        }
    }
    if args.l2cat {
        l2cat::ensure()?;
    }
    image::taut().map(drop)
}

fn ensure_packages() -> Result<()> {
    let missing = packages::ensure(&PACKAGES);
    if !missing.is_empty() {
        bail!("the lab needs these packages: {}", missing.join(", "));
    }
    Ok(())
}

fn run_pair(args: &PairCommand) -> Result<u8> {
    if let Some(peer) = args.two.peer_kernel {
        return two::run(args, peer);
    }
    let command = args.pair.command(&args.command)?;
    let mut guest = args.guest.clone();
    guest.files.extend(args.pair.files()?);
    guest.modules.extend(pair::MODULES.map(str::to_owned));
    run_command(&guest, &command)
}

fn run_dkms(args: &DkmsArgs) -> Result<u8> {
    ensure_packages()?;
    let kernel = args.kernel.ensure()?;
    let module = dkms::run(args.kernel, &kernel, &place_for_files(args.out.as_ref())?)?;
    println!("added, built, installed for Linux {} and removed again: {}", kernel.release, module.display());
    Ok(0)
}

fn run_command(args: &GuestArgs, command: &[String]) -> Result<u8> {
    let Some(directory) = booted::directory(args.icount) else {
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
struct Made {
    kernel: Kernel,
    image: Vec<u8>,
    vmlinux: PathBuf,
}

impl Made {
    fn new(args: &GuestArgs, command: Option<&[String]>) -> Result<Self> {
        ensure_packages()?;
        let kernel = args.kernel.ensure()?;
        let taut = image::taut()?;
        let own = own_modules()?.into_iter().filter(|path| args.modules.iter().any(|name| path.ends_with(name)));
        let sources: BTreeSet<PathBuf> = own.chain(args.module_sources.iter().cloned()).collect();
        let built = built_modules(args.kernel, &kernel, &sources)?;
        let mut files = args.files.clone();
        if args.l2cat {
            files.push(Passed::program(l2cat::ensure()?));
        }
        let contents = Contents { files: &files, modules: &args.modules, built: &built, command };
        let image = image::build(&kernel, &taut, &contents)?;
        Ok(Self { vmlinux: kernel.image(), kernel, image })
    }

    fn plan<'a>(&'a self, args: &GuestArgs, out: &'a Path) -> Plan<'a> {
        Plan {
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
fn code(ending: Ending, kernel: &Kernel, timeout: Duration) -> u8 {
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
fn own_modules() -> Result<BTreeSet<PathBuf>> {
    let directory = shell::root().join("kernel");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.join("Kbuild").is_file()).collect())
}

fn built_modules(series: Series, kernel: &Kernel, sources: &BTreeSet<PathBuf>) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut built = BTreeMap::new();
    if !sources.is_empty() {
        let workshop = Workshop::ensure(series, kernel)?;
        for source in sources {
            built.extend(workshop.build(&absolute(source)?)?);
        }
    }
    Ok(built)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

fn place_for_files(asked: Option<&PathBuf>) -> Result<PathBuf> {
    let out = match asked {
        Some(out) => out.clone(),
        None => {
            let out = shell::target_dir()?.join("lab/out");
            if out.is_dir() {
                fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
            }
            out
        }
    };
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    Ok(out)
}
