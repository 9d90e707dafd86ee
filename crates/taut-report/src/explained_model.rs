//! What simulated links that show what a log shows would carry, in lines.

use taut_explain::{Direction, Explanation, LinkModel, ModelledLink, ModelledRemedy};

use crate::lines::{cut, wrap};
use crate::units;

/// A block for each direction that has one.
pub(crate) fn lines(explanation: &Explanation) -> Vec<String> {
    let told = |direction: &Direction| Some(of(direction, direction.model.as_ref()?));
    explanation.worst.iter().filter_map(told).flatten().collect()
}

fn of(direction: &Direction, model: &LinkModel) -> Vec<String> {
    let mut lines = vec![cut(&format!("MODEL {} > {}", direction.from, direction.to))];
    let (Some(nearest), None) = (model.scenarios.first(), &model.why_not) else {
        let why = model.why_not.as_deref().unwrap_or("no scenario");
        lines.extend(wrap("  ", &format!("CAN'T TELL: {why}.")));
        return lines;
    };
    let rate = |bps: u64| units::bit_rate(bps as f64);
    let off = (nearest.log_bps as f64 / (model.measured_bps as f64).max(1.0) - 1.0) * 100.0;
    let alike = match model.scenarios.len() {
        1 => String::new(),
        count => format!(" {count} scenarios are about as near; the log does not tell them apart."),
    };
    let text = format!(
        "The log has {}; the simulated link that shows what it shows has {} ({off:+.1} %), and its program got {}.{alike}",
        rate(model.measured_bps),
        rate(nearest.log_bps),
        rate(nearest.program_bps)
    );
    lines.extend(wrap("  ", &text));
    for remedy in &nearest.remedies {
        lines.extend(wrap("    ", &remedied(model, nearest, remedy)));
    }
    if nearest.remedies.is_empty() {
        lines.push("  No single change gives it 1 % more.".to_owned());
    } else {
        lines.extend(wrap("  ", "What the log does not show may hold it then: measure again after a change."));
    }
    lines
}

fn remedied(model: &LinkModel, nearest: &ModelledLink, remedy: &ModelledRemedy) -> String {
    let rate = |bps: u64| units::bit_rate(bps as f64);
    let times = remedy.program_bps as f64 / (nearest.program_bps as f64).max(1.0);
    // In the others the same change, or another of the same cause, may give less or more.
    let others = model.scenarios[1..].iter().map(|other| {
        let same = other.remedies.iter().find(|its| its.cause == remedy.cause);
        same.map_or(other.program_bps, |its| its.program_bps)
    });
    let (low, high) =
        others.fold((remedy.program_bps, remedy.program_bps), |(low, high), bps| (low.min(bps), high.max(bps)));
    let range = if low == high { String::new() } else { format!("; {} to {} in all of them", rate(low), rate(high)) };
    format!(
        "Without {}: {} ({times:.2} times as much{range}), by {}.",
        remedy.cause,
        rate(remedy.program_bps),
        remedy.set.join(" ")
    )
}
