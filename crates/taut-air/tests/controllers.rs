//! The controllers of a scenario under hosts that we play: what a kernel asks of them, from its first command on.

mod hosts;

use hosts::{CENTRAL, Hosts, MS, PERIPHERAL, SUCCESS};
use proptest::prelude::*;
use taut_air::hci::{self, Boundary, PacketView, command as op, event};
use taut_air::{Instant, Nanos};

#[test]
fn all_commands_that_are_claimed_are_there() {
    let mut hosts = Hosts::new(&[]);
    let claimed = hosts.command(0, op::READ_LOCAL_COMMANDS, &[]);
    let bits: u32 = claimed[1..].iter().map(|octet| octet.count_ones()).sum();
    let mut known = 0;
    for opcode in
        (0x0400..0x0480).chain(0x0800..0x0820).chain(0x0c00..0x0c80).chain(0x1000..0x1010).chain(0x2000..0x2080)
    {
        if opcode != op::RESET && hosts.command(0, opcode, &[])[0] != hci::UNKNOWN_COMMAND {
            known += 1;
        }
    }
    // Reset is known, too.
    assert_eq!(bits, known + 1);
}

#[test]
fn a_scanner_finds_who_advertises_and_asks_for_more() {
    let mut hosts = Hosts::new(&[]);
    let mut response = [0; 32];
    response[..5].copy_from_slice(&[4, 3, 9, b'h', b'i']);
    hosts.ok(PERIPHERAL, op::LE_SET_SCAN_RESPONSE_DATA, &response);
    hosts.advertise(PERIPHERAL, 0);
    for (active, expected) in [(0, vec![0]), (1, vec![0, 4])] {
        hosts.ok(CENTRAL, op::LE_SET_SCAN_PARAMETERS, &[active, 0x60, 0, 0x30, 0, 0, 0]);
        hosts.ok(CENTRAL, op::LE_SET_SCAN_ENABLE, &[1, 1]);
        hosts.pass(200 * MS);
        let mut kinds = Vec::new();
        while let Some(report) = hosts.le_event(CENTRAL, event::LE_ADVERTISING_REPORT) {
            assert_eq!(report[3..9], hosts.addresses[PERIPHERAL]);
            let data: &[u8] = if report[1] == 0 { &[2, 1, 6] } else { &[3, 9, b'h', b'i'] };
            assert_eq!(&report[10..report.len() - 1], data);
            kinds.push(report[1]);
        }
        // Each once, although it was on the air several times.
        assert_eq!(kinds, expected);
        hosts.ok(CENTRAL, op::LE_SET_SCAN_ENABLE, &[0, 0]);
    }
    // Who isn't in the accept list isn't reported.
    for (listed, reports) in [(false, 0), (true, 1)] {
        if listed {
            let peer = [&[0][..], &hosts.addresses[PERIPHERAL]].concat();
            hosts.ok(CENTRAL, op::LE_ADD_TO_ACCEPT_LIST, &peer);
        }
        hosts.ok(CENTRAL, op::LE_SET_SCAN_PARAMETERS, &[0, 0x60, 0, 0x30, 0, 0, 1]);
        hosts.ok(CENTRAL, op::LE_SET_SCAN_ENABLE, &[1, 1]);
        hosts.pass(200 * MS);
        assert_eq!(usize::from(hosts.le_event(CENTRAL, event::LE_ADVERTISING_REPORT).is_some()), reports);
        hosts.ok(CENTRAL, op::LE_SET_SCAN_ENABLE, &[0, 0]);
    }
}

#[test]
fn a_random_address_is_another_device() {
    let mut hosts = Hosts::new(&[]);
    let random = [1, 2, 3, 4, 5, 0xc6];
    hosts.ok(PERIPHERAL, op::LE_SET_RANDOM_ADDRESS, &random);
    let mut parameters = [0; 15];
    parameters[..6].copy_from_slice(&[0x20, 0, 0x20, 0, 0, 1]);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &parameters);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
    // The public one does not answer.
    assert_eq!(hosts.create_connection(6), SUCCESS);
    hosts.pass(500 * MS);
    assert_eq!(hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE), None);
    hosts.ok(CENTRAL, op::LE_CREATE_CONNECTION_CANCEL, &[]);
    let cancelled = hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE).unwrap();
    assert_eq!(cancelled[0], hci::UNKNOWN_CONNECTION);

    hosts.addresses[PERIPHERAL] = random;
    let mut parameters = [0; 25];
    parameters[5] = 1;
    parameters[6..12].copy_from_slice(&random);
    (parameters[13], parameters[15], parameters[19]) = (6, 6, 42);
    hosts.ok(CENTRAL, op::LE_CREATE_CONNECTION, &parameters);
    hosts.pass(100 * MS);
    let complete = hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE).unwrap();
    assert_eq!((complete[0], complete[4], &complete[5..11]), (SUCCESS, 1, &random[..]));
}

