//! `cargo xtask lab`: commands on Debian's stock kernels, in a virtual machine that is made for one command.
//!
//! - [`kernel`]: the kernels, fetched once. [`modules`]: what of theirs a guest needs.
//! - [`image`]: the guest's first and only file system, packed by [`cpio`]; `init.sh` is its first process.
//! - [`machine`]: QEMU, from its start to its end. [`booted`] and [`resume`]: machines that start where others
//!   have booted, over [`qmp`].
//! - [`guest`]: a guest as the command line asks for it. [`once`]: what a run of tests does once for all of them.
//! - [`workshop`]: modules of ours, built for a kernel; [`dkms`]: the same as its users have it done.
//! - [`debug`]: a kernel that finds faults, built of Debian's source.
//! - [`l2cat`]: a program of others, built for guests.
//! - [`pair`]: two Bluetooth adapters and a server in a guest; [`two`]: in two guests;
//!   [`bluetooth`]: measurements with them.

mod bluetooth;
mod booted;
mod cpio;
mod debug;
mod dkms;
mod guest;
mod image;
mod kernel;
mod l2cat;
mod machine;
mod modules;
mod once;
mod pair;
mod qmp;
mod resume;
mod two;
mod workshop;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};

use bluetooth::BluetoothArgs;
pub(crate) use booted::DIRECTORY as BOOTED;
pub(crate) use guest::PACKAGES;
use guest::{GuestArgs, LAB_FAILED, built_modules, ensure_packages, own_modules, place_for_files, run_command};
use kernel::Series;
pub(crate) use once::DIRECTORY as ONCE;
use two::PairCommand;
use workshop::Workshop;

use crate::architecture::Architecture;
use crate::shell;

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
    /// Install kernel/taut_path as a package of DKMS for a kernel, twice, and purge it, in a root of
    /// its own; the module that was installed goes to a directory.
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
    /// Only this kernel [default: all of amd64].
    #[arg(long, value_name = "SERIES")]
    kernel: Option<Series>,
    /// Also what builds kernel modules for them, and build those of this repository.
    #[arg(long)]
    modules: bool,
    /// Also what builds kernel modules for them, for others to build some.
    #[arg(long, hide = true, conflicts_with = "modules")]
    workshops: bool,
    /// Also l2cat.
    #[arg(long)]
    l2cat: bool,
}

/// As benches have it.
const BAR_MISSED: u8 = 3;

/// Runs a command of the lab.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let code = match &args.command {
        LabCommand::Run(args) => ended(run_command(&args.guest, &args.command)),
        LabCommand::Pair(args) => ended(run_pair(args)),
        LabCommand::Bluetooth(args) => ended(bluetooth::run(args).map(|met| if met { 0 } else { BAR_MISSED })),
        LabCommand::Dkms(args) => ended(run_dkms(args)),
        LabCommand::DebugKernel(args) => {
            had(ensure_packages(Architecture::Amd64).and_then(|()| debug::ensure(args.again, args.jobs)))
        }
        LabCommand::Fetch(args) => had(fetch(args)),
    };
    Ok(code.into())
}

/// Whether the debug kernel is there, and of the configuration that it would have now.
pub(crate) fn has_debug_kernel() -> bool {
    Series::V6_12Debug.built().is_ok_and(|kernel| kernel.is_some())
}

/// Whether any of the kernels that are fetched is there.
pub(crate) fn has_stock_kernels() -> bool {
    Series::STOCK.iter().any(|kernel| kernel.place().is_ok_and(|directory| directory.is_dir()))
}

fn had(result: Result<()>) -> u8 {
    result.map_or_else(
        |error| {
            eprintln!("lab: {error:#}");
            shell::NOT_HERE
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
    let architecture = args.kernel.map_or(Architecture::Amd64, Series::architecture);
    ensure_packages(architecture)?;
    thread::scope(|scope| {
        // Compilers have the processors while kernels come over the network.
        let taut = scope.spawn(|| image::taut(architecture));
        fetch_kernels(args)?;
        taut.join().unwrap_or_else(|_| Err(anyhow!("the build of taut for guests panicked"))).map(drop)
    })
}

fn fetch_kernels(args: &FetchArgs) -> Result<()> {
    for series in args.kernel.map_or_else(|| Series::STOCK.to_vec(), |only| vec![only]) {
        ensure_packages(series.architecture())?;
        let kernel = series.ensure()?;
        eprintln!("lab: Linux {} is there", kernel.release);
        if (args.modules || args.workshops) && series.compiler().is_some() {
            Workshop::ensure(series, &kernel)?;
            if Series::STOCK.contains(&series) {
                dkms::ensure_tools(series)?;
            }
        }
        if args.modules && series.compiler().is_some() {
            let built = built_modules(series, &kernel, &own_modules()?)?;
            eprintln!("lab: built for it: {}", built.into_keys().collect::<Vec<_>>().join(", "));
        }
    }
    if args.l2cat {
        l2cat::ensure()?;
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
    ensure_packages(args.kernel.architecture())?;
    let kernel = args.kernel.ensure()?;
    let module = dkms::run(args.kernel, &kernel, &place_for_files(args.out.as_ref())?)?;
    println!("installed twice for Linux {} and purged: {}", kernel.release, module.display());
    Ok(0)
}
