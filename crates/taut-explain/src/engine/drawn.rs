//! What tests ask of a direction's picture.

use super::explanation::Direction;

/// As [`assert_adds_up`], and there are no gaps between the stretches.
pub(crate) fn assert_is_the_breakdown(direction: &Direction) {
    assert_adds_up(direction);
    let spans = &direction.picture.as_ref().expect("the engine was asked for it").spans;
    for pair in spans.windows(2) {
        assert_eq!(pair[0].begin_ns + pair[0].held_ns, pair[1].begin_ns, "{direction:#?}");
    }
}

/// The stretches do not overlap, and each holder has in them what the breakdown says, to the nanosecond.
pub(crate) fn assert_adds_up(direction: &Direction) {
    let picture = direction.picture.as_ref().expect("the engine was asked for it");
    assert_eq!((picture.left_out, picture.left_out_ns), (0, 0), "{direction:#?}");
    for pair in picture.spans.windows(2) {
        assert!(pair[0].begin_ns + pair[0].held_ns <= pair[1].begin_ns, "{direction:#?}");
    }
    for held in &direction.breakdown {
        let of_holder = picture.spans.iter().filter(|span| span.holder.name() == held.holder);
        assert_eq!(of_holder.map(|span| span.held_ns).sum::<u64>(), held.held_ns, "{} {direction:#?}", held.holder);
    }
    let all: u64 = picture.spans.iter().map(|span| span.held_ns).sum();
    assert_eq!(all, direction.span_ns, "{direction:#?}");
}
