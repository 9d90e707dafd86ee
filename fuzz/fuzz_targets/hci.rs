//! A controller takes any packets from its host, and what it answers are HCI packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_air::controller::{Controller, Input, Output};
use taut_air::hci::PacketView;
use taut_air::{Instant, Random, Role, Scenario};

fuzz_target!(|data: &[u8]| {
    let config = Scenario::default().controller(Role::Peripheral, 0);
    let mut controller = Controller::new(config, Random::new(1));
    let mut now = Instant::default();
    // Each packet is a length and that many bytes.
    let mut rest = data;
    while let [length, tail @ ..] = rest {
        let (packet, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        controller.handle(now, Input::Host(packet.to_vec()));
        for _ in 0..100 {
            match controller.poll(now) {
                Some(Output::Host(packet)) => assert!(PacketView::parse(&packet).is_ok(), "{packet:02x?}"),
                Some(_) => {}
                None => break,
            }
        }
        now = controller.deadline().unwrap_or(now).max(now);
    }
});
