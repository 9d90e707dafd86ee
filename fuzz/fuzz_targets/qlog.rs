//! Any bytes behind the mark of a log of QUIC are read to an end and explained, each nanosecond booked to one holder,
//! or are refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_capture::Source;
use taut_event::VantageId;
use taut_explain::Engine;

/// Its events are on lines of their own.
const LINES: &[u8] = b"{\"qlog_version\":\"0.3\",\"trace\":{}}\n";
const SEQUENCE: &[u8] = b"\x1e{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"trace\":{}}\n";

fuzz_target!(|bytes: &[u8]| {
    let behind = [SEQUENCE, LINES].map(|begin| [begin, bytes].concat());
    for log in [bytes, &behind[0], &behind[1]] {
        let Ok(Source::Qlog(log)) = Source::new(log) else { continue };
        let mut engine = Engine::new(8);
        if log.read(VantageId(0), &mut engine, &mut || {}).is_err() {
            continue;
        }
        for direction in engine.finish().worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            assert_eq!(sum, direction.span_ns);
        }
    }
});
