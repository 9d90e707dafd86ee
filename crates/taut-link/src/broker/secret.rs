//! Passwords stand in files, so that they are in no recording.

use std::path::Path;

use crate::{Error, Result};

/// What is in the file, without the end of its line.
///
/// # Errors
/// [`Error::Input`] where it can't be read; `whose` it is stands in front.
pub(super) fn read(whose: &str, path: &Path) -> Result<Vec<u8>> {
    let read = std::fs::read(path);
    let mut secret =
        read.map_err(|error| Error::Input(format!("{whose}: its password file can't be read: {error}")))?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    Ok(secret)
}
