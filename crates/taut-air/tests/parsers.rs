//! Parsers take any bytes without a panic, and read back what was written.

use proptest::prelude::*;
use taut_air::controller::{Controller, ControllerConfig, Input};
use taut_air::hci::{self, Acl, Boundary, PacketView};
use taut_air::l2cap::{Channel, ChannelParameters, CreditPolicy, Frame, Reassembly, Signal};
use taut_air::pdu::advertising::ConnectInd;
use taut_air::pdu::control::Control;
use taut_air::pdu::{Header, Llid};
use taut_air::{Instant, Random, Role, Scenario};

fn signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        any::<u16>().prop_map(|reason| Signal::Reject { reason }),
        any::<[u16; 2]>().prop_map(|[destination, source]| Signal::DisconnectionRequest { destination, source }),
        any::<[u16; 2]>().prop_map(|[destination, source]| Signal::DisconnectionResponse { destination, source }),
        any::<[u16; 2]>().prop_map(|[cid, credits]| Signal::Credits { cid, credits }),
        any::<[u16; 5]>().prop_map(|[spsm, source, mtu, mps, credits]| Signal::ConnectionRequest {
            spsm,
            source,
            mtu,
            mps,
            credits
        }),
        any::<[u16; 5]>().prop_map(|[destination, mtu, mps, credits, result]| Signal::ConnectionResponse {
            destination,
            mtu,
            mps,
            credits,
            result
        }),
    ]
}

/// Opcodes of commands that a controller does something about.
const COMMANDS: [u16; 10] = [0x0c03, 0x2002, 0x2006, 0x2008, 0x200a, 0x200d, 0x2013, 0x2022, 0x2032, 0x0406];

fn config() -> ControllerConfig {
    ControllerConfig { acl_buffers: 4, ..Scenario::default().controller(Role::Central, 0) }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = PacketView::parse(&bytes);
        let _ = Frame::parse(&bytes);
        let _ = Signal::parse(&bytes);
        let _ = Control::parse(&bytes);
        let _ = ConnectInd::parse(&bytes);
        if let Some(header) = bytes.first_chunk() {
            let _ = Header::parse(*header);
        }
    }

    #[test]
    fn any_text_is_a_scenario_or_an_error_with_a_place(text in "(\\[(link|both|central|medium)\\]\n|[a-z_.]{1,12} = [\"'a-z0-9.()]{0,8}\n|[ -~]{0,6}\n){0,8}") {
        if let Err(error) = Scenario::from_toml(&text) {
            prop_assert!(!error.message().is_empty());
            prop_assert!(error.line().is_none_or(|line| line >= 1 && line <= text.lines().count() + 1));
        }
    }

    #[test]
    fn signals_are_read_as_written(signal in signal(), identifier in 1u8..) {
        prop_assert_eq!(Signal::parse(&signal.to_bytes(identifier)), Ok((identifier, signal)));
    }

    #[test]
    fn acl_packets_are_read_as_written(
        handle in 0u16..0xf00,
        data in prop::collection::vec(any::<u8>(), 0..1100),
        first in any::<bool>(),
    ) {
        let boundary = if first { Boundary::FirstFromController } else { Boundary::Continuing };
        let packet = hci::acl(handle, boundary, &data);
        prop_assert_eq!(PacketView::parse(&packet), Ok(PacketView::Acl(Acl { handle, boundary, data: &data })));
    }

    #[test]
    fn data_headers_are_read_as_written(bits in any::<[bool; 3]>(), length in any::<u8>(), kind in 0..3) {
        let llid = [Llid::Continuation, Llid::Start, Llid::Control][kind as usize];
        let header = Header { llid, nesn: bits[0], sn: bits[1], md: bits[2], length };
        prop_assert_eq!(Header::parse(header.to_bytes()), Some(header));
    }

    /// However a PDU is cut up, it is put together again.
    #[test]
    fn fragments_make_the_whole(payload in prop::collection::vec(any::<u8>(), 0..700), size in 1usize..300) {
        let mut frame = Vec::new();
        Frame { cid: 0x40, payload: &payload }.write(&mut frame);
        let mut reassembly = Reassembly::default();
        for round in 0..2 {
            let mut whole = None;
            for (index, part) in frame.chunks(size).enumerate() {
                prop_assert!(whole.is_none(), "whole too early in round {}", round);
                whole = reassembly.push(index == 0, part).unwrap().map(<[u8]>::to_vec);
            }
            prop_assert_eq!(whole.as_ref(), Some(&frame));
        }
    }

    /// An SDU sent through one channel comes out of the other, with as many credits as it takes.
    #[test]
    fn channels_carry_sdus(
        sdus in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..500), 1..10),
        mps in 23u16..300,
    ) {
        let parameters = ChannelParameters {
            source: 0x40,
            destination: 0x41,
            mtu: 500,
            mps,
            peer_mtu: 500,
            peer_mps: mps,
            credits: 1000,
            peer_credits: 1000,
        };
        let mut sender = Channel::new(parameters, CreditPolicy::Window(1000));
        let mut receiver = Channel::new(parameters, CreditPolicy::Window(1000));
        let mut received = Vec::new();
        for sdu in &sdus {
            sender.send(sdu, 3).unwrap();
            while let Some(pdu) = sender.next_pdu() {
                let frame = Frame::parse(&pdu[3..]).unwrap();
                prop_assert!(frame.payload.len() <= mps.into());
                received.extend(receiver.receive(frame.payload).unwrap());
            }
        }
        prop_assert_eq!(received, sdus);
        prop_assert_eq!(sender.tx_credits(), receiver.rx_credits());
    }

    /// Whatever a host sends, the controller goes on.
    #[test]
    fn a_controller_survives_its_host(packets in prop::collection::vec(
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            (prop::sample::select(COMMANDS.to_vec()), prop::collection::vec(any::<u8>(), 0..32))
                .prop_map(|(opcode, parameters)| hci::command(opcode, &parameters)),
        ], 0..40))
    {
        let mut controller = Controller::new(config(), Random::new(1));
        let mut now = Instant::default();
        for packet in packets {
            controller.handle(now, Input::Host(packet));
            for _ in 0..100 {
                if controller.poll(now).is_none() {
                    break;
                }
            }
            now = controller.deadline().unwrap_or(now).max(now);
        }
    }
}

/// What is written is read again: of each scenario that is built in, and with values between the usual ones.
#[test]
fn a_scenario_that_is_written_is_read_as_it_was() {
    for text in [
        include_str!("../../../scenarios/paper-000.toml"),
        include_str!("../../../scenarios/saturate.toml"),
        include_str!("../../../scenarios/two-nodes.toml"),
    ] {
        let mut scenario = Scenario::from_toml(text).unwrap();
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario, "{}", scenario.to_toml());
        for (name, value) in [
            ("sender.wakeup", "1234567ns"),
            ("receiver.rx", "333us..1000001ns"),
            ("per", "0.056"),
            ("sender.nocp", "batch(2)"),
            ("receiver.credits", "batch(9,3)"),
            ("central.mps", "100"),
            ("latency", "3"),
            ("peripheral.event_length", "5ms"),
        ] {
            scenario.set(name, value).unwrap();
        }
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario, "{}", scenario.to_toml());
    }
    assert_eq!(Scenario::default().to_toml(), "");
    let odd = Scenario { name: "a \"b\" \n[link]\nci = 'x' \\".to_owned(), ..Scenario::default() };
    assert_eq!(Scenario::from_toml(&odd.to_toml()).unwrap().name, "a b [link]ci = 'x' ");
}
