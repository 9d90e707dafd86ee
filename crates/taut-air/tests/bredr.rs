//! BR/EDR under hosts that we play: connections, data in slots, what is lost and what silence does.

mod hosts;

use std::cell::Cell;
use std::rc::Rc;

use hosts::{CENTRAL, Hosts, MS, PERIPHERAL, SUCCESS};
use proptest::prelude::*;
use taut_air::bredr::PacketType;
use taut_air::hci::{self, Boundary, PacketView, command as op, event};
use taut_air::{AirEvent, Happening, Instant, Nanos, Reception};

/// Parameters of an event of that code.
fn event_of(hosts: &mut Hosts, number: usize, code: u8) -> Option<Vec<u8>> {
    hosts.take(number, |packet| match packet {
        [4, is, _, rest @ ..] if *is == code => Some(rest.to_vec()),
        _ => None,
    })
}

fn create(hosts: &mut Hosts) -> u8 {
    create_to(hosts, PERIPHERAL)
}

fn create_to(hosts: &mut Hosts, number: usize) -> u8 {
    let mut parameters = [0; 13];
    parameters[..6].copy_from_slice(&hosts.addresses[number]);
    hosts.command(CENTRAL, op::CREATE_CONNECTION, &parameters)[0]
}

/// Connects, and gives both handles.
fn connect(hosts: &mut Hosts) -> [u16; 2] {
    connect_to(hosts, PERIPHERAL)
}

/// The same with the peripheral of that number.
fn connect_to(hosts: &mut Hosts, peripheral: usize) -> [u16; 2] {
    hosts.ok(peripheral, op::WRITE_SCAN_ENABLE, &[2]);
    assert_eq!(create_to(hosts, peripheral), SUCCESS);
    let mut request = None;
    for _ in 0..200 {
        hosts.pass(50 * MS);
        request = request.or_else(|| event_of(hosts, peripheral, event::CONNECTION_REQUEST));
        if request.is_some() {
            break;
        }
    }
    assert_eq!(request.expect("a request within the page timeout")[..6], hosts.addresses[CENTRAL]);
    let mut accept = hosts.addresses[CENTRAL].to_vec();
    accept.push(1);
    hosts.ok(peripheral, op::ACCEPT_CONNECTION, &accept);
    hosts.pass(200 * MS);
    [(CENTRAL, peripheral), (peripheral, CENTRAL)].map(|(number, peer)| {
        let complete = event_of(hosts, number, event::CONNECTION_COMPLETE).expect("connected");
        assert_eq!((complete[0], &complete[3..9], complete[9]), (SUCCESS, &hosts.addresses[peer][..], 1));
        u16::from_le_bytes([complete[1], complete[2]])
    })
}

/// Data of the central comes through to a peripheral.
fn carries(hosts: &mut Hosts, handle: u16, peripheral: usize) -> bool {
    let message = [9; 100];
    hosts.send(CENTRAL, hci::acl(handle, Boundary::FirstFromHost, &message));
    hosts.pass(200 * MS);
    data(hosts, peripheral) == message
}

/// Bytes of ACL data that a host got.
fn data(hosts: &mut Hosts, number: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(part) = hosts.take(number, |packet| match PacketView::parse(packet) {
        Ok(PacketView::Acl(acl)) => Some(acl.data.to_vec()),
        _ => None,
    }) {
        all.extend(part);
    }
    all
}

