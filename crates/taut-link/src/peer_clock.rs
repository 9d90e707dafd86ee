//! The peer's clock against ours: from comparisons at both ends of a stretch of time, its offset and its rate. No I/O.
//!
//! A comparison is a question and its answer: the peer read its clock somewhere between them, so half of their distance is
//! the uncertainty. Two crystals are tens of parts per million apart, and the offset of one comparison is wrong by
//! microseconds a second later; of two it is known at both ends, and in between to within what a rate may change.

use taut_time::{Duration, Instant};

/// By how much a disciplined clock may leave the line between two comparisons, in ns per s from the nearer one: the
/// frequency tolerance PHI of RFC 5905, section 7.1.
const WANDER_PPM: f64 = 15.0;
/// By how much a clock may run at another rate than ours when it was compared only once, in ns per s: the most that the
/// kernel lets it be set off by (`MAXFREQ`, adjtimex(2)).
const UNKNOWN_RATE_PPM: f64 = 500.0;

/// One comparison of two clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClockReading {
    /// When, on our clock: the middle between question and answer.
    pub at: Instant,
    /// The peer's clock less ours, in ns.
    pub ahead_ns: i64,
    /// How far that may be wrong at that time, in ns: half of the time between question and answer, in which the clocks may
    /// have run apart.
    pub uncertainty_ns: u64,
}

/// The peer's `CLOCK_MONOTONIC` against ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerClock {
    /// Both ends read one clock.
    Same,
    /// Two clocks.
    Compared {
        /// Before the work.
        before: ClockReading,
        /// After it, where the peer could be asked again.
        after: Option<ClockReading>,
    },
}

impl ClockReading {
    /// From a question sent at `asked` and an answer that came at `answered` and says `peer_ns`.
    pub fn new(asked: Instant, answered: Instant, peer_ns: u64) -> Self {
        let round_trip = answered.saturating_since(asked);
        let at = asked + round_trip / 2;
        Self {
            at,
            ahead_ns: peer_ns.wrapping_sub(at.as_nanos()) as i64,
            uncertainty_ns: ceil(round_trip.as_nanos() as f64 / 2.0 * (1.0 + UNKNOWN_RATE_PPM / 1e6)),
        }
    }
}

impl PeerClock {
    /// With a comparison after the work.
    #[must_use]
    pub fn and_after(self, reading: Option<ClockReading>) -> Self {
        match self {
            Self::Same => Self::Same,
            Self::Compared { before, .. } => {
                Self::Compared { before, after: reading.filter(|after| after.at > before.at) }
            }
        }
    }

    /// A time of the peer's clock on ours, and how far that may be wrong, in ns.
    pub fn to_ours(self, peer_ns: u64) -> (Instant, u64) {
        let Self::Compared { before, after } = self else { return (Instant::from_nanos(peer_ns), 0) };
        let on_ours = |ahead_ns: i64| Instant::from_nanos(peer_ns).offset_by(ahead_ns.saturating_neg());
        // Since the first comparison, on the peer's clock.
        let since = on_ours(before.ahead_ns).signed_since(before.at) as f64;
        let Some(after) = after else {
            let grown = since.abs() * (UNKNOWN_RATE_PPM / 1e6);
            return (on_ours(before.ahead_ns), ceil(before.uncertainty_ns as f64 + grown));
        };
        let length = after.at.signed_since(before.at) as f64;
        let rate = after.ahead_ns.saturating_sub(before.ahead_ns) as f64 / length;
        // On ours: one that runs fast by `rate` shows more than has passed.
        let since = since / (1.0 + rate);
        let share = since / length;
        let gained = rate * since;
        let ends = [before.uncertainty_ns as f64, after.uncertainty_ns as f64];
        // Beyond the comparisons what they leave open grows with the distance.
        let open = ends[0] * (1.0 - share).abs() + ends[1] * share.abs();
        let wander = since.abs().min((length - since).abs()) * (WANDER_PPM / 1e6);
        (on_ours(before.ahead_ns.saturating_add(gained.round() as i64)), ceil(open + wander))
    }
}

/// Of the comparisons of one end, the one that leaves the least open.
pub(crate) fn best(readings: impl IntoIterator<Item = ClockReading>) -> Option<ClockReading> {
    readings.into_iter().min_by_key(|reading| reading.uncertainty_ns)
}

fn ceil(ns: f64) -> u64 {
    // Saturates, and 1 ns more is for what was rounded.
    ns.ceil() as u64 + 1
}

