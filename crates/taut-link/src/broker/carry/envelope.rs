//! What stands with a message: who wrote it, in which of its runs, and its number in that.

use std::fmt;

/// A message's place in what its writer has sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    pub(super) run: Run,
    /// From 1, without a gap.
    pub(super) number: u64,
}

/// One start of a writer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Run {
    /// The same for each start of a writer with this address on this host.
    pub(super) writer: u32,
    /// Nanoseconds since 1970 when it started.
    pub(super) epoch: u64,
}

/// Bytes before a message where the protocol has no place for it: a mark, writer, epoch and number, big-endian.
pub(super) const PREFIX: usize = 24;
/// Begins with a byte that no text in UTF-8 begins with.
const MARK: [u8; 4] = [0x9E, b't', b'a', b'u'];

impl Stamp {
    /// What stands before the message.
    pub(super) fn prefix(self) -> [u8; PREFIX] {
        let mut bytes = [0; PREFIX];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..8].copy_from_slice(&self.run.writer.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.run.epoch.to_be_bytes());
        bytes[16..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Of a message that begins with it.
    pub(super) fn of_prefix(message: &[u8]) -> Option<Self> {
        let rest = message.strip_prefix(&MARK)?;
        let (writer, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (number, _) = rest.split_first_chunk()?;
        let run = Run { writer: u32::from_be_bytes(*writer), epoch: u64::from_be_bytes(*epoch) };
        Self { run, number: u64::from_be_bytes(*number) }.sound()
    }

    /// Of the text of a user property or header.
    pub(super) fn of_tag(tag: &str) -> Option<Self> {
        let mut words = tag.split(' ');
        let writer = u32::from_str_radix(words.next()?, 16).ok()?;
        let epoch = u64::from_str_radix(words.next()?, 16).ok()?;
        let number = words.next()?.parse().ok()?;
        Self { run: Run { writer, epoch }, number }.sound().filter(|_| words.next().is_none())
    }

    fn sound(self) -> Option<Self> {
        (1..=u64::MAX / 2).contains(&self.number).then_some(self)
    }
}

/// The text of a user property or header: `WRITER EPOCH NUMBER`, the first two in hexadecimal digits.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x} {:016x} {}", self.run.writer, self.run.epoch, self.number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_forms_are_read_as_they_were_written(
            writer: u32, epoch: u64, number in 1..=u64::MAX / 2, payload: Vec<u8>,
        ) {
            let stamp = Stamp { run: Run { writer, epoch }, number };
            prop_assert_eq!(Stamp::of_tag(&stamp.to_string()), Some(stamp));
            prop_assert_eq!(Stamp::of_prefix(&[&stamp.prefix()[..], &payload].concat()), Some(stamp));
        }

        #[test]
        fn anything_else_is_no_stamp(tag in "\\PC{0,40}", bytes: Vec<u8>) {
            prop_assume!(!bytes.starts_with(&MARK));
            prop_assert_eq!(Stamp::of_prefix(&bytes), None);
            if let Some(stamp) = Stamp::of_tag(&tag) {
                prop_assert_eq!(stamp.number > 0, true);
            }
        }
    }

    #[test]
    fn what_is_cut_or_has_no_number_is_none() {
        let stamp = Stamp { run: Run { writer: 1, epoch: 2 }, number: 3 };
        assert_eq!(Stamp::of_prefix(&stamp.prefix()[..23]), None);
        assert_eq!(Stamp::of_prefix(&Stamp { number: 0, ..stamp }.prefix()), None);
        for tag in ["", "1 2", "1 2 0", "1 2 3 4", "x 2 3", "1 2 99999999999999999999"] {
            assert_eq!(Stamp::of_tag(tag), None, "{tag}");
        }
    }
}
