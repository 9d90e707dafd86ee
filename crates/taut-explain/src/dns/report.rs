//! From a host's questions to their report.

use taut_event::{Direction as Way, FlowKey, Holder};

use super::queries::MOST;
use super::servers::Server;
use super::{Resolver, verdict};
use crate::engine::{Breakdown, DatagramFacts, Direction, DnsFacts, DnsServer, Timed, TimesOf, held};
use crate::udp::rate;

/// The report of what a host asked, with its breakdown and its weight among others. The answers are part of it, and
/// have no report of their own.
pub(crate) fn direction(resolver: &Resolver, way: Way, start: u64) -> Option<(Direction, &Breakdown, u64)> {
    let FlowKey::Dns(client) = resolver.flow.key else { return None };
    let tally = &resolver.tally;
    if way == Way::Backward || resolver.datagrams == 0 {
        return None;
    }
    let breakdown = &resolver.breakdown;
    let dns = DnsFacts {
        given_up: tally.given_up,
        late: tally.late,
        of_pairs: tally.of_pairs,
        copies: tally.copies,
        servers: resolver.servers.all().iter().map(server).collect(),
    };
    let facts = DatagramFacts {
        protocol: "dns".to_owned(),
        bits_per_second: rate(tally.bytes, breakdown.total_ns()),
        fragmented: 0,
        repeated: tally.repeated,
        answers: tally.answers,
        median_answer_ns: tally.times.median(),
        longest_answer_ns: Some(tally.times.max()).filter(|_| tally.times.count() > 0),
        quic: None,
        dns: Some(dns),
        streams: Vec::new(),
    };
    let report = Direction {
        from: client.to_string(),
        to: servers(resolver),
        bytes: tally.bytes,
        segments: tally.questions,
        begin_ns: resolver.begin.unwrap_or(start).saturating_sub(start),
        span_ns: breakdown.total_ns(),
        frames: [tally.first_place, tally.last_place],
        repeated_segments: tally.repeated,
        breakdown: held(breakdown, start),
        verdicts: verdict::verdicts(resolver),
        remarks: remarks(resolver),
        datagrams: Some(facts),
        picture: None,
        ..Direction::default()
    };
    Some((report, breakdown, breakdown.ns(Holder::Unanswered)))
}

/// How long answers took; a question that was asked again had none.
pub(crate) fn times(resolver: &Resolver) -> Vec<Timed<'_>> {
    let tally = &resolver.tally;
    let unanswered = tally.repeated + tally.given_up + tally.forgotten_unanswered;
    let is_known = tally.answers > 0 && tally.questions > 0;
    (tally.questions > 0)
        .then_some(Timed { of: TimesOf::Turn, spread: is_known.then_some(&tally.times), unanswered, is_judged: true })
        .into_iter()
        .collect()
}

fn server(server: &Server) -> DnsServer {
    DnsServer {
        address: server.name(),
        questions: server.asked,
        answers: server.answered,
        unanswered: server.silent,
        failures: server.failures,
        median_answer_ns: server.times.median(),
    }
}

/// `DNS 10.0.0.1, 10.0.0.2`.
fn servers(resolver: &Resolver) -> String {
    let all = resolver.servers.all();
    let names: Vec<String> = all.iter().take(2).map(Server::name).collect();
    let more = if all.len() > 2 { ", …" } else { "" };
    format!("DNS {}{more}", names.join(", "))
}

fn remarks(resolver: &Resolver) -> Vec<String> {
    let mut remarks = Vec::new();
    let tally = &resolver.tally;
    if tally.answers + tally.strays == 0 {
        remarks.push("No answer of a server is in the capture.".to_owned());
    }
    if tally.strays > 0 {
        remarks.push(format!("{} answers are to questions that the capture lacks.", tally.strays));
    }
    if tally.forgotten > 0 {
        remarks.push(format!(
            "{} questions were not followed, as more than {MOST} waited at once; {} of them had no answer.",
            tally.forgotten, tally.forgotten_unanswered
        ));
    }
    if tally.given_up > 0 {
        remarks.push(format!(
            "{} questions were neither answered nor asked again; how long somebody waited for them is not known.",
            tally.given_up
        ));
    }
    remarks
}
