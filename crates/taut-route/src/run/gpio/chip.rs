//! Chips of GPIO lines, found by label.

use std::fs::File;
use std::io;

use gpiocdev_uapi::v2::{self, LineFlags};
use taut_link::{Error, Result};

use crate::route::GpioLine;

/// A chip, open.
#[derive(Debug)]
pub(crate) struct Chip {
    file: File,
    /// `gpiochipN`.
    name: String,
    /// What its driver calls it.
    pub(crate) label: String,
    /// Number of its lines.
    lines: u32,
}

impl Chip {
    fn open(name: &str) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/dev/{name}"))?;
        let info = v2::get_chip_info(&file).map_err(answer)?;
        let (name, label) = (String::from(&info.name), String::from(&info.label));
        Ok(Self { file, name, label, lines: info.num_lines })
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Who holds a line.
    pub(super) fn holder(&self, offset: u32) -> Option<String> {
        let info = v2::get_line_info(&self.file, offset).ok()?;
        let holder = info.flags.contains(LineFlags::USED).then(|| String::from(&info.consumer))?;
        Some(if holder.is_empty() { "somebody who gave no name".to_owned() } else { holder })
    }
}

/// All chips: those that could be opened, and why one could not.
fn all() -> io::Result<(Vec<Chip>, Option<String>)> {
    let mut nodes: Vec<String> = std::fs::read_dir("/dev")?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.strip_prefix("gpiochip").is_some_and(|number| number.parse::<u32>().is_ok()))
        .collect();
    nodes.sort();
    let (mut chips, mut closed) = (Vec::new(), None);
    for node in nodes {
        match Chip::open(&node) {
            Ok(chip) => chips.push(chip),
            Err(error) => closed = Some(format!("/dev/{node}: {error} (needs root, or the group that it belongs to)")),
        }
    }
    Ok((chips, closed))
}

/// Labels, names and numbers of lines of the chips that may be used here.
pub(crate) fn described() -> Vec<String> {
    let chips = all().map(|(chips, _)| chips).unwrap_or_default();
    chips.iter().map(|chip| format!("{} ({}, {} lines)", chip.label, chip.name, chip.lines)).collect()
}

/// The chip of a line.
///
/// # Errors
/// [`Error::Unavailable`] when there is no such chip, several have the label, or it may not be
/// opened; [`Error::Input`] when the chip has no such line.
pub(crate) fn find(line: &GpioLine) -> Result<Chip> {
    let place = line.place();
    let (chips, closed) = all().map_err(|error| Error::Host { what: "read /dev".to_owned(), error })?;
    let (mut found, others): (Vec<Chip>, Vec<Chip>) =
        chips.into_iter().partition(|chip| chip.label == line.chip || chip.name == line.chip);
    let others: Vec<String> = others.iter().map(|chip| format!("{} ({})", chip.label, chip.name)).collect();
    let chip = match (found.pop(), found.is_empty()) {
        (Some(chip), true) => chip,
        (Some(_), false) => {
            let text = format!("{place}: several chips are labelled so; write gpiochipN (gpiodetect lists them)");
            return Err(Error::Unavailable(text));
        }
        (None, _) => {
            let known = match (closed, others.is_empty()) {
                (Some(closed), _) => closed,
                (None, true) => "this machine has no GPIO chip".to_owned(),
                (None, false) => format!("there is {}", others.join(", ")),
            };
            return Err(Error::Unavailable(format!("{place}: no GPIO chip of that label: {known}")));
        }
    };
    if line.offset >= chip.lines {
        return Err(Error::Input(format!("{place}: the chip has the lines 0 to {}", chip.lines.saturating_sub(1))));
    }
    Ok(chip)
}

/// The kernel's answer.
pub(super) fn answer(error: gpiocdev_uapi::Error) -> io::Error {
    match error {
        gpiocdev_uapi::Error::Os(errno) => io::Error::from_raw_os_error(errno.0),
        gpiocdev_uapi::Error::UnderRead(error) => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

/// What the kernel answered when a line was asked for, with who holds it.
pub(super) fn refused(line: &GpioLine, chip: &Chip, error: &io::Error) -> Error {
    let place = line.place();
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            let holder = chip.holder(line.offset).unwrap_or_else(|| "somebody else".to_owned());
            Error::Unavailable(format!("{place} is held by {holder}; it has to be let go first"))
        }
        io::ErrorKind::PermissionDenied => {
            Error::Unavailable(format!("{place}: {error} (needs root, or the group that GPIO chips belong to)"))
        }
        _ => Error::Unavailable(format!("{place}: {error}")),
    }
}
