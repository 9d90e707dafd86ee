//! Serial lines.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use rustix::termios::{self, OptionalActions};

use crate::route::Serial;

/// Opens a serial line and lets bytes through as they are. A carrier that is not there yet is not waited for.
pub(super) fn open(serial: &Serial) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).write(true).custom_flags(flags).open(&serial.path)?;
    let mut settings = termios::tcgetattr(&file)?;
    settings.make_raw();
    if let Some(baud) = serial.baud {
        settings.set_speed(baud)?;
    }
    termios::tcsetattr(&file, OptionalActions::Now, &settings)?;
    Ok(file)
}
