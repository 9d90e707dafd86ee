//! Any text is a socket option that is printed as it can be read again, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_link::SocketOption;

fuzz_target!(|text: &str| {
    if let Ok(option) = text.parse::<SocketOption>() {
        let printed = option.to_string();
        assert!(option.line_of_code().starts_with("setsockopt("));
        assert_eq!(printed.parse::<SocketOption>().ok(), Some(option), "{text:?} is printed as {printed:?}");
    }
});
