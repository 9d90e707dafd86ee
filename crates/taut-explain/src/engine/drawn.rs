//! What tests ask of a direction's picture.

use super::explanation::{Direction, Held};
use super::picture::Picture;

/// As [`assert_adds_up`], and there are no gaps between the stretches.
pub(crate) fn assert_is_the_breakdown(direction: &Direction) {
    assert_adds_up(direction);
    assert_has_no_gaps(direction.picture.as_ref().unwrap());
}

/// The stretches do not overlap, and each holder has in them what the breakdown says, to the nanosecond.
pub(crate) fn assert_adds_up(direction: &Direction) {
    let picture = direction.picture.as_ref().expect("the engine was asked for it");
    assert_is_of(picture, &direction.breakdown, direction.span_ns);
}

pub(crate) fn assert_has_no_gaps(picture: &Picture) {
    for pair in picture.spans.windows(2) {
        assert_eq!(pair[0].begin_ns + pair[0].held_ns, pair[1].begin_ns, "{picture:#?}");
    }
}

/// The same as [`assert_adds_up`], of any picture.
pub(crate) fn assert_is_of(picture: &Picture, breakdown: &[Held], span_ns: u64) {
    assert_eq!((picture.left_out, picture.left_out_ns), (0, 0), "{picture:#?}");
    for pair in picture.spans.windows(2) {
        assert!(pair[0].begin_ns + pair[0].held_ns <= pair[1].begin_ns, "{picture:#?}");
    }
    for held in breakdown {
        let of_holder = picture.spans.iter().filter(|span| span.holder.name() == held.holder);
        assert_eq!(of_holder.map(|span| span.held_ns).sum::<u64>(), held.held_ns, "{} {picture:#?}", held.holder);
    }
    let all: u64 = picture.spans.iter().map(|span| span.held_ns).sum();
    assert_eq!(all, span_ns, "{picture:#?}");
}
