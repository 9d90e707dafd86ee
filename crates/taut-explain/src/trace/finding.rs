//! From what was booked to what is wrong: a cause is one line in [`CAUSES`] or [`INWARD`].

use taut_event::{AckSentBy, Direction as Way, Holder, Kind, Listening, LocalKind, SocketState};

use super::connection::Connection;
use super::tally::ack_index;
use crate::channel::{CAUSES as CAUSES_OF_LE, CLASSIC_CAUSES};
use crate::engine::{Certainty, Cost, Evidence, Found, Verdict, VerdictOn};
use crate::words;

/// Less is no finding.
const LEAST_SHARE: f64 = 0.01;
/// Fewer stretches are chance, unless they take much of the time.
const LEAST_EPISODES: u64 = 3;
const MUCH: f64 = 0.05;
/// A single stretch as long as this is told whatever its share.
pub(super) const STALL_NS: u64 = 200_000_000;
/// A program that is woken up takes some time to read; shorter waits are that.
const WAKE_UP_NS: u64 = 1_000_000;
/// A program that waits in accept(2) may have no processor for so long. Where that is not seen, it is no cause.
const SCHEDULED_NS: u64 = 20_000_000;
/// The same of a device that takes what it is given.
const HAND_OVER_NS: u64 = 100_000;

/// The cause that a connection did not open at once.
const OPENING: &str = "handshake_repeated";
const FULL: &str = "The accept queue of the listening socket is full: the kernel drops what opens a connection";
const ACCEPT: &str = "In the listening program: accept sooner, or a larger backlog (listen(2), and net.core.somaxconn, \
                      which limits it).";

/// The cause that a connection waited in the queue of its listening socket.
const ACCEPTING: &str = "accept_late";
const FULL_WHILE_WAITING: &str = "The accept queue of the listening socket was full: connections waited in it, and the kernel drops what opens another one";

/// The accept queue that may be behind it: that of the other end, or that of the program itself.
fn queue_of(cause: &Cause, connection: &Connection) -> Option<Listening> {
    let is_own = connection.tally.was_awaited;
    let is_behind = if is_own { cause.name == ACCEPTING } else { cause.name == OPENING || cause.name == "loss" };
    connection.tally.listening.filter(|_| is_behind)
}

struct Cause {
    name: &'static str,
    holders: &'static [Holder],
    summary: &'static str,
    remedy: &'static str,
}

