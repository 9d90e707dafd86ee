//! Media packets against their own timestamps (RFC 3550, section 5.1; A2DP, section 4).

/// Media that is so late, or that waits so long, may not be heard: sinks keep 100 to 200 ms.
pub(super) const LATE_NS: u64 = 100_000_000;
/// A timestamp that is further from the one before begins anew: the stream was suspended or cut.
const JUMP_NS: i64 = 2_000_000_000;
/// The clocks of audio and host drift apart: what is on time is found anew in this time.
const WINDOW_NS: u64 = 10_000_000_000;

/// A packet and how late it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest {
    pub(super) late_ns: u64,
    pub(super) place: u64,
}

/// A stream, in bounded memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    hz: u32,
    last: Option<Last>,
    packets: u64,
    /// Of them those that went while the rate was not known.
    unrated: u64,
    late: u64,
    /// By how much each spell of late packets was late at most, those before the last one together.
    late_ns: u64,
    times_late: u64,
    /// The same of the last one, and whether it goes on.
    spell_ns: u64,
    is_late: bool,
    latest: Latest,
    missing: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    began: u64,
    at: u64,
    sequence: u16,
    timestamp: u32,
    /// How far the media has come.
    media_ns: i64,
    /// Of the window before and of this one: the least that a packet came behind its timestamp. The others of a burst
    /// come ahead of it.
    least: [i64; 2],
    window: u64,
}

impl Media {
    /// The stream starts, ends, or is configured. So many samples a second; 0: not known.
    pub(super) const fn starts(&mut self, hz: u32) {
        self.hz = hz;
        self.last = None;
    }

    /// Packets of the log were lost, perhaps those that tell that it was suspended and started again.
    pub(super) const fn lost(&mut self) {
        self.last = None;
    }

    pub(super) fn packet(&mut self, (at, place): (u64, u64), sequence: u16, timestamp: u32) {
        self.packets += 1;
        if self.hz == 0 {
            self.unrated += 1;
            return;
        }
        let new = Last { began: at, at, sequence, timestamp, media_ns: 0, least: [0; 2], window: at };
        let Some(mut last) = self.last.replace(new) else { return };
        let steps = i64::from(timestamp.wrapping_sub(last.timestamp).cast_signed());
        let step_ns = steps * 1_000_000_000 / i64::from(self.hz);
        let skipped = sequence.wrapping_sub(last.sequence).wrapping_sub(1);
        if !(0..JUMP_NS).contains(&step_ns) || skipped > 1000 {
            return;
        }
        self.missing += u64::from(skipped);
        (last.sequence, last.timestamp) = (sequence, timestamp);
        last.media_ns = last.media_ns.saturating_add(step_ns);
        let behind = i64::try_from(at.saturating_sub(last.began)).unwrap_or(i64::MAX).saturating_sub(last.media_ns);
        let begins_burst = 2 * at.saturating_sub(last.at) >= step_ns.unsigned_abs();
        last.at = at;
        if begins_burst && at.saturating_sub(last.window) > WINDOW_NS {
            (last.window, last.least) = (at, [last.least[1], behind]);
        }
        if begins_burst {
            last.least[1] = last.least[1].min(behind);
        }
        let late_ns = behind.saturating_sub(last.least[0].min(last.least[1])).max(0).unsigned_abs();
        let is_late = late_ns >= LATE_NS;
        self.late += u64::from(is_late);
        if is_late && !self.is_late {
            self.late_ns = self.late_ns.saturating_add(std::mem::take(&mut self.spell_ns));
            self.times_late += 1;
        }
        if is_late {
            self.spell_ns = self.spell_ns.max(late_ns);
        }
        self.is_late = is_late;
        if late_ns > self.latest.late_ns {
            self.latest = Latest { late_ns, place };
        }
        self.last = Some(last);
    }

