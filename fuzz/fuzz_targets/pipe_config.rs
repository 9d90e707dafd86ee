//! Any text is a configuration of pipes whose ends are printed as they can be read again, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_pipe::{Side, parse_config};

fuzz_target!(|text: &str| {
    if let Ok(side) = text.parse::<Side>() {
        let printed = side.to_string();
        assert_eq!(printed.parse::<Side>().ok(), Some(side), "{text:?} is printed as {printed:?}");
    }
    let Ok(plans) = parse_config(text) else { return };
    for plan in plans {
        plan.check().expect("what was read makes sense");
        for side in plan.sides {
            assert_eq!(side.to_string().parse::<Side>().ok(), Some(side));
        }
    }
});
