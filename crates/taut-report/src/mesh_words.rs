//! What is said of pairs of a mesh, in text and pages alike.

use taut_explain::Stage;
use taut_fleet::{Between, Figure, Measured, MeshOutcome, Miss, PairOutcome, Usual, WorkOutcome};

use crate::units;

/// Fewer pairs say nothing of what is usual.
const LEAST_PAIRS: usize = 4;
/// A chance below which something is no chance.
const UNLIKELY: f64 = 0.05;

/// The two last layers of a message, where they can't be told apart.
const UNTOLD: &str = "medium or peer program";

/// A value of a figure; without one it falls on a lost message.
pub(crate) fn value(figure: Figure, value: Option<f64>) -> String {
    match (figure, value) {
        (_, None) => units::LOST.to_owned(),
        (Figure::Lost, Some(value)) => units::count(value as u64),
        (Figure::Throughput, Some(value)) => units::bit_rate(value),
        (_, Some(value)) => units::time(value as u64),
    }
}

/// The same of a pair.
pub(crate) fn of_pair(figure: Figure, measured: &Measured) -> String {
    match figure.of(measured) {
        None => "–".to_owned(),
        Some(found) => value(figure, Some(found).filter(|found| found.is_finite())),
    }
}

/// `echo udp`.
pub(crate) fn work(work: &WorkOutcome) -> String {
    format!("{} {}", work.work, work.transport)
}

/// What is usual, in a sentence.
pub(crate) fn usual(work: &WorkOutcome) -> String {
    let of = |usual: &Usual| {
        let between = match usual.between {
            Between::Hosts => "",
            Between::OneRack => " in a rack",
            Between::Racks => " between racks",
        };
        format!("{} {}{between}", usual.figure, value(usual.figure, Some(usual.value)))
    };
    let mut usual: Vec<String> = work.usual.iter().filter(|usual| usual.figure != Figure::Lost).map(of).collect();
    let told = work.usual.iter().any(|usual| usual.figure == work.figure);
    usual.extend(usually_lost(work).filter(|_| !told));
    if usual.is_empty() {
        "too few pairs to say what is usual".to_owned()
    } else {
        format!("usual: {}", usual.join(", "))
    }
}

/// That the figure falls on a lost message of most pairs, which is no number to hold others against.
fn usually_lost(work: &WorkOutcome) -> Option<String> {
    let values = work.pairs.iter().filter_map(|pair| work.figure.of(pair.measured.as_ref()?));
    let (all, lost) = values.fold((0, 0), |(all, lost), value| (all + 1, lost + usize::from(value.is_infinite())));
    (all >= LEAST_PAIRS && lost * 2 > all).then(|| {
        let (lost, all) = (units::count(lost as u64), units::count(all as u64));
        format!("{} {} ({lost} of {all} pairs)", work.figure, units::LOST)
    })
}

/// How many times further from what is usual than that: of times more is further, of a throughput less. Infinite where
/// the figure falls on a lost message or nothing arrived, and 1 where nothing is usual.
pub(crate) fn distance(figure: Figure, pair: &PairOutcome) -> f64 {
    let found = pair.measured.as_ref().and_then(|measured| figure.of(measured));
    let is_nothing = |found: f64| found.is_infinite() || figure == Figure::Throughput && found <= 0.0;
    match pair.times_usual {
        _ if found.is_some_and(is_nothing) => f64::INFINITY,
        Some(times) if figure == Figure::Throughput => 1.0 / times,
        Some(times) => times,
        None => 1.0,
    }
}

/// `h3 > h9`.
pub(crate) fn ends(outcome: &MeshOutcome, pair: &PairOutcome) -> String {
    let name = |host: usize| outcome.hosts.get(host).map_or("?", |host| host.name.as_str());
    format!("{} > {}", name(pair.near), name(pair.far))
}

/// What a pair is beyond, and by how much.
pub(crate) fn miss(pair: &PairOutcome, miss: &Miss) -> String {
    let Miss { threshold, figure, value: found, usual } = miss;
    if *figure == Figure::Lost {
        let measured = pair.measured.clone().unwrap_or_default();
        let (lost, sent) = (units::count(measured.lost), units::count(measured.sent));
        return format!("{lost} of {sent} messages lost (`{threshold}`)");
    }
    let usual = match (usual, found) {
        (Some(usual), Some(found)) if *usual > 0.0 => {
            format!(", {} times the usual {}", units::number(found / usual), value(*figure, Some(*usual)))
        }
        (Some(usual), _) => format!(", and usual is {}", value(*figure, Some(*usual))),
        (None, _) => String::new(),
    };
    format!("{figure} {}{usual} (`{threshold}`)", value(*figure, *found))
}