/// LE Set Advertising Parameters of directed advertising, at an address of that type.
fn directed(kind: u8, random: u8, at: [u8; 6]) -> [u8; 15] {
    let mut parameters = [0; 15];
    parameters[..5].copy_from_slice(&[0x20, 0, 0x20, 0, kind]);
    parameters[6] = random;
    parameters[7..13].copy_from_slice(&at);
    parameters[13] = 7;
    parameters
}

#[test]
fn directed_advertising_is_for_one_device() {
    for (kind, lasts) in [(0x01, false), (0x04, true)] {
        let mut hosts = Hosts::new(&[]);
        let central = hosts.addresses[CENTRAL];
        // At another device: neither reported nor answered.
        hosts.ok(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &directed(kind, 0, [9; 6]));
        hosts.ok(CENTRAL, op::LE_SET_SCAN_PARAMETERS, &[1, 0x60, 0, 0x30, 0, 0, 0]);
        hosts.ok(CENTRAL, op::LE_SET_SCAN_ENABLE, &[1, 1]);
        hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
        assert_eq!(hosts.create_connection(6), SUCCESS);
        hosts.pass(1270 * MS);
        assert_eq!(hosts.le_event(CENTRAL, event::LE_ADVERTISING_REPORT), None);
        assert_eq!(hosts.le_event(PERIPHERAL, event::LE_CONNECTION_COMPLETE), None);
        // A high duty cycle ends by itself after 1.28 s, and says so.
        hosts.pass(20 * MS);
        let ended = hosts.le_event(PERIPHERAL, event::LE_CONNECTION_COMPLETE);
        assert_eq!(ended.map(|complete| complete[0]), (!lasts).then_some(hci::ADVERTISING_TIMEOUT));
        hosts.pass(2000 * MS);
        assert_eq!(hosts.le_event(PERIPHERAL, event::LE_CONNECTION_COMPLETE), None);
        assert_eq!(hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE), None);

        // At the device that listens, by the other type of address and then by its own.
        for (random, is_ours) in [(1, false), (0, true)] {
            hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[0]);
            hosts.ok(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &directed(kind, random, central));
            hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
            hosts.pass(200 * MS);
            assert_eq!(hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE).is_some(), is_ours);
            assert_eq!(hosts.le_event(PERIPHERAL, event::LE_CONNECTION_COMPLETE).is_some(), is_ours);
        }
        assert_eq!(
            hosts.command(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &directed(kind, 2, central))[0],
            hci::UNSUPPORTED_VALUE
        );
    }
}

#[test]
fn a_scanner_reports_what_is_directed_at_it() {
    let mut hosts = Hosts::new(&[]);
    let central = hosts.addresses[CENTRAL];
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &directed(0x01, 0, central));
    hosts.ok(CENTRAL, op::LE_SET_SCAN_PARAMETERS, &[1, 0x60, 0, 0x30, 0, 0, 0]);
    hosts.ok(CENTRAL, op::LE_SET_SCAN_ENABLE, &[1, 0]);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
    hosts.pass(375 * MS);
    let mut reports = 0;
    while let Some(report) = hosts.le_event(CENTRAL, event::LE_ADVERTISING_REPORT) {
        // ADV_DIRECT_IND, of whom, no data.
        assert_eq!((report[1], &report[3..9], report[9]), (1, &hosts.addresses[PERIPHERAL][..], 0));
        reports += 1;
    }
    // Every 3.75 ms at least.
    assert!((100..125).contains(&reports), "{reports}");
}

