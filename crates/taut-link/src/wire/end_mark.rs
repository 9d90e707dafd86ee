use super::{CONTROL_BYTES, Frame};

/// Finds the client's bye at the end of a stream whose end the transport can't tell (docs/protocol.md).
///
/// Only the last bytes of all that has come are looked at, and the bye has the session's number in it; so data is taken
/// for it only if a client imitates it.
#[derive(Clone, Debug)]
pub struct EndMark {
    mark: Vec<u8>,
    /// The last bytes that came, at most as many as the mark has.
    tail: Vec<u8>,
}

impl EndMark {
    /// The mark of a session.
    pub fn of(session: u64) -> Self {
        Self { mark: Frame::Bye.emit(session), tail: Vec::with_capacity(2 * CONTROL_BYTES) }
    }

    /// Takes what came; gives how much of the mark is in it when the stream ends with it, and `None` when it doesn't.
    pub fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let kept = bytes.len().min(self.mark.len());
        self.tail.extend_from_slice(&bytes[bytes.len() - kept..]);
        self.tail.drain(..self.tail.len().saturating_sub(self.mark.len()));
        (self.tail == self.mark).then_some(kept)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_mark_of_another_session_is_data() {
        let mut end = EndMark::of(7);
        assert_eq!(end.take(&Frame::Bye.emit(8)), None);
        assert_eq!(end.take(&Frame::Bye.emit(7)), Some(CONTROL_BYTES));
    }

    proptest! {
        #[test]
        fn the_mark_is_found_however_it_is_cut(
            data in proptest::collection::vec(any::<u8>(), 0..200),
            cuts in proptest::collection::vec(1..80_usize, 0..20),
        ) {
            let stream = [data.as_slice(), &Frame::Bye.emit(1)].concat();
            let mut end = EndMark::of(1);
            let (mut at, mut cuts) = (0, cuts.into_iter());
            loop {
                let next = cuts.next().map_or(stream.len(), |length| (at + length).min(stream.len()));
                let taken = end.take(&stream[at..next]);
                prop_assert_eq!(taken.is_some(), next == stream.len());
                if let Some(of_mark) = taken {
                    prop_assert_eq!(of_mark, (next - at).min(CONTROL_BYTES));
                    break;
                }
                at = next;
            }
        }
    }
}
