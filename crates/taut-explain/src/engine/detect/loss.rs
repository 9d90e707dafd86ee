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
        let again = times(tally.repeated_segments, "segment");
        let share = words::share(tally.repeated_bytes as f64 / (tally.bytes + tally.repeated_bytes).max(1) as f64);
        let (arrived, is_all) = tally.arrived();
        let was_lost = !is_all;
        let summary = match was_lost {
            true => format!("Packets were lost: {again} sent again, {share} of all bytes sent"),
            false => format!("Nothing was lost, and yet {again} sent again: {share} of all bytes sent"),
        };
        let had_come = (arrived > 0).then(|| {
            let which = if was_lost { format!("{arrived} of them") } else { "all of them".to_owned() };
            text(format!(
                "The receiver says of {which} that it had them before (D-SACK): they were sent again too soon."
            ))
        });
        let passed = tally.passed_before();
        let between = (was_lost && facts.is_between()).then(|| {
            // What had come was lost nowhere.
            let beyond = passed.saturating_sub(arrived);
            text(format!(
                "Seen from here, {} lost on the sender's side, since they had not passed before, and {beyond} on the \
                 receiver's side.",
                tally.repeated_segments - passed
            ))
        });
        let remedy = match was_lost {
            true => {
                "On the path: find the drops (`ip -s link`, `tc -s qdisc`, `ethtool -S` on each host, counters of \
                 switches). For single drops on long paths BBR keeps more of the rate than Cubic does."
            }
            false => {
                "Find out why the acknowledgement came so late: a receiver that delays it, a queue that fills, or \
                 packets that overtake each other. No drop is to be found."
            }
        };
        Verdict::Found(Found {
            summary,
            evidence: [
                Some(facts.longest_seen(self.holders())),
                had_come,
                between,
                Some(text(format!(
                    "Repair took {}; waiting for {} {}, for {} {}.",
                    ns(Holder::LossRecovery),
                    times(tally.timeouts, "retransmission timeout"),
                    ns(Holder::RetransmissionTimeout),
                    times(tally.tail_probes, "tail loss probe"),
                    ns(Holder::TailLossProbe)
                ))),
            ]
            .into_iter()
            .flatten()
            .collect(),
            remedy: remedy.to_owned(),
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
