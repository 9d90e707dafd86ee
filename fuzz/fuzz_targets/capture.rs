//! Any bytes are a capture or a log of Bluetooth that is read to an end and explained, each
//! nanosecond booked to one holder, or are refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_capture::{Flows, Reader};
use taut_event::VantageId;
use taut_explain::Engine;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let (mut flows, mut engine) = (Flows::new(4), Engine::new(8));
    while let Ok(Some(packet)) = reader.next_packet() {
        flows.packet(&packet, VantageId(0), &mut engine);
    }
    flows.finish(&mut engine);
    for direction in engine.finish().worst {
        let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
        assert_eq!(sum, direction.span_ns);
    }
});
