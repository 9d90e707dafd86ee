//! Two controllers around one medium take any packets from their hosts at any time, and what hosts
//! get are HCI packets. The first byte says whether a link of BR/EDR is there before, whether the
//! medium loses packets, whether a link of LE is there, and whether its encryption has begun.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_air::hci::{self, PacketView, command as op};
use taut_air::{Air, Instant, Scenario};

/// From one pair of scan windows to the next and beyond, and until a connection is complete.
const PAGING_NS: u64 = 2_600_000_000;
const SETUP_NS: u64 = 200_000_000;

fn drain(air: &mut Air, now: Instant) {
    while let Some(to_host) = air.poll(now, &mut ()) {
        assert!(to_host.at <= now);
        assert!(PacketView::parse(&to_host.packet).is_ok(), "{:02x?}", to_host.packet);
    }
}

/// The first controller connects to the second.
fn connect(air: &mut Air, now: &mut Instant) {
    let addresses: Vec<[u8; 6]> = air.controllers().map(|(address, _)| address).collect();
    let mut create = addresses[1].to_vec();
    create.extend([0; 7]);
    let mut accept = addresses[0].to_vec();
    accept.push(1);
    for (number, packet, later) in [
        (1, hci::command(op::WRITE_SCAN_ENABLE, &[3]), 0),
        (0, hci::command(op::CREATE_CONNECTION, &create), PAGING_NS),
        (1, hci::command(op::ACCEPT_CONNECTION, &accept), SETUP_NS),
    ] {
        air.handle(*now, number, packet, &mut ());
        *now = Instant::from_nanos(now.as_nanos() + later);
        drain(air, *now);
    }
}

/// The same over LE; with `encrypt` the central's host goes on to ask for encryption, so that the
/// other has a key to give.
fn connect_le(air: &mut Air, now: &mut Instant, encrypt: bool) {
    let addresses: Vec<[u8; 6]> = air.controllers().map(|(address, _)| address).collect();
    let mut create = vec![0; 25];
    create[6..12].copy_from_slice(&addresses[1]);
    (create[13], create[15], create[19]) = (6, 6, 42);
    let mut enable = vec![0; 28];
    enable[0] = 0x40;
    let mut packets = vec![
        (1, hci::command(op::LE_SET_ADV_ENABLE, &[1]), 0),
        (0, hci::command(op::LE_CREATE_CONNECTION, &create), SETUP_NS),
    ];
    if encrypt {
        packets.push((0, hci::command(op::LE_ENABLE_ENCRYPTION, &enable), SETUP_NS));
    }
    for (number, packet, later) in packets {
        air.handle(*now, number, packet, &mut ());
        *now = Instant::from_nanos(now.as_nanos() + later);
        drain(air, *now);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut now = Instant::default();
    let [mode, rest @ ..] = data else { return };
    let mut scenario = Scenario::default();
    if mode & 2 != 0 && scenario.set("per", "0.2").is_err() {
        return;
    }
    let Ok(mut air) = Air::new(&scenario, 1, now) else { return };
    if mode & 1 != 0 {
        connect(&mut air, &mut now);
    }
    if mode & 4 != 0 {
        connect_le(&mut air, &mut now, mode & 8 != 0);
    }
    // Each packet: which host, how much later in units of 4 ms, a length, and that many bytes.
    let mut rest = rest;
    while let [number, later, length, tail @ ..] = rest {
        now = Instant::from_nanos(now.as_nanos() + u64::from(*later) * 4_000_000);
        let (packet, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        air.handle(now, (number & 1).into(), packet.to_vec(), &mut ());
        drain(&mut air, now);
    }
});
