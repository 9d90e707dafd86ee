//! In which order a sender sent its segments, whatever the order in which they passed.

use taut_event::Segment;

/// From so many segments on it is known whether the sender counts its identifications up.
const LEAST_STEPS: u32 = 4;
/// One in so many may do otherwise.
const ONE_IN: u32 = 20;
/// A segment made of several takes so many identifications at most.
const LARGEST_STEP: u16 = 1000;

/// What a segment that comes late is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sending {
    /// It left before segments that have passed: it was overtaken.
    First,
    /// It left after all that have passed, so its bytes were sent again.
    Again,
    /// Neither timestamps nor identifications tell.
    Unclear,
}

/// The newest marks of a sender.
#[derive(Debug, Default)]
pub(super) struct Order {
    value: Option<u32>,
    identification: Option<u16>,
    steps: u32,
    odd_steps: u32,
}

impl Order {
    /// A segment with new data passes.
    pub(super) fn passed(&mut self, segment: &Segment) {
        if let Some(stamps) = segment.timestamps {
            self.value = Some(stamps.value);
        }
        let Some(number) = segment.identification else { return };
        if let Some(last) = self.identification.replace(number) {
            self.steps = self.steps.saturating_add(1);
            let is_odd = !(1..=LARGEST_STEP).contains(&number.wrapping_sub(last));
            self.odd_steps += u32::from(is_odd);
        }
    }

    /// How one came about that is late.
    pub(super) fn of(&self, segment: &Segment) -> Sending {
        let ahead =
            segment.timestamps.zip(self.value).map_or(0, |(stamps, newest)| stamps.value.wrapping_sub(newest) as i32);
        let counts_up = self.steps >= LEAST_STEPS && self.odd_steps * ONE_IN <= self.steps;
        let number = segment.identification.zip(self.identification).filter(|_| counts_up);
        let number_ahead = number.map_or(0, |(number, newest)| number.wrapping_sub(newest) as i16);
        match if ahead == 0 { number_ahead.into() } else { ahead } {
            ..0 => Sending::First,
            0 => Sending::Unclear,
            1.. => Sending::Again,
        }
    }
}

#[cfg(test)]
mod tests {
    use taut_event::TimestampOption;

    use super::*;

    fn segment(value: Option<u32>, identification: Option<u16>) -> Segment {
        let timestamps = value.map(|value| TimestampOption { value, echo: 0 });
        Segment { timestamps, identification, ..Segment::default() }
    }

    #[test]
    fn timestamps_and_identifications_tell_a_first_sending_from_a_second() {
        let mut order = Order::default();
        (0..20).for_each(|number| order.passed(&segment(Some(u32::MAX), Some(65_530_u16.wrapping_add(number)))));
        assert_eq!(order.of(&segment(Some(u32::MAX - 1), None)), Sending::First);
        assert_eq!(order.of(&segment(Some(3), None)), Sending::Again);
        assert_eq!(order.of(&segment(Some(u32::MAX), None)), Sending::Unclear);
        assert_eq!(order.of(&segment(Some(u32::MAX), Some(65_534))), Sending::First);
        assert_eq!(order.of(&segment(None, Some(40))), Sending::Again);
        // Identifications by chance tell nothing.
        let mut order = Order::default();
        (0..20).for_each(|number: u16| order.passed(&segment(None, Some(number.wrapping_mul(40_503)))));
        assert_eq!(order.of(&segment(None, Some(1))), Sending::Unclear);
    }
}
