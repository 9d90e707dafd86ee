//! What stands of one capture in the document on captures, and its words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_explain::Explanation;

/// What one capture came to.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ExplainedFile {
    /// Its path; `-` for standard input.
    pub file: String,
    /// Packets read.
    pub packets: u64,
    /// Of them segments of TCP.
    pub tcp_packets: u64,
    /// Of them datagrams of UDP.
    #[serde(default)]
    pub udp_packets: u64,
    /// Of them packets of the host controller interface of Bluetooth.
    #[serde(default)]
    pub hci_packets: u64,
    /// Of them packets of Bluetooth LE on the air.
    #[serde(default)]
    pub air_packets: u64,
    /// Bytes read, uncompressed.
    pub bytes: u64,
    /// What of the file could not be read or followed, a sentence each.
    pub remarks: Vec<String>,
    /// Who held the data.
    #[serde(flatten)]
    pub explanation: Explanation,
}

impl ExplainedFile {
    /// What one of its flows is called.
    pub(crate) const fn kind_of_flow(&self) -> &'static str {
        match (self.air_packets, self.hci_packets, self.udp_packets) {
            (1.., ..) => "link",
            (0, 1.., _) => "channel",
            (0, 0, 1..) => "flow",
            (0, 0, 0) => "connection",
        }
    }
}

/// A holder in the field's words, with the end that has to act.
pub(crate) fn holder(name: &str) -> String {
    let known = taut_event::Holder::named(name);
    known.map_or_else(|| name.to_owned(), |known| format!("{known} ({})", known.side()))
}

/// The same of a row, which may know better which end that is.
pub(crate) fn held_by(held: &taut_explain::Held) -> String {
    let side = if held.side.is_empty() { String::new() } else { format!(" ({})", held.side) };
    format!("{}{side}", holder_alone(&held.holder))
}

/// The same without the end.
pub(crate) fn holder_alone(name: &str) -> String {
    taut_event::Holder::named(name).map_or_else(|| name.to_owned(), |known| known.to_string())
}