#[test]
fn a_link_goes_through_what_a_kernel_does_with_it() {
    let mut hosts = Hosts::new(&[]);
    let mut name = [0; 248];
    name[..20].copy_from_slice(b"a sensor in a garden");
    hosts.ok(PERIPHERAL, op::WRITE_LOCAL_NAME, &name);
    let handles = connect(&mut hosts);
    let [low, high] = handles[CENTRAL].to_le_bytes();
    for opcode in [op::READ_REMOTE_FEATURES, op::READ_REMOTE_VERSION, op::READ_CLOCK_OFFSET] {
        hosts.ok(CENTRAL, opcode, &[low, high]);
    }
    let peer = [&hosts.addresses[PERIPHERAL][..], &[1, 0, 0, 0]].concat();
    hosts.ok(CENTRAL, op::REMOTE_NAME, &peer);
    hosts.pass(200 * MS);
    let own = hosts.command(PERIPHERAL, op::READ_LOCAL_FEATURES, &[]);
    let features = event_of(&mut hosts, CENTRAL, event::REMOTE_FEATURES_COMPLETE).unwrap();
    assert_eq!((features[0], &features[3..]), (SUCCESS, &own[1..]));
    assert_eq!(event_of(&mut hosts, CENTRAL, event::REMOTE_VERSION_COMPLETE).unwrap()[3], 0x0d);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::CLOCK_OFFSET_COMPLETE).unwrap()[0], SUCCESS);
    let told = event_of(&mut hosts, CENTRAL, event::REMOTE_NAME_COMPLETE).unwrap();
    assert_eq!((told.len(), &told[7..], told[0]), (255, &name[..], SUCCESS));

    let message: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    hosts.send(CENTRAL, hci::acl(handles[CENTRAL], Boundary::FirstFromHost, &message));
    hosts.pass(50 * MS);
    assert_eq!(data(&mut hosts, PERIPHERAL), message);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::COMPLETED_PACKETS).unwrap()[3..], [1, 0]);

    let disconnect = [low, high, hci::REMOTE_USER_TERMINATED];
    hosts.ok(CENTRAL, op::DISCONNECT, &disconnect);
    hosts.pass(200 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE).unwrap()[3], hci::LOCAL_HOST_TERMINATED);
    assert_eq!(
        event_of(&mut hosts, PERIPHERAL, event::DISCONNECTION_COMPLETE).unwrap()[3],
        hci::REMOTE_USER_TERMINATED
    );
    assert_eq!(hosts.command(CENTRAL, op::DISCONNECT, &disconnect), [hci::UNKNOWN_CONNECTION]);
    // And again.
    assert_eq!(connect(&mut hosts), handles);
}

#[test]
fn a_device_that_does_not_scan_is_not_reached() {
    let mut hosts = Hosts::new(&[]);
    hosts.ok(CENTRAL, op::WRITE_PAGE_TIMEOUT, &0x0800u16.to_le_bytes());
    assert_eq!(create(&mut hosts), SUCCESS);
    hosts.pass(1200 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::CONNECTION_COMPLETE), None);
    hosts.pass(200 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::CONNECTION_COMPLETE).unwrap()[0], hci::PAGE_TIMEOUT);

    assert_eq!(create(&mut hosts), SUCCESS);
    hosts.ok(CENTRAL, op::CREATE_CONNECTION_CANCEL, &hosts.addresses[PERIPHERAL].clone());
    assert_eq!(event_of(&mut hosts, CENTRAL, event::CONNECTION_COMPLETE).unwrap()[0], hci::UNKNOWN_CONNECTION);
}

#[test]
fn a_host_may_refuse_or_say_nothing() {
    for (refuses, reason) in [(true, 0x0d), (false, hci::ACCEPT_TIMEOUT)] {
        let mut hosts = Hosts::new(&[]);
        hosts.ok(PERIPHERAL, op::WRITE_SCAN_ENABLE, &[2]);
        hosts.ok(PERIPHERAL, op::WRITE_ACCEPT_TIMEOUT, &0x0400u16.to_le_bytes());
        create(&mut hosts);
        for _ in 0..60 {
            hosts.pass(50 * MS);
            if event_of(&mut hosts, PERIPHERAL, event::CONNECTION_REQUEST).is_some() {
                break;
            }
        }
        if refuses {
            let mut reject = hosts.addresses[CENTRAL].to_vec();
            reject.push(0x0d);
            hosts.command(PERIPHERAL, op::REJECT_CONNECTION, &reject);
        }
        hosts.pass(1000 * MS);
        for number in [CENTRAL, PERIPHERAL] {
            assert_eq!(event_of(&mut hosts, number, event::CONNECTION_COMPLETE).unwrap()[0], reason, "{number}");
            assert_eq!(event_of(&mut hosts, number, event::DISCONNECTION_COMPLETE), None);
        }
    }
}

