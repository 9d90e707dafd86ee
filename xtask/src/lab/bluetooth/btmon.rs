//! BlueZ's own view of a capture: what btmon decodes, and what it can't.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use crate::shell;

/// What btmon says of packets that it can't make sense of.
const COMPLAINTS: [&str; 6] = ["invalid", "malformed", "not enough", "unknown", "unexpected", "incorrect"];

/// A capture of one host's packets as btmon decodes it.
pub(super) struct Listing(String);

impl Listing {
    /// Has btmon read a capture.
    pub(super) fn read(path: &Path) -> Result<Self> {
        Ok(Self(shell::output(Command::new("btmon").arg("--read").arg(path))?))
    }

    /// Lines in which it complains. Names of devices and companies that it doesn't know are none.
    pub(super) fn complaints(&self) -> Vec<&str> {
        let complains = |line: &&str| {
            let lower = line.to_lowercase();
            let of_names = lower.contains("company") || lower.contains("manufacturer") || lower.contains("vendor");
            COMPLAINTS.iter().any(|word| lower.contains(word)) && !of_names && !lower.contains("unknown connection id")
        };
        self.0.lines().filter(complains).map(str::trim).collect()
    }

    /// The first LE credit-based connection request, with what it asks for.
    fn request(&self) -> Vec<&str> {
        let from = self.0.lines().skip_while(|line| !line.contains("LE L2CAP: LE Connection Request"));
        from.take(6).map(str::trim).collect()
    }

    fn field(&self, name: &str) -> Option<u64> {
        let line = self.request().into_iter().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().parse().ok()
    }

    /// Credits given in packets of their own, in order.
    fn credits(&self) -> Vec<u64> {
        let mut credits = Vec::new();
        let mut lines = self.0.lines();
        while let Some(line) = lines.next() {
            if line.contains("LE L2CAP: LE Flow Control Credit") {
                let count = lines.by_ref().take(2).find_map(|line| line.trim().strip_prefix("Credits:"));
                credits.extend(count.and_then(|count| count.trim().parse::<u64>().ok()));
            }
        }
        credits
    }

    /// What stands beside the air's own log in a report.
    pub(super) fn to_json(&self) -> Value {
        let credits = self.credits();
        json!({
            "mtu": self.field("MTU"), "mps": self.field("MPS"), "credits": self.field("Credits"),
            "request": self.request(), "credit_packets": credits.len(),
            "first_credits": credits.iter().take(8).collect::<Vec<_>>(), "complaints": self.complaints(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
< ACL Data TX: Handle 64 flags 0x00 dlen 18                 #41 [hci0] 0.5
      LE L2CAP: LE Connection Request (0x14) ident 1 len 10
        PSM: 129 (0x0081)
        Source CID: 64
        MTU: 672
        MPS: 247
        Credits: 3
< ACL Data TX: Handle 64 flags 0x00 dlen 12                 #52 [hci0] 0.6
      LE L2CAP: LE Flow Control Credit (0x16) ident 2 len 4
        Source CID: 64
        Credits: 46
        Company: unknown (65535)
";

    #[test]
    fn what_was_agreed_on_is_found() {
        let found = Listing(LISTING.to_owned()).to_json();
        assert_eq!((&found["mtu"], &found["mps"], &found["credits"]), (&672.into(), &247.into(), &3.into()));
        assert_eq!((&found["first_credits"], &found["complaints"]), (&json!([46]), &json!([])));
    }

    #[test]
    fn complaints_are_heard() {
        let listing = Listing(format!("{LISTING}        invalid packet size\n  Malformed data\n"));
        assert_eq!(listing.complaints(), ["invalid packet size", "Malformed data"]);
    }
}
