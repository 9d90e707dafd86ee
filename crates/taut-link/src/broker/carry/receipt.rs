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
    /// The lowest and the highest number that it has read; 0 in receipts of before these were told.
    #[serde(default)]
    pub(super) first: u64,
    #[serde(default)]
    pub(super) highest: u64,
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
        let sums = self.read <= last && self.missing <= last && self.passed_over <= last;
        sums && self.up_to <= last && self.highest <= last && self.first <= last.saturating_add(1)
    }

    pub(super) const fn run(&self) -> Run {
        Run { writer: self.writer, epoch: self.epoch }
    }

    /// How many messages this start of a reader has read that earlier ones, of which `earlier` is the sum, had read as
    /// well: a broker that was killed may have forgotten which of them were acknowledged. All numbers between count, so
    /// one that came to one of the two alone is told as missing rather than as read twice.
    fn again(&self, earlier: &Self) -> u64 {
        if self.read == 0 || earlier.read == 0 || self.first == 0 || earlier.first == 0 {
            return 0;
        }
        let (from, to) = (self.first.max(earlier.first), self.highest.min(earlier.highest));
        to.saturating_add(1).saturating_sub(from).min(self.read)
    }

    /// The sum with a later start, in which each message is read once; what came again came twice.
    pub(super) fn add(&mut self, later: &Self) {
        let again = later.again(self);
        if later.read > 0 {
            let is_only = self.read == 0;
            self.first = if is_only { later.first } else { self.first.min(later.first) };
            self.highest = if is_only { later.highest } else { self.highest.max(later.highest) };
        }
        for (sum, more) in [
            (&mut self.read, later.read - again),
            (&mut self.twice, later.twice.saturating_add(again)),
            (&mut self.out_of_order, later.out_of_order),
            (&mut self.missing, later.missing),
            (&mut self.passed_over, later.passed_over),
        ] {
            // Anybody can forge receipts, so no sum of them may be too large.
            *sum = sum.saturating_add(more);
        }
        self.up_to = self.up_to.max(later.up_to);
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

    #[test]
    fn what_two_starts_have_read_counts_once() {
        let start = |first, highest, read| ReceiptOf { first, highest, read, up_to: highest, ..ReceiptOf::default() };
        for (one, two, sums) in [
            // The broker has forgotten seven acknowledgements.
            (start(1, 92, 92), start(86, 417, 331), (416, 7)),
            (start(1, 92, 92), start(93, 417, 325), (417, 0)),
            // One that has read nothing, and one of before the numbers were told.
            (start(51, 50, 0), start(30, 60, 31), (31, 0)),
            (start(1, 50, 50), start(0, 0, 20), (70, 0)),
            // A start that was late, and one that gets what was before it.
            (start(51, 60, 10), start(30, 55, 26), (31, 5)),
        ] {
            let mut sum = ReceiptOf::default();
            sum.add(&one);
            sum.add(&two);
            assert_eq!((sum.read, sum.twice), sums, "{one:?} {two:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_or_is_none(bytes: Vec<u8>) {
            let _ = (parse::<Tally>(&bytes), parse::<Receipt>(&bytes));
        }
    }
}