#[test]
fn an_inquiry_finds_who_can_be_found() {
    let mut hosts = Hosts::new(&[]);
    hosts.ok(PERIPHERAL, op::WRITE_SCAN_ENABLE, &[1]);
    hosts.ok(PERIPHERAL, op::WRITE_CLASS, &[4, 5, 6]);
    hosts.ok(CENTRAL, op::INQUIRY, &[0x33, 0x8b, 0x9e, 8, 0]);
    hosts.pass(8 * 1281 * MS);
    let result = event_of(&mut hosts, CENTRAL, event::INQUIRY_RESULT).unwrap();
    assert_eq!((result[0], &result[1..7], &result[10..13]), (1, &hosts.addresses[PERIPHERAL][..], &[4, 5, 6][..]));
    assert_eq!(event_of(&mut hosts, CENTRAL, event::INQUIRY_RESULT), None);
    assert!(event_of(&mut hosts, CENTRAL, event::INQUIRY_COMPLETE).is_some());
}

#[test]
fn loss_is_made_good_and_seen_on_the_air() {
    let mut hosts = Hosts::new(&[("per", "0.2")]);
    let [central, peripheral] = connect(&mut hosts);
    let message: Vec<u8> = (0..6000).map(|at| (at * 7) as u8).collect();
    for part in message.chunks(1000) {
        hosts.send(CENTRAL, hci::acl(central, Boundary::FirstFromHost, part));
        hosts.send(PERIPHERAL, hci::acl(peripheral, Boundary::FirstFromHost, part));
    }
    let (mut again, mut lost) = (0, 0);
    let end = Instant::from_nanos(hosts.now.as_nanos() + 2000 * MS);
    let mut observer = |event: &AirEvent<'_>| {
        if let Happening::Baseband { packet, reception } = event.what {
            again += u32::from(packet.retransmission);
            lost += u32::from(reception != Reception::Received);
            assert!(packet.end > packet.start && packet.start >= event.at);
        }
    };
    while let Some(to_host) = hosts.air.poll(end, &mut observer) {
        hosts.got.push((to_host.number, to_host.packet));
    }
    assert!(again > 5 && lost > 20, "{again} {lost}");
    assert_eq!(data(&mut hosts, PERIPHERAL), message);
    assert_eq!(data(&mut hosts, CENTRAL), message);
}

/// Bytes a second, and the longest packets seen.
fn throughput(set: &[(&str, &str)]) -> (u64, Vec<PacketType>) {
    let mut hosts = Hosts::new(set);
    let [central, _] = connect(&mut hosts);
    let (mut bytes, mut kinds) = (0, Vec::new());
    let mut outstanding = 0;
    for _ in 0..2000 {
        while outstanding < 8 {
            let (now, packet) = (hosts.now, hci::acl(central, Boundary::FirstFromHost, &[5; 1021]));
            hosts.air.handle(now, CENTRAL, packet, &mut ());
            outstanding += 1;
        }
        hosts.now = Instant::from_nanos(hosts.now.as_nanos() + MS / 2);
        let mut observer = |event: &AirEvent<'_>| {
            if let Happening::Baseband { packet, .. } = event.what
                && packet.kind.is_data()
                && !kinds.contains(&packet.kind)
            {
                kinds.push(packet.kind);
            }
        };
        while let Some(to_host) = hosts.air.poll(hosts.now, &mut observer) {
            match PacketView::parse(&to_host.packet) {
                Ok(PacketView::Acl(acl)) => bytes += acl.data.len() as u64,
                Ok(PacketView::Event { code: event::COMPLETED_PACKETS, parameters }) => {
                    outstanding -= u32::from(parameters[3]);
                }
                _ => {}
            }
        }
    }
    (bytes, kinds)
}

#[test]
fn a_flow_is_as_fast_as_its_packets() {
    // Vol 2, Part B, table 6.10: the asymmetric maximum of DH5 is 723.2 kb/s; 1021 bytes are three
    // DH5, 3-DH5's largest.
    for (set, low, high, kind) in [
        (&[][..], 650_000, 723_200, PacketType::Dh5),
        (&[("bredr.packets", "2-dh")][..], 1_300_000, 1_448_500, PacketType::TwoDh5),
        (&[("bredr.packets", "3-dh")][..], 2_000_000, 2_178_100, PacketType::ThreeDh5),
        (&[("bredr.packets", "dm")][..], 400_000, 477_800, PacketType::Dm5),
        (&[("bredr.slots", "1")][..], 160_000, 172_800, PacketType::Dh1),
    ] {
        let (bytes, kinds) = throughput(set);
        assert!((low..=high).contains(&(bytes * 8)), "{set:?}: {}", bytes * 8);
        assert!(kinds.contains(&kind), "{set:?}: {kinds:?}");
    }
}

