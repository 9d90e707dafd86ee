//! A controller at the end of a UART takes any stream from its host: what comes of it does not depend on
//! how the stream is cut, only packets get to the controller, and what the host gets are HCI packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_air::hci::{H4Received, H4Receiver, PacketView};
use taut_air::{Air, Instant, Scenario};

fn received(stream: &[u8], piece: usize) -> Vec<H4Received> {
    let mut receiver = H4Receiver::new(251);
    let mut all = Vec::new();
    for bytes in stream.chunks(piece) {
        receiver.push(bytes);
        all.extend(std::iter::from_fn(|| receiver.poll()));
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let [piece, stream @ ..] = data else { return };
    let all = received(stream, usize::from(*piece) + 1);
    assert_eq!(all, received(stream, stream.len().max(1)));
    let mut now = Instant::default();
    let Ok(mut air) = Air::new(&Scenario::default(), 1, now) else { return };
    for one in all {
        now = Instant::from_nanos(now.as_nanos() + 10_000_000);
        match one {
            H4Received::Packet(packet) => {
                assert!(matches!(packet[0], 1 | 2), "{packet:02x?}");
                air.handle(now, 0, packet, &mut ());
            }
            H4Received::Lost(_) => air.lose_synchronisation(now, 0, &mut ()),
        }
        while let Some(to_host) = air.poll(now, &mut ()) {
            assert!(PacketView::parse(&to_host.packet).is_ok(), "{:02x?}", to_host.packet);
        }
    }
    air.power_cycle(now, 0, &mut ());
});
