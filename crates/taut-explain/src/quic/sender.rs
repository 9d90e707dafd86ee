//! What the end that logs knows of its sending: what is in flight, its windows, its losses.

use taut_event::{QuicCongestion, QuicMetric, QuicPacket};

use super::flight::Flight;

/// A datagram of QUIC has so many bytes at least until the path is known to take more (RFC 9000, section 14).
const LEAST_DATAGRAM: u64 = 1200;
/// The congestion window is never smaller, in datagrams (RFC 9002, section 7.2).
const LEAST_WINDOW: u64 = 2;
/// A sender that spaces its packets may send so many at once, and sends faster than its window in a round trip by a
/// quarter (RFC 9002, section 7.7).
const BURST: u64 = 10;
/// A queue stands in the path when the round trip takes so much more than twice the least one, in nanoseconds.
const QUEUE_NS: u64 = 5_000_000;

/// What is seen to hold the data at a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Handshake,
    CongestionWindow,
    SlowStart,
    PathQueue,
    ReceiveWindow,
    LossRecovery,
    /// Nothing that the log would show.
    Room,
    /// The log does not show what would have to be seen.
    NotKnown,
}

/// How long a sender may have spaced its packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pacing {
    /// Until this time, by the rate that it told.
    Until(u64),
    /// Not longer than this, in nanoseconds, if it does.
    AtMost(u64),
}

#[derive(Debug, Default)]
pub(super) struct Sender {
    flight: Flight,
    in_flight: Option<u64>,
    pub(super) window: Option<u64>,
    pub(super) largest_window: u64,
    smoothed_rtt: Option<u64>,
    latest_rtt: Option<u64>,
    pub(super) least_rtt: Option<u64>,
    pacing_rate: Option<u64>,
    paced_until: u64,
    is_slow_start: bool,
    pub(super) knows_slow_start: bool,
    largest_datagram: u64,
    largest_number: u64,
    /// A packet with data was lost; over when one that was sent later is acknowledged.
    recovery: Option<u64>,
    timer_expired: bool,
    pub(super) has_acks: bool,
    pub(super) has_recovery: bool,
    /// Packets with data whose frames the log does not tell.
    pub(super) without_frames: u64,
    pub(super) lost_packets: u64,
    pub(super) spurious: u64,
    pub(super) probes: u64,
    /// Lost or probed for before the connection was open.
    pub(super) handshake_repeats: u64,
    pub(super) peak_flight: u64,
}

impl Sender {
    /// What holds what this end would send now.
    pub(super) fn state(&self, is_blocked: bool) -> State {
        if self.without_frames > 0 {
            return State::NotKnown;
        }
        if self.recovery.is_some() && !self.flight.is_empty() {
            return State::LossRecovery;
        }
        let datagram = self.largest_datagram.max(LEAST_DATAGRAM);
        let in_flight = self.flying();
        if self.window.is_some_and(|window| in_flight.saturating_add(datagram) > window) {
            return self.full();
        }
        if is_blocked {
            State::ReceiveWindow
        } else if self.window.is_none() && in_flight >= LEAST_WINDOW * datagram {
            State::NotKnown
        } else {
            State::Room
        }
    }

    fn full(&self) -> State {
        let (latest, least) = (self.latest_rtt.unwrap_or(0), self.least_rtt.unwrap_or(u64::MAX));
        if latest > least.saturating_mul(2).saturating_add(QUEUE_NS) {
            State::PathQueue
        } else if self.is_slow_start {
            State::SlowStart
        } else {
            State::CongestionWindow
        }
    }

    /// Bytes in flight: as counted, which is newer than the last figure of the log, where that can be done.
    fn flying(&self) -> u64 {
        let is_counted = self.has_acks && !self.flight.is_beyond;
        if is_counted { self.flight.bytes() } else { self.in_flight.unwrap_or_else(|| self.flight.bytes()) }
    }

    /// Whether a packet that is about to be sent is a probe.
    pub(super) fn is_probe(&self, packet: &QuicPacket) -> bool {
        packet.is_ack_eliciting && (packet.is_probe || self.timer_expired)
    }

