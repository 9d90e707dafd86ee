//! Two controllers around one medium take any packets from their hosts at any time, and what hosts get are HCI packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_air::hci::PacketView;
use taut_air::{Air, Instant, Scenario};

fuzz_target!(|data: &[u8]| {
    let mut now = Instant::default();
    let Ok(mut air) = Air::new(&Scenario::default(), 1, now) else { return };
    // Each packet: which host, how much later in units of 4 ms, a length, and that many bytes.
    let mut rest = data;
    while let [number, later, length, tail @ ..] = rest {
        now = Instant::from_nanos(now.as_nanos() + u64::from(*later) * 4_000_000);
        let (packet, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        air.handle(now, (number & 1).into(), packet.to_vec(), &mut ());
        while let Some(to_host) = air.poll(now, &mut ()) {
            assert!(to_host.at <= now);
            assert!(PacketView::parse(&to_host.packet).is_ok(), "{:02x?}", to_host.packet);
        }
    }
});