#[test]
fn a_link_goes_through_what_a_kernel_does_with_it() {
    let mut hosts = Hosts::new(&[]);
    // As a kernel sets the controller up: the longest packets for all links to come.
    for number in [CENTRAL, PERIPHERAL] {
        let longest = hosts.command(number, op::LE_READ_MAX_LENGTH, &[]);
        assert_eq!(longest[1..3], [251, 0]);
        hosts.ok(number, op::LE_WRITE_DEFAULT_LENGTH, &longest[1..5]);
    }
    let handles = hosts.connect(6);
    hosts.pass(100 * MS);
    for number in [CENTRAL, PERIPHERAL] {
        let change = hosts.le_event(number, event::LE_DATA_LENGTH_CHANGE).expect("length agreed on");
        assert_eq!((&change[2..4], &change[6..8]), (&[251, 0][..], &[251, 0][..]));
        // Both sides asked; the second answer changed nothing.
        assert_eq!(hosts.le_event(number, event::LE_DATA_LENGTH_CHANGE), None);
        hosts.ok(number, op::LE_READ_REMOTE_FEATURES, &handles[number]);
    }
    hosts.pass(50 * MS);
    let own = hosts.command(CENTRAL, op::LE_READ_LOCAL_FEATURES, &[]);
    for number in [CENTRAL, PERIPHERAL] {
        let features = hosts.le_event(number, event::LE_REMOTE_FEATURES_COMPLETE).unwrap();
        assert_eq!((features[0], &features[3..]), (SUCCESS, &own[1..]));
    }

    // Data, and that it has arrived.
    let [low, high] = handles[CENTRAL];
    let handle = u16::from_le_bytes([low, high]);
    hosts.send(CENTRAL, hci::acl(handle, Boundary::FirstFromHost, &[7; 200]));
    hosts.pass(20 * MS);
    let received = hosts.take(PERIPHERAL, |packet| match PacketView::parse(packet) {
        Ok(PacketView::Acl(acl)) => Some(acl.data.to_vec()),
        _ => None,
    });
    assert_eq!(received, Some(vec![7; 200]));
    let completed = |packet: &[u8]| (packet[1] == event::COMPLETED_PACKETS).then(|| packet[6..].to_vec());
    assert_eq!(hosts.take(CENTRAL, completed), Some(vec![1, 0]));

    // Another interval: for the central alone to ask.
    let update = |handle: [u8; 2]| [&handle[..], &[24, 0, 24, 0, 0, 0, 42, 0, 0, 0, 0, 0]].concat();
    assert_eq!(
        hosts.command(PERIPHERAL, op::LE_CONNECTION_UPDATE, &update(handles[PERIPHERAL])),
        [hci::COMMAND_DISALLOWED]
    );
    hosts.ok(CENTRAL, op::LE_CONNECTION_UPDATE, &update(handles[CENTRAL]));
    // Another PHY.
    hosts.ok(PERIPHERAL, op::LE_SET_PHY, &[handles[PERIPHERAL][0], handles[PERIPHERAL][1], 0, 2, 2, 0, 0]);
    hosts.pass(600 * MS);
    for number in [CENTRAL, PERIPHERAL] {
        let updated = hosts.le_event(number, event::LE_CONNECTION_UPDATE_COMPLETE).unwrap();
        assert_eq!((updated[0], &updated[3..5]), (SUCCESS, &[24, 0][..]));
        let phy = hosts.le_event(number, event::LE_PHY_UPDATE_COMPLETE).unwrap();
        assert_eq!((phy[0], &phy[3..]), (SUCCESS, &[2, 2][..]));
        assert_eq!(hosts.command(number, op::LE_READ_PHY, &handles[number])[3..], [2, 2]);
    }

    let disconnect = |handle: [u8; 2]| [handle[0], handle[1], hci::REMOTE_USER_TERMINATED];
    hosts.ok(PERIPHERAL, op::DISCONNECT, &disconnect(handles[PERIPHERAL]));
    hosts.pass(500 * MS);
    let gone = |packet: &[u8]| (packet[1] == event::DISCONNECTION_COMPLETE).then(|| packet[6]);
    assert_eq!(hosts.take(PERIPHERAL, gone), Some(hci::LOCAL_HOST_TERMINATED));
    assert_eq!(hosts.take(CENTRAL, gone), Some(hci::REMOTE_USER_TERMINATED));
    assert_eq!(hosts.command(CENTRAL, op::DISCONNECT, &disconnect(handles[CENTRAL])), [hci::UNKNOWN_CONNECTION]);

    // And again, any number of times: handles are used again.
    for _ in 0..3 {
        assert_eq!(hosts.connect(6), handles);
        hosts.ok(CENTRAL, op::DISCONNECT, &disconnect(handles[CENTRAL]));
        hosts.pass(200 * MS);
    }
}

#[test]
fn a_radio_that_wants_2m_gets_it_by_itself() {
    let mut hosts = Hosts::new(&[("phy", "2m")]);
    hosts.connect(6);
    hosts.pass(200 * MS);
    for number in [CENTRAL, PERIPHERAL] {
        assert_eq!(hosts.le_event(number, event::LE_PHY_UPDATE_COMPLETE).expect("2M")[3..], [2, 2]);
    }
}