    /// How long what is sent now may have waited for its turn in the sender's pace.
    pub(super) fn pacing(&self, at: u64) -> Pacing {
        if self.pacing_rate.is_some() {
            return Pacing::Until(self.paced_until.min(at));
        }
        let (Some(window), Some(round_trip)) = (self.window, self.smoothed_rtt) else { return Pacing::AtMost(0) };
        if self.flight.is_empty() {
            return Pacing::AtMost(0);
        }
        let burst = u128::from(BURST * self.largest_datagram.max(LEAST_DATAGRAM));
        let longest = burst * u128::from(round_trip) / u128::from(window.max(1));
        Pacing::AtMost(u64::try_from(longest).unwrap_or(u64::MAX).min(round_trip))
    }

    pub(super) fn sent(&mut self, at: u64, packet: &QuicPacket, bytes: u64) {
        if packet.is_ack_eliciting && (packet.is_probe || std::mem::take(&mut self.timer_expired)) {
            if packet.is_application {
                self.probes += 1;
            } else {
                self.handshake_repeats += 1;
            }
        }
        if !packet.is_application {
            return;
        }
        self.without_frames += u64::from(!packet.has_frames);
        self.largest_number = self.largest_number.max(packet.number);
        if !packet.is_ack_eliciting {
            return;
        }
        let length = if packet.length > 0 { u64::from(packet.length) } else { bytes };
        // Larger ones are damage, and would overflow sums.
        let length = u32::try_from(length.min(1 << 16)).unwrap_or(0);
        self.largest_datagram = self.largest_datagram.max(length.into());
        self.flight.sent(packet.number, length, bytes > 0);
        self.peak_flight = self.peak_flight.max(self.flying());
        if let Some(rate) = self.pacing_rate.filter(|rate| *rate > 0) {
            let takes = u128::from(length) * 8_000_000_000 / u128::from(rate);
            let takes = u64::try_from(takes).unwrap_or(u64::MAX);
            self.paced_until = self.paced_until.max(at).saturating_add(takes);
        }
    }

    /// Whether data of this end is known to have arrived now.
    pub(super) fn acknowledged(&mut self, from: u64, to: u64) -> bool {
        self.has_acks = true;
        let arrived = self.flight.acknowledged(from, to);
        self.spurious += arrived.spurious;
        if self.recovery.is_some_and(|before| arrived.highest.is_some_and(|highest| highest > before)) {
            self.recovery = None;
        }
        if arrived.highest.is_some() {
            self.timer_expired = false;
        }
        arrived.has_data || arrived.spurious > 0
    }

    pub(super) fn lost(&mut self, number: u64, is_application: bool) {
        self.has_recovery = true;
        if !is_application {
            self.handshake_repeats += 1;
        } else if self.flight.lost(number) {
            self.lost_packets += 1;
            self.recovery.get_or_insert(self.largest_number);
        }
    }

    pub(super) fn timer_expired(&mut self) {
        self.has_recovery = true;
        self.timer_expired = true;
    }

    pub(super) fn metric(&mut self, metric: QuicMetric, value: u64) {
        self.has_recovery = true;
        match metric {
            QuicMetric::InFlight => {
                self.in_flight = Some(value);
                if value == 0 {
                    // What is left was lost or acknowledged without an event of the log.
                    self.flight.is_over();
                }
            }
            QuicMetric::Window => {
                self.window = Some(value);
                self.largest_window = self.largest_window.max(value);
            }
            QuicMetric::SmoothedRtt => self.smoothed_rtt = Some(value),
            QuicMetric::LatestRtt => self.latest_rtt = Some(value),
            QuicMetric::LeastRtt => self.least_rtt = Some(value),
            QuicMetric::PacingRate => self.pacing_rate = Some(value),
        }
    }

    pub(super) fn congestion(&mut self, state: QuicCongestion) {
        self.has_recovery = true;
        self.knows_slow_start = true;
        self.is_slow_start = state == QuicCongestion::SlowStart;
    }

    /// Whether all that was sent has arrived, as far as that was followed.
    pub(super) fn is_all_there(&self) -> bool {
        self.has_acks && self.flight.is_empty() && !self.flight.is_beyond
    }

    /// Whether the congestion window can't ever have been full: so little was in flight.
    pub(super) fn was_always_small(&self) -> bool {
        self.has_acks && self.peak_flight < LEAST_WINDOW * self.largest_datagram.max(LEAST_DATAGRAM)
    }
}
