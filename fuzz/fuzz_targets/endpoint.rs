//! Any text is an endpoint that is printed as it can be read again, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_link::Endpoint;

fuzz_target!(|text: &str| {
    if let Ok(endpoint) = text.parse::<Endpoint>() {
        let printed = endpoint.to_string();
        assert_eq!(printed.parse::<Endpoint>().ok(), Some(endpoint), "{text:?} is printed as {printed:?}");
    }
});
