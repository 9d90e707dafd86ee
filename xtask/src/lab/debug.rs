//! The debug kernel: Debian's source in a small configuration with lockdep, KASAN and kmemleak, built once.
//!
//! It is built in what becomes its workshop, with the compiler of its Debian release, and is in the
//! cache like the others.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::kernel::{BOOTED_IMAGE, CONFIG_FILE, DEBUG_CONFIG, Series};
use super::workshop::{self, TOOLS};
use crate::apt::Apt;
use crate::shell;

const SERIES: Series = Series::V6_12Debug;
/// The source, and what building a kernel takes beside what building a module does.
const MORE: [&str; 8] = ["bc", "bison", "flex", "gzip", "libelf-dev", "linux-source-6.12", "tar", "xz-utils"];
const SCRIPT: &str = include_str!("debug.sh");

/// The debug kernel in the cache; built now when it is not there, or of another configuration.
pub(super) fn ensure(again: bool, jobs: Option<u16>) -> Result<()> {
    if let Some(kernel) = SERIES.built()?.filter(|_| !again) {
        eprintln!("lab: Linux {} is there", kernel.release);
        return Ok(());
    }
    let place = SERIES.place()?;
    let cache = place.parent().context("a cache above its kernels")?;
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let making = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
    let (lists, root, bench) = (making.path().join("apt"), making.path().join("root"), making.path().join("bench"));
    for directory in [&lists, &bench] {
        fs::create_dir(directory)?;
    }
    let apt = Apt::of_release(SERIES.debian(), SERIES.architecture(), SERIES.with_security_updates(), &lists)?;
    eprintln!("fetching Linux {} of Debian and what builds it", SERIES.version());
    let compiler = SERIES.compiler().context("a compiler")?;
    workshop::furnish(&apt, &[TOOLS.as_slice(), &MORE].concat(), compiler, &root)?;

    let jobs = match jobs {
        Some(jobs) => usize::from(jobs),
        None => thread::available_parallelism()?.get(),
    };
    eprintln!("building it");
    fs::write(bench.join("debug.config"), DEBUG_CONFIG)?;
    let mut build = workshop::inside(&root, &bench);
    shell::run(build.args(["bash", "-c", SCRIPT, "build", &jobs.to_string()]))?;

    let release = fs::read_to_string(bench.join("release"))?.trim().to_owned();
    let kernel = making.path().join("kernel");
    let modules = kernel.join("lib/modules").join(&release);
    fs::create_dir_all(&modules)?;
    fs::rename(bench.join(BOOTED_IMAGE), kernel.join(BOOTED_IMAGE))?;
    for list in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        fs::rename(bench.join(list), modules.join(list))?;
    }
    // It has none, and says so.
    shell::run(Command::new("depmod").arg("-b").arg(&kernel).arg(&release))?;
    fs::write(kernel.join(CONFIG_FILE), DEBUG_CONFIG)?;
    // The kernel last: where it is, its workshop is too.
    replace(&root, &workshop::place(&release)?)?;
    replace(&kernel, &place)?;
    eprintln!("lab: Linux {release} is there");
    Ok(())
}

/// Puts a directory in another one's place.
fn replace(new: &Path, place: &Path) -> Result<()> {
    if place.is_dir() {
        fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    fs::rename(new, place).with_context(|| format!("cannot create {}", place.display()))
}
