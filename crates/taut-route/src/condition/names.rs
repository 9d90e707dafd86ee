//! What the language has names for.

use super::expression::Fact;

pub(super) const FACTS: [(&str, Fact); 5] = [
    ("len", Fact::Length),
    ("count", Fact::Count),
    ("passed", Fact::Passed),
    ("since_last", Fact::SinceLast),
    ("since_passed", Fact::SincePassed),
];

/// The functions with their operands, for messages.
pub(super) const FUNCTIONS: [(&str, &str); 16] = [
    ("abs", "abs(number)"),
    ("min", "min(number, number)"),
    ("max", "max(number, number)"),
    ("clamp", "clamp(number, low, high)"),
    ("prev", "prev(number or condition)"),
    ("delta", "delta(number)"),
    ("changed", "changed(number or condition)"),
    ("rise", "rise(condition)"),
    ("fall", "fall(condition)"),
    ("total", "total(number)"),
    ("hysteresis", "hysteresis(number, low, high)"),
    ("debounce", "debounce(condition, time)"),
    ("limit", "limit(condition, times, time)"),
    ("average", "average(number, events)"),
    ("smooth", "smooth(number, shift)"),
    ("median", "median(number)"),
];

/// Whether the language has something of that name, beside the forms of fields.
pub(super) fn is_reserved(name: &str) -> bool {
    ["true", "false", "previous"].contains(&name)
        || FACTS.iter().any(|(known, _)| *known == name)
        || FUNCTIONS.iter().any(|(known, _)| *known == name)
}
