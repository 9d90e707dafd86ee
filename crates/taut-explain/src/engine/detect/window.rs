use taut_event::{Coverage, Holder, Kind};

use super::facts::{Detector, Facts, seen, text};
use crate::engine::{Certainty, Found, Verdict};
use crate::words;

/// A window that became so many times as large as it was when it was used up was only on its way there.
const GROWN: u64 = 2;

/// The receive buffer is small for the path.
pub(super) struct ReceiveWindow;

impl Detector for ReceiveWindow {
    fn cause(&self) -> &'static str {
        "receive_window"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::ReceiveWindow]
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments, Kind::Handshake])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let certainty = if facts.half.scale.learned().is_some() { Certainty::Consistent } else { Certainty::Seen };
        let found = seen(facts, self, certainty);
        let largest = u64::from(facts.tally().largest_window);
        let window = u64::from(facts.tally().used_up_window);
        let round_trip = facts.round_trip();
        if window > 0 && largest >= GROWN * window {
            return Verdict::Found(Found {
                summary: format!(
                    "The receiver's window was still growing: {} of it were used up, for a round trip of {}",
                    words::bytes(window),
                    words::time(round_trip)
                ),
                evidence: vec![
                    facts.longest_seen(self.holders()),
                    text(format!("Later it was up to {}, so the buffer is not what limits.", words::bytes(largest))),
                ],
                remedy: "On the receiver: reuse connections, or let windows begin larger (the middle value of \
                         net.ipv4.tcp_rmem)."
                    .to_owned(),
                ..found
            });
        }
        let window = largest;
        Verdict::Found(Found {
            summary: format!(
                "The receiver's window is small for this path: {} a round trip of {}",
                words::bytes(window),
                words::time(round_trip)
            ),
            evidence: vec![
                facts.longest_seen(self.holders()),
                text(format!(
                    "The window was used up, and stayed at its largest; it allows {} at most.",
                    words::rate(window, round_trip)
                )),
            ],
            remedy: "On the receiver: leave SO_RCVBUF unset, or raise it (and net.ipv4.tcp_rmem, \
                     net.core.rmem_max) to the rate wanted times the round trip."
                .to_owned(),
            ..found
        })
    }
}

/// The receiving program did not read.
pub(super) struct ReceivingProgram;

impl Detector for ReceivingProgram {
    fn cause(&self) -> &'static str {
        "receiving_program"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::ReceivingProgram]
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let tally = facts.tally();
        let found = seen(facts, self, Certainty::Seen);
        let closed = match tally.zero_windows {
            0 => "The window shrank as data came in, and was never quite closed.".to_owned(),
            1 => "The window was closed once.".to_owned(),
            times => format!("The window was closed {times} times."),
        };
        let probes = if tally.window_probes == 0 {
            String::new()
        } else {
            format!(" The sender probed it {}.", words::times(tally.window_probes))
        };
        Verdict::Found(Found {
            summary: "The receiving program read too slowly: its buffer was full".to_owned(),
            evidence: vec![facts.longest_seen(self.holders()), text(format!("{closed}{probes}"))],
            remedy: "On the receiver: read sooner. What the program does between two reads is the cause; a larger \
                     buffer only puts it off."
                .to_owned(),
            ..found
        })
    }
}

/// The send buffer, which looks like a level congestion window.
pub(super) struct SendBuffer;

impl Detector for SendBuffer {
    fn cause(&self) -> &'static str {
        "send_buffer"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::SendBufferOrCongestion]
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let cost = facts.cost(self.holders());
        Verdict::Unknown {
            missing: format!(
                "send buffer or congestion window: {} ({}) at a level {} in flight, without loss or queue",
                words::time(cost.held_ns),
                words::share(cost.share),
                words::bytes(facts.tally().peak_flight)
            ),
            ask:
                "on the sender, while it runs: `ss -tmi`; a growing sndbuf_limited means the buffer (raise SO_SNDBUF), \
                  else it is congestion control"
                    .to_owned(),
        }
    }
}