#[test]
fn a_side_that_is_reset_is_missed_by_the_other() {
    let mut hosts = Hosts::new(&[]);
    hosts.connect(6);
    hosts.ok(PERIPHERAL, op::RESET, &[]);
    hosts.pass(1000 * MS);
    let gone = |packet: &[u8]| (packet[1] == event::DISCONNECTION_COMPLETE).then(|| packet[6]);
    assert_eq!(hosts.take(CENTRAL, gone), Some(hci::CONNECTION_TIMEOUT));
    assert_eq!(hosts.take(PERIPHERAL, gone), None);
}

#[test]
fn a_driver_that_comes_late_changes_nothing_on_the_air() {
    let run = |step: Nanos| {
        let mut log = Vec::new();
        let mut hosts = Hosts::new(&[]);
        hosts.connect(6);
        let mut observer = |event: &taut_air::AirEvent<'_>| log.push((event.at, format!("{:?}", event.what)));
        let end = 2000 * MS;
        let mut now = hosts.now.as_nanos();
        while now < end {
            now = (now + step).min(end);
            while hosts.air.poll(Instant::from_nanos(now), &mut observer).is_some() {}
        }
        log
    };
    let (fine, coarse) = (run(10_000), run(300 * MS));
    assert!(fine.len() > 400, "{}", fine.len());
    assert_eq!(fine, coarse);
}

proptest! {
    /// Whatever hosts send, and whenever, controllers go on and say only what HCI has.
    #[test]
    fn controllers_survive_their_hosts(packets in prop::collection::vec(
        (0usize..2, 0u64..50, prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            (0x2001u16..0x2034, prop::collection::vec(any::<u8>(), 0..32))
                .prop_map(|(opcode, parameters)| hci::command(opcode, &parameters)),
            (0x40u16..0x43, prop::collection::vec(any::<u8>(), 0..300))
                .prop_map(|(handle, data)| hci::acl(handle, Boundary::FirstFromHost, &data)),
            Just(hci::command(op::DISCONNECT, &[0x40, 0, 0x13])),
            Just(hci::command(op::LE_SET_ADV_ENABLE, &[1])),
            Just(hci::command(op::LE_SET_SCAN_ENABLE, &[1, 0])),
        ]), 0..60), connected in any::<bool>()) {
        let mut hosts = Hosts::new(&[("per", "0.1")]);
        if connected {
            hosts.advertise(PERIPHERAL, 0);
            hosts.create_connection(6);
            hosts.pass(100 * MS);
        }
        for (number, later, packet) in packets {
            hosts.pass(later * MS);
            hosts.send(number, packet);
        }
        hosts.pass(500 * MS);
        for (_, packet) in &hosts.got {
            prop_assert!(PacketView::parse(packet).is_ok(), "{packet:02x?}");
        }
        hosts.ok(CENTRAL, op::RESET, &[]);
    }
}

#[test]
fn a_host_that_sends_more_than_there_are_buffers_is_told() {
    let mut hosts = Hosts::new(&[("central.acl_buffers", "3")]);
    let handles = hosts.connect(80);
    let overflowed = |hosts: &mut Hosts| {
        let told = |packet: &[u8]| (packet == [4, event::DATA_BUFFER_OVERFLOW, 1, 1]).then_some(());
        std::iter::from_fn(|| hosts.take(CENTRAL, told)).count()
    };
    for sent in 1..=5_usize {
        hosts.send_data(CENTRAL, handles, &[9; 20]);
        assert_eq!(overflowed(&mut hosts), usize::from(sent > 3), "{sent}");
    }
    assert_eq!(hosts.air.overflows(), 2);
    // What is in the buffers arrives, and then there is room again.
    hosts.pass(300 * MS);
    let arrived = |packet: &[u8]| {
        matches!(PacketView::parse(packet), Ok(PacketView::Acl(acl)) if acl.data == [9; 20]).then_some(())
    };
    assert_eq!(std::iter::from_fn(|| hosts.take(PERIPHERAL, arrived)).count(), 3);
    hosts.send_data(CENTRAL, handles, &[9; 20]);
    hosts.pass(300 * MS);
    assert_eq!((overflowed(&mut hosts), hosts.take(PERIPHERAL, arrived)), (0, Some(())));
    // One for a link that there is not is no overflow.
    (0..5).for_each(|_| hosts.send(CENTRAL, hci::acl(0x0b0, Boundary::FirstFromHost, &[1])));
    assert_eq!((overflowed(&mut hosts), hosts.air.overflows()), (0, 2));
}
