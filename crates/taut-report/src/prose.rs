//! What stands in sentences: the answer, the findings, the host, and how the measurement ended.

use taut_explain::{Finding, Unit};
use taut_record::stats::Quantile;
use taut_record::{AirRow, Counted, Ended, HostFacts, Recording, RouteRow, Verdict};

use crate::Document;
use crate::sheet::{Groups, connections, echo_labels, pace_labels, stream_labels};
use crate::units;
use crate::watched::sentence as watched_in_words;

/// A remark for the top of the page when not all was measured.
pub(crate) fn partial(recording: &Recording) -> Option<String> {
    match &recording.ended {
        Ended::Complete => None,
        Ended::Interrupted => Some("PARTIAL: interrupted".to_owned()),
        Ended::PeerGone(why) => Some(format!("PARTIAL: the peer went away: {why}")),
        Ended::Failed(why) => Some(format!("PARTIAL: a part could not be measured: {why}")),
    }
}

/// That the findings are not those of the Tautline that measured, or not all of them.
pub(crate) fn explained_again(document: &Document) -> Option<String> {
    let again = document.explained_again.as_ref()?;
    let (by, measured) = (&again.by, &document.recording.host.tautline);
    let rounds =
        if again.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", units::count(again.rounds)) };
    let mut text =
        format!("Explained again by Tautline {by}, from the events of {rounds} measured by Tautline {measured}");
    if again.not_again > 0 {
        text += "; where the recording does not keep all events, the findings are those of then";
    }
    Some(text + ".")
}

/// `99.1 % of the writes, 40.2 ms each (median)`; of a radio link, what the remedy gave: `51.5
/// kbit/s, and 230 kbit/s with block=4032`.
pub(crate) fn cost(finding: &Finding) -> String {
    if let Some(proof) = &finding.proof {
        let (before, after) = (units::bit_rate(proof.before_bps), units::bit_rate(proof.after_bps));
        return format!("{before}, and {after} with `{}`", proof.change);
    }
    let share = format!("{} of the {}", units::share(finding.share), finding.share_of.name());
    each(finding).map_or_else(|| share.clone(), |each| format!("{share}, {each}"))
}

/// What each of those concerned loses, where that is known.
pub(crate) fn each(finding: &Finding) -> Option<String> {
    let time = Some(finding.cost_ns).filter(|ns| *ns > 0).map(units::time)?;
    Some(match finding.share_of {
        Unit::Time => format!("{time} for each SDU (mean)"),
        Unit::ConnectionTime => format!("{time} lost in all"),
        Unit::Messages | Unit::Writes | Unit::Sdus | Unit::Connections => format!("{time} each (median)"),
    })
}

/// The machine, as pairs of a name and what it is.
pub(crate) fn host(host: &HostFacts) -> Vec<(&'static str, String)> {
    let allowed = if host.allowed_cores.len() == host.cores {
        String::new()
    } else {
        let list: Vec<String> = host.allowed_cores.iter().map(usize::to_string).collect();
        format!(" (this process: {})", list.join(", "))
    };
    let cores = if host.cores == 1 { "1 core".to_owned() } else { format!("{} cores", host.cores) };
    vec![
        ("kernel", format!("Linux {} on {}", host.kernel, host.machine)),
        ("processor", format!("{}, {cores}{allowed}", host.processor)),
        ("load", format!("{:.2} at the start", host.load_1min)),
        ("clock", host.clocksource.clone()),
        (
            "TCP",
            format!("{}, autocorking {}", host.tcp_congestion_control, if host.tcp_autocorking { "on" } else { "off" }),
        ),
        ("rights", if host.root { "root" } else { "not root" }.to_owned()),
        ("Tautline", host.tautline.clone()),
    ]
}