const CAUSES: [Cause; 10] = [
    Cause {
        name: "nagle_delayed_ack",
        holders: &[Holder::Nagle],
        summary: "Nagle's algorithm held small writes until the peer acknowledged the one before",
        remedy: "On the sender: set TCP_NODELAY, or hand over each message with one write. (On the receiver, \
                 TCP_QUICKACK after each read shortens it.)",
    },
    Cause {
        name: "cork",
        holders: &[Holder::Cork],
        summary: "TCP_CORK held small writes",
        remedy: "On the sender: clear TCP_CORK at the end of each message. What the program does between setting and \
                 clearing it is waited for, too: set it when the message is ready.",
    },
    Cause {
        name: "receiving_program",
        holders: &[Holder::ReceivingProgram],
        summary: "The receiving program read too slowly: its receive window was closed",
        remedy: "On the receiver: read sooner. What the program does between two reads is the cause; a larger buffer \
                 only puts it off.",
    },
    Cause {
        name: "receive_window",
        holders: &[Holder::ReceiveWindow],
        summary: "The receive window was full: the receive buffer is small for this path, or its program reads late",
        remedy: "On the receiver: read sooner; leave SO_RCVBUF unset, or raise it (and net.ipv4.tcp_rmem, \
                 net.core.rmem_max) to the rate wanted times the round trip.",
    },
    Cause {
        name: "send_buffer",
        holders: &[Holder::SendBuffer],
        summary: "The send buffer was full while nothing else kept the data",
        remedy: "On the sender: leave SO_SNDBUF unset, or raise it (and net.ipv4.tcp_wmem).",
    },
    Cause {
        name: "loss",
        holders: &[Holder::LossRecovery, Holder::TailLossProbe, Holder::RetransmissionTimeout],
        summary: "Lost segments were sent again",
        remedy: "Find where the path drops packets.",
    },
    Cause {
        name: "handshake_repeated",
        holders: &[Holder::Handshake],
        summary: "Nobody answered the connection's first segment, which was sent again",
        remedy: "Find out why the other end does not answer: a full accept queue there (ss -lnt), a firewall that \
                 drops, no such host, or losses on the path.",
    },
    Cause {
        name: "pacing",
        holders: &[Holder::Pacing],
        summary: "Pacing spaced the segments",
        remedy: "On the sender: look at SO_MAX_PACING_RATE; without it the congestion control (net.ipv4.\
                 tcp_congestion_control) sets the rate.",
    },
    Cause {
        name: "congestion_window",
        holders: &[Holder::CongestionWindow, Holder::SlowStart],
        summary: "The congestion window was full",
        remedy: "Keep the connection open and warm, or look at the path: its losses and its queue set this window.",
    },
    Cause {
        name: "device_queue",
        holders: &[Holder::DeviceQueue],
        summary: "What had left the socket waited in the queue of this host's network device",
        remedy: "On the sender's host: `tc -s qdisc` shows the queues. Look for a rate that is set there (tbf, htb), and \
                 for who else sends over the device. If the device itself is no faster, send less, or give what must not \
                 wait a queue of its own (fq_codel, prio).",
    },
];

const INWARD: [Cause; 3] = [
    Cause {
        name: "receiving_program",
        holders: &[Holder::ReceivingProgram],
        summary: "What had arrived waited for this program to read it",
        remedy: "In the traced program: read sooner. What it does between two reads is the cause.",
    },
    Cause {
        name: "processor",
        holders: &[Holder::Processor],
        summary: "What had arrived waited for this program, which was ready to run and had no processor",
        remedy: "On this machine: let it run sooner. Look for what runs on its processors (top, taskset, cpuset, \
                 cpu.max), and give it a higher priority (nice, chrt) or a processor of its own.",
    },
    Cause {
        name: ACCEPTING,
        holders: &[Holder::AcceptQueue],
        summary: "The connection was open and waited for this program to accept it",
        remedy: "In the listening program: call accept(2) sooner. What it does meanwhile is the cause; a larger backlog \
                 only lets more connections wait.",
    },
];

/// Of what a Unix socket or a pipe is given to send.
const WITHIN_HOST: [Cause; 1] = [Cause {
    name: "receiving_program",
    holders: &[Holder::ReceivingProgram],
    summary: "The other end read too slowly: writes waited for room",
    remedy: "At the other end: read sooner. A larger buffer (SO_SNDBUF; F_SETPIPE_SZ of a pipe) only puts it off.",
}];

const DATAGRAMS: [Cause; 1] = [Cause {
    name: "send_buffer",
    holders: &[Holder::SendBuffer],
    summary: "The send buffer was full: datagrams waited in it for the device",
    remedy: "On the sender: send no faster than the device does. A larger SO_SNDBUF only puts it off.",
}];

/// Of a socket of Bluetooth where what passes below it is not heard.
const ABOVE_RADIO: [Cause; 1] = [Cause {
    name: "send_buffer",
    holders: &[Holder::SendBuffer],
    summary: "The socket's send buffer was full: what the program wrote waited for the radio, and by whom it was held \
              there was not heard",
    remedy: "Trace it with CAP_NET_RAW, from before the channel opens, and with one channel of its PSM on the link: then the credits of the peer, the controller's \
             buffers and the connection interval are told apart.",
}];

const fn of(way: Way) -> &'static [Cause] {
    match way {
        Way::Forward => &CAUSES,
        Way::Backward => &INWARD,
    }
}

