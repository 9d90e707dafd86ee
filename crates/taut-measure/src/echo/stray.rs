use std::collections::VecDeque;

use super::samples::Samples;

/// How many lost messages are remembered. A reply to one before these is neither late nor a duplicate: who knows.
const REMEMBERED: usize = 1 << 16;

/// Tells the replies that nobody waits for any more apart: one to a message that counts as lost is late, once; one to a
/// message that was answered is a duplicate. Those to messages of the warm-up count as neither.
///
/// Datagrams say which message they answer. On a stream replies come in order and each once, so there the bytes of lost
/// ones are counted off.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// Lost messages without a reply, by rising sequence number (datagrams).
    lost: VecDeque<u64>,
    /// Sequence number of the first message of which all is known.
    known_from: u64,
    /// Bytes still to come of replies to lost messages, and whether they count (streams).
    stale: VecDeque<(usize, bool)>,
    /// All bytes of it.
    stale_bytes: usize,
}

impl Strays {
    /// What was sent before `sequence` was the warm-up.
    pub(super) fn begin_counting(&mut self, sequence: u64) {
        self.lost.clear();
        self.known_from = sequence;
        self.stale.iter_mut().for_each(|(_, counts)| *counts = false);
    }

    /// A datagram counts as lost.
    pub(super) fn lost_datagram(&mut self, sequence: u64) {
        if self.lost.len() == REMEMBERED {
            self.known_from = self.lost.pop_front().map_or(self.known_from, |oldest| oldest + 1);
        }
        self.lost.push_back(sequence);
    }

    /// A datagram came that answers no message under way.
    pub(super) fn datagram(&mut self, sequence: u64, samples: &mut Samples) {
        if sequence < self.known_from {
            return;
        }
        match self.lost.binary_search(&sequence) {
            Ok(position) => {
                self.lost.remove(position);
                samples.late_replies += 1;
            }
            Err(_) => samples.duplicates += 1,
        }
    }

    /// A reply on a stream counts as lost, of which so many bytes are still to come.
    pub(super) fn lost_bytes(&mut self, bytes: usize) {
        self.stale.push_back((bytes, true));
        self.stale_bytes += bytes;
    }

    /// Bytes still to come of lost replies.
    #[inline]
    pub(super) const fn stale_bytes(&self) -> usize {
        self.stale_bytes
    }

    /// Takes the bytes of lost replies off `arrived`, and returns how many are left for those that are waited for.
    #[inline]
    pub(super) fn bytes(&mut self, arrived: usize, samples: &mut Samples) -> usize {
        if self.stale_bytes == 0 { arrived } else { self.bytes_of_lost(arrived, samples) }
    }

    fn bytes_of_lost(&mut self, mut arrived: usize, samples: &mut Samples) -> usize {
        while let Some((missing, counts)) = self.stale.front_mut() {
            let taken = arrived.min(*missing);
            *missing -= taken;
            self.stale_bytes -= taken;
            arrived -= taken;
            if *missing > 0 {
                return 0;
            }
            samples.late_replies += u64::from(*counts);
            self.stale.pop_front();
        }
        arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::tests::plan;

    fn of_datagrams(lost: &[u64], came: &[u64]) -> (u64, u64) {
        let (mut strays, mut samples) = (Strays::default(), Samples::new(&plan()));
        strays.begin_counting(10);
        lost.iter().for_each(|&sequence| strays.lost_datagram(sequence));
        came.iter().for_each(|&sequence| strays.datagram(sequence, &mut samples));
        (samples.late_replies, samples.duplicates)
    }

    #[test]
    fn a_late_reply_is_one_to_a_lost_message_and_counts_once() {
        assert_eq!(of_datagrams(&[], &[11, 12]), (0, 2));
        assert_eq!(of_datagrams(&[11, 13], &[11, 12]), (1, 1));
        assert_eq!(of_datagrams(&[11, 13], &[13, 13, 11, 13, 11]), (2, 3));
        // Of the warm-up.
        assert_eq!(of_datagrams(&[11], &[9, 3, 9]), (0, 0));
    }

    #[test]
    fn what_is_lost_for_long_takes_no_more_memory_and_is_called_nothing() {
        let (mut strays, mut samples) = (Strays::default(), Samples::new(&plan()));
        (0..REMEMBERED as u64 + 5).for_each(|sequence| strays.lost_datagram(sequence));
        assert_eq!(strays.lost.len(), REMEMBERED);
        strays.datagram(4, &mut samples);
        assert_eq!((samples.late_replies, samples.duplicates), (0, 0));
        strays.datagram(5, &mut samples);
        assert_eq!((samples.late_replies, samples.duplicates), (1, 0));
    }

    #[test]
    fn bytes_of_lost_replies_are_counted_off_in_whatever_pieces_they_come() {
        let (mut strays, mut samples) = (Strays::default(), Samples::new(&plan()));
        // One of the warm-up, and two that count, the first of them begun already.
        strays.lost_bytes(32);
        strays.begin_counting(1);
        strays.lost_bytes(7);
        strays.lost_bytes(32);
        assert_eq!(strays.stale_bytes(), 71);
        assert_eq!((strays.bytes(35, &mut samples), samples.late_replies), (0, 0));
        assert_eq!((strays.bytes(4, &mut samples), samples.late_replies), (0, 1));
        assert_eq!((strays.bytes(40, &mut samples), samples.late_replies), (8, 2));
        assert_eq!((strays.bytes(9, &mut samples), strays.stale_bytes()), (9, 0));
    }
}