/// The time of sending a message, on our clock, of which the peer says that it came at `peer_ns`: when it can have arrived.
///
/// No message arrives before it is sent. Where the clocks leave it open that it did, the arrival is put into the middle of
/// what is left of its uncertainty; where they do not, something is wrong with them.
///
/// # Errors
/// By how many ns it would have come before it was sent, and the uncertainty that this is beyond.
pub fn arrival(clock: PeerClock, peer_ns: u64, sent: Instant) -> Result<(Instant, u64), (u64, u64)> {
    let (at, uncertainty_ns) = clock.to_ours(peer_ns);
    let delay = at.signed_since(sent);
    if delay >= 0 {
        return Ok((at, uncertainty_ns));
    }
    let early = delay.unsigned_abs();
    if early > uncertainty_ns {
        return Err((early, uncertainty_ns));
    }
    Ok((sent + Duration::from_nanos((uncertainty_ns - early) / 2), uncertainty_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A peer's clock: an offset, and a rate that wavers around its mean.
    #[derive(Clone, Copy, Debug)]
    struct Simulated {
        offset_ns: i64,
        ppm: f64,
        waver_ppm: f64,
        length_s: f64,
    }

    impl Simulated {
        /// What it reads at a true time since the beginning, which our clock shows from `BEGAN` on.
        fn read(self, ns: u64) -> u64 {
            let t = ns as f64;
            // The rate goes up by the wavering in the first half and down in the second.
            let half = self.length_s * 1e9 / 2.0;
            let waver = if t < half { t } else { 2.0 * half - t } * self.waver_ppm / 1e6;
            BEGAN.wrapping_add(ns).wrapping_add_signed(self.offset_ns + (t * self.ppm / 1e6 + waver) as i64)
        }

        /// A comparison at a true time, over a way there and a way back.
        fn compare(self, at: u64, there: u64, back: u64) -> ClockReading {
            let ours = |ns: u64| Instant::from_nanos(BEGAN + ns);
            ClockReading::new(ours(at), ours(at + there + back), self.read(at + there))
        }
    }

    const BEGAN: u64 = 1_000_000_000_000;

    proptest! {
        /// The true time lies within the uncertainty, for two crystals, however uneven the way, and all through the work.
        #[test]
        fn the_true_time_lies_within_the_uncertainty(
            offset_ns in -900_000_000_000_i64..1_000_000_000_000,
            ppm in -500.0..500.0,
            waver_ppm in -14.0..14.0,
            length_s in 1.0..600.0,
            ways in [1_000_u64..50_000_000, 1_000_u64..50_000_000, 1_000_u64..50_000_000, 1_000_u64..50_000_000],
            share in 0.0..1.0,
        ) {
            let peer = Simulated { offset_ns, ppm, waver_ppm, length_s };
            let length = (length_s * 1e9) as u64;
            let before = peer.compare(0, ways[0], ways[1]);
            let after = peer.compare(ways[0] + ways[1] + length, ways[2], ways[3]);
            let clock = PeerClock::Compared { before, after: None }.and_after(Some(after));
            let truth = ways[0] + ways[1] + (share * length as f64) as u64;
            let (at, uncertainty) = clock.to_ours(peer.read(truth));
            let wrong = at.signed_since(Instant::from_nanos(BEGAN + truth)).unsigned_abs();
            prop_assert!(wrong <= uncertainty, "wrong by {wrong} ns, said {uncertainty} ns");
        }
    }

    /// 30 s at 50 ppm: one comparison alone is 1.5 ms wrong at the end, and used to claim a few microseconds.
    #[test]
    fn two_comparisons_find_the_rate_and_one_says_what_it_can_not_know() {
        for ppm in [-50.0, 0.0, 50.0] {
            let peer = Simulated { offset_ns: 7_000_000_000, ppm, waver_ppm: 0.0, length_s: 30.0 };
            let (before, after) = (peer.compare(0, 7_000, 7_000), peer.compare(30_000_000_000, 7_000, 7_000));
            let both = PeerClock::Compared { before, after: Some(after) };
            let one = both.and_after(None);
            for second in 0..=30 {
                let truth = second * 1_000_000_000;
                let wrong = |clock: PeerClock| {
                    let (at, uncertainty) = clock.to_ours(peer.read(truth));
                    (at.signed_since(Instant::from_nanos(BEGAN + truth)).unsigned_abs(), uncertainty)
                };
                let ((of_both, said_of_both), (of_one, said_of_one)) = (wrong(both), wrong(one));
                assert!(
                    of_both < 10 && said_of_both < 240_000,
                    "{ppm} ppm, {second} s: {of_both} of {said_of_both} ns"
                );
                assert!(of_one <= said_of_one && (second < 30 || ppm == 0.0 || of_one > 1_400_000), "{of_one}");
            }
        }
    }

    #[test]
    fn a_message_never_arrives_before_it_is_sent() {
        let at = |ns| Instant::from_nanos(ns);
        let reading = ClockReading { at: at(1_000_000), ahead_ns: 500, uncertainty_ns: 100 };
        let clock = PeerClock::Compared { before: reading, after: Some(ClockReading { at: at(2_000_000), ..reading }) };
        // Later, as sent and within the uncertainty, and before it was sent by more than that.
        assert_eq!(arrival(clock, 1_000_900, at(1_000_000)).unwrap().0, at(1_000_400));
        let (within, uncertainty) = arrival(clock, 1_000_450, at(1_000_000)).unwrap();
        assert!(within > at(1_000_000) && within < at(1_000_000 + uncertainty), "{within:?} {uncertainty}");
        assert_eq!(arrival(clock, 1_000_200, at(1_000_000)).unwrap_err().0, 300);
        assert_eq!(arrival(PeerClock::Same, 999_999, at(1_000_000)), Err((1, 0)));
    }
}
