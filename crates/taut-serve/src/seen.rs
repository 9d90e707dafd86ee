//! Which datagrams of a session have come already.

/// The newest so many sequence numbers are remembered, in words of 64.
const WORDS: u64 = 2048;

/// A window over the sequence numbers that came, as that of RFC 4303, section 3.4.3: what is older
/// than the window can't be told from a repeat, and counts as one.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// One bit for each number, in a ring; empty before the first.
    words: Vec<u64>,
    /// Word of the newest number, counted from the first number of all.
    newest: u64,
}

impl Seen {
    /// Notes a number, and tells whether it came for the first time.
    #[inline]
    pub(super) fn is_new(&mut self, sequence: u64) -> bool {
        let (word, bit) = (sequence / 64, 1 << (sequence % 64));
        if self.words.is_empty() {
            self.words = vec![0; WORDS as usize];
            self.newest = word;
        }
        if word > self.newest {
            for passed in 1..=(word - self.newest).min(WORDS) {
                self.words[((self.newest + passed) % WORDS) as usize] = 0;
            }
            self.newest = word;
        }
        if self.newest - word >= WORDS {
            return false;
        }
        let words = &mut self.words[(word % WORDS) as usize];
        let is_new = *words & bit == 0;
        *words |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once_in_any_order() {
        let mut seen = Seen::default();
        for sequence in [5, 4, 70, 0, 100_000, 6] {
            assert!(seen.is_new(sequence), "{sequence}");
            assert!(!seen.is_new(sequence), "{sequence}");
        }
        // A round of the ring later its places are free again, and what is older than that is not.
        assert!(seen.is_new(70 + WORDS * 64));
        assert!(!seen.is_new(71));
        assert!(seen.is_new(u64::MAX) && !seen.is_new(u64::MAX) && seen.is_new(u64::MAX - 1));
        assert!(!seen.is_new(7));
    }
}
