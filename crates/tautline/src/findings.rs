//! From what was measured to what it means: hands timelines to the explainer and puts the answers together.

use taut_explain::{Finding, Proof, Stage, Unit, air as radio, broker, l2cap, ledger, nagle};
use taut_link::Endpoint;
use taut_measure::Interrupt;
use taut_measure::air::{self, AirOutcome, AirPlan};
use taut_measure::echo::{BrokerTrial, EchoOutcome, EchoPlan, EchoSubject};
use taut_measure::pace::PaceOutcome;
use taut_measure::stream::Direction;
use taut_measure::tune::TuneOutcome;
use taut_measure::tune::radio::{RadioOutcome, RadioPlan};
use taut_record::{
    AirSetting, CrowdRow, Ended, PlacementKind, Starvation, StreamRow, TcpFacts, TuneRow, Verdict, WatchRow,
    WatchedLoss,
};
use taut_report::units;
use taut_time::{Duration, Timeline};

use crate::kept::Kept;

/// The cause of what helped and no detector named.
pub(crate) const SETTING_HELPS: &str = "setting_helps";

/// What the host's connections lose, the longest time first.
pub(crate) fn of_watch(row: &WatchRow) -> Vec<Finding> {
    row.losses.iter().map(of_loss).collect()
}

fn of_loss(loss: &WatchedLoss) -> Finding {
    let sentence = |text: &str| {
        let mut letters = text.chars();
        letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
    };
    let connections = match loss.connections {
        1 => "1 connection".to_owned(),
        many => format!("{} connections", units::count(many)),
    };
    let peer = loss.worst_peer_program.as_ref().map_or_else(String::new, |peer| format!(" ({peer})"));
    let trace = loss.place.pid.map(|pid| {
        let is_nagle = loss.place.cause == nagle::CAUSE;
        let rest = if is_nagle { " --try nodelay` tries it" } else { "` shows each wait" };
        format!(" `sudo taut trace --pid {pid}{rest}.")
    });
    Finding {
        cause: loss.place.cause.clone(),
        summary: sentence(&loss.summary),
        on: format!("{}, {connections}", loss.place.name()),
        share: loss.worst_share,
        share_of: Unit::ConnectionTime,
        cost_ns: loss.lost_ns,
        evidence: vec![format!("the worst is {}{peer}", loss.worst_ends())],
        remedy: sentence(&loss.remedy) + &trace.unwrap_or_default(),
        proof: None,
    }
}

