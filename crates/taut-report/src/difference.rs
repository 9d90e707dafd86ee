//! What changed between two captures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_explain::{CauseIn, Explanation, Held};

use crate::explained_file::{ExplainedFile, holder};
use crate::lines::wrap;
use crate::units;

/// Two captures held against each other.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Difference {
    /// Path of the first capture.
    pub before: String,
    /// Path of the second one.
    pub after: String,
    /// Who held the data in either, by the largest change of share first.
    pub holders: Vec<HolderChange>,
    /// Causes that were found in either, or can't be told: what is new first, then what is gone.
    pub causes: Vec<CauseChange>,
}

/// A holder in two captures.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HolderChange {
    /// Who: `receive_window`.
    pub holder: String,
    /// Which end has to act: sender, receiver, path.
    pub side: String,
    /// What it had in the first capture.
    pub before: HeldIn,
    /// What it had in the second one.
    pub after: HeldIn,
}

/// What a holder had in one capture.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HeldIn {
    /// Of the time of all directions, 0 to 1.
    pub share: f64,
    /// In how many stretches.
    pub episodes: u64,
    /// Mean length of one.
    pub mean_ns: u64,
}

/// A cause in two captures.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CauseChange {
    /// Short name of the cause.
    pub cause: String,
    /// What became of it.
    pub change: Change,
    /// The largest share of one direction's time in the first capture, 0 to 1.
    pub before_share: f64,
    /// The same in the second one.
    pub after_share: f64,
}

/// What became of a cause.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is in the second capture only.
    New,
    /// It is in the first capture only.
    Gone,
    /// It is in both.
    Stays,
    /// One of the captures can't tell.
    NotKnown,
}

impl Difference {
    /// Between two captures of the same traffic, before and after something was changed.
    pub fn between(before: &ExplainedFile, after: &ExplainedFile) -> Self {
        let (first, second) = (&before.explanation, &after.explanation);
        Self {
            before: before.file.clone(),
            after: after.file.clone(),
            holders: holders(first, second),
            causes: causes(first, second, bluetooth(before) == bluetooth(after)),
        }
    }

    /// At most 100 columns wide.
    pub(crate) fn to_lines(&self) -> Vec<String> {
        let mut lines = wrap("", &format!("{} > {}", self.before, self.after));
        if !self.holders.is_empty() {
            lines.push(format!("  {:<42} {:>24} {:>26}", "share of time, mean of a stretch", "before", "after"));
        }
        for held in &self.holders {
            lines.push(format!("  {:<42} {:>24} {:>26}", held.name(), held.before.words(), held.after.words()));
        }
        if self.holders.is_empty() {
            lines.push("There is no data in either, so there is nothing to compare.".to_owned());
            return lines;
        }
        if self.causes.is_empty() {
            lines.push("No cause was found in either.".to_owned());
        }
        lines.extend(self.causes.iter().flat_map(|cause| wrap("", &cause.sentence())));
        let chance = "These are two captures of one run each: how much of this two equal runs would differ by is not \
                      known. Shares are of the time of all directions.";
        lines.extend(wrap("", chance));
        lines
    }
}

impl HolderChange {
    fn name(&self) -> String {
        holder(&self.holder)
    }
}

impl HeldIn {
    fn of(held: &Held) -> Self {
        let mean_ns = held.held_ns.checked_div(held.episodes).unwrap_or_default();
        Self { share: held.share, episodes: held.episodes, mean_ns }
    }

    fn words(self) -> String {
        if self.share == 0.0 {
            return "–".to_owned();
        }
        format!("{}, {} × {}", units::share(self.share), units::time(self.mean_ns), units::count(self.episodes))
    }
}

