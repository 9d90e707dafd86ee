//! In which order a sender sent its segments, whatever the order in which they passed.

use taut_event::Segment;

/// From so many segments on it is known whether the sender counts its identifications up.
const LEAST_STEPS: u16 = 4;
/// One in so many may do otherwise.
const ONE_IN: u16 = 20;
/// So many leave numbers out where packets are lost. Where more do, the sender counts all of its connections together.
const ONE_SKIP_IN: u16 = 8;
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
    /// Halved, with the next two, before there are too many.
    steps: u16,
    odd_steps: u16,
    /// Steps that left numbers out.
    skips: u16,
}

impl Order {
    /// A segment with new data passes, which was so many packets when it was sent.
    pub(super) fn passed(&mut self, segment: &Segment, packets: u64) {
        if let Some(stamps) = segment.timestamps {
            self.value = Some(stamps.value);
        }
        let Some(number) = segment.identification else { return };
        let newest = number.wrapping_add(u16::try_from(packets.saturating_sub(1)).unwrap_or(0));
        if let Some(last) = self.identification.replace(newest) {
            self.step(number.wrapping_sub(last));
        }
    }

    fn step(&mut self, by: u16) {
        if self.steps == u16::MAX {
            (self.steps, self.odd_steps, self.skips) = (self.steps / 2, self.odd_steps / 2, self.skips / 2);
        }
        self.steps += 1;
        self.odd_steps += u16::from(!(1..=LARGEST_STEP).contains(&by));
        self.skips += u16::from((2..=LARGEST_STEP).contains(&by));
    }

    /// Anything else of this sender passes: it has a number, too.
    pub(super) fn passed_besides(&mut self, segment: &Segment) {
        let number = segment.identification.filter(|_| self.counts_up());
        if let Some((number, last)) = number.zip(self.identification)
            && (1..=LARGEST_STEP).contains(&number.wrapping_sub(last))
        {
            self.identification = Some(number);
            self.step(number.wrapping_sub(last));
        }
    }

    /// How many packets its sender sent before this segment that have not passed.
    pub(super) fn lacking_before(&self, segment: &Segment) -> u16 {
        let counts_all = self.counts_up() && self.skips <= self.steps / ONE_SKIP_IN;
        let number = segment.identification.zip(self.identification).filter(|_| counts_all);
        let by = number.map_or(0, |(number, last)| number.wrapping_sub(last));
        if (2..=LARGEST_STEP).contains(&by) { by - 1 } else { 0 }
    }

    const fn counts_up(&self) -> bool {
        self.steps >= LEAST_STEPS && self.odd_steps <= self.steps / ONE_IN
    }

    /// How one came about that is late.
    pub(super) fn of(&self, segment: &Segment) -> Sending {
        let ahead =
            segment.timestamps.zip(self.value).map_or(0, |(stamps, newest)| stamps.value.wrapping_sub(newest) as i32);
        let number = segment.identification.zip(self.identification).filter(|_| self.counts_up());
        let number_ahead = number.map_or(0, |(number, newest)| number.wrapping_sub(newest) as i16);
        match if ahead == 0 { number_ahead.into() } else { ahead } {
            ..0 => Sending::First,
            // A part of the newest one, which has this number.
            0 if number.is_some() => Sending::First,
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
        (0..20).for_each(|number| order.passed(&segment(Some(u32::MAX), Some(65_530_u16.wrapping_add(number))), 1));
        assert_eq!(order.of(&segment(Some(u32::MAX - 1), None)), Sending::First);
        assert_eq!(order.of(&segment(Some(3), None)), Sending::Again);
        assert_eq!(order.of(&segment(Some(u32::MAX), None)), Sending::Unclear);
        assert_eq!(order.of(&segment(Some(u32::MAX), Some(65_534))), Sending::First);
        assert_eq!(order.of(&segment(None, Some(40))), Sending::Again);
        // Identifications by chance tell nothing.
        let mut order = Order::default();
        (0..20).for_each(|number: u16| order.passed(&segment(None, Some(number.wrapping_mul(40_503))), 1));
        assert_eq!(order.of(&segment(None, Some(1))), Sending::Unclear);
    }

    #[test]
    fn identifications_tell_that_something_has_not_passed() {
        let mut order = Order::default();
        (0..20).for_each(|number| order.passed(&segment(None, Some(65_520_u16.wrapping_add(number))), 1));
        assert_eq!(order.lacking_before(&segment(None, Some(4))), 0);
        assert_eq!(order.lacking_before(&segment(None, Some(5))), 1);
        // An acknowledgement had the number between; what is sent again and passes late does not count back.
        order.passed_besides(&segment(None, Some(4)));
        order.passed_besides(&segment(None, Some(2)));
        assert_eq!(order.lacking_before(&segment(None, Some(5))), 0);
        // Three packets, put together on the way.
        order.passed(&segment(None, Some(5)), 3);
        assert_eq!(order.lacking_before(&segment(None, Some(8))), 0);
        assert_eq!(order.lacking_before(&segment(None, Some(9))), 1);
        // A host with other connections that it counts together with this one.
        let mut order = Order::default();
        (0..20).for_each(|number| order.passed(&segment(None, Some(number * 3)), 1));
        assert_eq!(order.lacking_before(&segment(None, Some(70))), 0);
        // Those that stay the same tell nothing.
        let mut order = Order::default();
        (0..20).for_each(|_| order.passed(&segment(None, Some(0)), 1));
        assert_eq!(order.lacking_before(&segment(None, Some(2))), 0);
    }
}
