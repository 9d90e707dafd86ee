//! What stands of datagrams of UDP in the text on captures.

use std::fmt::Write;

use taut_explain::{DatagramFacts, Direction, DnsFacts, DnsServer, QuicFacts, QuicLogFacts, StreamFacts};

use crate::units;

/// `10.0.0.1:4000 > 10.0.0.2:5000 UDP: 12 kB in 3.00 s, 40 datagrams, 32 kbit/s`.
pub(crate) fn title(direction: &Direction, facts: &DatagramFacts) -> String {
    let Direction { from, to, .. } = direction;
    let span = units::time(direction.span_ns);
    let plural = |count: u64, one: &str| format!("{} {one}{}", units::count(count), if count == 1 { "" } else { "s" });
    if facts.dns.is_some() {
        let again = units::count(facts.repeated);
        return format!(
            "{from} > {to}: {} in {span}, {}, {again} asked again",
            plural(direction.segments, "question"),
            plural(facts.answers, "answer"),
        );
    }
    let protocol = if facts.quic.is_some() { "QUIC" } else { "UDP" };
    let is_log = facts.quic.as_ref().is_some_and(|quic| quic.log.is_some());
    format!(
        "{from} > {to} {protocol}: {} in {span}, {}, {}",
        units::size(direction.bytes),
        plural(direction.segments, if is_log { "packet" } else { "datagram" }),
        units::bit_rate(facts.bits_per_second as f64)
    )
}

/// A sentence or some, for the details.
pub(crate) fn facts(direction: &Direction, facts: &DatagramFacts) -> Vec<String> {
    if let Some(dns) = &facts.dns {
        return questions(facts, dns);
    }
    if let Some((quic, log)) = facts.quic.as_ref().and_then(|quic| Some((quic, quic.log.as_ref()?))) {
        return vec![logged(direction, quic, log)];
    }
    let mut text = format!(
        "{} datagrams of at most {} bytes, {} sent again",
        units::count(direction.segments),
        direction.mss_bytes,
        units::count(facts.repeated)
    );
    if facts.fragmented > 0 {
        let _ = write!(text, "; {} in fragments of IP", units::count(facts.fragmented));
    }
    if let (Some(median), Some(longest)) = (facts.median_answer_ns, facts.longest_answer_ns) {
        let (times, median, longest) = (units::count(facts.answers), units::time(median), units::time(longest));
        let _ = write!(text, "; {times} times something came back, after {median} (median), {longest} at most");
    }
    let mut all = vec![text + "."];
    all.extend(facts.streams.iter().map(stream));
    if let Some(quic) = &facts.quic {
        let mut text = format!("QUIC version {}, first connection ID {}", quic.version, quic.connection_id);
        match quic.spin_rtt_ns {
            Some(ns) => {
                let _ = write!(text, "; by its spin bit the round trip takes {} (median)", units::time(ns));
            }
            None => text.push_str("; its spin bit does not spin"),
        }
        all.push(text + ".");
    }
    all
}

/// What the numbers of RTP or of Tautline's own data tell.
fn stream(stream: &StreamFacts) -> String {
    let mut text = match stream.payload_type {
        Some(kind) => format!("RTP SSRC {}, payload type {kind}", stream.id),
        None => format!("Tautline's session {}", stream.id),
    };
    let share = units::share(stream.lost_packets as f64 / stream.expected_packets.max(1) as f64);
    let (lost, expected) = (units::count(stream.lost_packets), units::count(stream.expected_packets));
    let _ = write!(text, ": {lost} of {expected} packets lost ({share})");
    if stream.gaps > 0 {
        let (gaps, row) = (units::count(stream.gaps), units::count(stream.most_lost_in_a_row));
        let plural = if stream.gaps == 1 { "" } else { "s" };
        let _ = write!(text, " in {gaps} gap{plural}, at most {row} in a row");
    }
    let restarts = if stream.restarts == 1 { "new start" } else { "new starts" };
    let counts = [(stream.overtaken, "overtaken"), (stream.duplicates, "twice"), (stream.restarts, restarts)];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(text, ", {} {what}", units::count(count));
    }
    match (stream.jitter_ns, stream.most_jitter_ns, stream.clock_hz) {
        (Some(last), Some(most), Some(hz)) => {
            let (last, most) = (units::time(last), units::time(most));
            let _ = write!(text, "; jitter {last} at the end, {most} at most (clock of {hz} Hz)");
        }
        _ if stream.payload_type.is_some() => text.push_str("; jitter not known, as its clock is not"),
        _ => {}
    }
    text + "."
}

/// Of a log of QUIC.
fn logged(direction: &Direction, quic: &QuicFacts, log: &QuicLogFacts) -> String {
    let mut text = format!(
        "{} packets of at most {} bytes, {} with data",
        units::count(direction.segments),
        direction.mss_bytes,
        units::count(log.data_packets)
    );
    let counts = [
        (log.lost_packets, "taken for lost"),
        (log.spurious_losses, "of them arrived after all"),
        (log.probes, "probes"),
        (Some(log.blocked), "times blocked by the receiver's limits"),
    ];
    for (count, what) in counts {
        if let Some(count) = count {
            let _ = write!(text, ", {} {what}", units::count(count));
        }
    }
    if direction.peak_flight_bytes > 0 {
        let _ = write!(text, "; at most {} in flight", units::size(direction.peak_flight_bytes));
    }
    if let Some(window) = log.largest_congestion_window_bytes {
        let _ = write!(text, "; congestion window at most {}", units::size(window));
    }
    if direction.min_rtt_ns > 0 {
        let _ = write!(text, "; least RTT {}", units::time(direction.min_rtt_ns));
    }
    if !quic.connection_id.is_empty() {
        let _ = write!(text, "; connection ID {}", quic.connection_id);
    }
    text + ". Frames are numbers of the log's events."
}

fn questions(facts: &DatagramFacts, dns: &DnsFacts) -> Vec<String> {
    let count = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", units::count(count)));
    let told = [
        count(facts.repeated, "asked again before an answer came"),
        count(dns.of_pairs, "of them where the other one of a pair was answered"),
        count(dns.late, "answered after that"),
        count(dns.given_up, "neither answered nor asked again"),
        count(dns.copies, "twice in the capture"),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    let questions = if told.is_empty() { Vec::new() } else { vec![format!("Questions: {}.", told.join(", "))] };
    questions.into_iter().chain(dns.servers.iter().map(server)).collect()
}

fn server(server: &DnsServer) -> String {
    let mut text = format!(
        "{}: {} questions, {} answers, {} unanswered",
        server.address,
        units::count(server.questions),
        units::count(server.answers),
        units::count(server.unanswered)
    );
    if server.failures > 0 {
        let _ = write!(text, ", {} failures", units::count(server.failures));
    }
    if let Some(median) = server.median_answer_ns {
        let _ = write!(text, ", {} (median)", units::time(median));
    }
    text + "."
}
