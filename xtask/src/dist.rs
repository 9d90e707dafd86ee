//! `cargo xtask dist`: static binaries with what packages ship, as archives, Debian packages and container images that
//! are the same byte for byte whoever builds them, and each of them tried.

mod bill;
pub(crate) mod deb;
mod image;
mod installed;
mod machine;
mod roots;
mod tape;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::{packages, shell};
use machine::Machine;
pub(crate) use machine::ensure_target;

/// What to build, and how sure to be of it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only for this machine [default: all].
    #[arg(long, value_enum)]
    machine: Option<Machine>,
    /// Build all of it a second time, in another directory, and compare: takes twice as long.
    #[arg(long)]
    twice: bool,
}

/// Builds, packs and tries an archive, Debian packages of the program and of libtautaio and a container image for each
/// machine, with a bill of materials; and with this machine's the package of the kernel module. They and `SHA256SUMS`
/// are in `target/archives`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("the archives are built on x86_64, where Debian has the compilers for both machines");
    }
    let machines = args.machine.map_or_else(|| Machine::ALL.to_vec(), |machine| vec![machine]);
    let needed: Vec<_> = machines.iter().flat_map(|machine| machine.packages().iter().copied()).collect();
    let missing = packages::ensure(&needed);
    if !missing.is_empty() {
        bail!("not installed: {}", missing.join(", "));
    }
    let target = shell::target_dir()?;
    let directory = target.join("archives");
    fs::create_dir_all(&directory)?;
    let mut archives = Vec::new();
    for machine in machines {
        ensure_target(machine.triple())?;
        ensure_target(machine.gnu())?;
        let made = make(machine, &target, &directory)?;
        if args.twice {
            let again = directory.join("again");
            for (first, second) in made.iter().zip(make(machine, &again, &again)?) {
                if fs::read(first)? != fs::read(&second)? {
                    bail!("{} and {} differ: the build is not reproducible", first.display(), second.display());
                }
                println!("{} was built twice, with the same bytes", name_of(first));
            }
        }
        let packages: Vec<PathBuf> =
            made.iter().filter(|file| file.extension().is_some_and(|kind| kind == "deb")).cloned().collect();
        roots::lintian(&packages)?;
        let [archive, package, image, _bill, library, module @ ..] = &made[..] else { bail!("too few were packed") };
        trial::run(machine, archive)?;
        trial::installed_by_cargo(machine, &target)?;
        installed::program(machine, package)?;
        image::try_out(machine, image)?;
        installed::library(machine, library)?;
        if let [module] = module {
            installed::module(module)?;
            roots::run(archive, &[package.as_path(), library.as_path()])?;
        }
        archives.extend(made);
    }
    let names: Vec<String> = archives.iter().map(|archive| name_of(archive)).collect();
    let sums = shell::output(Command::new("sha256sum").args(&names).current_dir(&directory))?;
    fs::write(directory.join("SHA256SUMS"), format!("{}\n", sums.trim_end()))?;
    for archive in &archives {
        println!("{}  {} bytes", archive.display(), fs::metadata(archive)?.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// The archive, the package of the program, its image and its bill of materials, the package of the library, and that
/// of the kernel module if this machine is meant.
fn make(machine: Machine, target: &Path, directory: &Path) -> Result<Vec<PathBuf>> {
    let program = build(machine, "tautline", machine.triple(), target, &[])?.join("taut");
    let archive = pack(machine, &program, directory)?;
    let (unpacked, time) = (directory.join(machine.archive()), committed()?);
    let mut made = vec![
        archive,
        deb::program(machine, &unpacked, directory, time)?,
        image::pack(machine, &unpacked, directory, time)?,
        bill::write(machine, "tautline", directory)?,
    ];
    let soname = format!("-Clink-arg=-Wl,-soname,{}", deb::LIBRARY);
    let library = build(machine, "tautaio", machine.gnu(), target, &[soname])?.join("libtautaio.so");
    made.push(deb::library(machine, &library, directory, time)?);
    // It is for all machines: one is enough, and it is tried on this one.
    if machine.emulator().is_none() {
        made.push(deb::module(directory, time)?);
    }
    Ok(made)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Builds one of our crates. Gives the directory of what came out.
fn build(machine: Machine, package: &str, triple: &str, target_directory: &Path, flags: &[String]) -> Result<PathBuf> {
    let mut cargo = machine.cargo("build", flags)?;
    cargo.args(["--locked", "--profile", "dist", "-p", package, "--target", triple, "--target-dir"]);
    shell::run(cargo.arg(target_directory))?;
    Ok(target_directory.join(triple).join("dist"))
}

/// Puts the program, its manual, completions, units, their settings and licences into `NAME.tar.gz`.
fn pack(machine: Machine, program: &Path, directory: &Path) -> Result<PathBuf> {
    let name = machine.archive();
    let tree = directory.join(&name);
    // What a build before left there is not shipped.
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    for beneath in ["man", "completions", "systemd", "etc"] {
        fs::create_dir_all(tree.join(beneath))?;
    }
    fs::copy(program, tree.join("taut"))?;
    let root = shell::root();
    for file in ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root.join(file), tree.join(file)).with_context(|| format!("copy {file}"))?;
    }
    for unit in fs::read_dir(root.join("packaging/systemd"))? {
        let unit = unit?;
        fs::copy(unit.path(), tree.join("systemd").join(unit.file_name()))?;
    }
    fs::copy(root.join("packaging/etc/agent"), tree.join("etc/agent")).context("copy packaging/etc/agent")?;
    let generated = |words: &[&str]| shell::output(machine.runner(program).arg("generate").args(words));
    fs::write(tree.join("man/taut.1"), generated(&["man"])?)?;
    for (shell, file) in [("bash", "taut.bash"), ("zsh", "_taut"), ("fish", "taut.fish")] {
        fs::write(tree.join("completions").join(file), generated(&["completions", shell])?)?;
    }
    fs::write(tree.join("schema.json"), generated(&["schema"])?)?;
    let archive = directory.join(format!("{name}.tar"));
    tape::tar(directory, &name, &archive, committed()?)?;
    tape::gzip(&archive)?;
    Ok(directory.join(format!("{name}.tar.gz")))
}

/// When what is packed was committed, in seconds since 1970-01-01 UTC, or what `SOURCE_DATE_EPOCH` says.
pub(crate) fn committed() -> Result<u64> {
    let set = std::env::var("SOURCE_DATE_EPOCH").ok();
    let text = match set {
        Some(text) => text,
        None => shell::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(shell::root()))?,
    };
    text.trim().parse().with_context(|| format!("`{}` is no time in seconds", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readme_installs_is_what_is_made() {
        let readme = include_str!("../../README.md");
        let named = readme.split_whitespace().filter_map(|word| word.split_once("target/archives/"));
        let named: Vec<String> = named.map(|(_, name)| name.replace('*', env!("CARGO_PKG_VERSION"))).collect();
        let program = format!("{}/taut", Machine::X86.archive());
        assert_eq!(named, [program, deb::archive("tautline", Machine::X86.debian())]);
    }
}