/// Explains a pacing run, fills in its ledger, and keeps its events with the number of its row.
pub(crate) fn of_pace(outcome: &mut PaceOutcome, number: usize, kept: &mut Kept) -> Vec<Finding> {
    let row = &mut outcome.row;
    // One round's messages at a time: there may be millions.
    row.ledger_ns = ledger(outcome.timelines.iter().flat_map(Timeline::messages))
        .iter()
        .filter(|(stage, _)| *stage != Stage::Broker || row.broker.is_some())
        .map(|(stage, time)| (stage.name().to_owned(), u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
        .collect();
    let context = nagle::Context {
        on: format!("pace {}, {}", row.endpoint, row.peer),
        nagle: row.nagle.unwrap_or(false),
        min_rtt: min_rtt(row.tcp),
        several_writes: false,
    };
    kept.keep(number, &context, &outcome.timelines);
    let mut findings: Vec<Finding> = nagle::find(&outcome.timelines, &context).into_iter().collect();
    if let Some(p50_ns) = row.delivery_ns.and_then(|times| times.p50.time()) {
        findings.extend(of_messages("pace", &row.endpoint, &row.options, p50_ns));
    }
    if matches!(outcome.ended, Ended::PeerGone(_)) {
        let facts = l2cap::Facts::of(&row.options);
        let still = l2cap::of_standstill(&facts, &format!("pace {}", row.endpoint), false, row.message_bytes);
        findings.extend(still);
    }
    findings
}

/// Explains a throughput run, and how it ended.
pub(crate) fn of_stream(row: &StreamRow, ended: &Ended) -> Vec<Finding> {
    let on = format!("stream {} {}", row.direction, row.endpoint);
    if matches!(ended, Ended::PeerGone(_)) {
        let facts = l2cap::Facts::of(&row.options);
        let ways = [row.direction != "down", row.direction != "up"];
        let ways = [false, true].into_iter().zip(ways).filter_map(|(down, sent)| sent.then_some(down));
        let still = ways.filter_map(|down| l2cap::of_standstill(&facts, &on, down, row.block_bytes)).next();
        if still.is_some() {
            return still.into_iter().collect();
        }
    }
    of_stream_with(on, row.direction == "down", row.block_bytes, row.throughput_bps, &row.options)
}

fn of_stream_with(on: String, down: bool, block_bytes: u64, throughput_bps: f64, options: &[String]) -> Vec<Finding> {
    l2cap::of_stream(&l2cap::Facts::of(options), &l2cap::Stream { on, down, block_bytes, throughput_bps })
}

fn of_messages(workload: &str, endpoint: &str, options: &[String], p50_ns: u64) -> Vec<Finding> {
    let messages = l2cap::Messages { on: format!("{workload} {endpoint}"), p50_ns };
    l2cap::of_messages(&l2cap::Facts::of(options), &messages)
}

/// Explains the base of a tuned radio link, and what its new connection came to; what helped is the proof.
pub(crate) fn of_radio_tune(plan: &RadioPlan, outcome: &RadioOutcome) -> Vec<Finding> {
    let down = plan.direction == Direction::Down;
    let on = format!("stream {} {}", plan.direction.name(), plan.endpoint);
    let Some((before_bps, after_bps)) = outcome.gain_bps else { return Vec::new() };
    let mut findings = of_stream_with(on.clone(), down, plan.block_bytes as u64, before_bps, &outcome.base_options);
    // A new connection may show what the first one, made by somebody else's limits, does not.
    let lasting = l2cap::Messages { on, p50_ns: 0 };
    findings.extend(l2cap::of_messages(&l2cap::Facts::of(&outcome.lasting_options), &lasting));
    let best = outcome.rows.iter().find(|row| row.place == "all that helped");
    if let (Some(best), Some(finding)) = (best, findings.first_mut()) {
        let (change, command) = (best.setting.clone(), plan.command.clone());
        finding.proof = Some(Proof { change, command, before_bps, after_bps });
    }
    findings
}

/// Explains the observed rows of an echo run, of which the first is to have this number, and keeps
/// their events.
pub(crate) fn of_echo(outcome: &EchoOutcome, first: usize, kept: &mut Kept) -> Vec<Finding> {
    // A subject of which nothing was measured has no row.
    let measured =
        outcome.rows.iter().zip(&outcome.timelines).filter_map(|(row, timeline)| Some((row.as_ref()?, timeline)));
    let explain = |(index, (row, timeline)): (usize, (&taut_record::EchoRow, &Option<Timeline>))| {
        let timeline = std::slice::from_ref(timeline.as_ref()?);
        let context = nagle::Context {
            on: format!("echo {} ({})", row.endpoint, row.writes),
            // Who holds round trips over a broker is tried ([`of_brokers`]), which tells more.
            nagle: row.nagle.unwrap_or(false) && !has_broker(&row.endpoint),
            min_rtt: min_rtt(row.tcp),
            several_writes: row.writes != "write",
        };
        kept.keep(first + index, &context, timeline);
        nagle::find(timeline, &context)
    };
    let held: Vec<Finding> = measured.enumerate().filter_map(explain).collect();
    let radio = outcome
        .rows
        .iter()
        .flatten()
        .filter_map(|row| Some(of_messages("echo", &row.endpoint, &row.options, row.rtt_ns?.p50.time()?)));
    held.into_iter().chain(radio.flatten()).collect()
}

fn has_broker(endpoint: &str) -> bool {
    endpoint.parse::<Endpoint>().is_ok_and(|endpoint| endpoint.has_broker())
}

/// Where round trips over a broker are long, tries who holds them: some seconds for each such endpoint.
pub(crate) fn of_brokers(
    plan: &EchoPlan,
    subjects: &[EchoSubject],
    outcome: &EchoOutcome,
    interrupt: &Interrupt,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tried = Vec::new();
    for (subject, row) in subjects.iter().zip(&outcome.rows) {
        let long = row.as_ref().and_then(|row| row.rtt_ns?.p90.time()).is_some_and(BrokerTrial::is_worth);
        if !long || !subject.endpoint.has_broker() || tried.contains(&&subject.endpoint) || interrupt.is_set() {
            continue;
        }
        tried.push(&subject.endpoint);
        // Of what fails there is nothing to say: the run itself did not.
        let Ok(trial) = BrokerTrial::run(plan, subject, interrupt) else { continue };
        findings.extend(broker::find(&broker::Tried {
            on: &format!("echo {}", subject.endpoint),
            broker: trial.broker.as_deref(),
            as_asked: &trial.as_asked,
            nodelay: &trial.nodelay,
            prompt: &trial.prompt,
        }));
    }
    findings
}

/// Explains the base of a tuning run, whose row is to have this number, keeps its events, and names
/// the setting that helps most.
pub(crate) fn of_tune(outcome: &TuneOutcome, number: usize, kept: &mut Kept) -> Vec<Finding> {
    let Some(base) = outcome.rows.first() else { return Vec::new() };
    let placed = base.placement.as_ref().map(|placement| placement.kind).filter(|kind| *kind != PlacementKind::Free);
    let placed = placed.map_or_else(String::new, |kind| format!(", {}", kind.name()));
    let context = nagle::Context {
        on: format!("{} {}{placed}", base.measured, base.endpoint),
        nagle: true,
        min_rtt: min_rtt(outcome.base_tcp),
        several_writes: base.measured == "write-write-read",
    };
    kept.keep(number, &context, &outcome.base_timelines);
    let finding = nagle::find(&outcome.base_timelines, &context);
    of_tuned(&outcome.rows.iter().collect::<Vec<_>>(), &context.on, finding)
}

/// What was found in the base of these rows, with what helped.
pub(crate) fn of_tuned(rows: &[&TuneRow], on: &str, mut finding: Option<Finding>) -> Vec<Finding> {
    let best = best_setting(rows);
    if let (Some(finding), Some(best)) = (&mut finding, best) {
        finding.remedy = format!("{} Tried here: {}.", finding.remedy, describe(best));
    }
    let setting = best.filter(|_| finding.is_none()).map(|best| Finding {
        cause: SETTING_HELPS.to_owned(),
        summary: format!("`{}` ({}) shortens this path.", best.setting, best.place),
        on: on.to_owned(),
        share: 1.0,
        share_of: Unit::Messages,
        cost_ns: best.base_p50_ns.unwrap_or(0).saturating_sub(best.p50_ns.unwrap_or(0)),
        evidence: vec![describe(best)],
        remedy: best.apply.clone().unwrap_or_default(),
        proof: None,
    });
    finding.into_iter().chain(setting).collect()
}

/// What binds a link in virtual time. Each suspect's remedies are run; what gains nothing did not
/// bind. The one whose relief gains most stands first.
pub(crate) fn of_air(plan: &AirPlan, outcome: &AirOutcome, interrupt: &Interrupt) -> Vec<Finding> {
    /// Nobody minds less.
    const LEAST_GAIN: f64 = 1.01;
    let seen = radio::Run { scenario: &plan.scenario, outcome: &outcome.outcome };
    let before_bps = outcome.row.throughput_bps;
    let mut findings = Vec::new();
    for suspect in radio::suspects(seen) {
        let proofs = suspect.trials.iter().filter(|_| !interrupt.is_set()).filter_map(|trial| {
            let set: Vec<AirSetting> =
                trial.iter().map(|(name, value)| AirSetting { name: name.clone(), value: value.clone() }).collect();
            let changed = plan.with(&set).ok()?;
            let after = air::run(&changed, interrupt, &mut ()).ok()?;
            let words: Vec<String> = set.iter().map(|set| format!("{}={}", set.name, set.value)).collect();
            let after_bps = after.row.throughput_bps;
            Some(Proof { change: words.join(" "), command: changed.command(), before_bps, after_bps })
        });
        let best = proofs.max_by(|a, b| a.after_bps.total_cmp(&b.after_bps));
        if let Some(proof) = best.filter(|proof| proof.after_bps > before_bps * LEAST_GAIN) {
            let set: Vec<String> = plan.set.iter().map(|set| format!(" {}={}", set.name, set.value)).collect();
            findings.push(suspect.confirmed(format!("{}{}", plan.file, set.concat()), seen, proof));
        }
    }
    findings.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    findings
}

/// Of the findings of several runs, each cause where its relief gains most.
pub(crate) fn most_telling(runs: Vec<Vec<Finding>>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for finding in runs.into_iter().flatten() {
        match findings.iter_mut().find(|other| other.cause == finding.cause) {
            Some(other) if gain(other) < gain(&finding) => *other = finding,
            Some(_) => {}
            None => findings.push(finding),
        }
    }
    findings.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    findings
}

/// What the remedy gave, as a ratio.
fn gain(finding: &Finding) -> f64 {
    finding.proof.as_ref().map_or(1.0, |proof| proof.after_bps / proof.before_bps.max(1.0))
}

/// Names the engines that left links without an answer, and what it costs to look through idle ones.
pub(crate) fn of_crowd(rows: &[CrowdRow]) -> Vec<Finding> {
    let mut named: Vec<&str> = Vec::new();
    let mut findings = Vec::new();
    for row in rows {
        let Some(starved) = row.starved.filter(|_| !named.contains(&row.engine.as_str())) else { continue };
        named.push(&row.engine);
        findings.push(starvation(row, starved));
    }
    findings.extend(idle_scan(rows));
    findings
}

/// That poll(2) takes far longer than the quickest of those held against it, where the fewest of
/// the most links are active.
fn idle_scan(rows: &[CrowdRow]) -> Option<Finding> {
    /// Nobody minds less.
    const LEAST_RATIO: f64 = 2.0;
    let scans = rows.iter().filter(|row| row.engine == "poll" && row.rtt_ns.is_some());
    let poll = scans.min_by_key(|row| (row.active, std::cmp::Reverse(row.connections)))?;
    let alike = rows.iter().filter(|row| (row.active, row.connections) == (poll.active, poll.connections));
    let held_against = alike.filter_map(|row| Some((row, row.compared.as_ref().filter(|other| other.with == "poll")?)));
    let (best, compared) = held_against.min_by(|(_, a), (_, b)| a.p50_ratio.total_cmp(&b.p50_ratio))?;
    let (low, high) = compared.p50_ratio_ci;
    if high * LEAST_RATIO > 1.0 {
        return None;
    }
    let (slow, quick) = (poll.rtt_ns?.p50.time()?, best.rtt_ns?.p50.time()?);
    let (active, connections) = (units::count(poll.active as u64), units::count(poll.connections as u64));
    let mut evidence = vec![format!(
        "the median round trip takes {} with poll and {} with {}: {} times as long (between {} and {} across rounds)",
        units::time(slow),
        units::time(quick),
        best.engine,
        units::number(1.0 / compared.p50_ratio),
        units::number(1.0 / high),
        units::number(1.0 / low),
    )];
    if let (Some(slow), Some(quick)) = (poll.cpu_ns_per_message, best.cpu_ns_per_message) {
        let (slow, quick) = (units::time(slow as u64), units::time(quick as u64));
        evidence.push(format!(
            "a message takes {slow} of the server's CPU time with poll and {quick} with {}",
            best.engine
        ));
    }
    Some(Finding {
        cause: "idle_scan".to_owned(),
        summary: "At each wake-up poll() looks at all connections to find the few that are active.".to_owned(),
        on: format!("crowd of {connections}, {active} active, poll"),
        share: 1.0,
        share_of: Unit::Messages,
        cost_ns: slow.saturating_sub(quick),
        evidence,
        remedy:
            "Wait with something whose cost does not grow with idle connections: epoll, io_uring, or aio_read() of \
                 libtautaio."
                .to_owned(),
        proof: None,
    })
}

fn starvation(row: &CrowdRow, starved: Starvation) -> Finding {
    let Starvation { connections, asked, answered, waited_ns, threads } = starved;
    let [connections, asked_in_words, answered_in_words] = [connections, asked, answered].map(units::count);
    let waited = units::limit(waited_ns);
    let is_glibc = row.engine.starts_with("glibc");
    let (cause, summary, remedy) = if is_glibc {
        (
            "aio_starvation",
            "The C library's POSIX AIO left connections without an answer: each read that waits holds one of its few \
             threads.",
            "Load libtautaio (LD_PRELOAD=libtautaio.so, or link with -ltautaio before libc): the same <aio.h>, and no thread \
             for a read that waits. With glibc alone, aio_init() with a thread for each connection, before the first \
             operation.",
        )
    } else {
        ("crowd_starvation", "The engine left connections without an answer.", "Look at what the server waited for.")
    };
    Finding {
        cause: cause.to_owned(),
        summary: summary.to_owned(),
        on: format!("crowd of {connections}, {}", row.engine),
        share: (asked - answered) as f64 / asked.max(1) as f64,
        share_of: Unit::Connections,
        cost_ns: waited_ns,
        evidence: vec![
            format!(
                "{answered_in_words} of {asked_in_words} connections that were sent a message answered, until nothing came for {waited}"
            ),
            format!("the server had {threads} threads for {connections} connections"),
        ],
        remedy: remedy.to_owned(),
        proof: None,
    }
}

/// The setting that shortens the median most, in the fresh rounds that confirmed it.
fn best_setting<'a>(rows: &[&'a TuneRow]) -> Option<&'a TuneRow> {
    rows.iter()
        .copied()
        .filter(|row| row.verdict == Verdict::Shorter)
        .min_by(|a, b| a.p50_ratio.unwrap_or(1.0).total_cmp(&b.p50_ratio.unwrap_or(1.0)))
}