#[test]
fn a_side_that_is_reset_is_missed_by_the_other() {
    let mut hosts = Hosts::new(&[]);
    let [central, _] = connect(&mut hosts);
    let [low, high] = central.to_le_bytes();
    hosts.ok(CENTRAL, op::WRITE_SUPERVISION_TIMEOUT, &[low, high, 0x40, 0x06]);
    hosts.ok(PERIPHERAL, op::RESET, &[]);
    hosts.pass(900 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE), None);
    hosts.pass(200 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE).unwrap()[3], hci::CONNECTION_TIMEOUT);
}

#[test]
fn what_is_late_is_flushed_when_the_host_wants_that() {
    // Nothing comes through.
    let mut hosts = Hosts::new(&[]);
    let [central, _] = connect(&mut hosts);
    hosts.ok(PERIPHERAL, op::RESET, &[]);
    let [low, high] = central.to_le_bytes();
    hosts.ok(CENTRAL, op::WRITE_FLUSH_TIMEOUT, &[low, high, 0x40, 0]);
    hosts.send(CENTRAL, hci::acl(central, Boundary::FirstFromController, &[1; 300]));
    hosts.send(CENTRAL, hci::acl(central, Boundary::Continuing, &[1; 300]));
    hosts.pass(30 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::FLUSH_OCCURRED), None);
    hosts.pass(30 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::FLUSH_OCCURRED), Some(vec![low, high]));
    assert_eq!(event_of(&mut hosts, CENTRAL, event::COMPLETED_PACKETS), Some(vec![1, low, high, 2, 0]));
}

#[test]
fn both_kinds_of_links_share_the_radio() {
    let mut hosts = Hosts::new(&[("ci", "7.5ms")]);
    let [central, _] = connect(&mut hosts);
    // LE: advertise and connect while the other link is there.
    let mut parameters = [0; 15];
    parameters[..5].copy_from_slice(&[0x20, 0, 0x20, 0, 0]);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &parameters);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
    let mut parameters = [0; 25];
    parameters[6..12].copy_from_slice(&hosts.addresses[PERIPHERAL]);
    (parameters[13], parameters[15], parameters[19]) = (6, 6, 100);
    hosts.ok(CENTRAL, op::LE_CREATE_CONNECTION, &parameters);
    hosts.pass(1000 * MS);
    let complete = hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE).expect("connected over LE");
    let le = u16::from_le_bytes([complete[1], complete[2]]);
    let mut expected = [Vec::new(), Vec::new()];
    for round in 0..40u8 {
        hosts.send(CENTRAL, hci::acl(central, Boundary::FirstFromHost, &[round; 700]));
        hosts.send(CENTRAL, hci::acl(le, Boundary::FirstFromHost, &[round; 27]));
        expected[0].extend([round; 700]);
        expected[1].extend([round; 27]);
        hosts.pass(50 * MS);
    }
    let mut got: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
    for (_, packet) in hosts.got.iter().filter(|(number, _)| *number == PERIPHERAL) {
        if let Ok(PacketView::Acl(acl)) = PacketView::parse(packet) {
            got[usize::from(acl.handle < 0x100)].extend(acl.data);
        }
    }
    assert!(got == expected, "{} {}", got[0].len(), got[1].len());
    let gone = |packet: &[u8]| (packet[1] == event::DISCONNECTION_COMPLETE).then_some(());
    assert_eq!(hosts.take(CENTRAL, gone), None);
}