    /// Whether the rate was known for all of it.
    pub(super) const fn knows_rate(&self) -> bool {
        self.unrated == 0 && (self.hz > 0 || self.packets > 0)
    }

    pub(super) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets that came so late that a sink may run out.
    pub(super) const fn late(&self) -> u64 {
        self.late
    }

    /// Time that was missing, in all.
    pub(super) const fn late_ns(&self) -> u64 {
        self.late_ns.saturating_add(self.spell_ns)
    }

    /// How often packets began to come late.
    pub(super) const fn times_late(&self) -> u64 {
        self.times_late
    }

    pub(super) const fn latest(&self) -> Latest {
        self.latest
    }

    /// Numbers that are missing between those seen.
    pub(super) const fn missing(&self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A packet each 20 ms for a minute, on a host's clock that is 100 ppm fast, and one that comes late by so much.
    fn stream(late: u64) -> Media {
        let mut media = Media::default();
        media.starts(48_000);
        for n in 0..3000_u64 {
            let at = n * 20 * MS + n * 2_000 + if n == 1500 { late } else { 0 };
            media.packet((at, n), (n as u16).wrapping_add(65_000), (n as u32 * 960).wrapping_add(u32::MAX - 5_000));
        }
        media
    }

    #[test]
    fn what_comes_late_is_told_and_drift_is_not() {
        let media = stream(150 * MS);
        assert_eq!((media.packets(), media.late(), media.latest().place, media.missing()), (3000, 1, 1500, 0));
        assert!(media.latest().late_ns.abs_diff(150 * MS) < 5 * MS, "{:?}", media.latest());
        assert_eq!((media.late_ns(), media.times_late()), (media.latest().late_ns, 1));
        let media = stream(0);
        assert!(media.late() == 0 && media.latest().late_ns < 5 * MS, "{:?}", media.latest());
    }

    /// Packets of 20 ms, eight at a time, and from one of these bursts on all are so late.
    fn bursts(late: u64) -> Media {
        let mut media = Media::default();
        media.starts(48_000);
        for n in 0..3000_u64 {
            let at = n / 8 * 160 * MS + n % 8 * 200_000 + if n >= 1600 { late } else { 0 };
            media.packet((at, n), n as u16, n as u32 * 960);
        }
        media
    }

    #[test]
    fn who_hands_over_bursts_is_ahead_with_the_rest_of_each() {
        assert_eq!((bursts(0).late(), bursts(0).latest().late_ns), (0, 0));
        let media = bursts(150 * MS);
        assert!(media.late() > 0 && media.latest().late_ns == 150 * MS, "{:?}", media.latest());
    }

    #[test]
    fn a_pause_that_may_have_been_lost_is_not_late() {
        for is_lost in [false, true] {
            let mut media = stream(0);
            if is_lost {
                media.lost();
            }
            // A second passed, of which the timestamps know nothing.
            for n in 3000..3010_u64 {
                let number = (n as u16).wrapping_add(65_000);
                media.packet((n * 20 * MS + 1000 * MS, n), number, (n as u32 * 960).wrapping_add(u32::MAX - 5_000));
            }
            assert_eq!(media.late() == 0, is_lost);
        }
    }

    #[test]
    fn a_pause_is_not_late() {
        let mut media = stream(0);
        // The timestamps go on where they stopped, after a second.
        media.starts(48_000);
        media.packet((61_000 * MS, 1), 1, 7);
        media.packet((61_020 * MS, 2), 2, 967);
        // They jump by ten seconds, and back.
        media.packet((61_040 * MS, 3), 3, 480_967);
        media.packet((61_060 * MS, 4), 4, 967);
        assert_eq!(media.late(), 0);
        // Without the rate nothing is known, also where it was known before.
        media.starts(0);
        media.packet((0, 0), 0, 0);
        media.packet((5_000 * MS, 1), 1, 960);
        assert!(!media.knows_rate() && media.late() == 0);
    }
}
