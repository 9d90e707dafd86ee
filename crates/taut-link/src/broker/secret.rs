//! Passwords stand in files, so that they are in no recording.

use std::path::Path;

use crate::files::read_short;
use crate::{Error, Result};

/// MQTT has no longer ones (MQTT 3.1.1, section 3.1.3.5); with the end of a line. In bytes.
const LONGEST: u64 = (64 << 10) + 1;

/// What is in the file, without the end of its line.
///
/// # Errors
/// [`Error::Input`] where it can't be read or is longer than 64 KiB; `whose` it is stands in front.
pub(super) fn read(whose: &str, path: &Path) -> Result<Vec<u8>> {
    let read = read_short(path, LONGEST);
    let mut secret =
        read.map_err(|error| Error::Input(format!("{whose}: its password file can't be read: {error}")))?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    Ok(secret)
}