impl CauseChange {
    fn sentence(&self) -> String {
        let (cause, before, after) = (&self.cause, units::share(self.before_share), units::share(self.after_share));
        match self.change {
            Change::New => format!("NEW {cause}: up to {after} of a direction's time."),
            Change::Gone => format!("GONE {cause}: it had up to {before} of a direction's time."),
            Change::Stays => format!("STAYS {cause}: up to {before} of a direction's time before, {after} after."),
            Change::NotKnown => format!("CAN'T TELL {cause}: a capture does not show it; see --full."),
        }
    }
}

fn holders(before: &Explanation, after: &Explanation) -> Vec<HolderChange> {
    let of = |totals: &[Held], name: &str| {
        totals.iter().find(|held| held.holder == name).map_or_else(HeldIn::default, HeldIn::of)
    };
    let change = |held: &Held| HolderChange {
        holder: held.holder.clone(),
        side: held.side.clone(),
        before: of(&before.totals, &held.holder),
        after: of(&after.totals, &held.holder),
    };
    let mut changes: Vec<HolderChange> = before.totals.iter().map(change).collect();
    let is_known = |held: &&Held| before.totals.iter().all(|known| known.holder != held.holder);
    changes.extend(after.totals.iter().filter(is_known).map(change));
    let size = |change: &HolderChange| (change.after.share - change.before.share).abs();
    changes.sort_by(|one, other| size(other).total_cmp(&size(one)));
    changes
}

/// Whether it is of Bluetooth: a host's log, or the air.
const fn bluetooth(file: &ExplainedFile) -> (bool, bool) {
    (file.hci_packets > 0, file.air_packets > 0)
}

/// A capture of another kind does not show what the first one does.
fn causes(before: &Explanation, after: &Explanation, are_alike: bool) -> Vec<CauseChange> {
    let of = |explanation: &Explanation, name: &str| explanation.causes.iter().find(|on| on.cause == name).cloned();
    let known = before.causes.iter().map(|on| &on.cause);
    let new = after.causes.iter().map(|on| &on.cause).filter(|name| of(before, name).is_none());
    let mut changes: Vec<CauseChange> = known
        .chain(new)
        .filter_map(|name| {
            let (first, second) = (of(before, name), of(after, name));
            let seen = |on: &Option<CauseIn>, capture| match sight(on.as_ref(), capture) {
                Sight::Clear if !are_alike => Sight::Unknown,
                sight => sight,
            };
            let change = change(seen(&first, before), seen(&second, after))?;
            let share = |on: Option<CauseIn>| on.filter(|on| on.found > 0).map_or(0.0, |on| on.largest_share);
            Some(CauseChange { cause: name.clone(), change, before_share: share(first), after_share: share(second) })
        })
        .collect();
    changes.sort_by(|one, other| {
        let largest = |cause: &CauseChange| cause.before_share.max(cause.after_share);
        one.change.cmp(&other.change).then(largest(other).total_cmp(&largest(one)))
    });
    changes
}

/// What one capture says of a cause.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Sight {
    Found,
    Clear,
    Unknown,
}

/// A capture without data shows nothing, so nothing is absent from it.
fn sight(on: Option<&CauseIn>, capture: &Explanation) -> Sight {
    match on {
        Some(on) if on.found > 0 => Sight::Found,
        Some(on) if on.unknown > 0 => Sight::Unknown,
        _ if capture.directions == 0 => Sight::Unknown,
        _ => Sight::Clear,
    }
}