const fn of_connection(connection: &Connection, way: Way) -> &'static [Cause] {
    match (connection.local(), way) {
        (Some(LocalKind::Unix | LocalKind::Pipe), Way::Forward) => &WITHIN_HOST,
        (Some(LocalKind::Udp), Way::Forward) => &DATAGRAMS,
        (Some(LocalKind::L2cap | LocalKind::Rfcomm | LocalKind::Sco), Way::Forward) => &ABOVE_RADIO,
        _ => of(way),
    }
}

/// Names of the causes of what the traced socket sends, or receives.
pub fn causes(way: Way) -> impl Iterator<Item = &'static str> {
    of_sockets(way).chain(of_channels(way).map(|(name, _)| *name))
}

/// Those of connections of TCP.
pub(super) fn of_sockets(way: Way) -> impl Iterator<Item = &'static str> {
    of(way).iter().map(|cause| cause.name)
}

/// The causes of channels of Bluetooth, each name once, which only what is sent has here.
fn of_channels(way: Way) -> impl Iterator<Item = &'static (&'static str, &'static [Holder])> {
    let is_new = |one: &&(&str, &[Holder])| CAUSES_OF_LE.iter().all(|(name, _)| *name != one.0);
    let all = CAUSES_OF_LE.iter().chain(CLASSIC_CAUSES.iter().filter(is_new));
    all.filter(move |_| way == Way::Forward)
}

/// The names of those who hold the data where this is the cause; none of an unknown one. What is "not known" besides
/// may be theirs, and no more than that.
pub fn holders(way: Way, cause: &str) -> impl Iterator<Item = &'static str> {
    let of_sockets = of(way).iter().filter(move |one| one.name == cause).flat_map(|one| one.holders);
    let of_channels = of_channels(way).filter(move |one| one.0 == cause).flat_map(|one| one.1);
    of_sockets.chain(of_channels).map(|holder| holder.name())
}

/// What was found in a direction, worst first, then what is not there; with records lost nothing is surely not there.
pub(super) fn verdicts(connection: &Connection, way: Way) -> Vec<VerdictOn> {
    let mut verdicts: Vec<VerdictOn> = of_connection(connection, way)
        .iter()
        .map(|cause| VerdictOn { cause: cause.name.to_owned(), verdict: judge(cause, connection, way) })
        .collect();
    verdicts.sort_by_key(|on| match &on.verdict {
        Verdict::Found(found) => (0, std::cmp::Reverse(found.cost.held_ns)),
        Verdict::Unknown { .. } => (1, std::cmp::Reverse(0)),
        Verdict::Clear => (2, std::cmp::Reverse(0)),
    });
    let count = verdicts.iter().filter(|on| matches!(on.verdict, Verdict::Found(_))).count();
    if let Some(VerdictOn { verdict: Verdict::Found(worst), .. }) = verdicts.first_mut()
        && way == Way::Forward
    {
        // The writes are counted for all causes together.
        let together = if count > 1 { "All causes together: " } else { "" };
        let lines: Vec<Evidence> =
            written(connection).into_iter().map(|line| line_of(format!("{together}{line}"))).collect();
        // The longest stands among the writes' figures.
        let stood = if count == 1 && !lines.is_empty() { 1 } else { 0 };
        worst.evidence.splice(..stood, lines);
    }
    verdicts
}

