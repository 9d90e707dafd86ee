//! Events of an input device (Documentation/input/event-codes.rst), read in batches with the kernel's times.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

use taut_link::{Error, Result};

use super::event::{self, Event, Next};
use super::sys;
use crate::route::InputEvents;

/// `struct input_event`: a time of two words, type and code of 16 bits, a value of 32.
const WORD: usize = size_of::<usize>();
const EVENT_BYTES: usize = 2 * WORD + 8;
/// Events of one reading.
const BATCH: usize = 64;
/// `EV_SYN` and `SYN_DROPPED` (linux/input-event-codes.h).
const SYN: u16 = 0;
const DROPPED: u16 = 3;

/// Events of one type and code.
pub(super) struct Events {
    file: File,
    kind: u16,
    code: u16,
    batch: [u8; BATCH * EVENT_BYTES],
    at: usize,
    filled: usize,
}

/// The node of a device by its name.
pub(crate) fn node(device: &str) -> Result<String> {
    if device.starts_with("/dev/") {
        return Ok(device.to_owned());
    }
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir("/sys/class/input").into_iter().flatten().flatten() {
        let Some(node) = entry.file_name().to_str().filter(|name| name.starts_with("event")).map(str::to_owned) else {
            continue;
        };
        let name = std::fs::read_to_string(entry.path().join("device/name")).unwrap_or_default();
        let name = name.trim_end_matches('\n');
        if name == device { found.push(format!("/dev/input/{node}")) } else { others.push(format!("{name} ({node})")) }
    }
    found.sort();
    others.sort();
    match &found[..] {
        [node] => Ok(node.clone()),
        [] if others.is_empty() => {
            Err(Error::Unavailable(format!("input:{device}: this machine has no input device (modprobe evdev?)")))
        }
        [] => {
            Err(Error::Unavailable(format!("input:{device}: no device of that name; there is {}", others.join(", "))))
        }
        _ => {
            let text = format!("input:{device}: several devices have that name; write one of {}", found.join(", "));
            Err(Error::Unavailable(text))
        }
    }
}

impl Events {
    pub(super) fn open(source: &InputEvents) -> Result<Self> {
        let node = node(&source.device)?;
        let open = || {
            let file = File::open(&node)?;
            rustix::io::ioctl_fionbio(&file, true)?;
            sys::only_events(file.as_fd(), source.kind, source.code)?;
            Ok(file)
        };
        let file = open().map_err(|error: io::Error| {
            let needs =
                if error.kind() == io::ErrorKind::PermissionDenied { " (needs root, or the group input)" } else { "" };
            Error::Unavailable(format!("input:{}: {node}: {error}{needs}", source.device))
        })?;
        Ok(Self { file, kind: source.kind, code: source.code, batch: [0; BATCH * EVENT_BYTES], at: 0, filled: 0 })
    }

    /// Waits for an event, for a while.
    #[inline]
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        loop {
            if self.at + EVENT_BYTES > self.filled {
                if !event::wait(&[self.file.as_fd()])?[0] {
                    return Ok(Next::Nothing);
                }
                (self.at, self.filled) = (0, 0);
                match self.file.read(&mut self.batch) {
                    Ok(length) => self.filled = length,
                    Err(error) if event::is_quiet(&error) => return Ok(Next::Nothing),
                    Err(error) => return Err(error),
                }
            }
            let Some(event) = self.batch[..self.filled].get(self.at..self.at + EVENT_BYTES) else {
                return Ok(Next::Nothing);
            };
            self.at += EVENT_BYTES;
            let word = |at: usize| {
                let mut bytes = [0; WORD];
                bytes.copy_from_slice(&event[at..at + WORD]);
                usize::from_ne_bytes(bytes) as i64
            };
            let half = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
            let (kind, code) = (half(2 * WORD), half(2 * WORD + 2));
            if (kind, code) == (SYN, DROPPED) {
                // The kernel does not say how many: at least one.
                return Ok(Next::Lost(1));
            }
            if (kind, code) == (self.kind, self.code) {
                let value = i32::from_ne_bytes([4, 5, 6, 7].map(|byte| event[2 * WORD + byte]));
                let at_ns = word(0) * 1_000_000_000 + word(WORD) * 1_000;
                buffer[..8].copy_from_slice(&i64::from(value).to_ne_bytes());
                return Ok(Next::Event(Event { bytes: 8, at_ns, now_ns: at_ns, from: None, hops: None, lost: 0 }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn events_of_one_kind_are_taken_and_overruns_counted() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let (kind, code) = (1, 30);
        let mut events = Events { file: reader.into(), kind, code, batch: [0; BATCH * EVENT_BYTES], at: 0, filled: 0 };
        let mut bytes = Vec::new();
        for (kind, code, value) in [(4_u16, 4_u16, 30_i32), (1, 30, 1), (0, 0, 0), (0, 3, 0), (1, 31, 1), (1, 30, -2)] {
            bytes.extend(2_usize.to_ne_bytes());
            bytes.extend(500_usize.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(code.to_ne_bytes());
            bytes.extend(value.to_ne_bytes());
        }
        File::from(writer).write_all(&bytes).unwrap();
        let mut buffer = [0; 8];
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(match events.next(&mut buffer).unwrap() {
                Next::Event(event) => (event.at_ns, i64::from_ne_bytes(buffer)),
                Next::Lost(lost) => (0, lost as i64),
                _ => panic!("nothing"),
            });
        }
        assert_eq!(seen, [(2_000_500_000, 1), (0, 1), (2_000_500_000, -2)]);
    }
}
