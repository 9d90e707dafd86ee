//! Writes held by Nagle's algorithm (RFC 896) until the peer's delayed acknowledgement (RFC 1122, 4.2.3.2).
//!
//! A write counts as held when all of this was seen:
//!
//! 1. Just after the call the socket still held it unsent, less than one segment of it, with segments in flight, while
//!    congestion window and receive window would have let it go (`SIOCOUTQNSD`, `TCP_INFO`).
//! 2. It left more than [`LEAST_HOLD`] later, and within [`RELEASE`] of the acknowledgement of bytes sent before it.
//! 3. That acknowledgement was delayed: it took longer than the path's least round trip by
//!    [`LEAST_DELAY`] at least, and the long ones stand out of the acknowledgements of the run.
//!    Either next to none took a time between ([`MOST_BETWEEN`]), or the long ones all took the
//!    same, as by a timer ([`LEAST_SHARPNESS`]). A path of varying length has all lengths between
//!    its shortest and its longest: however long the longest take, they are no sign of a timer.
//! 4. It did not come just when the peer's program read the bytes late: then the program was late
//!    and no timer (only where the peer tells when it reads).
//!
//! One such stall can happen on any connection; a finding needs [`LEAST_SHARE`] of the writes and [`LEAST_EPISODES`]
//! acknowledgements that released some.

use taut_time::{Duration, Instant, SendQueue, Timeline, What};

use crate::{Finding, Unit};

/// The cause that [`find`] names.
pub const CAUSE: &str = "nagle_delayed_ack";
/// A write that waited less is not called held: the wake-up of a busy machine takes as long.
pub const LEAST_HOLD: Duration = Duration::from_millis(1);
/// The kernel sends what it held while it handles the acknowledgement.
pub const RELEASE: Duration = Duration::from_micros(500);
/// By how much an acknowledgement must be slower than the path for the peer to have delayed it. No timer of a known
/// system is shorter than 8 ms.
pub const LEAST_DELAY: Duration = Duration::from_millis(5);
/// Of acknowledgements that took between a quarter and three quarters of what a delayed one takes
/// beyond the path's least round trip, the most there may be for each one that took longer. On a
/// path of varying length there are as many.
pub const MOST_BETWEEN: f64 = 0.2;
/// By how many times the middle half of the long ones must be narrower than they are long beyond the least round
/// trip, where many took a time between, as those that a read of the peer's program let go. 40 ms rounded up to a
/// tick of 4 ms are 20 times as long as that is wide; the long end of a path of any lengths alike is at most 8 times.
pub const LEAST_SHARPNESS: f64 = 12.0;
/// A program that reads this long after the bytes arrived is late.
pub const LATE_READ: Duration = Duration::from_millis(2);
/// Least share of held writes for a finding.
pub const LEAST_SHARE: f64 = 0.01;
/// Least number of acknowledgements that released held writes.
pub const LEAST_EPISODES: usize = 3;

/// What is known of the link beside its timeline.
#[derive(Clone, Debug)]
pub struct Context {
    /// What the finding will be on: an endpoint, with the workload.
    pub on: String,
    /// Whether the sending socket was free to hold small writes back (`TCP_NODELAY` off).
    pub nagle: bool,
    /// Least round trip that the kernel saw on the link, the handshake included.
    pub min_rtt: Duration,
    /// Whether a message takes more than one write.
    pub several_writes: bool,
}

/// One write that was held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeldWrite {
    /// Position in the flow after its last byte.
    pub end: u64,
    /// From the return of the call to the moment it was passed on.
    pub hold: Duration,
    /// The acknowledgement that released it.
    pub released_by: Release,
}

/// An acknowledgement that let held bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Release {
    /// Position in the flow after the last byte acknowledged.
    pub end: u64,
    /// When it came.
    pub at: Instant,
    /// How long after the segment had left.
    pub delay: Duration,
}