fn describe(row: &TuneRow) -> String {
    let (ratio, (low, high)) = (row.p50_ratio.unwrap_or(1.0), row.p50_ratio_ci.unwrap_or((1.0, 1.0)));
    let [ratio, least, most] = [ratio, high, low].map(gained);
    format!("`{}` makes the median {ratio} (between {least} and {most} across rounds)", row.setting)
}

/// `44.0 times shorter`, or of less than twice `2.10 % shorter`, where a number of times would say little.
fn gained(ratio: f64) -> String {
    match ratio {
        ratio if ratio <= 0.5 => format!("{} times shorter", units::number(1.0 / ratio)),
        ratio => units::ratio_in_words(ratio),
    }
}

fn min_rtt(tcp: Option<TcpFacts>) -> Duration {
    Duration::from_nanos(tcp.map_or(0, |tcp| tcp.min_rtt_ns))
}

#[cfg(test)]
mod tests {
    use taut_record::stats::Distribution;
    use taut_record::{Comparison, WatchedPlace};

    use super::*;

    fn row(engine: &str, active: usize, p50_us: u64, ratio_to_poll: Option<(f64, f64)>) -> CrowdRow {
        let times: Distribution = [Duration::from_micros(p50_us)].into_iter().collect();
        CrowdRow {
            endpoint: "tcp://127.0.0.1:0".to_owned(),
            transport: "tcp".to_owned(),
            command: "taut connections".to_owned(),
            engine: engine.to_owned(),
            connections: 10_000,
            active,
            message_bytes: 32,
            rtt_ns: times.summary(),
            cpu_ns_per_message: Some(p50_us as f64 * 900.0),
            cpu_ns_per_message_ci: None,
            cpu_ns_per_message_ci_level: None,
            threads: Some(1),
            rss_bytes: Some(1 << 22),
            exchanges: 1,
            sent: 1,
            lost: 0,
            timeout_ns: 2_000_000_000,
            starved: None,
            why_not: None,
            rounds: Vec::new(),
            compared: ratio_to_poll.map(|ratio| Comparison {
                with: "poll".to_owned(),
                p50_ratio: f64::midpoint(ratio.0, ratio.1),
                p50_ratio_ci: ratio,
                p50_ratio_level: None,
                rounds_needed: None,
                verdict: Verdict::Shorter,
            }),
            cpu_compared: None,
            client_core: None,
            server_core: None,
            placement: None,
            client_spins: false,
        }
    }

