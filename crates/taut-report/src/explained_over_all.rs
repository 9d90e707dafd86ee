//! What stands out over all directions of a capture, in lines.

use taut_explain::{CauseTime, Explanation, HostPair, LongStall};

use crate::explained_file::holder;
use crate::units;

/// Two lines at most for the verdict, where there are more directions than the two of one connection.
pub(crate) fn short(explanation: &Explanation) -> Vec<String> {
    if explanation.directions <= 2 {
        return Vec::new();
    }
    let all = &explanation.over_all;
    let directions = units::count(explanation.directions);
    if all.causes.is_empty() {
        // What can't be told may be there all the same.
        let unknown = explanation.causes.iter().any(|cause| cause.unknown > 0);
        let but = if unknown { " where that can be told" } else { "" };
        return vec![format!("ALL {directions} directions: nothing that holds the data back{but}.")];
    }
    let mut lines = vec![format!("ALL {directions} directions: {}.", causes(&all.causes, 3))];
    if let Some(worst) = all.pairs.first().filter(|_| all.pairs.len() > 1) {
        lines.push(format!("Worst hosts: {}.", pair(worst, 1)));
    }
    lines
}

/// Each pair of hosts and each long stall, where there are several.
pub(crate) fn full(explanation: &Explanation) -> Vec<String> {
    let all = &explanation.over_all;
    let mut lines = Vec::new();
    if all.pairs.len() > 1 {
        lines.extend(all.pairs.iter().map(|one| format!("Hosts {}; first {}.", pair(one, 3), one.first)));
        if all.other_directions > 0 {
            lines.push(format!("{} more directions are of other hosts.", units::count(all.other_directions)));
        }
    }
    lines.extend(all.long_stalls.iter().map(stall));
    lines
}

fn pair(pair: &HostPair, most: usize) -> String {
    let [one, other] = &pair.hosts;
    let causes = if pair.causes.is_empty() { "nothing found".to_owned() } else { causes(&pair.causes, most) };
    let are = if pair.directions == 1 { "direction" } else { "directions" };
    format!("{one} and {other}, {} {are}: {causes}", units::count(pair.directions))
}

fn causes(all: &[CauseTime], most: usize) -> String {
    let told = all
        .iter()
        .take(most)
        .map(|cause| format!("{} {} in {}", cause.cause, units::time(cause.held_ns), units::count(cause.directions)));
    let mut told: Vec<String> = told.collect();
    if all.len() > most {
        told.push("…".to_owned());
    }
    told.join(", ")
}

fn stall(stall: &LongStall) -> String {
    let timer = stall.timer.as_ref().map_or_else(String::new, |timer| format!(" ({timer})"));
    let [first, last] = stall.frames;
    format!(
        "STALL {} by {}{timer} after {}: frame.number in {{{first}..{last}}}, {}.",
        units::time(stall.held_ns),
        holder(&stall.holder),
        units::time(stall.begin_ns),
        stall.direction
    )
}
