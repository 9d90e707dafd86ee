//! Causes in what a host asks servers of DNS.

use taut_event::Holder;

use super::Resolver;
use super::servers::Server;
use crate::engine::{Certainty, Evidence, Found, Verdict, VerdictOn, is_enough};
use crate::words;

/// The causes with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 2] =
    [("dns_retry", &[Holder::Unanswered]), ("peer_turn", &[Holder::PeerTurn])];

/// Timeouts of resolvers as they come, in nanoseconds: of glibc (resolv.conf(5)) and of others.
const DEFAULT_TIMEOUT_NS: std::ops::Range<u64> = 4_900_000_000..5_300_000_000;

/// What each cause comes to, what was found first.
pub(super) fn verdicts(resolver: &Resolver) -> Vec<VerdictOn> {
    let mut all: Vec<VerdictOn> = CAUSES
        .iter()
        .map(|(cause, holders)| VerdictOn { cause: (*cause).to_owned(), verdict: judge(resolver, cause, holders) })
        .collect();
    all.sort_by_key(|on| match on.verdict {
        Verdict::Found(_) => 0,
        Verdict::Unknown { .. } => 1,
        Verdict::Clear => 2,
    });
    all
}

fn judge(resolver: &Resolver, cause: &str, holders: &[Holder]) -> Verdict {
    let cost = resolver.breakdown.cost(holders, resolver.breakdown.total_ns());
    let longest = resolver.breakdown.longest(holders).map_or(0, |episode| episode.length());
    if !is_enough(&cost, longest) {
        if resolver.tally.answers == 0 {
            let missing = if resolver.tally.questions == 0 { "what the client asks" } else { "answers of servers" };
            let ask = "capture where both directions pass";
            return Verdict::Unknown { missing: missing.to_owned(), ask: ask.to_owned() };
        }
        return Verdict::Clear;
    }
    let is_retry = cause == "dns_retry";
    let (summary, more, remedy) = if is_retry { retry(resolver) } else { waited(resolver) };
    Verdict::Found(Found {
        summary,
        side: holders.first().map_or_else(String::new, |holder| holder.side().to_string()),
        certainty: Certainty::Seen,
        cost,
        evidence: [vec![resolver.breakdown.longest_seen(holders)], more].concat(),
        remedy,
    })
}

/// Summary, evidence and remedy.
type Said = (String, Vec<Evidence>, String);

fn retry(resolver: &Resolver) -> Said {
    let tally = &resolver.tally;
    let wait = tally.waits.median().unwrap_or_default();
    let default = if DEFAULT_TIMEOUT_NS.contains(&wait) { ", the default timeout of glibc's resolver" } else { "" };
    let summary = format!(
        "{} of {} DNS questions had no answer when the client asked them again, after {} (median){default}",
        tally.repeated,
        tally.questions,
        words::time(wait)
    );
    let mut evidence = vec![text(servers(resolver))];
    if tally.late > 0 {
        evidence.push(text(format!(
            "{} answers came after the next try: those questions were not lost, the server was slow.",
            tally.late
        )));
    }
    if tally.of_pairs > 0 {
        evidence.push(text(format!(
            "{} only one of two questions sent together (A and AAAA) was answered.",
            words::times(tally.of_pairs)
        )));
    }
    let all = resolver.servers.all();
    let silent = all.iter().filter(|server| server.silent > 0).max_by_key(|server| server.silent);
    let name = silent.map_or_else(|| "the server".to_owned(), Server::name);
    let remedy = if 2 * tally.of_pairs > tally.repeated {
        "On the client: `options single-request-reopen` in /etc/resolv.conf, which sends A and AAAA from two ports. \
         On the way: a firewall or NAT that loses one of two packets sent at once from one port."
            .to_owned()
    } else {
        format!(
            "Find out why {name} does not answer: capture there. Until then, on the client: another server first in \
             /etc/resolv.conf, or `options timeout:1 attempts:3 rotate`; a caching resolver on the client asks less."
        )
    };
    (summary, evidence, remedy)
}

fn waited(resolver: &Resolver) -> Said {
    let times = &resolver.tally.times;
    let summary = format!(
        "The client waited for DNS servers: {} answer{} after {} (median), {} at most",
        times.count(),
        if times.count() == 1 { "" } else { "s" },
        words::time(times.median().unwrap_or_default()),
        words::time(times.max())
    );
    let remedy = "A caching resolver on the client or near it; fewer names to look up (`ndots` and search domains in \
                  /etc/resolv.conf ask for several)."
        .to_owned();
    (summary, vec![text(servers(resolver))], remedy)
}

/// What each server did, those first that left most unanswered.
fn servers(resolver: &Resolver) -> String {
    let mut all: Vec<_> = resolver.servers.all().iter().collect();
    all.sort_by_key(|server| std::cmp::Reverse((server.silent, server.asked)));
    let told = all.iter().take(3).map(|server| {
        let time = server.times.median().map_or_else(String::new, |ns| format!(", {} (median)", words::time(ns)));
        let failures =
            if server.failures > 0 { format!(", {} of them a failure", server.failures) } else { String::new() };
        let (name, answered) = (server.name(), server.answered);
        format!("{name} answered {answered} of {}{failures}{time}", server.asked)
    });
    format!("{}.", told.collect::<Vec<_>>().join("; "))
}

fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}