const fn change(before: Sight, after: Sight) -> Option<Change> {
    match (before, after) {
        (Sight::Found, Sight::Found) => Some(Change::Stays),
        (Sight::Found, Sight::Clear) => Some(Change::Gone),
        (Sight::Clear, Sight::Found) => Some(Change::New),
        (Sight::Unknown, Sight::Unknown | Sight::Found) | (Sight::Found, Sight::Unknown) => Some(Change::NotKnown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(directions: u64, causes: &[(&str, u64, u64, f64)], totals: &[(&str, u64, f64)]) -> ExplainedFile {
        let cause = |&(cause, found, unknown, largest_share): &(&str, u64, u64, f64)| CauseIn {
            cause: cause.to_owned(),
            found,
            unknown,
            largest_share,
        };
        let held = |&(holder, held_ns, share): &(&str, u64, f64)| Held {
            holder: holder.to_owned(),
            side: "sender".to_owned(),
            held_ns,
            share,
            episodes: 2,
            longest: Vec::new(),
        };
        let explanation = Explanation {
            directions,
            causes: causes.iter().map(cause).collect(),
            totals: totals.iter().map(held).collect(),
            ..Explanation::default()
        };
        ExplainedFile {
            file: "a.pcap".to_owned(),
            packets: 0,
            tcp_packets: 0,
            udp_packets: 0,
            hci_packets: 0,
            air_packets: 0,
            bytes: 0,
            remarks: Vec::new(),
            explanation,
        }
    }

    fn changes(before: &ExplainedFile, after: &ExplainedFile) -> Vec<(String, Change)> {
        let difference = Difference::between(before, after);
        difference.causes.into_iter().map(|cause| (cause.cause, cause.change)).collect()
    }

    #[test]
    fn causes_come_stay_and_go() {
        let before = explained(1, &[("nagle_delayed_ack", 1, 0, 0.6), ("loss", 1, 0, 0.1), ("cork", 0, 1, 0.0)], &[]);
        let after = explained(1, &[("receive_window", 2, 0, 0.3), ("loss", 1, 0, 0.2), ("path_queue", 0, 1, 0.0)], &[]);
        let expected = [("receive_window", Change::New), ("nagle_delayed_ack", Change::Gone), ("loss", Change::Stays)];
        assert_eq!(changes(&before, &after), expected.map(|(cause, change)| (cause.to_owned(), change)));
        let same = changes(&before, &before);
        let stays = |(cause, change): &(String, Change)| (*change == Change::Stays) == (cause != "cork");
        assert!(same.len() == 3 && same.iter().all(stays), "{same:?}");
    }

    #[test]
    fn what_a_capture_can_not_show_is_not_gone() {
        let before = explained(1, &[("loss", 1, 0, 0.1)], &[]);
        let blind = explained(1, &[("loss", 0, 3, 0.0)], &[]);
        assert_eq!(changes(&before, &blind), [("loss".to_owned(), Change::NotKnown)]);
        assert_eq!(changes(&blind, &before), [("loss".to_owned(), Change::NotKnown)]);
        let empty = explained(0, &[], &[]);
        assert_eq!(changes(&before, &empty), [("loss".to_owned(), Change::NotKnown)]);
    }

    #[test]
    fn captures_of_two_kinds_take_no_causes_from_each_other() {
        let tcp = explained(1, &[("loss", 1, 0, 0.1)], &[("nagle", 600, 0.6)]);
        let log = ExplainedFile { hci_packets: 9, ..explained(1, &[("credit_window", 1, 0, 0.5)], &[]) };
        assert!(changes(&tcp, &log).iter().all(|(_, change)| *change == Change::NotKnown));
        assert_eq!(changes(&tcp, &log).len(), 2);
        let empty = Difference::between(&explained(0, &[], &[]), &explained(0, &[], &[])).to_lines().join(" ");
        assert!(empty.contains("no data in either") && !empty.contains("No cause"), "{empty}");
    }

    #[test]
    fn the_largest_change_of_share_stands_first() {
        let before = explained(1, &[], &[("nagle", 600, 0.6), ("sending_program", 400, 0.4)]);
        let after = explained(1, &[], &[("sending_program", 500, 0.5), ("receive_window", 500, 0.5)]);
        let difference = Difference::between(&before, &after);
        let names: Vec<&str> = difference.holders.iter().map(|held| held.holder.as_str()).collect();
        assert_eq!(names, ["nagle", "receive_window", "sending_program"]);
        assert_eq!((difference.holders[0].before.mean_ns, difference.holders[0].after), (300, HeldIn::default()));
        assert!(difference.to_lines().iter().all(|line| line.chars().count() <= 100));
    }
}