/// What the tool itself costs; figures below these mean nothing.
pub(crate) fn floor(host: &HostFacts) -> Vec<(&'static str, String)> {
    let floor = &host.floor;
    vec![
        ("clock read", units::time(floor.clock_read_ns)),
        (
            "sleep ends late by",
            format!("{} (p50), {} (p99)", units::time(floor.sleep_late_p50_ns), units::time(floor.sleep_late_p99_ns)),
        ),
        ("empty exchange", format!("{} (p50)", units::time(floor.empty_exchange_p50_ns))),
    ]
}

/// The result in one line.
pub(crate) fn answer(document: &Document) -> String {
    let groups = Groups::of(&document.recording);
    // What is staged for a comparison is no finding on this host.
    if let Some(row) = groups.published.first() {
        return row.meaning.clone();
    }
    if let Some(worst) = document.findings.first().filter(|finding| finding.proof.is_none()) {
        let summary = worst.summary.trim_end_matches('.');
        let more = match document.findings.len() {
            1 => String::new(),
            n => format!(" {} findings in all.", units::count(n as u64)),
        };
        return format!("{summary}: {}.{more}", cost(worst));
    }
    // What is looked at first is what is asked first.
    let of_host = groups.watch.first().map(|row| watched_in_words(row));
    of_host
        .or_else(|| aired(&groups))
        .or_else(|| tuned(&groups))
        .or_else(|| echoed(&groups))
        .or_else(|| paced(&groups))
        .or_else(|| streamed(&groups))
        .or_else(|| crowded(&groups))
        .or_else(|| routed(&groups))
        .or_else(|| checked(&groups))
        .unwrap_or_else(|| "Nothing was measured.".to_owned())
}

/// Radio links: what changes of the parameters led to, or the run that came nearest to its limit.
fn aired(groups: &Groups<'_>) -> Option<String> {
    if !groups.echo.is_empty() || !groups.pace.is_empty() || !groups.stream.is_empty() {
        return None;
    }
    let reached = |row: &AirRow| {
        let share = units::share(row.throughput_bps / row.limit_bps.max(1.0));
        format!(
            "{}, {share} of the channel's limit of {}",
            units::bit_rate(row.throughput_bps),
            units::bit_rate(row.limit_bps)
        )
    };
    let (first, last) = (groups.air.first()?, groups.air.last()?);
    let kept = groups.air_changes.iter().filter(|change| change.kept).count();
    if kept > 0 {
        let (before, changes) = (units::bit_rate(first.throughput_bps), if kept == 1 { "change" } else { "changes" });
        return Some(format!("From {before} to {} with {kept} {changes}.", reached(last)));
    }
    let best = groups.air.iter().max_by(|a, b| a.throughput_bps.total_cmp(&b.throughput_bps))?;
    let varied = best.set.iter().map(|set| format!("{}={}", set.name, set.value)).collect::<Vec<_>>().join(", ");
    Some(match groups.air.len() {
        1 => format!("{}.", reached(best)),
        _ => format!("Highest with {varied}: {}.", reached(best)),
    })
}

fn tuned(groups: &Groups<'_>) -> Option<String> {
    let tried = groups.tune.iter().filter(|row| row.setting != "base" && row.verdict != Verdict::NotAvailable);
    let count = tried.clone().count();
    let helped: Vec<_> = tried.filter(|row| row.verdict == Verdict::Shorter).collect();
    let best = helped.iter().min_by(|a, b| a.p50_ratio.unwrap_or(1.0).total_cmp(&b.p50_ratio.unwrap_or(1.0)));
    Some(match best {
        _ if groups.tune.is_empty() => return None,
        None => format!("None of {count} settings made it shorter."),
        Some(best) => {
            let ratio = units::ratio_in_words(best.p50_ratio.unwrap_or(1.0));
            format!("{} of {count} settings made it shorter; most of all {}: {ratio}.", helped.len(), best.setting)
        }
    })
}

