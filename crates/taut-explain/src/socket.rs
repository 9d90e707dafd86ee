//! Who holds what a socket has to send, from its state at one moment; and what is suspicious over some time.

use taut_event::{Holder, Recovery, SocketState};
use taut_time::Duration;

/// Who holds it; `None` when nothing waits to be sent or acknowledged.
///
/// The order is that in which `tcp_write_xmit` (net/ipv4/tcp_output.c) asks: pacing, congestion
/// window, receive window, Nagle's algorithm. Pacing and what waits in the device show only to a tracer: without
/// them, with room in both windows and a full segment to send, it is [`Holder::NotKnown`]. So is a small one whose
/// options are not seen. While the device keeps what it was given, a larger congestion window would only make its
/// queue longer.
pub fn holder(state: &SocketState) -> Option<Holder> {
    if state.is_opening {
        return Some(Holder::Handshake);
    }
    if state.unsent_bytes == 0 && state.in_flight_bytes == 0 {
        return None;
    }
    if state.recovery == Recovery::AfterTimeout || state.timeouts > 0 {
        return Some(Holder::RetransmissionTimeout);
    }
    if state.recovery == Recovery::Repeating {
        return Some(Holder::LossRecovery);
    }
    let in_device = |else_held| Some(if state.device_bytes > 0 { Holder::DeviceQueue } else { else_held });
    if state.unsent_bytes == 0 {
        return in_device(Holder::Delivery);
    }
    if state.pacing_wait_ns > 0 {
        return Some(Holder::Pacing);
    }
    if state.send_window_bytes == Some(0) || state.window_probes > 0 {
        return Some(Holder::ReceivingProgram);
    }
    let window = state.congestion_window_segments;
    if window > 0 && state.in_flight_segments >= window {
        let doubles = window < state.slow_start_threshold_segments;
        return in_device(if doubles { Holder::SlowStart } else { Holder::CongestionWindow });
    }
    let next = state.unsent_bytes.min(state.mss_bytes);
    if state.send_window_bytes.is_some_and(|window| window.saturating_sub(state.in_flight_bytes) < next) {
        // The peer has all that was sent and still offers less than a segment: its buffer is full of what is not read.
        let has_all = state.in_flight_bytes == 0;
        return Some(if has_all { Holder::ReceivingProgram } else { Holder::ReceiveWindow });
    }
    if state.unsent_bytes >= state.mss_bytes {
        return in_device(Holder::NotKnown);
    }
    // It holds a small segment only while another small one is in flight (`tcp_minshall_check`, net/ipv4/tcp_output.c).
    let full = u64::from(state.in_flight_segments) * u64::from(state.mss_bytes);
    let may_be_nagle = state.small_in_flight.unwrap_or_else(|| u64::from(state.in_flight_bytes) < full);
    match (state.cork, state.no_delay) {
        (Some(true), _) => Some(Holder::Cork),
        (_, Some(false)) if may_be_nagle => Some(Holder::Nagle),
        _ => in_device(Holder::NotKnown),
    }
}

/// What samples of a socket's state and the kernel's own counters come to, over the same time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// The whole time.
    pub span: Duration,
    /// Time by holder, in the order of [`Holder::ALL`].
    pub held: [Duration; Holder::ALL.len()],
    /// Samples taken.
    pub samples: u32,
    /// Of them, those in which bytes waited to be read.
    pub unread_samples: u32,
    /// Bytes that wait to be read at the end.
    pub unread_bytes: u32,
    /// Samples in which the connection was open and no program had accepted it.
    pub unaccepted_samples: u32,
    /// Samples in which the queue of a listening socket was full.
    pub full_samples: u32,
    /// Where the connection is not open at the end, how often its first segment was sent again.
    pub opening_timeouts: u8,
    /// Time in which the send buffer was the limit, as the kernel counts it.
    pub send_buffer_limited: Duration,
}

/// Something that takes time, with what to do about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Suspicion {
    /// Short name, as `taut explain` has it.
    pub cause: &'static str,
    /// What is the matter, without the share of time.
    pub summary: &'static str,
    /// What to change.
    pub remedy: &'static str,
    /// The time that it takes.
    pub time: Duration,
}

/// From this share of the time on a holder is worth telling.
const SHARE: f64 = 0.05;
/// Samples with unread bytes that tell a program that is slow from one that was about to read.
const UNREAD_SHARE: f64 = 0.5;
/// Fewer samples tell nothing about a share.
pub const FEWEST_SAMPLES: u32 = 5;

/// What fewer samples met may be chance: of 1,000 sockets with a holder for 1 % of the time, looked at 50 times, 14
/// are met three times in it, and 89 twice.
const FEWEST_HITS: u32 = 3;

