//! Any bytes behind the header of a sniffer's capture are links of Bluetooth LE that are read to an end and
//! explained, each nanosecond booked to one holder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_capture::{Flows, LinkType, Packet};
use taut_event::VantageId;
use taut_explain::Engine;
use taut_time::Instant;

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    let link = [LinkType::LE, LinkType::LE_WITH_HEADER, LinkType::NORDIC_LE][usize::from(kind % 3)];
    let (mut flows, mut engine) = (Flows::new(4), Engine::new(8));
    let (mut frame, mut at, mut rest) = (0, 0_u64, rest);
    // Each packet is the time since the one before in units of 10 us, its length, and that many bytes.
    while let [low, high, length, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        frame += 1;
        at += u64::from(u16::from_le_bytes([*low, *high])) * 10_000;
        let (at, original_length) = (Some(Instant::from_nanos(at)), bytes.len() as u32);
        let packet = Packet { frame, at, link, bytes, original_length, flags: 0, lost: 0 };
        flows.packet(&packet, VantageId(0), &mut engine);
    }
    flows.finish(&mut engine);
    for direction in engine.finish().worst {
        let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
        assert_eq!(sum, direction.span_ns);
    }
});