fn echoed(groups: &Groups<'_>) -> Option<String> {
    let labels = echo_labels(&groups.echo).in_full();
    let medians = groups.echo.iter().zip(labels).filter_map(|(row, label)| {
        let summary = row.response_ns.or(row.rtt_ns)?;
        Some((summary, label, row.lost))
    });
    let (summary, label, lost) = medians.min_by_key(|(summary, ..)| summary.p50)?;
    let shortest = if groups.echo.len() > 1 { "Lowest median round trip: " } else { "" };
    let lost = if lost > 0 { format!(", {} lost", units::count(lost)) } else { String::new() };
    Some(format!(
        "{shortest}{label}, p50 {}, max {}{lost}.",
        units::quantile(summary.p50),
        units::quantile(summary.max)
    ))
}

fn paced(groups: &Groups<'_>) -> Option<String> {
    let labels = pace_labels(&groups.pace).in_full();
    let parts = groups.pace.iter().zip(labels).filter_map(|(row, label)| {
        let delivery = row.delivery_ns?;
        Some(match delivery.p50 {
            Quantile::Time(p50) => format!("{label}: delivered after {} (p50)", units::time(p50)),
            Quantile::Lost => format!("{label}: lost {} of {}", units::count(row.lost), units::count(row.messages)),
        })
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

fn streamed(groups: &Groups<'_>) -> Option<String> {
    let labels = stream_labels(&groups.stream).in_full();
    let rows = groups.stream.iter().zip(labels);
    let (row, label) = rows.max_by(|(a, _), (b, _)| a.throughput_bps.total_cmp(&b.throughput_bps))?;
    let highest = if groups.stream.len() > 1 { "Highest throughput: " } else { "" };
    let counted = match row.counted {
        Counted::Received => "",
        Counted::Acknowledged => ", as the peer's kernel acknowledged it",
        Counted::Taken => ", as this host's socket took it",
    };
    Some(format!("{highest}{label}, {}{counted}.", units::bit_rate(row.throughput_bps)))
}

/// The engines at the least number of active links, where they differ most.
fn crowded(groups: &Groups<'_>) -> Option<String> {
    let measured = groups.crowd.iter().filter_map(|row| Some((row, row.rtt_ns?.p50)));
    let (least, _) = measured.clone().min_by_key(|(row, _)| (row.active, std::cmp::Reverse(row.connections)))?;
    let alike = measured.filter(|(row, _)| (row.active, row.connections) == (least.active, least.connections));
    let (best, shortest) = alike.clone().min_by_key(|&(_, p50)| p50)?;
    let (worst, longest) = alike.max_by_key(|&(_, p50)| p50)?;
    let (active, links) = (units::count(least.active as u64), connections(least.connections));
    let of = format!("With {active} of {links} active the median round trip is");
    let shortest = units::quantile(shortest);
    Some(if worst.engine == best.engine {
        format!("{of} {shortest} ({}).", best.engine)
    } else {
        format!(
            "{of} shortest with {}, {shortest}, and longest with {}, {}.",
            best.engine,
            worst.engine,
            units::quantile(longest)
        )
    })
}

fn routed(groups: &Groups<'_>) -> Option<String> {
    let told = super::sheet::route_groups(&groups.route).into_iter().filter_map(|rows| {
        let one =
            rows.iter().filter(|row| row.sinks == 1 && row.routes == 1).filter_map(|row| Some((row, row.times()?.p50)));
        let part = |row: &RouteRow, p50| match p50 {
            Quantile::Lost => format!("{} lost {} of {}", row.path, units::count(row.lost), units::count(row.sent)),
            Quantile::Time(p50) => format!("{} {}", row.path, units::time(p50)),
        };
        let parts: Vec<String> = one.map(|(row, p50)| part(row, p50)).collect();
        let what = if rows[0].loop_ns.is_some() { "A turn" } else { "From edge to edge with one sink" };
        (!parts.is_empty()).then(|| format!("{what} over {} (p50): {}.", rows[0].over, parts.join(", ")))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join(" "))
}

fn checked(groups: &Groups<'_>) -> Option<String> {
    let working = groups.check.iter().filter(|row| row.works).count();
    (!groups.check.is_empty())
        .then(|| format!("{working} of {} things that Tautline needs work here.", groups.check.len()))
}
