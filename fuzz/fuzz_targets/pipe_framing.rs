//! Any bytes, however they are cut, are messages within the limit that are framed again as they were, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_pipe::framing::{Decoder, Framing, Messages, encode};

const LIMIT: usize = 300;

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let framing = [Framing::None, Framing::Length, Framing::Line][usize::from(input.0 % 3)];
    let (mut decoder, mut out) = (Decoder::new(framing, LIMIT), Messages::default());
    let fine =
        input.1.iter().all(|read| decoder.push(read, &mut out).is_ok()) && decoder.finish(true, &mut out).is_ok();
    let mut again = Vec::new();
    while let Some(message) = out.first() {
        assert!(message.len() <= LIMIT);
        encode(framing, message, &mut again).expect("what was a message can be one again");
        out.remove_first();
    }
    let mut whole = input.1.concat();
    if framing == Framing::Line && !whole.is_empty() && whole.last() != Some(&b'\n') {
        whole.push(b'\n');
    }
    if fine {
        assert_eq!(again, whole);
    } else {
        assert!(whole.starts_with(&again));
    }
});
