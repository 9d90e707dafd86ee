//! What is said of pairs of a mesh, in text and pages alike.

use taut_explain::Stage;
use taut_fleet::{Between, Figure, Measured, MeshOutcome, Miss, PairOutcome, Usual, WorkOutcome};

use crate::units;

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
    let usual: Vec<String> = work.usual.iter().filter(|usual| usual.figure != Figure::Lost).map(of).collect();
    if usual.is_empty() {
        "too few pairs to say what is usual".to_owned()
    } else {
        format!("usual: {}", usual.join(", "))
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
pub(crate) fn explained(pair: &PairOutcome) -> Vec<String> {
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
    if explained.lost == 0 && pair.measured.as_ref().is_some_and(|measured| measured.lost > 0) {
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

/// A layer as it stands after "in".
fn place(layer: &str) -> String {
    if layer == UNTOLD {
        return "the path between the hosts, or wait for the reading program".to_owned();
    }
    const WORDS: [(Stage, &str); 6] = [
        (Stage::Program, "the sending program, which was late"),
        (Stage::Call, "the sending call"),
        (Stage::Socket, "the sending socket"),
        (Stage::Driver, "the sender's driver"),
        (Stage::Medium, "the path between the hosts"),
        (Stage::PeerProgram, "the reading program, which was late"),
    ];
    let known = WORDS.iter().find(|(one, _)| one.name() == layer);
    known.map_or_else(|| layer.to_owned(), |(_, words)| (*words).to_owned())
}
