//! The UART transport: packets come out of a stream however it is cut up, a stream that can't be followed is told
//! once and found again at a reset, and a controller says to its host what the Core Specification wants it to say.

mod hosts;

use hosts::{CENTRAL, Hosts, MS, PERIPHERAL};
use proptest::prelude::*;
use taut_air::hci::{self, Boundary, H4Error, H4Received, H4Receiver, command as op, event};

const ACL_LIMIT: usize = 251;

fn packet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (any::<u16>(), prop::collection::vec(any::<u8>(), 0..256))
            .prop_map(|(opcode, parameters)| hci::command(opcode, &parameters)),
        (0u16..0xf00, prop::collection::vec(any::<u8>(), 0..=ACL_LIMIT)).prop_map(|(handle, data)| hci::acl(
            handle,
            Boundary::FirstFromHost,
            &data
        )),
    ]
}

/// All that comes out of a stream that is read in pieces of these lengths, over and over.
fn received(receiver: &mut H4Receiver, stream: &[u8], pieces: &[usize]) -> Vec<H4Received> {
    let (mut all, mut rest) = (Vec::new(), stream);
    for &piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(piece.clamp(1, rest.len()));
        rest = later;
        receiver.push(now);
        while let Some(one) = receiver.poll() {
            all.push(one);
        }
    }
    all
}

fn reset() -> Vec<u8> {
    hci::command(op::RESET, &[])
}

proptest! {
    #[test]
    fn packets_come_out_as_they_went_in(
        packets in prop::collection::vec(packet(), 0..12),
        pieces in prop::collection::vec(1usize..400, 1..8),
    ) {
        let all = received(&mut H4Receiver::new(ACL_LIMIT), &packets.concat(), &pieces);
        prop_assert_eq!(all, packets.into_iter().map(H4Received::Packet).collect::<Vec<_>>());
    }

    /// Whatever comes: no panic, no packet that isn't one, and no bytes made or taken twice.
    #[test]
    fn any_bytes_are_packets_or_a_loss(
        bytes in prop::collection::vec(prop_oneof![3 => 0u8..5, 1 => any::<u8>()], 0..600),
        pieces in prop::collection::vec(1usize..50, 1..8),
    ) {
        let all = received(&mut H4Receiver::new(ACL_LIMIT), &bytes, &pieces);
        prop_assert_eq!(&all, &received(&mut H4Receiver::new(ACL_LIMIT), &bytes, &[600]));
        let mut length = 0;
        let mut is_lost = false;
        for one in &all {
            match one {
                H4Received::Packet(packet) => {
                    let is_whole = match packet[..] {
                        [1, _, _, length, ..] => packet.len() == 4 + usize::from(length),
                        [2, _, _, low, high, ..] => {
                            let length = 5 + usize::from(u16::from_le_bytes([low, high]));
                            packet.len() == length && length <= 5 + ACL_LIMIT
                        }
                        _ => false,
                    };
                    prop_assert!(is_whole, "{packet:02x?}");
                    prop_assert!(!is_lost || *packet == reset(), "synchronisation came back with {packet:02x?}");
                    length += packet.len();
                    is_lost = false;
                }
                H4Received::Lost(_) => {
                    prop_assert!(!is_lost, "told twice");
                    is_lost = true;
                }
            }
        }
        prop_assert!(length <= bytes.len());
    }

    /// A controller that has lost its host's stream follows it again from the reset on.
    #[test]
    fn a_reset_brings_synchronisation_back(
        garbage in prop::collection::vec(any::<u8>(), 0..80),
        packets in prop::collection::vec(packet(), 0..5),
        piece in 1usize..20,
    ) {
        // Of the bytes of a reset in the garbage nothing can be said.
        prop_assume!(!garbage.contains(&0x03));
        let stream = [&[0x04][..], &garbage, &reset(), &packets.concat()].concat();
        let mut all = received(&mut H4Receiver::new(ACL_LIMIT), &stream, &[piece]).into_iter();
        prop_assert_eq!(all.next(), Some(H4Received::Lost(H4Error::Indicator(0x04))));
        prop_assert_eq!(all.next(), Some(H4Received::Packet(reset())));
        prop_assert_eq!(all.collect::<Vec<_>>(), packets.into_iter().map(H4Received::Packet).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_wrong_is_told_in_words() {
    let told = |stream: &[u8]| match &received(&mut H4Receiver::new(ACL_LIMIT), stream, &[1])[..] {
        [H4Received::Lost(error)] => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(told(&[0x42, 1, 2]).starts_with("0x42 is no packet indicator that a host sends"));
    // 252 bytes are one more than there may be; nothing of them is waited for.
    assert_eq!(told(&[2, 0x40, 0, 252, 0]), "an ACL data packet of 252 bytes, where the controller takes 251 at most");
}

#[test]
fn a_stream_without_a_reset_keeps_no_bytes() {
    let mut receiver = H4Receiver::new(ACL_LIMIT);
    for _ in 0..1000 {
        receiver.push(&[0xff; 1000]);
        while receiver.poll().is_some() {}
    }
    receiver.push(&reset());
    assert_eq!(receiver.poll(), Some(H4Received::Packet(reset())));
    assert!(format!("{receiver:?}").len() < 200, "{receiver:?}");
}

#[test]
fn a_controller_tells_of_a_stream_that_it_lost() {
    let mut hosts = Hosts::new(&[]);
    hosts.air.lose_synchronisation(hosts.now, CENTRAL, &mut ());
    hosts.air.lose_synchronisation(hosts.now, 17, &mut ());
    hosts.pass(MS);
    assert_eq!(hosts.got, [(CENTRAL, vec![4, event::HARDWARE_ERROR, 1, 1])]);
    hosts.got.clear();
    hosts.ok(CENTRAL, op::RESET, &[]);
}

/// A host that is gone takes its controller with it, and the other side notices as it does when a
/// machine is switched off.
#[test]
fn a_controller_without_power_is_silent() {
    let mut hosts = Hosts::new(&[]);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_PARAMETERS, &[0x20, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0]);
    hosts.ok(PERIPHERAL, op::LE_SET_ADV_ENABLE, &[1]);
    let mut parameters = [0; 25];
    parameters[..4].copy_from_slice(&[0x60, 0, 0x60, 0]);
    parameters[6..12].copy_from_slice(&hosts.addresses[PERIPHERAL]);
    for (at, word) in [(13, 6_u16), (15, 6), (19, 42)] {
        parameters[at..at + 2].copy_from_slice(&word.to_le_bytes());
    }
    hosts.ok(CENTRAL, op::LE_CREATE_CONNECTION, &parameters);
    hosts.pass(100 * MS);
    assert!(hosts.le_event(CENTRAL, event::LE_CONNECTION_COMPLETE).is_some());
    hosts.got.clear();
    hosts.air.power_cycle(hosts.now, PERIPHERAL, &mut ());
    // The supervision timeout is 420 ms.
    hosts.pass(400 * MS);
    assert_eq!(hosts.got, []);
    hosts.pass(100 * MS);
    let gone = |packet: &[u8]| {
        matches!(packet, [4, event::DISCONNECTION_COMPLETE, _, 0, _, _, hci::CONNECTION_TIMEOUT]).then_some(())
    };
    assert!(hosts.take(CENTRAL, gone).is_some(), "{:02x?}", hosts.got);
    // It is there for its next host, and says nothing by itself.
    assert_eq!(hosts.got, []);
    hosts.ok(PERIPHERAL, op::RESET, &[]);
}
