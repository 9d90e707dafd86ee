//! What several sheets say in the same words.

use taut_explain::Stage;
use taut_record::stats::narrowest;
use taut_record::{LossComparison, ObserverCost, PaceRow, Placement, Round, Verdict};

use super::form::{Note, Tone};
use super::label::Label;
use crate::units;

/// Share of the time in each layer, in the order of the layers; names that no stage bears stand last.
pub(crate) fn ledger_shares(row: &PaceRow) -> Vec<(&str, f64)> {
    let whole = row.ledger_ns.iter().map(|(_, ns)| ns).sum::<u64>().max(1) as f64;
    let place = |name: &str| Stage::ALL.iter().position(|stage| stage.name() == name).unwrap_or(Stage::ALL.len());
    let mut shares: Vec<(&str, f64)> =
        row.ledger_ns.iter().map(|(name, ns)| (name.as_str(), *ns as f64 / whole)).collect();
    shares.sort_by_key(|(name, _)| place(name));
    shares
}

/// The stages that such messages pass, with their numbers: one over a broker stands only where there was one.
pub(crate) fn pace_stages(rows: &[&PaceRow]) -> impl Iterator<Item = (usize, Stage)> {
    let brokers = rows.iter().any(|row| row.broker.is_some());
    Stage::ALL.into_iter().enumerate().filter(move |(_, stage)| brokers || *stage != Stage::Broker)
}

pub(crate) const fn tone_of(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Shorter => Tone::Good,
        Verdict::Longer => Tone::Bad,
        Verdict::CannotTellApart | Verdict::NotAvailable | Verdict::TooFewRounds | Verdict::LossesDiffer => Tone::Faint,
    }
}

/// `interval 0.85 to 0.91 (98.4 %)`, the level in brackets where it is known.
pub(crate) fn ratio_interval((low, high): (f64, f64), level: Option<f64>) -> String {
    let level = level.map_or_else(String::new, |level| format!(" ({})", units::share(level)));
    format!("interval {} to {}{level}", units::number(low), units::number(high))
}

/// `2.10 µs longer (1.90 µs to 2.40 µs)`; where a cost is lost in the noise, `no longer (-0.40 µs to 0.60 µs)`.
pub(crate) fn observer_cost(cost: ObserverCost) -> String {
    let signed = |ns: i64| format!("{}{}", if ns < 0 { "-" } else { "" }, units::time(ns.unsigned_abs()));
    let interval =
        cost.p50_ci.map_or_else(String::new, |(low, high)| format!(" ({} to {})", signed(low), signed(high)));
    // To watch saves no time: a difference below zero is chance.
    if cost.p50_ns > 0 { format!("{} longer{interval}", signed(cost.p50_ns)) } else { format!("no longer{interval}") }
}

/// `too few rounds to tell (7 needed)`.
pub(crate) fn too_few_rounds(needed: Option<usize>) -> String {
    let needed = needed.map_or_else(String::new, |needed| format!(" ({needed} needed)"));
    format!("too few rounds to tell{needed}")
}

/// Two shares of lost messages, and whether they allow to say which is shorter.
pub(crate) fn loss_note(label: &Label, losses: &LossComparison) -> Note {
    let share = |share: f64| if share > 0.0 { units::share(share) } else { "none".to_owned() };
    let (mine, other) = (share(losses.lost_share), share(losses.lost_share_of_other));
    let with = label.other(&losses.with);
    if losses.differs {
        let text = format!("{label}: loses {mine}, {with} {other}; which is shorter is left open where losses differ.");
        return Note::toned(text, Tone::Bad);
    }
    Note::new(format!("{label}: loses {mine}, {with} {other}, which can be chance."))
}

/// What the intervals of a table are, once for all rows: the number of their rounds and the level.
pub(crate) fn across_rounds(intervals: impl Iterator<Item = (usize, Option<f64>)>) -> Option<Note> {
    let mut known: Vec<(usize, f64)> = intervals.filter_map(|(rounds, level)| Some((rounds, level?))).collect();
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    known.dedup();
    let &(rounds, level) = known.first()?;
    let (cut, of_cut) = narrowest(rounds, level - 1e-9);
    let what = match cut {
        _ if known.len() > 1 || (of_cut - level).abs() > 1e-6 => {
            "an interval that covers the median with at least".to_owned()
        }
        0 => format!("the range of {rounds} rounds, which covers the median with"),
        _ => {
            format!(
                "the range of {rounds} rounds without the {cut} smallest and {cut} largest, which covers the median with"
            )
        }
    };
    Some(Note::toned(format!("Across rounds: {what} {} probability.", units::level(level)), Tone::Faint))
}

/// Why a peer of this host was not placed.
pub(crate) fn not_placed(label: &Label, placement: Option<&Placement>) -> Option<Note> {
    let why = placement?.why_free.as_ref()?;
    Some(Note::new(format!("{label}: {why}.")))
}

/// A round that did not come to its end, of all rounds with what each has of messages or bytes.
pub(crate) fn cut_short(label: &Label, rounds: impl Iterator<Item = (bool, u64)>, what: &str) -> Option<Note> {
    let (whole, partial): (Vec<_>, Vec<_>) = rounds.partition(|(complete, _)| *complete);
    let amount = units::count(partial.first()?.1);
    let text = format!(
        "{label}: a round was cut short after {amount} {what}, which are in no interval and no comparison; {} are whole.",
        whole.len()
    );
    Some(Note::toned(text, Tone::Bad))
}

/// Rounds that are in the intervals.
pub(crate) fn whole_rounds(rounds: &[Round]) -> usize {
    rounds.iter().filter(|round| round.complete && round.sent > 0).count()
}