    #[test]
    fn a_loss_of_the_host_is_a_finding_with_what_to_try() {
        let loss = |cause: &str, pid| WatchedLoss {
            place: WatchedPlace {
                cause: cause.to_owned(),
                program: Some("db".to_owned()),
                pid,
                side: "client".to_owned(),
                service: "192.0.2.1:80".to_owned(),
            },
            summary: "it waits".to_owned(),
            remedy: "read sooner".to_owned(),
            connections: 2,
            worst_local: "192.0.2.7:999".to_owned(),
            worst_peer: "192.0.2.1:80".to_owned(),
            worst_peer_program: None,
            worst_share: 0.5,
            worst_look_period_ns: 20_000_000,
            lost_ns: 7,
            total_lost_ns: 9,
            stands_ns: 1,
            is_new: true,
        };
        let found = of_loss(&loss("unread", Some(7)));
        assert_eq!((found.summary.as_str(), found.cost_ns, found.share), ("It waits.", 7, 0.5));
        assert_eq!(found.on, "db (7), client of 192.0.2.1:80, 2 connections");
        assert_eq!(found.remedy, "Read sooner. `sudo taut trace --pid 7` shows each wait.");
        assert!(of_loss(&loss(nagle::CAUSE, Some(7))).remedy.ends_with("taut trace --pid 7 --try nodelay` tries it."));
        assert_eq!(of_loss(&loss(nagle::CAUSE, None)).remedy, "Read sooner.");
    }

