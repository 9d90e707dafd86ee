//! Serial lines and other terminals: their settings, put back when the pipe ends.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{ControlModes, InputModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use taut_link::{Error, Result};

/// Speed and form of a serial line (termios(3)). The default changes nothing but that bytes pass unchanged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TtySettings {
    /// Bits per second; as it is when not given.
    pub baud: Option<u32>,
    /// Data bits, 5 to 8; 8 when not given.
    pub bits: Option<u8>,
    /// Parity; none when not given.
    pub parity: Parity,
    /// Two stop bits in place of one.
    pub two_stop_bits: bool,
    /// Flow control; none when not given.
    pub flow: Flow,
}

/// The parity bit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Parity {
    /// None is sent.
    #[default]
    None,
    /// The number of ones is even.
    Even,
    /// The number of ones is odd.
    Odd,
}

/// Who stops whom on a serial line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Flow {
    /// Nobody.
    #[default]
    None,
    /// The lines RTS and CTS.
    Rtscts,
    /// The characters XON and XOFF, which then can't be data.
    Xonxoff,
}

/// The speeds of termios(3) on Linux.
const SPEEDS: [u32; 28] = [
    50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400, 57600, 115_200, 230_400, 460_800,
    500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000, 2_000_000, 3_000_000, 4_000_000,
];

impl FromStr for TtySettings {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut settings = Self::default();
        for setting in text.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let wrong = |there_is: &str| format!("`{setting}`: there is {there_is}");
            match (name, value) {
                ("baud", _) => {
                    let baud = value.parse().ok().filter(|baud| SPEEDS.contains(baud));
                    settings.baud =
                        Some(baud.ok_or_else(|| wrong("baud=9600, 115200 and the other speeds of termios(3)"))?);
                }
                ("bits", _) => {
                    let bits = value.parse().ok().filter(|bits| (5..=8).contains(bits));
                    settings.bits = Some(bits.ok_or_else(|| wrong("bits=5 to 8"))?);
                }
                ("parity", "none") => settings.parity = Parity::None,
                ("parity", "even") => settings.parity = Parity::Even,
                ("parity", "odd") => settings.parity = Parity::Odd,
                ("parity", _) => return Err(wrong("parity=none, even and odd")),
                ("stop", "1") => settings.two_stop_bits = false,
                ("stop", "2") => settings.two_stop_bits = true,
                ("stop", _) => return Err(wrong("stop=1 and 2")),
                ("flow", "none") => settings.flow = Flow::None,
                ("flow", "rtscts") => settings.flow = Flow::Rtscts,
                ("flow", "xonxoff") => settings.flow = Flow::Xonxoff,
                ("flow", _) => return Err(wrong("flow=none, rtscts and xonxoff")),
                _ => return Err(wrong("baud, bits, parity, stop and flow")),
            }
        }
        Ok(settings)
    }
}

impl fmt::Display for TtySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.baud.map(|baud| format!("baud={baud}")));
        parts.extend(self.bits.map(|bits| format!("bits={bits}")));
        match self.parity {
            Parity::None => {}
            Parity::Even => parts.push("parity=even".to_owned()),
            Parity::Odd => parts.push("parity=odd".to_owned()),
        }
        if self.two_stop_bits {
            parts.push("stop=2".to_owned());
        }
        match self.flow {
            Flow::None => {}
            Flow::Rtscts => parts.push("flow=rtscts".to_owned()),
            Flow::Xonxoff => parts.push("flow=xonxoff".to_owned()),
        }
        f.write_str(&parts.join("&"))
    }
}

/// The settings that a terminal had before; put back when dropped.
#[derive(Debug)]
pub(crate) struct Restore {
    fd: Arc<OwnedFd>,
    before: Termios,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that has hung up has no settings any more. What waits to be sent at another
        // speed would be lost: it is waited for before the pipe is closed.
        let _ = tcsetattr(self.fd.as_fd(), OptionalActions::Now, &self.before);
    }
}

/// Opens a terminal raw, with its settings.
pub(crate) fn open(path: &Path, settings: TtySettings) -> Result<(Arc<OwnedFd>, Restore)> {
    let fail =
        |what: &str, error: Errno| Error::Host { what: format!("{what} tty:{}", path.display()), error: error.into() };
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Error::Input(format!("tty:{}: {error}", path.display())),
        _ => fail("open", error),
    })?;
    if !isatty(&fd) {
        return Err(Error::Input(format!("tty:{} is no terminal; for another file write file:PATH", path.display())));
    }
    let before = tcgetattr(&fd).map_err(|error| fail("read the settings of", error))?;
    let wanted = with_settings(before.clone(), settings).map_err(|error| fail("set the speed of", error))?;
    tcsetattr(&fd, OptionalActions::Now, &wanted).map_err(|error| fail("set", error))?;
    let fd = Arc::new(fd);
    Ok((Arc::clone(&fd), Restore { fd, before }))
}

fn with_settings(mut termios: Termios, settings: TtySettings) -> rustix::io::Result<Termios> {
    termios.make_raw();
    if let Some(baud) = settings.baud {
        termios.set_speed(baud)?;
    }
    let modes = &mut termios.control_modes;
    modes.remove(
        ControlModes::CSIZE
            | ControlModes::CSTOPB
            | ControlModes::PARENB
            | ControlModes::PARODD
            | ControlModes::CRTSCTS,
    );
    modes.insert(ControlModes::CLOCAL | ControlModes::CREAD);
    modes.insert(match settings.bits {
        Some(5) => ControlModes::CS5,
        Some(6) => ControlModes::CS6,
        Some(7) => ControlModes::CS7,
        _ => ControlModes::CS8,
    });
    modes.set(ControlModes::CSTOPB, settings.two_stop_bits);
    modes.set(ControlModes::PARENB, settings.parity != Parity::None);
    modes.set(ControlModes::PARODD, settings.parity == Parity::Odd);
    modes.set(ControlModes::CRTSCTS, settings.flow == Flow::Rtscts);
    termios.input_modes.remove(InputModes::IXON | InputModes::IXOFF | InputModes::IXANY);
    if settings.flow == Flow::Xonxoff {
        termios.input_modes.insert(InputModes::IXON | InputModes::IXOFF);
    }
    Ok(termios)
}
