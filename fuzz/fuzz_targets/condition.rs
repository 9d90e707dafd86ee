//! Any text is a condition that gives a verdict for any event, or is refused with a column in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_route::condition::{Layout, Program, ProgramError};

fuzz_target!(|input: (&str, &str, Vec<(i64, &[u8])>)| {
    let (when, output, events) = input;
    let layout = Layout::new([("value".to_owned(), "i16le@1".parse().unwrap())]).unwrap();
    match Program::parse(when, &[output], &layout) {
        Ok(program) => {
            let (mut memory, mut outputs) = (program.memory(), Vec::new());
            for (now, payload) in events {
                program.handle(&mut memory, now, payload, &mut outputs);
            }
            assert!(memory.passed <= memory.count);
        }
        Err(ProgramError::When(error)) => assert!(error.column <= when.chars().count() + 1, "{error}"),
        Err(ProgramError::Output { error, .. }) => assert!(error.column <= output.chars().count() + 1, "{error}"),
        Err(error) => panic!("{error}"),
    }
});
