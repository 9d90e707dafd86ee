use taut_event::{Coverage, Holder, Kind};

use super::facts::{Detector, Facts, is_incomplete, seen, text};
use crate::engine::{Certainty, Found, Verdict};
use crate::words;

/// Packets were lost, and sent again.
pub(super) struct Loss;

impl Detector for Loss {
    fn cause(&self) -> &'static str {
        "loss"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::LossRecovery, Holder::TailLossProbe, Holder::RetransmissionTimeout]
    }

    fn rests_on_acks(&self) -> bool {
        false
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        if is_incomplete(facts.connection, facts.way) {
            let unseen = facts.connection.unseen_bytes(facts.way.index());
            return Verdict::Unknown {
                missing: format!("{unseen} bytes that were acknowledged and are not in the capture"),
                ask: "capture with a larger buffer (tcpdump -B 65536) and fewer bytes of each packet (-s 128)"
                    .to_owned(),
            };
        }
        let tally = facts.tally();
        if 2 * tally.unclear_segments > tally.repeated_segments {
            return Verdict::Unknown {
                missing: format!(
                    "lost or overtaken: {} of {} late segments have no timestamp and no identification that tells",
                    tally.unclear_segments, tally.repeated_segments
                ),
                ask: "capture at the sender, or with TCP timestamps on (net.ipv4.tcp_timestamps)".to_owned(),
            };
        }
        let found = seen(facts, self, Certainty::Seen);
        let ns = |holder| words::time(facts.half.breakdown.ns(holder));
        let times = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        Verdict::Found(Found {
            summary: format!(
                "Packets were lost: {} sent again, {} of all bytes sent",
                times(tally.repeated_segments, "segment"),
                words::share(tally.repeated_bytes as f64 / (tally.bytes + tally.repeated_bytes).max(1) as f64)
            ),
            evidence: vec![
                facts.longest_seen(self.holders()),
                text(format!(
                    "Repair took {}; waiting for {} {}, for {} {}.",
                    ns(Holder::LossRecovery),
                    times(tally.timeouts, "retransmission timeout"),
                    ns(Holder::RetransmissionTimeout),
                    times(tally.tail_probes, "tail loss probe"),
                    ns(Holder::TailLossProbe)
                )),
            ],
            remedy: "On the path: find the drops (`ip -s link`, `tc -s qdisc`, `ethtool -S` on each host, counters of \
                     switches). For single drops on long paths BBR keeps more of the rate than Cubic does."
                .to_owned(),
            ..found
        })
    }
}

/// The opening had to be repeated.
pub(super) struct Opening;

impl Detector for Opening {
    fn cause(&self) -> &'static str {
        "handshake_repeated"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::Handshake]
    }

    fn rests_on_acks(&self) -> bool {
        false
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments, Kind::Handshake])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let repeated = facts.connection.repeated_openings();
        if repeated == 0 {
            return Verdict::Clear;
        }
        let found = seen(facts, self, Certainty::Seen);
        Verdict::Found(Found {
            summary: format!(
                "The connection took {} to open: SYN or SYN/ACK was sent again ({repeated} times)",
                words::time(found.cost.held_ns)
            ),
            evidence: vec![facts.longest_seen(self.holders())],
            remedy:
                "On the server: a full queue of connections drops SYNs (`nstat -az TcpExtListenOverflows`); raise the \
                     backlog of listen(2) and net.core.somaxconn. Else look for a firewall that drops the first packet."
                    .to_owned(),
            ..found
        })
    }
}
