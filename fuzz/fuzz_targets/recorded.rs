//! Any bytes behind the first lines of a recorded trace are read to an end and explained, each nanosecond booked to one
//! holder, or are refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_capture::Source;
use taut_explain::trace::Trace;

const BEGIN: &[u8] = b"taut-events 2\nf 0 3fff - tcp 1.1.1.1:1 2.2.2.2:2\nf 1 3fff - unix 7\nf 2 3fff - pipe 8\n\
    f 3 3fff - l2cap 9\nf 4 8 s channel 0 64 010203040506 credit 133\nn> 3 0 - 0 64 010203040506 010203040506 133 64 65 1\n\
    h> 4 0 - opened 672 672 247 247 3 3\n";

fuzz_target!(|bytes: &[u8]| {
    let behind = [BEGIN, bytes].concat();
    for file in [bytes, &behind] {
        let Ok(Source::Recorded(recorded)) = Source::new(file) else { continue };
        let mut trace = Trace::new(8).with_spans(64);
        let Ok(end) = recorded.read(&mut trace, || {}) else { continue };
        for direction in trace.finish(end.at.unwrap_or_default()).worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            assert_eq!(sum, direction.span_ns);
        }
    }
});
