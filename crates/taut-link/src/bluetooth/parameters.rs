//! Parameters of the LE connections that an adapter will make (`/sys/kernel/debug/bluetooth/hciN`).

use std::fs;
use std::io::{self, ErrorKind};

use super::address::INTERVALS;
use crate::{Error, Result};

/// What the kernel asks for when it makes a connection, and, on the side that was connected to,
/// accepts: a peripheral asks back what lies outside its own limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionParameters {
    /// Connection interval in ns: a multiple of 1.25 ms from 7.5 ms to 4 s.
    pub interval_ns: u64,
    /// Events that the peripheral may skip, up to 499.
    pub latency: u16,
    /// Supervision timeout in ns: a multiple of 10 ms from 100 ms to 32 s.
    pub timeout_ns: u64,
}

const INTERVAL_UNIT_NS: u64 = 1_250_000;
const TIMEOUT_UNIT_NS: u64 = 10_000_000;

/// Sets them for the connections that the adapter makes from now on.
///
/// # Errors
/// [`Error::Input`] when they aren't within the limits of the Bluetooth Core Specification, Vol 4,
/// Part E, section 7.8.12; [`Error::Unavailable`] where debugfs isn't mounted or the right is missing.
pub fn set_connection_parameters(index: u16, parameters: ConnectionParameters) -> Result<()> {
    let units = Units::of(parameters)?;
    let path = |name: &str| format!("/sys/kernel/debug/bluetooth/hci{index}/{name}");
    let write =
        |name: &str, value: u16| fs::write(path(name), value.to_string()).map_err(|error| failed(&path(name), error));
    IntervalLimits { min: units.interval, max: units.interval }.write(index)?;
    write("conn_latency", units.latency)?;
    write("supervision_timeout", units.timeout)
}

/// Between which connection intervals the kernel keeps the links of an adapter: what it asks for as
/// the central, and as the peripheral asks back. In units of 1.25 ms, 6 to 3200.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IntervalLimits {
    /// Shortest.
    pub min: u16,
    /// Longest.
    pub max: u16,
}

impl IntervalLimits {
    /// What the kernel gives to a new adapter: 30 to 50 ms.
    pub const DEFAULT: Self = Self { min: 24, max: 40 };

    /// Those of an adapter (`conn_min_interval` and `conn_max_interval` in debugfs).
    ///
    /// # Errors
    /// [`Error::Unavailable`] where debugfs isn't mounted or the right is missing.
    pub fn read(index: u16) -> Result<Self> {
        let read = |name: &str| {
            let path = interval_path(index, name);
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            let wrong = |error| Error::Host { what: format!("read {path}"), error: io::Error::other(error) };
            text.trim().parse::<u16>().map_err(wrong)
        };
        Ok(Self { min: read("min")?, max: read("max")? })
    }

    /// Gives them to an adapter, for the connections that it makes from now on.
    ///
    /// # Errors
    /// [`Error::Input`] when they are no limits; [`Error::Unavailable`] as in [`read`](Self::read).
    pub fn write(self, index: u16) -> Result<()> {
        let Self { min, max } = self;
        if !(INTERVALS.contains(&min) && INTERVALS.contains(&max) && min <= max) {
            return Err(Error::Input(format!("{min} to {max} are no limits of connection intervals")));
        }
        // The kernel wants min <= max at all times: to the lowest first, then up.
        for (name, units) in [("min", *INTERVALS.start()), ("max", max), ("min", min)] {
            let path = interval_path(index, name);
            fs::write(&path, units.to_string()).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }
}

fn interval_path(index: u16, name: &str) -> String {
    format!("/sys/kernel/debug/bluetooth/hci{index}/conn_{name}_interval")
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Units {
    interval: u16,
    latency: u16,
    timeout: u16,
}

impl Units {
    fn of(parameters: ConnectionParameters) -> Result<Self> {
        let wrong = |what: &str| Err(Error::Input(what.to_owned()));
        let ConnectionParameters { interval_ns, latency, timeout_ns } = parameters;
        let interval = interval_ns / INTERVAL_UNIT_NS;
        if interval_ns % INTERVAL_UNIT_NS != 0 || !(6..=3200).contains(&interval) {
            return wrong("the connection interval of a kernel's link is a multiple of 1.25ms from 7.5ms to 4s");
        }
        if latency > 499 {
            return wrong("the peripheral latency of a link is 499 events at most");
        }
        let timeout = timeout_ns / TIMEOUT_UNIT_NS;
        if timeout_ns % TIMEOUT_UNIT_NS != 0 || !(10..=3200).contains(&timeout) {
            return wrong("the supervision timeout of a kernel's link is a multiple of 10ms from 100ms to 32s");
        }
        Ok(Self { interval: interval as u16, latency, timeout: timeout as u16 })
    }
}

fn failed(path: &str, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::Unavailable(format!(
            "{path} is missing: mount -t debugfs debugfs /sys/kernel/debug (and the adapter must do LE)"
        )),
        ErrorKind::PermissionDenied => Error::Unavailable(format!("{path}: only root may write it")),
        _ => Error::Host { what: format!("write {path}"), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_units_or_are_refused() {
        let given =
            |interval_ns, latency, timeout_ns| Units::of(ConnectionParameters { interval_ns, latency, timeout_ns });
        let least = given(7_500_000, 0, 420_000_000).unwrap();
        assert_eq!(least, Units { interval: 6, latency: 0, timeout: 42 });
        assert_eq!(given(112_500_000, 499, 32_000_000_000).unwrap().interval, 90);
        for (interval, latency, timeout) in [
            (7_000_000, 0, 420_000_000),
            (6_250_000, 0, 420_000_000),
            (7_500_000, 500, 420_000_000),
            (7_500_000, 0, 95_000_000),
        ] {
            assert!(
                matches!(given(interval, latency, timeout), Err(Error::Input(_))),
                "{interval} {latency} {timeout}"
            );
        }
    }
}
