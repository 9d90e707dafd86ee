//! Adapters of the kernel whose controller is at the other end of a serial line (`drivers/bluetooth/hci_ldisc.c`).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::termios::{ControlModes, InputModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::{Error, Result, sys};

/// Line disciplines (tty.h).
const N_TTY: i32 = 0;
const N_HCI: i32 = 15;
/// Protocol of the line (`HCI_UART_H4` in hci_uart.h).
const H4: i32 = 0;

/// A serial line that the kernel's Bluetooth has for an adapter, with H4 on it. It is there until
/// this value is dropped; then the line is as it was before.
#[derive(Debug)]
pub struct SerialAdapter {
    line: File,
    path: PathBuf,
    before: Termios,
    index: u16,
}

impl SerialAdapter {
    /// Gives a serial line to the kernel's Bluetooth: raw, 8 data bits, no parity, one stop bit, RTS and
    /// CTS (Core Specification, Vol 4, Part A, section 3); `baud` bits per second, or as many as it has.
    ///
    /// # Errors
    /// [`Error::Input`] for what is no terminal or can't have that speed, [`Error::Unavailable`] without the right
    /// (`CAP_NET_ADMIN`) or where the kernel has no driver for it.
    pub fn create(path: &Path, baud: Option<u32>) -> Result<Self> {
        let failed = |what: &str, error: io::Error| Error::Host { what: format!("{what} {}", path.display()), error };
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32;
        let line =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(|error| {
                match error.kind() {
                    ErrorKind::NotFound => Error::Input(format!("{} is missing", path.display())),
                    _ => failed("open", error),
                }
            })?;
        let before = tcgetattr(&line)
            .map_err(|_| Error::Input(format!("{} is no serial line (a terminal, as /dev/ttyUSB0)", path.display())))?;
        tcsetattr(&line, OptionalActions::Flush, &raw(&before, baud, path)?)
            .map_err(|error| failed("set", error.into()))?;
        let mut adapter = Self { line, path: path.to_owned(), before, index: 0 };
        sys::set_line_discipline(adapter.line.as_fd(), N_HCI).map_err(|error| adapter.refused(error))?;
        sys::set_hci_uart_protocol(adapter.line.as_fd(), H4).map_err(|error| adapter.refused(error))?;
        adapter.index = sys::hci_uart_device(adapter.line.as_fd()).map_err(|error| adapter.refused(error))?;
        Ok(adapter)
    }

    /// Its number: 0 is hci0.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Waits at most so long for the line to hang up; whether it has.
    ///
    /// # Errors
    /// When the kernel can't wait.
    pub fn hangs_up_within(&self, time: taut_time::Duration) -> Result<bool> {
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.line, PollFlags::empty())];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::HUP)),
            Err(error) => Err(Error::Host { what: format!("wait for {}", self.path.display()), error: error.into() }),
        }
    }

    fn refused(&self, error: io::Error) -> Error {
        refused(&self.path, error)
    }
}

impl AsFd for SerialAdapter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

impl Drop for SerialAdapter {
    fn drop(&mut self) {
        // A line that has hung up has neither any more.
        let _ = sys::set_line_discipline(self.line.as_fd(), N_TTY);
        let _ = tcsetattr(&self.line, OptionalActions::Now, &self.before);
    }
}

fn raw(before: &Termios, baud: Option<u32>, path: &Path) -> Result<Termios> {
    let mut termios = before.clone();
    termios.make_raw();
    if let Some(baud) = baud {
        let wrong = |_| Error::Input(format!("{}: {baud} bits per second can't be set", path.display()));
        termios.set_speed(baud).map_err(wrong)?;
    }
    termios.control_modes.remove(ControlModes::CSIZE | ControlModes::CSTOPB | ControlModes::PARENB);
    termios
        .control_modes
        .insert(ControlModes::CS8 | ControlModes::CLOCAL | ControlModes::CREAD | ControlModes::CRTSCTS);
    termios.input_modes.remove(InputModes::IXON | InputModes::IXOFF | InputModes::IXANY);
    Ok(termios)
}

fn refused(path: &Path, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::Unavailable(format!(
            "only root may give {} to the kernel's Bluetooth (CAP_NET_ADMIN): run this with sudo",
            path.display()
        )),
        Some(libc::EINVAL | libc::EPROTONOSUPPORT) => Error::Unavailable(
            "the kernel has no driver for controllers on serial lines with H4: `modprobe hci_uart` (CONFIG_BT_HCIUART_H4)"
                .to_owned(),
        ),
        _ => Error::Host { what: format!("give {} to the kernel's Bluetooth", path.display()), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_serial_line_is_refused() {
        for (path, says) in [("/dev/null", "is no serial line"), ("/dev/none", "/dev/none is missing")] {
            let error = SerialAdapter::create(Path::new(path), None).unwrap_err();
            assert!(matches!(&error, Error::Input(text) if text.contains(says)), "{error}");
        }
    }

    #[test]
    fn without_the_driver_one_is_told_what_to_do() {
        for (errno, hint) in [(libc::EPERM, "sudo"), (libc::EINVAL, "modprobe hci_uart")] {
            let error = refused(Path::new("/dev/ttyS0"), io::Error::from_raw_os_error(errno));
            assert!(error.is_missing_right() && error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn a_line_carries_all_bytes_unchanged() {
        let pty = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
        let settings = raw(&tcgetattr(&pty).unwrap(), Some(921_600), Path::new("x")).unwrap();
        assert_eq!(settings.input_speed(), 921_600);
        assert!(settings.control_modes.contains(ControlModes::CS8 | ControlModes::CRTSCTS));
        assert!(settings.local_modes.is_empty() || !settings.local_modes.contains(rustix::termios::LocalModes::ECHO));
    }
}