/// What is suspicious, the longest time first.
pub fn suspicions(account: &Account) -> Vec<Suspicion> {
    let held = |holders: &[Holder]| -> Duration {
        holders.iter().fold(Duration::ZERO, |sum, holder| sum + account.held[holder.index()])
    };
    let window = "the receive window is full: the peer's receive buffer is small for this path";
    let reader = "the receive window is closed: the peer's program does not read";
    let found = [
        ("nagle_delayed_ack", held(&[Holder::Nagle]), "Nagle's algorithm holds small writes", "set TCP_NODELAY"),
        ("cork", held(&[Holder::Cork]), "TCP_CORK holds small writes", "clear TCP_CORK at the end of a message"),
        ("receive_window", held(&[Holder::ReceiveWindow]), window, "a larger receive buffer at the peer"),
        ("receiving_program", held(&[Holder::ReceivingProgram]), reader, "the peer's program has to read sooner"),
        (
            "loss",
            held(&[Holder::LossRecovery, Holder::RetransmissionTimeout]),
            "lost segments are sent again",
            "find where the path drops packets",
        ),
        (
            "handshake_repeated",
            // That it takes a round trip to open is nothing to act on.
            if account.opening_timeouts > 0 { held(&[Holder::Handshake]) } else { Duration::ZERO },
            "the connection is not open yet, and its first segment was sent again",
            "look at the accept queue of the listening end, and at firewalls",
        ),
        (
            "send_buffer",
            // The kernel counts in ticks, which may end after the time.
            account.send_buffer_limited.min(account.span),
            "the send buffer is the limit",
            "a larger SO_SNDBUF, or leave it to the kernel",
        ),
    ];
    let span = account.span;
    if account.samples < FEWEST_SAMPLES {
        return Vec::new();
    }
    let hits = f64::from(FEWEST_HITS) / f64::from(account.samples);
    let least = |cause| if cause == "send_buffer" { SHARE } else { hits.max(SHARE) };
    let is_worth =
        |cause, time: Duration| !time.is_zero() && time.as_secs_f64() >= 0.999 * least(cause) * span.as_secs_f64();
    let mut suspicions: Vec<Suspicion> = found
        .into_iter()
        .filter(|(cause, time, ..)| is_worth(*cause, *time))
        .map(|(cause, time, summary, remedy)| Suspicion { cause, summary, remedy, time })
        .collect();
    let mut sampled = |cause, samples: u32, least: f64, summary, remedy| {
        let share = f64::from(samples) / f64::from(account.samples);
        if samples >= FEWEST_HITS && share >= least {
            let time = Duration::from_secs_f64(span.as_secs_f64() * share);
            suspicions.push(Suspicion { cause, summary, remedy, time });
        }
    };
    sampled(
        "accept_queue",
        account.full_samples,
        SHARE,
        "the accept queue is full: connections wait for this program or are refused",
        "accept sooner, or a larger backlog (listen(2) and net.core.somaxconn)",
    );
    if account.unaccepted_samples > 0 {
        let summary = "the connection is open and waits to be accepted";
        sampled("not_accepted", account.unaccepted_samples, UNREAD_SHARE, summary, "accept sooner");
    } else if account.unread_bytes > 0 {
        let summary = "received bytes wait for this program to read them";
        sampled("unread", account.unread_samples, UNREAD_SHARE, summary, "see what the program does meanwhile");
    }
    suspicions.sort_by_key(|suspicion| std::cmp::Reverse(suspicion.time));
    suspicions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_time_is_suspicious_and_little_is_not() {
        let mut account = Account { span: Duration::from_millis(1000), samples: 50, ..Account::default() };
        assert!(suspicions(&account).is_empty());
        account.held[Holder::Nagle.index()] = Duration::from_millis(40);
        assert!(suspicions(&account).is_empty());
        account.held[Holder::Nagle.index()] = Duration::from_millis(60);
        account.held[Holder::Delivery.index()] = Duration::from_millis(900);
        account.held[Holder::LossRecovery.index()] = Duration::from_millis(70);
        fn causes(account: &Account) -> Vec<&'static str> {
            suspicions(account).iter().map(|one| one.cause).collect()
        }
        assert_eq!(causes(&account), ["loss", "nagle_delayed_ack"]);
        account.samples = FEWEST_SAMPLES - 1;
        assert!(suspicions(&account).is_empty());
        // Two samples of few are chance, and a connection opens in a round trip.
        let chance = |ms, samples| {
            let mut account = Account { span: Duration::from_millis(200), samples, ..Account::default() };
            account.held[Holder::Nagle.index()] = Duration::from_millis(ms);
            account
        };
        assert!(causes(&chance(40, 10)).is_empty());
        assert_eq!(causes(&chance(60, 10)), ["nagle_delayed_ack"]);
        let mut opening = chance(0, 10);
        opening.held[Holder::Handshake.index()] = Duration::from_millis(150);
        assert!(causes(&opening).is_empty());
        assert_eq!(causes(&Account { opening_timeouts: 1, ..opening }), ["handshake_repeated"]);
        let unread = |unread_samples| Account {
            span: Duration::from_secs(1),
            samples: 50,
            unread_samples,
            unread_bytes: 9,
            ..Account::default()
        };
        assert_eq!(causes(&unread(25)), ["unread"]);
        assert!(causes(&unread(24)).is_empty());
        assert_eq!(causes(&Account { unaccepted_samples: 50, ..unread(50) }), ["not_accepted"]);
        let full = |full_samples| Account { full_samples, ..unread(0) };
        assert_eq!((causes(&full(3)), causes(&full(2))), (vec!["accept_queue"], vec![]));
        let limited = Account { send_buffer_limited: Duration::from_millis(1004), ..unread(0) };
        assert_eq!(suspicions(&limited)[0].time, Duration::from_secs(1));
    }

    /// A small write behind another one, both windows open, all options at their defaults.
    fn held() -> SocketState {
        SocketState {
            unsent_bytes: 100,
            in_flight_bytes: 40,
            in_flight_segments: 1,
            congestion_window_segments: 10,
            slow_start_threshold_segments: 0x7fff_ffff,
            send_window_bytes: Some(65_000),
            mss_bytes: 1448,
            no_delay: Some(false),
            cork: Some(false),
            ..SocketState::default()
        }
    }

    #[test]
    fn each_holder_stands_in_its_state_and_not_beside_it() {
        let cases: [(&str, SocketState, Option<Holder>); 26] = [
            ("held", held(), Some(Holder::Nagle)),
            ("TCP_NODELAY", SocketState { no_delay: Some(true), ..held() }, Some(Holder::NotKnown)),
            ("options unseen", SocketState { no_delay: None, cork: None, ..held() }, Some(Holder::NotKnown)),
            (
                "cork",
                SocketState { cork: Some(true), in_flight_bytes: 0, in_flight_segments: 0, ..held() },
                Some(Holder::Cork),
            ),
            (
                "nothing in flight",
                SocketState { in_flight_bytes: 0, in_flight_segments: 0, ..held() },
                Some(Holder::NotKnown),
            ),
            ("full segment", SocketState { unsent_bytes: 1448, ..held() }, Some(Holder::NotKnown)),
            ("no small one in flight", SocketState { small_in_flight: Some(false), ..held() }, Some(Holder::NotKnown)),
            (
                "a small one in flight",
                SocketState { in_flight_bytes: 1448, small_in_flight: Some(true), ..held() },
                Some(Holder::Nagle),
            ),
            ("paced", SocketState { pacing_wait_ns: 1, ..held() }, Some(Holder::Pacing)),
            ("all sent", SocketState { unsent_bytes: 0, ..held() }, Some(Holder::Delivery)),
            ("in the device", SocketState { unsent_bytes: 0, device_bytes: 9, ..held() }, Some(Holder::DeviceQueue)),
            ("behind it", SocketState { unsent_bytes: 1448, device_bytes: 9, ..held() }, Some(Holder::DeviceQueue)),
            ("Nagle's algorithm all the same", SocketState { device_bytes: 9, ..held() }, Some(Holder::Nagle)),
            ("nothing", SocketState { unsent_bytes: 0, in_flight_bytes: 0, ..held() }, None),
            ("slow start", SocketState { in_flight_segments: 10, ..held() }, Some(Holder::SlowStart)),
            (
                "window full of what is in the device",
                SocketState { in_flight_segments: 10, device_bytes: 9, ..held() },
                Some(Holder::DeviceQueue),
            ),
            (
                "congestion window",
                SocketState { in_flight_segments: 10, slow_start_threshold_segments: 8, ..held() },
                Some(Holder::CongestionWindow),
            ),
            ("only full segments in flight", SocketState { in_flight_bytes: 1448, ..held() }, Some(Holder::NotKnown)),
            (
                "less than a segment, and nothing in flight",
                SocketState { send_window_bytes: Some(99), in_flight_bytes: 0, in_flight_segments: 0, ..held() },
                Some(Holder::ReceivingProgram),
            ),
            ("window full", SocketState { send_window_bytes: Some(139), ..held() }, Some(Holder::ReceiveWindow)),
            ("window just open", SocketState { send_window_bytes: Some(140), ..held() }, Some(Holder::Nagle)),
            ("window closed", SocketState { send_window_bytes: Some(0), ..held() }, Some(Holder::ReceivingProgram)),
            ("window not told", SocketState { send_window_bytes: None, ..held() }, Some(Holder::Nagle)),
            ("probes", SocketState { window_probes: 2, ..held() }, Some(Holder::ReceivingProgram)),
            ("loss", SocketState { recovery: Recovery::Repeating, ..held() }, Some(Holder::LossRecovery)),
            ("timeout", SocketState { timeouts: 1, ..held() }, Some(Holder::RetransmissionTimeout)),
        ];
        for (name, state, expected) in cases {
            assert_eq!(holder(&state), expected, "{name}");
        }
        let opening = SocketState { is_opening: true, ..SocketState::default() };
        assert_eq!(holder(&opening), Some(Holder::Handshake));
    }
}