#[test]
fn le_connects_at_any_time_of_a_link_of_bredr() {
    let mut hosts = Hosts::new(&[("ci", "7.5ms")]);
    let [central, _] = connect(&mut hosts);
    for round in 0..60u64 {
        for number in [CENTRAL, PERIPHERAL] {
            let mut parameters = [0; 15];
            parameters[..5].copy_from_slice(&[0x20, 0, 0x20, 0, 0]);
            hosts.ok(number, op::LE_SET_ADV_ENABLE, &[0]);
            hosts.ok(number, op::LE_SET_ADV_PARAMETERS, &parameters);
        }
        hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
        hosts.send(CENTRAL, hci::acl(central, Boundary::FirstFromHost, &[1; 700]));
        hosts.pass(round * 1_700_000);
        let mut parameters = [0; 25];
        parameters[6..12].copy_from_slice(&hosts.addresses[PERIPHERAL]);
        (parameters[13], parameters[15], parameters[19]) = (6, 6, 42);
        hosts.ok(CENTRAL, op::LE_CREATE_CONNECTION, &parameters);
        hosts.pass(400 * MS);
        let complete = hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE).expect("connected over LE");
        assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE), None, "{round}");
        hosts.ok(CENTRAL, op::DISCONNECT, &[complete[1], complete[2], 0x13]);
        hosts.pass(200 * MS);
        for number in [CENTRAL, PERIPHERAL] {
            assert!(event_of(&mut hosts, number, event::DISCONNECTION_COMPLETE).is_some(), "{round} {number}");
        }
        hosts.got.clear();
    }
}

#[test]
fn a_driver_that_comes_late_changes_nothing_on_the_air() {
    let run = |step: Nanos| {
        let mut log = Vec::new();
        let mut hosts = Hosts::new(&[("per", "0.1")]);
        let [central, _] = connect(&mut hosts);
        hosts.send(CENTRAL, hci::acl(central, Boundary::FirstFromHost, &[1; 1000]));
        let mut observer = |event: &AirEvent<'_>| log.push((event.at, format!("{:?}", event.what)));
        let end = hosts.now.as_nanos() + 1000 * MS;
        let mut now = hosts.now.as_nanos();
        while now < end {
            now = (now + step).min(end);
            while hosts.air.poll(Instant::from_nanos(now), &mut observer).is_some() {}
        }
        log
    };
    let (fine, coarse) = (run(10_000), run(300 * MS));
    assert!(fine.len() > 50, "{}", fine.len());
    assert_eq!(fine, coarse);
}

#[test]
fn a_link_ends_for_both_hosts_whatever_is_lost() {
    for initiator in [CENTRAL, PERIPHERAL] {
        let mut hosts = Hosts::new(&[("per", "0.2")]);
        hosts.ok(CENTRAL, op::WRITE_PAGE_TIMEOUT, &0x4000u16.to_le_bytes());
        for round in 0..20 {
            let [low, high] = connect(&mut hosts)[initiator].to_le_bytes();
            hosts.ok(initiator, op::DISCONNECT, &[low, high, hci::REMOTE_USER_TERMINATED]);
            // T_poll is 25 ms: three of them after the acknowledgement, six after LMP_detach at a central.
            hosts.pass(250 * MS);
            for number in [CENTRAL, PERIPHERAL] {
                let complete = event_of(&mut hosts, number, event::DISCONNECTION_COMPLETE);
                let why = if number == initiator { hci::LOCAL_HOST_TERMINATED } else { hci::REMOTE_USER_TERMINATED };
                assert_eq!(complete.map(|complete| complete[3]), Some(why), "{initiator} {round} {number}");
            }
        }
    }
}

#[test]
fn a_link_that_a_peer_has_lost_ends_when_the_peer_connects_again() {
    let mut hosts = Hosts::new(&[]);
    let [_, stale] = connect(&mut hosts);
    hosts.ok(CENTRAL, op::RESET, &[]);
    let [central, handle] = connect(&mut hosts);
    assert_ne!(handle, stale);
    let complete = event_of(&mut hosts, PERIPHERAL, event::DISCONNECTION_COMPLETE).unwrap();
    assert_eq!((&complete[1..3], complete[3]), (&stale.to_le_bytes()[..], hci::CONNECTION_TIMEOUT));
    assert!(carries(&mut hosts, central, PERIPHERAL));
}