/// Looks for the stall in the rounds of one run.
pub fn find(rounds: &[Timeline], context: &Context) -> Option<Finding> {
    let writes: usize = rounds.iter().map(|round| round.of(|what| matches!(what, What::WriteEnd)).count()).sum();
    let held = held_writes(rounds, context);
    let share = held.len() as f64 / writes.max(1) as f64;
    let mut releases: Vec<Release> = held.iter().map(|write| write.released_by).collect();
    releases.dedup();
    if share < LEAST_SHARE || releases.len() < LEAST_EPISODES {
        return None;
    }
    let hold = median(held.iter().map(|write| write.hold).collect());
    let delay = median(releases.iter().map(|release| release.delay).collect());
    let example = held[held.len() / 2];
    Some(Finding {
        cause: CAUSE.to_owned(),
        summary: "Writes were held by Nagle's algorithm, waiting for the peer's delayed ACK.".to_owned(),
        on: context.on.clone(),
        share,
        share_of: Unit::Writes,
        cost_ns: u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX),
        evidence: vec![
            format!(
                "{} of {writes} writes were still in the socket when the call returned, with a segment in flight and both \
                 windows open, and left {} later (median; longest {})",
                held.len(),
                millis(hold),
                millis(held.iter().map(|write| write.hold).max().unwrap_or_default()),
            ),
            format!(
                "the peer acknowledged after {} (median of {} ACKs that released something) on a path whose round trip \
                 takes {}: {}",
                millis(delay),
                releases.len(),
                millis(context.min_rtt),
                whose_timer(delay, rounds.iter().any(tells_its_reads)),
            ),
            format!(
                "for example, the write that ends at byte {} waited {} and left at the ACK of byte {}, which had taken {}",
                example.end,
                millis(example.hold),
                example.released_by.end,
                millis(example.released_by.delay),
            ),
        ],
        remedy: remedy(context),
        proof: None,
    })
}

/// The writes that were held until a delayed acknowledgement, in all rounds of a run.
pub fn held_writes(rounds: &[Timeline], context: &Context) -> Vec<HeldWrite> {
    if !context.nagle {
        return Vec::new();
    }
    let mut held: Vec<HeldWrite> = rounds.iter().flat_map(|round| waited_for_an_ack(round, context)).collect();
    let delays = rounds.iter().flat_map(ack_delays).collect();
    let least = least_delayed(&held, delays, context.min_rtt);
    held.retain(|write| least.is_some_and(|least| write.released_by.delay >= least));
    held
}

/// From which delay on an acknowledgement of the run was delayed and not just long on its way;
/// `None` when that can't be told.
fn least_delayed(held: &[HeldWrite], delays: Vec<Duration>, min_rtt: Duration) -> Option<Duration> {
    let shortest = delays.iter().min().map_or(min_rtt, |&shortest| shortest.min(min_rtt));
    let typical = median(held.iter().map(|write| write.released_by.delay).collect());
    let beyond = typical.checked_sub(shortest).filter(|beyond| *beyond >= LEAST_DELAY)?;
    let (low, high) = (shortest + beyond / 4, shortest + beyond * 3 / 4);
    let between = delays.iter().filter(|delay| **delay >= low && **delay < high).count();
    let mut longer: Vec<Duration> = delays.into_iter().filter(|delay| *delay >= high).collect();
    longer.sort_unstable();
    let stand_apart = between as f64 <= longer.len() as f64 * MOST_BETWEEN;
    let spread = longer.get(longer.len() * 3 / 4)?.saturating_sub(longer[longer.len() / 4]);
    (stand_apart || spread <= beyond.div_f64(LEAST_SHARPNESS)).then_some(high)
}

/// How long the acknowledgement of each segment took.
fn ack_delays(timeline: &Timeline) -> Vec<Duration> {
    let left = stage(timeline, |what| matches!(what, What::Left));
    let scheduled = stage(timeline, |what| matches!(what, What::Scheduled));
    timeline
        .of(|what| matches!(what, What::Acked))
        .filter_map(|event| {
            let end = event.bytes.end;
            Some(event.at.saturating_since(reached(&left, end).or_else(|| reached(&scheduled, end))?))
        })
        .collect()
}

/// Whether the peer tells when its program reads.
fn tells_its_reads(timeline: &Timeline) -> bool {
    timeline.of(|what| matches!(what, What::Read)).next().is_some()
}

