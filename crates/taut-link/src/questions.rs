//! Questions over datagrams, which may be lost, doubled and overtaken: each carries a number that
//! its answer repeats, and an answer to anything else is passed over.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use taut_time::Duration;

use crate::wire::{Frame, number_of};

/// Shortest wait before a question is repeated.
const LEAST_WAIT: Duration = Duration::from_millis(250);

/// What a client has asked on one link so far.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    last: AtomicU32,
    /// The peer repeats numbers. One that never did may be of a time before there were any.
    has_numbers: AtomicBool,
    /// Longest that an answer took, in ns.
    slowest_ns: AtomicU64,
}

impl Questions {
    /// A number that no question on this link has had; never 0.
    pub(crate) fn number(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }

    /// How long to wait for an answer before the first repetition; the waits after that double. A
    /// path that was slow once is not asked twice for each answer.
    pub(crate) fn first_wait(&self) -> Duration {
        (Duration::from_nanos(self.slowest_ns.load(Ordering::Relaxed)) * 3 / 2).max(LEAST_WAIT)
    }

    /// An answer came that long after its question was first sent.
    pub(crate) fn note_answer(&self, after: Duration) {
        self.slowest_ns.fetch_max(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether anything has been answered yet.
    pub(crate) fn is_answered(&self) -> bool {
        self.slowest_ns.load(Ordering::Relaxed) > 0
    }

    /// Whether a datagram, which is that frame, answers the question of that number.
    pub(crate) fn is_answer(&self, question: &Frame, number: u32, datagram: &[u8], frame: &Frame) -> bool {
        if let Frame::Records { index, .. } = frame {
            return matches!(question, Frame::Fetch { index: asked } if asked == index);
        }
        match number_of(datagram) {
            0 => !self.has_numbers.load(Ordering::Relaxed) && may_answer(question, frame),
            repeated => {
                let is_answer = repeated == number;
                self.has_numbers.fetch_or(is_answer, Ordering::Relaxed);
                is_answer
            }
        }
    }
}

/// Whether the one can be the answer to the other by its kind, which is all that a frame without a number tells.
const fn may_answer(question: &Frame, frame: &Frame) -> bool {
    match question {
        Frame::Hello(hello) => match frame {
            Frame::Challenge { .. } => hello.token == 0,
            Frame::Accept(_) | Frame::Refuse(_) => true,
            _ => false,
        },
        Frame::Clock { .. } => matches!(frame, Frame::Clock { .. } | Frame::Refuse(_)),
        Frame::Start => matches!(frame, Frame::Ready | Frame::Refuse(_)),
        Frame::Bye => matches!(frame, Frame::Summary(_) | Frame::Refuse(_)),
        _ => matches!(frame, Frame::Refuse(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Totals, set_number};

    #[test]
    fn an_answer_to_another_question_is_none() {
        let questions = Questions::default();
        let clock = Frame::Clock { server_ns: 0 };
        let (first, second) = (questions.number(), questions.number());
        let late = Frame::Clock { server_ns: 7 };
        let mut bytes = late.emit(1);
        set_number(&mut bytes, first);
        assert!(!questions.is_answer(&clock, second, &bytes, &late));
        assert!(questions.is_answer(&clock, first, &bytes, &late));
        // Once the peer has shown that it repeats numbers, nothing without one is an answer.
        assert!(!questions.is_answer(&clock, second, &late.emit(1), &late));
        // The question itself, as an echo server has it, is one; the caller sees that it is no fit answer.
        set_number(&mut bytes, second);
        assert!(questions.is_answer(&clock, second, &bytes, &clock));
    }

    #[test]
    fn a_server_without_numbers_answers_in_kind() {
        let questions = Questions::default();
        let summary = Frame::Summary(Totals::default());
        let number = questions.number();
        let fits = |question: &Frame, answer: &Frame| questions.is_answer(question, number, &answer.emit(1), answer);
        assert!(fits(&Frame::Bye, &summary) && fits(&Frame::Start, &Frame::Ready));
        assert!(!fits(&Frame::Start, &summary) && !fits(&Frame::Bye, &Frame::Ready));
        let records = Frame::Records { index: 50, records: Vec::new() };
        assert!(fits(&Frame::Fetch { index: 50 }, &records) && !fits(&Frame::Fetch { index: 0 }, &records));
    }

    #[test]
    fn a_slow_path_is_asked_more_rarely() {
        let questions = Questions::default();
        assert_eq!(questions.first_wait(), LEAST_WAIT);
        questions.note_answer(Duration::from_secs(2));
        questions.note_answer(Duration::from_millis(1));
        assert_eq!(questions.first_wait(), Duration::from_secs(3));
    }
}
