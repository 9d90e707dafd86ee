//! The peer's clock against ours: from comparisons at both ends of a stretch of time, its offset and its rate. No I/O.
//!
//! A comparison is a question and its answer: the peer read its clock somewhere between them, so half of their distance
//! is the uncertainty. Two crystals are tens of parts per million apart, and the offset of one comparison is wrong by
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
    /// How far that may be wrong at that time, in ns: half of the time between question and answer,
    /// in which the clocks may have run apart.
    pub uncertainty_ns: u64,
    /// The boot of which the clock is ([`boot_identity`](crate::boot_identity)).
    pub boot: u64,
}

/// Why times of a peer's clock can't be brought onto ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Disagreement {
    /// No message arrives before it is sent.
    #[error(
        "a message came {early_ns} ns before it was sent, and the peer's clock is known to within {uncertainty_ns} ns: it \
         was set or changed its rate meanwhile"
    )]
    Early {
        /// By how much it came before it was sent, in ns.
        early_ns: u64,
        /// How far the times of the two ends may be off against each other, in ns.
        uncertainty_ns: u64,
    },
    /// No rate of a clock is so far from another's.
    #[error(
        "between two comparisons {length_ns} ns apart the peer's clock moved by {moved_ns} ns against ours, which is more \
         than a rate: one of the two hosts slept or was stopped, or a clock was set"
    )]
    Jump {
        /// By how much the peer's clock gained on ours, in ns.
        moved_ns: i64,
        /// Our time between the comparisons, in ns.
        length_ns: u64,
    },
    /// Another clock answered.
    #[error("the server that was asked for its clock after the work is of another boot than the one that did the work")]
    OtherBoot,
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
    /// From a question sent at `asked` and an answer that came at `answered` and says `peer_ns`, of
    /// the clock of that boot.
    pub fn new(asked: Instant, answered: Instant, peer_ns: u64, boot: u64) -> Self {
        let round_trip = answered.saturating_since(asked);
        let at = asked + round_trip / 2;
        Self {
            at,
            ahead_ns: peer_ns.wrapping_sub(at.as_nanos()) as i64,
            uncertainty_ns: ceil(round_trip.as_nanos() as f64 / 2.0 * (1.0 + UNKNOWN_RATE_PPM / 1e6)),
            boot,
        }
    }
}

impl PeerClock {
    /// With a comparison after the work.
    ///
    /// # Errors
    /// The two comparisons are not of one clock that runs all the time: what lies between them is not known.
    pub fn and_after(self, reading: Option<ClockReading>) -> Result<Self, Disagreement> {
        let Self::Compared { before, .. } = self else { return Ok(self) };
        let Some(after) = reading.filter(|after| after.at > before.at) else {
            return Ok(Self::Compared { before, after: None });
        };
        if after.boot != before.boot {
            return Err(Disagreement::OtherBoot);
        }
        let length_ns = after.at.saturating_since(before.at).as_nanos() as u64;
        let moved_ns = after.ahead_ns.saturating_sub(before.ahead_ns);
        let open_ns = before.uncertainty_ns.saturating_add(after.uncertainty_ns);
        let most = length_ns as f64 * (UNKNOWN_RATE_PPM / 1e6) + open_ns as f64;
        if moved_ns.unsigned_abs() as f64 > most {
            return Err(Disagreement::Jump { moved_ns, length_ns });
        }
        Ok(Self::Compared { before, after: Some(after) })
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

/// The time of sending a message, on our clock, of which the peer says that it came at `peer_ns`:
/// when it can have arrived.
///
/// No message arrives before it is sent. Where the clocks leave it open that it did, the arrival is put
/// into the middle of what is left of its uncertainty; where they do not, something is wrong with them.
///
/// # Errors
/// [`Disagreement::Early`]: it would have come before it was sent, by more than the uncertainty.
pub fn arrival(clock: PeerClock, peer_ns: u64, sent: Instant) -> Result<(Instant, u64), Disagreement> {
    let (at, uncertainty_ns) = clock.to_ours(peer_ns);
    let delay = at.signed_since(sent);
    if delay >= 0 {
        return Ok((at, uncertainty_ns));
    }
    let early_ns = delay.unsigned_abs();
    if early_ns > uncertainty_ns {
        return Err(Disagreement::Early { early_ns, uncertainty_ns });
    }
    Ok((sent + Duration::from_nanos((uncertainty_ns - early_ns) / 2), uncertainty_ns))
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
            ClockReading::new(ours(at), ours(at + there + back), self.read(at + there), 1)
        }
    }

    const BEGAN: u64 = 1_000_000_000_000;

    proptest! {
        /// The true time lies within the uncertainty, for two crystals, however uneven the way, and
        /// all through the work.
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
            let clock = PeerClock::Compared { before, after: None }.and_after(Some(after)).unwrap();
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
            let one = both.and_after(None).unwrap();
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
        let reading = ClockReading { at: at(1_000_000), ahead_ns: 500, uncertainty_ns: 100, boot: 1 };
        let clock = PeerClock::Compared { before: reading, after: Some(ClockReading { at: at(2_000_000), ..reading }) };
        // Later, as sent and within the uncertainty, and before it was sent by more than that.
        assert_eq!(arrival(clock, 1_000_900, at(1_000_000)).unwrap().0, at(1_000_400));
        let (within, uncertainty) = arrival(clock, 1_000_450, at(1_000_000)).unwrap();
        assert!(within > at(1_000_000) && within < at(1_000_000 + uncertainty), "{within:?} {uncertainty}");
        let early = |early_ns, uncertainty_ns| Err(Disagreement::Early { early_ns, uncertainty_ns });
        assert_eq!(arrival(clock, 1_000_200, at(1_000_000)), early(300, 102));
        assert_eq!(arrival(PeerClock::Same, 999_999, at(1_000_000)), early(1, 0));
    }

    /// A host that slept for 150 ms of a second would otherwise pass for one whose clock is 15 % slow.
    #[test]
    fn a_jump_is_no_rate_and_another_boot_no_later_time() {
        let peer = Simulated { offset_ns: 7_000_000_000, ppm: 499.0, waver_ppm: 0.0, length_s: 1.0 };
        let (before, after) = (peer.compare(0, 7_000, 7_000), peer.compare(1_000_000_000, 7_000, 7_000));
        let clock = PeerClock::Compared { before, after: None };
        assert!(clock.and_after(Some(after)).is_ok());
        for jump in [-150_000_000, -1_100_000, 600_000, 150_000_000, i64::MAX] {
            let jumped = ClockReading { ahead_ns: after.ahead_ns.saturating_add(jump), ..after };
            let Err(Disagreement::Jump { moved_ns, .. }) = clock.and_after(Some(jumped)) else { panic!("{jump}") };
            assert_eq!(moved_ns, jumped.ahead_ns - before.ahead_ns);
        }
        let other = ClockReading { boot: 2, ..after };
        assert_eq!(clock.and_after(Some(other)), Err(Disagreement::OtherBoot));
        assert_eq!(PeerClock::Same.and_after(Some(other)), Ok(PeerClock::Same));
    }
}
