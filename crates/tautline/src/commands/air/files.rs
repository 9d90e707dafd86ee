//! The files that captures go to.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context;
use taut_air::Role;

pub(super) fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).with_context(|| format!("write {}", path.display()))?))
}

pub(super) fn sides(directory: &Path) -> [(Role, PathBuf); 2] {
    [Role::Central, Role::Peripheral].map(|side| (side, directory.join(format!("{}.btsnoop", side.name()))))
}