    #[test]
    fn a_gain_is_told_in_the_words_that_fit_its_size() {
        assert_eq!(
            [0.979, 0.6, 0.5, 0.0227].map(gained),
            ["2.10 % shorter", "40.0 % shorter", "2.00 times shorter", "44.1 times shorter"]
        );
    }

    #[test]
    fn a_scan_of_idle_connections_is_named_where_it_costs_most() {
        let rows = [
            row("poll", 1, 1700, None),
            row("epoll", 1, 20, Some((0.010, 0.014))),
            row("uring", 1, 19, Some((0.010, 0.013))),
            row("poll", 1000, 9700, None),
            row("epoll", 1000, 7500, Some((0.7, 0.9))),
        ];
        let findings = of_crowd(&rows);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].cause.as_str(), findings[0].cost_ns / 10_000), ("idle_scan", 168));
        assert_eq!(findings[0].on, "crowd of 10,000, 1 active, poll");
        assert!(findings[0].evidence[0].contains("with uring: 87.0 times as long"), "{:?}", findings[0].evidence);
    }

    #[test]
    fn no_scan_is_named_where_it_makes_little_difference_or_was_not_held_against_anything() {
        assert_eq!(of_crowd(&[row("poll", 1000, 9700, None), row("epoll", 1000, 7500, Some((0.3, 0.6)))]), []);
        assert_eq!(of_crowd(&[row("poll", 1, 1700, None), row("epoll", 1, 20, None)]), []);
        assert_eq!(of_crowd(&[row("epoll", 1, 20, None)]), []);
        assert_eq!(of_crowd(&[]), []);
    }

    #[test]
    fn each_engine_that_starves_is_named_once() {
        let starved = Starvation { connections: 40, asked: 40, answered: 10, waited_ns: 2_000_000_000, threads: 21 };
        let starving =
            |engine: &str, active| CrowdRow { starved: Some(starved), rtt_ns: None, ..row(engine, active, 1, None) };
        let findings = of_crowd(&[starving("glibc-aio", 1), starving("glibc-aio", 10), starving("tokio", 1)]);
        let causes: Vec<&str> = findings.iter().map(|finding| finding.cause.as_str()).collect();
        assert_eq!(causes, ["aio_starvation", "crowd_starvation"]);
        assert!((findings[0].share - 0.75).abs() < 1e-9);
        assert!(findings[0].evidence[0].starts_with("10 of 40 connections"), "{:?}", findings[0].evidence);
    }
}
