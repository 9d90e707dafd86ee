use taut_event::{Coverage, Holder, Kind};

use super::facts::{Detector, Facts, seen, text};
use crate::engine::{Certainty, Found, Verdict};
use crate::words;

const NEEDS: Coverage = Coverage::of(&[Kind::Segments]);

/// The congestion window is full, and a queue of the path with it.
pub(super) struct PathQueue;

impl Detector for PathQueue {
    fn cause(&self) -> &'static str {
        "path_queue"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::PathQueue]
    }

    fn needs(&self) -> Coverage {
        NEEDS
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let tally = facts.tally();
        let median = tally.round_trips.median().unwrap_or_default();
        Verdict::Found(Found {
            summary: format!(
                "The path is full: packets wait in its queue, and the round trip rose from {} to {}",
                words::time(facts.round_trip()),
                words::time(tally.round_trips.max())
            ),
            evidence: vec![
                facts.longest_seen(self.holders()),
                text(format!(
                    "{} were in flight at most, and {} went over the path; the median round trip was {}.",
                    words::bytes(tally.peak_flight),
                    words::rate(tally.bytes, facts.whole_ns),
                    words::time(median)
                )),
            ],
            remedy:
                "More speed takes a faster bottleneck. Less waiting takes a shorter queue: fq_codel or cake at the \
                     bottleneck, or BBR on the sender (net.ipv4.tcp_congestion_control)."
                    .to_owned(),
            ..seen(facts, self, Certainty::Seen)
        })
    }
}

/// A pause made the congestion window small.
pub(super) struct AfterIdle;

impl Detector for AfterIdle {
    fn cause(&self) -> &'static str {
        "slow_start_after_idle"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::AfterIdle]
    }

    fn needs(&self) -> Coverage {
        NEEDS
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        Verdict::Found(Found {
            summary: "After a pause the congestion window was smaller than before, and had to grow again".to_owned(),
            evidence: vec![
                facts.longest_seen(self.holders()),
                text(format!("Before the pauses {} had been in flight.", words::bytes(facts.tally().peak_flight))),
            ],
            remedy: "On the sender: sysctl net.ipv4.tcp_slow_start_after_idle=0, where the path is yours.".to_owned(),
            ..seen(facts, self, Certainty::Consistent)
        })
    }
}

/// The transfer is so short that the congestion window still grows.
pub(super) struct SlowStart;

impl Detector for SlowStart {
    fn cause(&self) -> &'static str {
        "slow_start"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::SlowStart]
    }

    fn needs(&self) -> Coverage {
        NEEDS
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        Verdict::Found(Found {
            summary: "The congestion window was still doubling: each round trip carried what it could".to_owned(),
            evidence: vec![facts.longest_seen(self.holders())],
            remedy: "Reuse connections. On paths of your own raise the initial window \
                     (ip route change … initcwnd 30)."
                .to_owned(),
            ..seen(facts, self, Certainty::Consistent)
        })
    }
}

/// The congestion window was full.
pub(super) struct CongestionWindow;

impl Detector for CongestionWindow {
    fn cause(&self) -> &'static str {
        "congestion_window"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::CongestionWindow, Holder::Pacing]
    }

    fn needs(&self) -> Coverage {
        NEEDS
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let tally = facts.tally();
        Verdict::Found(Found {
            summary: format!(
                "Congestion control set the pace: {} over the whole, at most {} in flight",
                words::rate(tally.bytes, facts.whole_ns),
                words::bytes(tally.peak_flight)
            ),
            evidence: vec![facts.longest_seen(self.holders())],
            remedy:
                "This is as it should be on a full path. If the path can do more, look for losses above, or try BBR."
                    .to_owned(),
            ..seen(facts, self, Certainty::Consistent)
        })
    }
}
