//! A trace while it goes on, as a terminal shows it.

use taut_explain::trace::FoundSoFar;

use crate::lines::{cut, line_to};
use crate::units;

/// Causes that are shown, whatever the terminal's height.
const SHOWN: usize = 8;
const HEAD: &str = "    HELD  SHARE  CAUSE               CONNECTION";

/// What is traced and for how long, how much was recorded, and what was found until now, each with the name of its
/// program where that is known.
pub fn traced_so_far(
    traced: &str,
    for_ns: u64,
    [records, lost]: [u64; 2],
    found: &[(FoundSoFar, Option<String>)],
) -> String {
    let mut text = String::new();
    let (time, count) = (units::apart(for_ns / 1_000_000_000), units::count(records));
    let lost = if lost == 0 { "none lost".to_owned() } else { format!("{} lost", units::count(lost)) };
    line_to(&mut text, &cut(&format!("{traced}, {time} so far: {count} records, {lost}; Ctrl-C ends it")));
    if found.is_empty() {
        line_to(&mut text, &cut("Nothing was found until now that holds data back."));
        return text;
    }
    line_to(&mut text, &cut(HEAD));
    for (one, program) in found.iter().take(SHOWN) {
        let FoundSoFar { from, to, cause, held_ns, share, .. } = one;
        let (held, share) = (units::time(*held_ns), format!("{:.0} %", share * 100.0));
        let program = program.as_ref().map_or_else(String::new, |program| format!("  {program}"));
        line_to(&mut text, &cut(&format!("{held:>8}  {share:>5}  {cause:<18}  {from} → {to}{program}")));
    }
    if found.len() > SHOWN {
        line_to(&mut text, &cut(&format!("{} more", units::count((found.len() - SHOWN) as u64))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::within;

    fn found(held_ns: u64) -> (FoundSoFar, Option<String>) {
        let found = FoundSoFar {
            from: "127.0.0.1:5000".to_owned(),
            to: "127.0.0.1:6000".to_owned(),
            thread: Some(7),
            cause: "nagle_delayed_ack".to_owned(),
            side: "sender".to_owned(),
            held_ns,
            share: 0.931,
        };
        (found, Some("redis-server (4711)".to_owned()))
    }

    #[test]
    fn a_trace_that_goes_on_shows_the_longest_and_fits() {
        let none = traced_so_far("process x (1)", 3_400_000_000, [1234, 0], &[]);
        assert_eq!(
            none,
            "process x (1), 3 s so far: 1,234 records, none lost; Ctrl-C ends it\n\
             Nothing was found until now that holds data back.\n"
        );
        let many: Vec<_> = (0..12).map(|number| found(40_000_000 - number)).collect();
        let text = traced_so_far("port 6000", 61_000_000_000, [5_000_000, 3], &many);
        assert!(text.contains("3 lost") && text.ends_with("\n4 more\n"), "{text}");
        let row = " 40.0 ms   93 %  nagle_delayed_ack   127.0.0.1:5000 → 127.0.0.1:6000  redis-server (4711)\n";
        assert!(text.contains(row), "{text}");
        let narrow = within(Some(60), || traced_so_far("port 6000", 1, [5, 3], &many));
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    }
}
