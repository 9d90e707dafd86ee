//! What became of the messages that a carrier took or brought, as far as it knows.

use serde::{Deserialize, Serialize};

/// One connection's account: `sent = read + dropped here + missing`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BrokerAccount {
    /// What the broker says that it is, where it says so as it lets clients in.
    pub broker: Option<String>,
    /// How often the connection was made again.
    pub reconnections: u64,
    /// How often the broker closed it and was still there: who does not read as fast as messages come is cut off so.
    pub cut_off: u64,
    /// What was written.
    pub written: Option<WrittenAccount>,
    /// What was read.
    pub heard: Option<HeardAccount>,
}

/// The writer's account, in messages.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct WrittenAccount {
    /// Topic or subject.
    pub topic: String,
    /// Whether the messages have their numbers with them, so that readers can tell what is missing.
    #[serde(rename = "envelope")]
    pub has_envelope: bool,
    /// Taken from the other end.
    pub sent: u64,
    /// Acknowledged by the broker; `None` where it acknowledges nothing.
    pub confirmed_by_broker: Option<u64>,
    /// Given to the broker once more, as the connection broke before it acknowledged them.
    pub again: u64,
    /// Dropped by us: more than the buffer holds came while the broker was away, it was away or did not read at the
    /// end, or it takes no message of that length.
    pub dropped_here: u64,
    /// Those who told that they read; empty: nobody was ever heard of.
    pub readers: Vec<ReaderAccount>,
    /// Whether there were more, of which nothing is kept.
    pub has_more_readers: bool,
}

/// What one reader told its writer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReaderAccount {
    /// Its session's name, or one that it made up.
    #[serde(rename = "reader")]
    pub name: String,
    /// Confirmed by it as read, each message once.
    #[serde(rename = "confirmed_by_reader")]
    pub read: u64,
    /// Came to it once more.
    pub twice: u64,
    /// Came after one with a higher number.
    pub out_of_order: u64,
    /// Neither confirmed as read nor dropped here.
    pub missing: u64,
    /// Those of the missing that it has said nothing about: its last receipt is of before they came to it.
    pub unanswered: u64,
    /// Those of the missing that the broker had acknowledged, while later ones were read.
    pub passed_over: u64,
}

/// The reader's account, in messages, over all writers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeardAccount {
    /// Topic or subject.
    pub topic: String,
    /// Starts of writers that were heard of.
    pub writers: u64,
    /// Given on, each once.
    pub read: u64,
    /// Those of them without a number: nothing can be told of what is missing between them.
    pub without_number: u64,
    /// Came once more, and were not given on again.
    pub twice: u64,
    /// Came after one with a higher number.
    pub out_of_order: u64,
    /// Did not come, from the first one that was read up to the last one that is known of.
    pub missing: u64,
    /// Those of the missing that the broker had acknowledged, while later ones were read.
    pub passed_over: u64,
    /// Those of the missing behind which the server had cut us off.
    pub cut_off: u64,
    /// Sent before the first one that was read: before this reader was there.
    pub before: u64,
    /// Dropped by their writers, as these told.
    pub dropped_there: u64,
    /// Longer than a pipe carries, and not given on.
    pub too_long: u64,
}

impl BrokerAccount {
    /// Messages that are missing, as far as this end knows.
    pub fn missing(&self) -> u64 {
        let written = self.written.iter().flat_map(|written| &written.readers).map(|reader| reader.missing).max();
        let heard = self.heard.as_ref().map(|heard| heard.missing.saturating_add(heard.too_long));
        written.unwrap_or(0).saturating_add(heard.unwrap_or(0))
    }

    /// Whether messages are missing, were dropped here, or are neither acknowledged by the broker nor confirmed by a
    /// reader.
    pub fn has_losses(&self) -> bool {
        self.written.as_ref().is_some_and(WrittenAccount::has_losses) || self.missing() > 0
    }
}

impl WrittenAccount {
    /// Whether of what was written messages are missing, were dropped here, or are neither acknowledged by the broker
    /// nor confirmed by a reader.
    pub fn has_losses(&self) -> bool {
        let due = self.sent.saturating_sub(self.dropped_here);
        let is_confirmed = self.readers.iter().any(|reader| reader.read >= due);
        let is_open = !is_confirmed && self.confirmed_by_broker.is_some_and(|confirmed| confirmed < due);
        self.dropped_here > 0 || is_open || self.readers.iter().any(|reader| reader.missing > 0)
    }
}
