//! An LED of `/sys/class/leds` (Documentation/ABI/testing/sysfs-class-led).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use taut_link::{Error, Result};

/// An LED, kept open.
pub(super) struct Led {
    brightness: File,
    full: String,
}

impl Led {
    /// Takes an LED away from its trigger, and switches it off.
    pub(super) fn open(name: &str) -> Result<Self> {
        let directory = PathBuf::from("/sys/class/leds").join(name);
        if !directory.exists() {
            let mut known: Vec<String> = fs::read_dir("/sys/class/leds")
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect();
            known.sort();
            let known = if known.is_empty() { "no LED".to_owned() } else { known.join(", ") };
            return Err(Error::Unavailable(format!("led:{name}: no LED of that name; this machine has {known}")));
        }
        let open = || {
            let full = fs::read_to_string(directory.join("max_brightness"))?.trim_end().to_owned();
            let brightness = File::options().write(true).open(directory.join("brightness"))?;
            // This also ends a trigger.
            brightness.write_all_at(b"0", 0)?;
            Ok(Self { brightness, full })
        };
        open().map_err(|error: io::Error| {
            let needs = if error.kind() == io::ErrorKind::PermissionDenied { " (needs root)" } else { "" };
            Error::Unavailable(format!("led:{name}: {error}{needs}"))
        })
    }

    #[inline]
    pub(super) fn set(&self, on: bool) -> io::Result<()> {
        self.brightness.write_all_at(if on { self.full.as_bytes() } else { b"0" }, 0)
    }
}
