//! What a writer and its readers tell each other beside the messages, as JSON.

use serde::{Deserialize, Serialize};

use super::envelope::Run;

/// How far a writer is; published below its topic at `sent`, with the messages' quality of service, so that it comes
/// behind those that it tells of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Tally {
    pub(super) writer: u32,
    pub(super) epoch: u64,
    /// Number of the last message.
    pub(super) number: u64,
    /// Up to this number the broker has acknowledged all; 0 where it acknowledges none.
    pub(super) confirmed: u64,
    /// Messages that were dropped before they had a number.
    pub(super) dropped: u64,
    /// Whether there will be no more.
    pub(super) over: bool,
}

/// What a reader has read; published below the writer's topic at `receipt`. One without a run says only that there is a
/// reader.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Receipt {
    /// Its session's name, or one that it made up.
    pub(super) reader: String,
    /// When this start of it was, in nanoseconds since 1970.
    pub(super) instance: u64,
    #[serde(flatten)]
    pub(super) of: Option<ReceiptOf>,
    /// Whether the reader leaves.
    pub(super) over: bool,
}

/// What was read of one run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct ReceiptOf {
    pub(super) writer: u32,
    pub(super) epoch: u64,
    /// The highest number that it knows of.
    pub(super) up_to: u64,
    pub(super) read: u64,
    pub(super) twice: u64,
    pub(super) out_of_order: u64,
    /// Those from the first that it read up to `up_to` that did not come.
    pub(super) missing: u64,
    /// Those of them that the broker had acknowledged, and after which others came.
    pub(super) passed_over: u64,
}

/// Longest text that is looked at, in bytes: nobody's receipt is longer.
const LONGEST: usize = 2048;

impl Tally {
    pub(super) const fn run(&self) -> Run {
        Run { writer: self.writer, epoch: self.epoch }
    }
}

impl ReceiptOf {
    /// Whether it can be of a writer whose last number this is.
    pub(super) const fn is_of_numbers_up_to(&self, last: u64) -> bool {
        self.up_to <= last && self.read <= last && self.missing <= last && self.passed_over <= last
    }

    pub(super) const fn run(&self) -> Run {
        Run { writer: self.writer, epoch: self.epoch }
    }
}

/// Reads either; `None` for what is none.
pub(super) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    if bytes.len() > LONGEST { None } else { serde_json::from_slice(bytes).ok() }
}

/// Their text.
pub(super) fn text(told: &impl Serialize) -> Vec<u8> {
    // Numbers and a name can always be written.
    serde_json::to_vec(told).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn they_are_read_as_they_were_written() {
        let of = ReceiptOf { writer: 7, epoch: u64::MAX, up_to: 9, read: 8, missing: 1, ..ReceiptOf::default() };
        for of in [None, Some(of)] {
            let receipt = Receipt { reader: "r1".to_owned(), instance: 3, of, over: false };
            assert_eq!(parse(&text(&receipt)), Some(receipt));
        }
        let tally = Tally { writer: 1, epoch: 2, number: 3, confirmed: 3, dropped: 4, over: true };
        assert_eq!(parse(&text(&tally)), Some(tally));
        assert_eq!(parse::<Tally>(b"{}"), None);
        assert_eq!(parse::<Receipt>(&[b' '; 4000]), None);
    }

    proptest! {
        #[test]
        fn anything_is_read_or_is_none(bytes: Vec<u8>) {
            let _ = (parse::<Tally>(&bytes), parse::<Receipt>(&bytes));
        }
    }
}