fn judge(cause: &Cause, connection: &Connection, way: Way) -> Verdict {
    let breakdown = connection.breakdown(way);
    let whole = breakdown.total_ns().max(1);
    let cells = || cause.holders.iter().filter_map(|&holder| breakdown.get(holder));
    let held_ns: u64 = cells().map(|cell| cell.ns).sum();
    let episodes: u64 = cells().map(|cell| cell.episodes).sum();
    let longest = cells().filter_map(|cell| cell.worst.first()).map(|episode| episode.length()).max().unwrap_or(0);
    let share = held_ns as f64 / whole as f64;
    let sees_tasks = connection.flow.coverage.has(Kind::Tasks);
    let usual_ns = match way {
        Way::Backward if cause.name == ACCEPTING && !sees_tasks => SCHEDULED_NS,
        Way::Backward => WAKE_UP_NS,
        Way::Forward if cause.holders.contains(&Holder::DeviceQueue) => HAND_OVER_NS,
        Way::Forward => 0,
    };
    let is_usual = held_ns / episodes.max(1) < usual_ns;
    // Some wait for a processor is normal on a machine that is used.
    let is_of_processor = cause.holders.contains(&Holder::Processor);
    let least = if is_of_processor { MUCH } else { LEAST_SHARE };
    let is_enough = share >= least && (episodes >= LEAST_EPISODES || share >= MUCH) && !is_usual;
    // That it takes a round trip to open is nothing to act on.
    let is_of_opening = cause.name == OPENING;
    let is_enough = if is_of_opening { connection.tally.repeated_openings > 0 } else { is_enough };
    if is_enough || longest >= STALL_NS && !is_of_opening {
        let full = queue_of(cause, connection).filter(|queue| queue.is_full());
        let (summary, side, remedy) = match full {
            Some(_) if cause.name == ACCEPTING => (FULL_WHILE_WAITING, cause.holders[0].side(), ACCEPT),
            Some(_) => (FULL, Holder::ReceivingProgram.side(), ACCEPT),
            None => (cause.summary, cause.holders[0].side(), cause.remedy),
        };
        return Verdict::Found(Found {
            summary: summary.to_owned(),
            side: side.to_string(),
            certainty: Certainty::Seen,
            cost: Cost { held_ns, between_ns: [held_ns; 2], share, episodes },
            evidence: evidence(cause, connection, way, longest),
            remedy: remedy.to_owned(),
        });
    }
    if is_of_processor && !sees_tasks {
        return Verdict::Unknown {
            missing: "when its threads were ready to run and ran was not seen".to_owned(),
            ask: "trace it where the kernel has the tracepoints sched_waking and sched_switch".to_owned(),
        };
    }
    if connection.tally.gaps > 0 {
        return Verdict::Unknown {
            missing: "events were missed".to_owned(),
            ask: "trace one connection with --port".to_owned(),
        };
    }
    Verdict::Clear
}

/// What was seen of one cause.
fn evidence(cause: &Cause, connection: &Connection, way: Way, longest: u64) -> Vec<Evidence> {
    let tally = &connection.tally;
    let mut lines = vec![format!("Longest: {}.", words::time(longest))];
    if way == Way::Forward {
        let state = tally.evidence.iter().rfind(|(holder, _)| cause.holders.contains(holder));
        lines.extend(state.map(|(_, state)| format!("The socket's state then: {}.", told(state))));
    }
    if cause.name == ACCEPTING && tally.is_never_accepted {
        lines.push("It was not accepted while it was traced.".to_owned());
    }
    if way == Way::Backward && cause.name != ACCEPTING {
        lines.extend(connection.readiness.told().iter().flat_map(|told| told.lines()));
    }
    let of_data = tally.repeated - tally.repeated_openings;
    if cause.name == "loss" && of_data > 0 {
        let is_probe = connection.breakdown(way).get(Holder::TailLossProbe).is_some_and(|cell| cell.ns > 0);
        lines.push(match tally.needless {
            0 if is_probe => format!(
                "{of_data} segments were sent again. Those that a loss probe sent were lost, or the peer acknowledged \
                 late."
            ),
            0 => format!("{of_data} segments were sent again."),
            needless => format!(
                "{of_data} segments were sent again, {needless} of them needlessly: the peer had them, as it told (DSACK)."
            ),
        });
    }
    if cause.name == OPENING {
        lines.push(format!(
            "The first segment (SYN) was sent again {}, by the timer.",
            words::times(tally.repeated_openings)
        ));
    }
    if let Some(Listening { waiting, backlog }) = queue_of(cause, connection) {
        let socket = match cause.name {
            ACCEPTING => "Its listening socket meanwhile",
            _ => "The socket that listens there is on this host",
        };
        let (connections, wait) = if waiting == 1 { ("connection", "waits") } else { ("connections", "wait") };
        lines.push(format!(
            "{socket}: {waiting} {connections} {wait} to be accepted, with a backlog of {backlog}{}.",
            if waiting > backlog { ", so the kernel drops what opens another one" } else { ", so there is room" }
        ));
    }
    lines.into_iter().map(line_of).collect()
}

