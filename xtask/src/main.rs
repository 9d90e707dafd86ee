//! The daily commands, used by people and by CI alike: `cargo xtask check`, `test`, `bench`,
//! `fuzz`, `stress`, `miri`, `lab`, `captures`, `lines`, `dist` and `site`.
//!
//! - [`check`]: formatting, lints, the rules of the house ([`house`]), licences and sources of the
//!   dependencies, documentation.
//! - [`mod@test`]: every test, or those of a lane, with the skipped ones counted and named;
//!   [`apart`] has those with builds of their own.
//! - [`mod@bench`]: `taut` beside its peers in the same run, interleaved, as ratios with their spread.
//! - [`fuzz`]: the fuzz targets.
//! - [`stress`]: libtautaio against a model, also under the sanitizers.
//! - [`miri`]: what of it can be interpreted, each access to memory checked.
//! - [`lab`]: commands on stock kernels, in virtual machines.
//! - [`captures`]: captures of others, for the tests.
//! - [`lines`]: lines of product code by crate.
//! - [`dist`]: archives and Debian packages.
//! - [`site`]: the documentation as pages for a browser.
//! - [`guard`]: what is left of a run of tests that was killed is ended.
//! - [`apt`] has packages of other releases of Debian.
//! - [`packages`] and [`tools`] set up what these need; [`shell`] runs it.

mod apart;
mod apt;
mod architecture;
mod bench;
mod captures;
mod check;
mod dist;
#[cfg(test)]
mod documented;
mod fuzz;
mod guard;
mod house;
mod lab;
mod lines;
mod miri;
mod packages;
mod shell;
mod site;
mod stress;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Tautline.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Formatting, clippy, the rules of the house, cargo-deny and documentation, all with warnings as errors.
    Check(check::Args),
    /// All tests, or those that are quick. The last line is `N passed, N failed, N skipped`.
    Test(test::Args),
    /// taut beside its peers, interleaved, as ratios with their spread. Exit code 3 when a bar is missed.
    Bench(bench::Args),
    /// The fuzz targets (nightly Rust and cargo-fuzz needed).
    Fuzz(fuzz::Args),
    /// Random use of libtautaio against a model of what it must do, for a while or for long, also under a sanitizer.
    Stress(stress::Args),
    /// The parts of taut-aio that can be interpreted, under Miri (nightly Rust with Miri needed).
    Miri(miri::Args),
    /// Commands on Debian's stock kernels, in a virtual machine made for each.
    Lab(lab::Args),
    /// Captures of others, from Debian's source packages: prints where they are, and fetches them when they are not
    /// there. Exit code 77 when they can't be had here.
    Captures(captures::Args),
    /// Lines of product code by crate, as of each of some commits.
    Lines(lines::Args),
    /// Static binaries with what packages ship, as archives and Debian packages, each of them tried.
    Dist(dist::Args),
    /// README and docs as a site with a search (mdBook, which is built when it is missing), and a report made now.
    Site,
    /// What `bench pipe` sets beside pipes.
    #[command(hide = true)]
    Relay(bench::relay::Args),
    /// What `bench watch` has connections to.
    #[command(hide = true)]
    Watched(bench::watch::Args),
    /// What watches over a run of tests.
    #[command(hide = true)]
    Guard(guard::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Stress(args) => stress::run(&args),
        Command::Miri(args) => miri::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Captures(args) => captures::run(&args),
        Command::Lines(args) => lines::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Site => site::run(),
        Command::Guard(args) => guard::run(&args),
        Command::Watched(args) => bench::watch::serve(&args).map(|()| ExitCode::SUCCESS),
        Command::Relay(args) => bench::relay::run(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