/// The writes of one round that the socket held until an acknowledgement came that had taken longer than the path.
fn waited_for_an_ack(timeline: &Timeline, context: &Context) -> Vec<HeldWrite> {
    let scheduled = stage(timeline, |what| matches!(what, What::Scheduled));
    let left = stage(timeline, |what| matches!(what, What::Left));
    let received = stage(timeline, |what| matches!(what, What::Received));
    let read = stage(timeline, |what| matches!(what, What::Read));
    let mut acks: Vec<(Instant, u64)> =
        timeline.of(|what| matches!(what, What::Acked)).map(|event| (event.at, event.bytes.end)).collect();
    acks.sort_unstable();
    let mut queues: Vec<(u64, SendQueue)> = timeline
        .events()
        .iter()
        .filter_map(|event| match event.what {
            What::SendQueue(queue) => Some((event.bytes.end, queue)),
            _ => None,
        })
        .collect();
    queues.sort_unstable_by_key(|&(end, _)| end);

    let judge = |event: &taut_time::Event| {
        let end = event.bytes.end;
        let queue = queues.binary_search_by_key(&end, |&(end, _)| end).ok().map(|index| queues[index].1)?;
        let passed_on = reached(&scheduled, end).or_else(|| reached(&left, end))?;
        let hold = passed_on.saturating_since(event.at);
        if !may_be_held(&queue) || hold < LEAST_HOLD {
            return None;
        }
        // The last acknowledgement of bytes before this write that came before it left.
        let until = acks.partition_point(|&(at, _)| at <= passed_on + RELEASE);
        let &(at, acked) = acks[..until].iter().rev().find(|&&(_, acked)| acked <= event.bytes.start)?;
        let delay = at.saturating_since(reached(&left, acked).or_else(|| reached(&scheduled, acked))?);
        let released = passed_on.saturating_since(at) <= RELEASE;
        let delayed = delay.saturating_sub(context.min_rtt) >= LEAST_DELAY;
        let late_reader = reached(&received, acked).zip(reached(&read, acked)).is_some_and(|(received, read)| {
            read.saturating_since(received) >= LATE_READ
                && at.signed_since(read).unsigned_abs() <= RELEASE.as_nanos() as u64
        });
        (released && delayed && !late_reader).then_some(HeldWrite {
            end,
            hold,
            released_by: Release { end: acked, at, delay },
        })
    };
    timeline.of(|what| matches!(what, What::WriteEnd)).filter_map(judge).collect()
}

/// Whether the state of the socket is the one in which Nagle's algorithm holds (`tcp_nagle_check`).
const fn may_be_held(queue: &SendQueue) -> bool {
    queue.unsent_bytes > 0
        && queue.unsent_bytes < queue.mss_bytes
        && queue.in_flight_segments >= 1
        && queue.in_flight_segments < queue.congestion_window_segments
        && match queue.window_room_bytes {
            Some(room) => queue.unsent_bytes <= room,
            // Kernels before 5.4 do not tell the window.
            None => true,
        }
}

fn stage(timeline: &Timeline, wanted: impl Fn(&What) -> bool) -> Vec<(u64, Instant)> {
    let mut reached: Vec<(u64, Instant)> = timeline.of(wanted).map(|event| (event.bytes.end, event.at)).collect();
    reached.sort_unstable();
    reached.dedup_by_key(|&mut (end, _)| end);
    reached
}

/// When the byte before `end` reached the stage: the time of the first position at or after it (one stamp a segment).
fn reached(stage: &[(u64, Instant)], end: u64) -> Option<Instant> {
    stage.get(stage.partition_point(|&(position, _)| position < end)).map(|&(_, at)| at)
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

/// What such a delay looks like. A peer that does not tell when it reads may have acknowledged because
/// its program read late; that takes any time, and only the time of a known timer speaks for one.
fn whose_timer(delay: Duration, tells_its_reads: bool) -> &'static str {
    match (delay.as_millis(), tells_its_reads) {
        (36..=50, _) => "the delayed-ACK timer of Linux (40 ms, rounded up to its tick)",
        (180..=220, _) => "a delayed-ACK timer of 200 ms, as BSD and older Windows have it",
        (_, true) => "a delayed-ACK timer unlike that of Linux",
        (_, false) => {
            "a delayed-ACK timer unlike that of Linux, or a program that reads so late: this peer does not tell when it \
             reads, so the two can't be told apart"
        }
    }
}