fn line_of(text: String) -> Evidence {
    Evidence { text, frames: None }
}

/// What became of the writes, whatever held them.
fn written(connection: &Connection) -> Vec<String> {
    let tally = &connection.tally;
    if connection.local().is_some() {
        let text = format!(
            "Of {} writes {} waited for room; {} more were refused.",
            tally.writes, tally.waited, tally.refused
        );
        return vec![text];
    }
    let held = (tally.held.count() > 0).then(|| {
        format!(
            "{} of {} writes were still in the socket when the call came back, and stayed for {} more (median), {} at \
             most.",
            tally.held.count(),
            tally.writes,
            words::time(tally.held.median().unwrap_or_default()),
            words::time(tally.held.max())
        )
    });
    held.into_iter().chain(released(connection)).collect()
}

/// Who let the held writes go.
fn released(connection: &Connection) -> Option<String> {
    let tally = &connection.tally;
    let ack = |by| tally.by_ack[ack_index(by)];
    let acks: u64 = tally.by_ack.iter().sum();
    let mut by = Vec::new();
    if acks > 0 {
        let senders = [
            (ack(AckSentBy::DelayedAckTimer), "sent by the peer's delayed-ACK timer"),
            (ack(AckSentBy::Arrival), "sent as data arrived"),
            (ack(AckSentBy::Program), "sent as the peer's program read or wrote"),
        ];
        let seen: Vec<String> =
            senders.iter().filter(|(count, _)| *count > 0).map(|(count, text)| format!("{count} {text}")).collect();
        let seen = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join(", ")) };
        by.push(format!("an ACK {}{seen}", words::times(acks)));
    }
    let others = [
        (tally.by_call, "a later call"),
        (tally.by_write_timer, "the timer of retransmissions and probes"),
        (tally.by_pacing, "the timer of pacing"),
        (tally.by_other, "something not seen"),
    ];
    by.extend(
        others.iter().filter(|(count, _)| *count > 0).map(|(count, text)| format!("{text} {}", words::times(*count))),
    );
    (!by.is_empty()).then(|| format!("Let go by {}.", by.join(", ")))
}

fn told(state: &SocketState) -> String {
    let option =
        |name: &str, is_set: Option<bool>| is_set.map(|is_set| format!("{name} {}", if is_set { "on" } else { "off" }));
    let mut facts = vec![
        format!("{} unsent", words::bytes(state.unsent_bytes.into())),
        format!("{} in flight in {}", words::bytes(state.in_flight_bytes.into()), segments(state.in_flight_segments)),
        format!("congestion window {}", segments(state.congestion_window_segments)),
    ];
    facts.extend(state.send_window_bytes.map(|window| format!("receive window {}", words::bytes(window.into()))));
    if state.device_bytes > 0 {
        facts.push(format!("{} in the device's queue", words::bytes(state.device_bytes.into())));
    }
    facts.push(format!("largest segment {}", words::bytes(state.mss_bytes.into())));
    facts.extend(option("TCP_NODELAY", state.no_delay));
    facts.extend(option("TCP_CORK", state.cork));
    facts.join(", ")
}

fn segments(count: u32) -> String {
    format!("{count} segment{}", if count == 1 { "" } else { "s" })
}
