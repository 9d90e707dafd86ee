//! A terminal of a size, as one program has it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::text;

/// Both ends of a terminal.
pub(crate) struct Terminal {
    outer: File,
    inner: OwnedFd,
}

/// What runs in a terminal.
pub(crate) struct Seen {
    outer: File,
    pub(crate) child: Child,
    /// What has been printed so far.
    pub(crate) text: String,
}

impl Terminal {
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        let outer: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outer).unwrap();
        unlockpt(&outer).unwrap();
        tcsetwinsize(&outer, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let inner = ioctl_tiocgptpeer(&outer, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        Self { outer: File::from(outer), inner }
    }

    /// Its inner end, for another's output.
    pub(crate) fn output(&self) -> Stdio {
        Stdio::from(self.inner.try_clone().unwrap())
    }

    /// Starts a command, all of whose output goes there. The terminal is `xterm` to it, whoever runs us, and wants
    /// colour unless `environment` says so.
    pub(crate) fn start(self, mut command: Command, environment: &[(&str, &str)]) -> Seen {
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "COLUMNS"] {
            command.env_remove(name);
        }
        command.env("TERM", "xterm").envs(environment.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(self.output()).stderr(self.output()).spawn().unwrap();
        Seen { outer: self.outer, child, text: String::new() }
    }
}

impl Seen {
    /// Reads on until this was printed; whether it was before the program ended.
    pub(crate) fn read_until(&mut self, part: &str) -> bool {
        let mut chunk = [0; 4096];
        // The other end is closed when the program has ended (EIO).
        while !self.text.contains(part) {
            match self.outer.read(&mut chunk) {
                Ok(length @ 1..) => self.text.push_str(&text(&chunk[..length])),
                _ => return false,
            }
        }
        true
    }

    /// Reads to the end: the exit code, and all that was printed.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        let _ = self.outer.read_to_end(&mut rest);
        self.text.push_str(&text(&rest));
        (self.child.wait().unwrap().code(), self.text.replace("\r\n", "\n"))
    }
}