/// What a look into a pair saw, a sentence each.
pub(crate) fn explained(work: &WorkOutcome, pair: &PairOutcome) -> Vec<String> {
    let Some(explained) = &pair.explained else { return Vec::new() };
    if let Some(why) = &explained.failed {
        return vec![format!("pace: it could not be looked into: {why}")];
    }
    let lost = match explained.lost {
        0 => String::new(),
        lost => format!("{} of {} messages lost; ", units::count(lost), units::count(explained.messages)),
    };
    let of = explained.delivery_p50_ns.map_or_else(
        || "of the messages' time".to_owned(),
        |ns| format!("of the {} from schedule to reader", units::time(ns)),
    );
    let mut told = vec![match &explained.layer {
        Some(layer) => format!("pace: {lost}{} {of} are in {}", units::share(explained.layer_share), place(layer)),
        None => format!("pace: {lost}no time of messages is known"),
    }];
    // TCP sends again what is lost, so there it says nothing of either way.
    let would_have_lost = |measured: &Measured| is_unlikely_none(measured.lost, measured.sent, explained.messages);
    if explained.lost == 0 && work.transport == "udp" && pair.measured.as_ref().is_some_and(would_have_lost) {
        let messages = units::count(explained.messages);
        told.push(format!("none of {messages} messages was lost on the way there, so look at the way back"));
    }
    let is_on_the_way = explained.layer.as_deref() == Some(Stage::Medium.name()) && explained.layer_share > 0.5;
    match explained.findings.as_slice() {
        [] if is_on_the_way => told.push("no cause found at either host, so look at what lies between them".to_owned()),
        [] if explained.layer.as_deref() == Some(UNTOLD) => {
            told.push(
                "no cause found at the sender; a work over tcp tells the path from the reading program".to_owned(),
            );
        }
        [] => told.push("no cause found while it was looked at".to_owned()),
        found => {
            told.extend(found.iter().flat_map(|one| [format!("{} [{}]", one.summary, one.cause), one.remedy.clone()]));
        }
    }
    told
}

/// Whether it is unlikely that all of these losses fall on the messages of the echo and none on those of the look, if
/// both lose alike (Fisher's exact test, one-sided).
fn is_unlikely_none(lost: u64, sent: u64, looked_at: u64) -> bool {
    let mut chance = 1.0;
    // A file may say anything; who lost so many has lost enough.
    for one in 0..lost.min(1_000_000) {
        let left = sent.saturating_sub(one).max(1) as f64;
        chance *= left / (left + looked_at as f64);
        if chance <= UNLIKELY {
            return true;
        }
    }
    false
}

/// A layer as it stands after "in".
fn place(layer: &str) -> String {
    if layer == UNTOLD {
        return "the path between the hosts, or wait for the reading program".to_owned();
    }
    const WORDS: [(Stage, &str); 7] = [
        (Stage::Program, "the sending program, which was late"),
        (Stage::Call, "the sending call"),
        (Stage::Socket, "the sending socket"),
        (Stage::Driver, "the sender's driver"),
        (Stage::Medium, "the path between the hosts"),
        (Stage::Broker, "the broker, or on the way to it and from it"),
        (Stage::PeerProgram, "the reading program, which was late"),
    ];
    let known = WORDS.iter().find(|(one, _)| one.name() == layer);
    known.map_or_else(|| layer.to_owned(), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An echo that lost so many of 100 and a look that lost none of 300.
    fn told(transport: &str, lost: u64) -> String {
        let pair = json!({"near": 0, "far": 1, "reached": {"how": "measured"}, "measured": {"sent": 100, "lost": lost},
            "explained": {"begin_ns": 1, "end_ns": 2, "messages": 300, "lost": 0, "findings": []}});
        let work = json!({"work": "echo", "transport": transport, "alone_on_host": false, "alone_in_rack": false,
            "figure": "p50", "usual": [], "pairs": [pair]});
        let work: WorkOutcome = serde_json::from_value(work).unwrap();
        explained(&work, &work.pairs[0]).join("\n")
    }

    #[test]
    fn the_way_back_is_named_only_where_losses_on_the_way_there_would_have_shown() {
        // Two of 400 are both among the first 100 with 6 %, three with 1.5 %.
        let cases = [("udp", 2, false), ("udp", 3, true), ("udp", 0, false), ("tcp", 50, false)];
        for (transport, lost, is_named) in cases {
            let told = told(transport, lost);
            assert_eq!(told.contains("look at the way back"), is_named, "{transport}, {lost}: {told}");
        }
    }

    #[test]
    fn what_most_pairs_lose_is_usual_and_no_pair_that_loses_is_near_it() {
        let pair = |far: usize, measured: serde_json::Value, times: serde_json::Value| {
            let reached = json!({"how": "measured"});
            json!({"near": 0, "far": far, "reached": reached, "measured": measured, "times_usual": times})
        };
        let work = |figure: &str, pairs: Vec<serde_json::Value>| {
            let work = json!({"work": "echo", "transport": "udp", "alone_on_host": false, "alone_in_rack": false,
                "figure": figure, "usual": [], "pairs": pairs});
            serde_json::from_value::<WorkOutcome>(work).unwrap()
        };
        // Nothing came back.
        let silent = |far| pair(far, json!({"sent": 9, "lost": 9}), json!(null));
        let silent = work("p99", (1..5).map(silent).collect());
        assert_eq!(usual(&silent), "usual: p99 lost (4 of 4 pairs)");
        assert_eq!(usual(&work("p99", Vec::new())), "too few pairs to say what is usual");
        assert!(distance(silent.figure, &silent.pairs[0]).is_infinite());
        let rates = [(0.0, json!(null)), (5e7, json!(0.05)), (1e9, json!(1.0))];
        let rates = rates.map(|(rate, times)| pair(1, json!({"sent": 0, "lost": 0, "throughput_bps": rate}), times));
        let rates = work("throughput", rates.to_vec());
        let far: Vec<f64> = rates.pairs.iter().map(|pair| distance(rates.figure, pair)).collect();
        assert_eq!(far, [f64::INFINITY, 20.0, 1.0]);
    }
}
