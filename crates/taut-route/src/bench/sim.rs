//! The simulated GPIO chip `taut_gpio_sim` (kernel/taut_gpio_sim), by way of debugfs.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use taut_link::{Error, Result};

const DIRECTORY: &str = "/sys/kernel/debug/taut_gpio_sim";
/// Its label.
pub const CHIP: &str = "taut-gpio-sim";
/// The line on which the bench has edges made.
pub const INPUT: u32 = 17;
/// The line on which it waits for outputs.
pub const OUTPUT: u32 = 27;

/// The chip, which is there.
#[derive(Clone, Copy, Debug)]
pub struct Sim(());

/// An edge: when it was made, and when the first output was set between it and the next one (`CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// In ns.
    pub edge_ns: u64,
    /// In ns.
    pub output_ns: Option<u64>,
}

impl Sim {
    /// Finds it.
    ///
    /// # Errors
    /// The module is not loaded, or debugfs is not for this user.
    pub fn find() -> Result<Self> {
        if Path::new(DIRECTORY).is_dir() {
            return Ok(Self(()));
        }
        let text = format!(
            "{DIRECTORY} is not there: the test module taut_gpio_sim makes it (cargo xtask lab run --module taut_gpio_sim)"
        );
        Err(Error::Unavailable(text))
    }

    /// Makes edges on [`INPUT`], the first one falling; returns a period after the last one.
    ///
    /// # Errors
    /// The module refused the numbers: 1 to 2,000,000 edges, 1 us to 1 s.
    pub fn make_edges(self, edges: usize, period: Duration) -> Result<()> {
        let text = format!("{INPUT} {edges} {}", period.as_nanos());
        fs::write(format!("{DIRECTORY}/run"), text).map_err(failed("have edges made"))
    }

    /// The edges of the last run.
    ///
    /// # Errors
    /// debugfs can't be read.
    pub fn stamps(self) -> Result<Vec<Stamp>> {
        let bytes = fs::read(format!("{DIRECTORY}/stamps")).map_err(failed("read the stamps"))?;
        let (words, _) = bytes.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let stamp = |[edge, output]: &[[u8; 8]; 2]| Stamp {
            edge_ns: u64::from_ne_bytes(*edge),
            output_ns: Some(u64::from_ne_bytes(*output)).filter(|ns| *ns != 0),
        };
        Ok(pairs.iter().map(stamp).collect())
    }

    /// A number of the last run: `edges`, `outputs` or `led`.
    ///
    /// # Errors
    /// debugfs can't be read.
    pub fn count(self, what: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("{DIRECTORY}/counts")).map_err(failed("read the counts"))?;
        let found = text.lines().find_map(|line| line.strip_prefix(what)?.trim().parse().ok());
        found.ok_or_else(|| Error::Unavailable(format!("{DIRECTORY}/counts has no `{what}`: reload taut_gpio_sim")))
    }
}

fn failed(what: &str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Host { what: format!("{what} (taut_gpio_sim)"), error }
}

/// Times from falling edges to their outputs, of edges of which only the falling ones pass, and the number of those edges.
pub fn from_falling_edges(stamps: &[Stamp]) -> (Vec<u64>, u64) {
    // An output that comes after the rising edge is still the falling one's.
    let time = |pair: &[Stamp]| Some(pair.iter().find_map(|stamp| stamp.output_ns)? - pair[0].edge_ns);
    let pairs = || stamps.chunks(2);
    (pairs().filter_map(time).collect(), pairs().len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_output_is_the_falling_edges() {
        let stamp = |edge_ns, output_ns| Stamp { edge_ns, output_ns };
        let stamps = [stamp(10, Some(12)), stamp(20, None), stamp(30, None), stamp(40, Some(45)), stamp(50, None)];
        assert_eq!(from_falling_edges(&stamps), (vec![2, 15], 3));
    }
}
