//! By which rule this kernel gives credits to the sender of an LE credit-based channel.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

/// How a kernel that receives decides how many PDUs may be on their way to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CreditRule {
    /// MTU / MPS + 1 credits, given back when an SDU is complete: one SDU on its way at a time
    /// (net/bluetooth/l2cap_core.c before `ce60b9231b66`, Linux 6.10).
    Sdu,
    /// As many as fit into the socket's receive buffer, a `struct sk_buff` for each reckoned in (from that change on).
    ReceiveBuffer,
}

impl CreditRule {
    /// Name in recordings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sdu => "sdu",
            Self::ReceiveBuffer => "rcvbuf",
        }
    }

    /// That of this kernel; `None` where that can't be seen.
    pub fn of_this_kernel() -> Option<Self> {
        static RULE: OnceLock<Option<CreditRule>> = OnceLock::new();
        *RULE.get_or_init(|| {
            let release = rustix::system::uname();
            match release.release().to_str().ok().and_then(version) {
                Some(version) if version >= (6, 10) => Some(Self::ReceiveBuffer),
                // Some older series have the change too, and whether a build does is in no number.
                _ => Self::from_symbols(BufReader::new(File::open("/proc/kallsyms").ok()?)),
            }
        })
    }

    /// From the kernel's symbols: a function came with the change.
    fn from_symbols(symbols: impl BufRead) -> Option<Self> {
        let mut rule = None;
        for line in symbols.lines().map_while(Result::ok) {
            // Address, type, name.
            match line.split_whitespace().nth(2) {
                Some("l2cap_publish_rx_avail") => return Some(Self::ReceiveBuffer),
                Some("l2cap_chan_connect") => rule = Some(Self::Sdu),
                _ => {}
            }
        }
        rule
    }
}

impl fmt::Display for CreditRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The first two numbers of a kernel's release.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbol_that_came_with_the_change_decides() {
        let of = |names: &[&str]| {
            let text: String = names.iter().map(|name| format!("0000000000000000 t {name}\t[bluetooth]\n")).collect();
            CreditRule::from_symbols(text.as_bytes())
        };
        assert_eq!(of(&["l2cap_chan_connect", "l2cap_publish_rx_avail"]), Some(CreditRule::ReceiveBuffer));
        assert_eq!(of(&["l2cap_chan_connect", "l2cap_chan_send"]), Some(CreditRule::Sdu));
        assert_eq!(of(&["schedule"]), None);
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version("6.12.117+deb13-amd64"), Some((6, 12)));
        assert_eq!(version("5.10.0-32-amd64"), Some((5, 10)));
        assert_eq!(version("next"), None);
    }
}
