//! Archives in which neither the order of a directory nor times, owners or modes of this machine are.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// Puts what `member` of a directory holds into an archive; all of it has that time, in seconds since 1970-01-01 UTC.
pub(super) fn tar(directory: &Path, member: &str, archive: &Path, time: u64) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--format=ustar", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg(format!("--mtime=@{time}")).arg("-cf").arg(archive).arg("-C").arg(directory).arg(member);
    shell::run(&mut tar)
}

/// Compresses a file, which becomes `FILE.gz`.
pub(super) fn gzip(file: &Path) -> Result<()> {
    shell::run(Command::new("gzip").args(["-9nf"]).arg(file))
}