fn remedy(context: &Context) -> String {
    let first = if context.several_writes {
        "Hand over a whole message with one writev, or switch the algorithm off"
    } else {
        "Switch the algorithm off on the sending socket"
    };
    format!(
        "{first}: setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){{1}}, sizeof(int)); where only the receiver can be \
         changed, set TCP_QUICKACK after each read, or TCP_DELACK_MAX_US (Linux 6.15)."
    )
}

fn millis(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use taut_time::{ByteRange, Event, Framing, Host, Layer};

    use super::*;

    const PERIOD_MS: u64 = 10;
    const SIZE: u64 = 128;

    fn context(nagle: bool) -> Context {
        Context { on: "test".to_owned(), nagle, min_rtt: Duration::from_micros(50), several_writes: false }
    }

    /// A sender of one message each 10 ms under Nagle's algorithm to a peer with this ACK delay, as
    /// the kernel would report it.
    fn simulate(messages: u64, ack_delay: Duration) -> Timeline {
        simulate_path(messages, || ack_delay)
    }

    /// The same with an ACK delay that varies.
    fn simulate_path(messages: u64, mut ack_delay: impl FnMut() -> Duration) -> Timeline {
        let mut timeline = Timeline::new(Framing::Stream);
        let ms = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut push = |at, what, end: u64| {
            let bytes = ByteRange::new(end - SIZE, end);
            timeline.push(Event { at, host: Host::Local, layer: Layer::Socket, what, bytes });
        };
        let mut ack_due: Option<(Instant, u64)> = None;
        let mut waiting = 0;
        let mut sent = 0;
        for i in 0..messages {
            let (now, end) = (ms(i * PERIOD_MS), (i + 1) * SIZE);
            while let Some((due, acked)) = ack_due.filter(|&(due, _)| due <= now) {
                push(due, What::Acked, acked);
                ack_due = None;
                if waiting > 0 {
                    let at = due + Duration::from_micros(5);
                    push(at, What::Scheduled, sent + waiting);
                    push(at, What::Left, sent + waiting);
                    sent += waiting;
                    waiting = 0;
                    ack_due = Some((at + ack_delay(), sent));
                }
            }
            push(now, What::Intended, end);
            push(now, What::WriteBegin, end);
            push(now, What::WriteEnd, end);
            if ack_due.is_some() {
                waiting += SIZE;
                let queue = SendQueue {
                    unsent_bytes: waiting as u32,
                    in_flight_segments: 1,
                    congestion_window_segments: 10,
                    window_room_bytes: Some(65_535),
                    mss_bytes: 1460,
                };
                push(now, What::SendQueue(queue), end);
            } else {
                push(now, What::Scheduled, end);
                push(now, What::Left, end);
                sent = end;
                ack_due = Some((now + ack_delay(), end));
            }
        }
        timeline
    }

    #[test]
    fn a_peer_with_a_56_ms_timer_is_found() {
        let finding = find(&[simulate(1000, Duration::from_millis(56))], &context(true)).unwrap();
        assert_eq!(finding.cause, "nagle_delayed_ack");
        assert!(finding.share > 0.95, "{}", finding.share);
        assert!((20_000_000..40_000_000).contains(&finding.cost_ns), "{}", finding.cost_ns);
    }

    #[test]
    fn a_prompt_peer_and_a_socket_with_nodelay_are_not() {
        assert_eq!(find(&[simulate(1000, Duration::from_micros(60))], &context(true)), None);
        assert_eq!(find(&[simulate(1000, Duration::from_millis(56))], &context(false)), None);
    }

    #[test]
    fn a_long_path_is_no_delayed_ack() {
        let context = Context { min_rtt: Duration::from_millis(54), ..context(true) };
        assert_eq!(find(&[simulate(1000, Duration::from_millis(56))], &context), None);
    }

    /// Uniform between two times in ms, and a timer of so many ms on top of it.
    fn path(from: u64, to: u64, timer: u64) -> impl FnMut() -> Duration {
        let mut seed = 1_u64;
        move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Duration::from_micros(1000 * (timer + from) + (seed >> 33) % (1000 * (to - from)))
        }
    }

    /// Prompt acknowledgements over a path of varying length, as over Wi-Fi: what waits behind the
    /// long ones waits for the path.
    #[test]
    fn a_path_of_varying_length_is_no_delayed_ack() {
        for (from, to) in [(4, 30), (1, 60), (9, 35), (2, 12), (20, 120)] {
            let context = Context { min_rtt: Duration::from_millis(from), ..context(true) };
            for messages in [100, 1000] {
                let found = find(&[simulate_path(messages, path(from, to, 0))], &context);
                assert_eq!(found, None, "{from} to {to} ms, {messages} messages");
            }
        }
    }

    /// The same paths with a timer at their end: it stands out of what the path may take.
    #[test]
    fn a_delayed_ack_is_found_on_a_path_of_varying_length() {
        for (from, to) in [(4, 30), (1, 20)] {
            let context = Context { min_rtt: Duration::from_millis(from), ..context(true) };
            let finding = find(&[simulate_path(1000, path(from, to, 40))], &context).unwrap();
            assert!(finding.share > 0.5 && finding.share_of == Unit::Writes, "{finding:?}");
        }
    }

    /// A timer of 40 ms, and a program whose reads let a third of the acknowledgements go before: both are seen.
    #[test]
    fn a_timer_is_found_beside_acknowledgements_of_reads() {
        let mut turn = 0;
        let delays = move || {
            turn += 1;
            Duration::from_micros(if turn % 3 == 0 { 15_000 + turn % 7 * 2_000 } else { 40_000 + turn % 5 * 800 })
        };
        let finding = find(&[simulate_path(1000, delays)], &context(true)).unwrap();
        assert!(finding.share > 0.3, "{finding:?}");
    }

    /// Of a peer that does not tell its reads, only the time of a known timer is taken for one.
    #[test]
    fn a_late_reader_that_can_not_be_told_from_a_timer_is_said_to_be_so() {
        let evidence = |timeline| find(&[timeline], &context(true)).unwrap().evidence.join(" ");
        assert!(evidence(simulate(1000, Duration::from_millis(56))).contains("can't be told apart"));
        assert!(evidence(simulate(1000, Duration::from_millis(42))).contains("timer of Linux (40 ms"));
        let mut telling = simulate(1000, Duration::from_millis(56));
        let reads: Vec<Event> = telling
            .of(|what| matches!(what, What::Left))
            .map(|event| Event {
                at: event.at + Duration::from_micros(50),
                host: Host::Peer,
                what: What::Read,
                ..*event
            })
            .collect();
        telling.extend(reads);
        assert!(!evidence(telling).contains("can't be told apart"));
    }

    /// 100 bytes of room and 128 to send: the window holds them, whatever else is in flight.
    #[test]
    fn a_window_full_of_bytes_in_flight_is_no_nagle() {
        let mut timeline = Timeline::new(Framing::Stream);
        for event in simulate(1000, Duration::from_millis(56)).events() {
            let mut event = *event;
            if let What::SendQueue(queue) = &mut event.what {
                queue.window_room_bytes = Some(100);
            }
            timeline.push(event);
        }
        assert_eq!(find(&[timeline], &context(true)), None);
    }

    #[test]
    fn one_stall_is_no_finding() {
        let mut timeline = simulate(1000, Duration::from_micros(60));
        timeline.extend(simulate(6, Duration::from_millis(44)).events().iter().copied());
        assert_eq!(find(&[timeline], &context(true)), None);
    }

    #[test]
    fn a_full_window_is_no_nagle() {
        let mut timeline = Timeline::new(Framing::Stream);
        for event in simulate(1000, Duration::from_millis(56)).events() {
            let mut event = *event;
            if let What::SendQueue(queue) = &mut event.what {
                queue.in_flight_segments = queue.congestion_window_segments;
            }
            timeline.push(event);
        }
        assert_eq!(find(&[timeline], &context(true)), None);
    }
}
