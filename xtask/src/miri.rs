//! `cargo xtask miri`: the parts of taut-aio that need neither the kernel's rings nor the I/O
//! thread, under Miri, which checks each access to memory against the rules of the language.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;

use crate::shell;

/// What is run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose names contain this.
    filter: Option<String>,
    /// With so many orders of the threads.
    #[arg(long, value_name = "N", default_value_t = 4)]
    seeds: u32,
}

/// Runs the tests that Miri can run; says loudly where Miri is not there.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if !shell::succeeds(nightly().args(["miri", "--version"])) {
        println!(
            "SKIPPED: nightly Rust with Miri is not there (rustup component add --toolchain nightly miri rust-src)"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = nightly();
    command.args(["miri", "test", "--locked", "--package", "taut-aio", "--test", "alone", "--"]);
    command.args(&args.filter);
    // The clock and descriptors of pipes are the host's.
    command.env("MIRIFLAGS", format!("-Zmiri-disable-isolation -Zmiri-many-seeds=0..{}", args.seeds.max(1)));
    command.env("CARGO_TARGET_DIR", shell::target_dir()?.join("miri"));
    shell::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

fn nightly() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]);
    // The outer cargo and toolchain are not the nightly ones.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTFLAGS");
    command.current_dir(shell::root()).stdin(Stdio::null());
    command
}