#[test]
fn a_peer_that_says_nothing_is_left_and_its_address_not_used_again() {
    let mut hosts = Hosts::new(&[("links", "2")]);
    let [central, _] = connect(&mut hosts);
    hosts.ok(PERIPHERAL, op::RESET, &[]);
    let [low, high] = central.to_le_bytes();
    hosts.ok(CENTRAL, op::DISCONNECT, &[low, high, hci::REMOTE_USER_TERMINATED]);
    hosts.pass(140 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE), None);
    hosts.pass(20 * MS);
    assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE).unwrap()[3], hci::LOCAL_HOST_TERMINATED);

    // The supervision timeout is 20 s.
    for (wait, wanted) in [(0, 2), (20_000 * MS, 1)] {
        hosts.pass(wait);
        let seen = Rc::new(Cell::new(0));
        let lt_addr = Rc::clone(&seen);
        hosts.watch = Some(Box::new(move |event| {
            if let Happening::Baseband { packet, .. } = event.what {
                lt_addr.set(packet.lt_addr.max(lt_addr.get()));
            }
        }));
        let [central, _] = connect_to(&mut hosts, 2);
        assert_eq!(seen.get(), wanted);
        let [low, high] = central.to_le_bytes();
        hosts.ok(CENTRAL, op::DISCONNECT, &[low, high, hci::REMOTE_USER_TERMINATED]);
        hosts.pass(200 * MS);
        event_of(&mut hosts, 2, event::DISCONNECTION_COMPLETE).expect("it is over");
    }
}

#[test]
fn a_link_that_ends_leaves_the_others_alone() {
    let mut hosts = Hosts::new(&[("links", "2")]);
    let [first, _] = connect(&mut hosts);
    let [low, high] = first.to_le_bytes();
    let [_, second] = connect_to(&mut hosts, 2);
    // Half a second, in which the second's packets are on the air for most of the time.
    hosts.ok(CENTRAL, op::WRITE_SUPERVISION_TIMEOUT, &[low, high, 0x20, 0x03]);
    hosts.ok(PERIPHERAL, op::RESET, &[]);
    for _ in 0..200 {
        hosts.send(2, hci::acl(second, Boundary::FirstFromHost, &[1; 300]));
        hosts.pass(4 * MS);
    }
    hosts.pass(200 * MS);
    assert!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE).is_some());
    assert_eq!(data(&mut hosts, CENTRAL).len(), 200 * 300);
}

#[test]
fn buffers_of_a_link_that_is_lost_are_free_again() {
    let mut hosts = Hosts::new(&[]);
    for _ in 0..3 {
        let [central, _] = connect(&mut hosts);
        let [low, high] = central.to_le_bytes();
        hosts.ok(CENTRAL, op::WRITE_SUPERVISION_TIMEOUT, &[low, high, 0x40, 0x06]);
        hosts.ok(PERIPHERAL, op::RESET, &[]);
        for _ in 0..64 {
            hosts.send(CENTRAL, hci::acl(central, Boundary::FirstFromHost, &[1; 300]));
        }
        hosts.pass(1200 * MS);
        assert_eq!(event_of(&mut hosts, CENTRAL, event::DISCONNECTION_COMPLETE).unwrap()[3], hci::CONNECTION_TIMEOUT);
    }
    let [central, _] = connect(&mut hosts);
    assert!(carries(&mut hosts, central, PERIPHERAL));
}

proptest! {
    /// Whatever hosts send, and whenever, controllers go on and say only what HCI has.
    #[test]
    fn controllers_survive_their_hosts(packets in prop::collection::vec(
        (0usize..2, 0u64..50, prop_oneof![
            (0x0401u16..0x0420, prop::collection::vec(any::<u8>(), 0..16))
                .prop_map(|(opcode, parameters)| hci::command(opcode, &parameters)),
            (0x0c00u16..0x0c70, prop::collection::vec(any::<u8>(), 0..8))
                .prop_map(|(opcode, parameters)| hci::command(opcode, &parameters)),
            (0x100u16..0x102, 0u8..3, prop::collection::vec(any::<u8>(), 0..1100)).prop_map(|(handle, boundary, data)| {
                let boundaries = [Boundary::FirstFromHost, Boundary::Continuing, Boundary::FirstFromController];
                hci::acl(handle, boundaries[usize::from(boundary)], &data)
            }),
            Just(hci::command(op::DISCONNECT, &[0, 1, 0x13])),
            Just(hci::command(op::INQUIRY, &[0x33, 0x8b, 0x9e, 1, 0])),
            Just(hci::command(op::WRITE_SCAN_ENABLE, &[3])),
            Just(hci::command(op::WRITE_FLUSH_TIMEOUT, &[0, 1, 8, 0])),
        ]), 0..60), connected in any::<bool>()) {
        let mut hosts = Hosts::new(&[("per", "0.1")]);
        if connected {
            connect(&mut hosts);
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
