//! Any text is a file of routes whose addresses are printed as they can be read again, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_route::route::{Route, Source, parse_file};

fuzz_target!(|text: &str| {
    let Ok(declarations) = parse_file(text) else { return };
    let Ok(routes) = Route::compile_all(&declarations) else { return };
    for route in routes {
        let printed = route.source.to_string();
        assert_eq!(printed.parse::<Source>().ok(), Some(route.source), "{printed}");
        for sink in route.sinks {
            assert!(sink.output.is_none_or(|output| output < route.program.outputs.len()));
            assert_eq!(sink.target.to_string().parse().ok(), Some(sink.target));
        }
    }
});
