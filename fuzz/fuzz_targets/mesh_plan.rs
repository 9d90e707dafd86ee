//! Any text is a plan of a mesh whose pairs are there once and whose thresholds are printed as they can be read again,
//! or is refused.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use taut_fleet::{Pairs, Plan, Sums, Via, Warn, choose};

fuzz_target!(|text: &str| {
    if let Ok(via) = text.parse::<Via>() {
        // Whatever is in a name, it makes no word more.
        assert_eq!(via.line("a b'", &[]).len(), via.line("x", &[]).len());
    }
    if let Ok(warn) = text.parse::<Warn>() {
        assert_eq!(warn.to_string().parse::<Warn>().ok(), Some(warn), "{text:?}");
    }
    let Ok(plan) = Plan::parse(text) else { return };
    assert_eq!(plan.pairs.to_string().parse::<Pairs>(), Ok(plan.pairs));
    for work in &plan.work {
        let printed = work.warn.as_ref().map(ToString::to_string);
        assert_eq!(printed.map(|text| text.parse::<Warn>().expect("it was read")), work.warn);
    }
    let Ok(pairs) = choose(&plan, true) else { return };
    let mut seen = HashSet::new();
    assert!(pairs.iter().all(|pair| pair.near != pair.far && seen.insert(*pair)));
    let sums = Sums::of(&plan, &pairs);
    assert!(sums.pairs == pairs.len() && sums.least_run_s.is_finite());
});
