//! Encryption of LE links: the order of its procedures on the air, what hosts are told, and that
//! nothing is lost or read wrong, whatever the medium loses.

mod hosts;

use hosts::{CENTRAL, EDIV, Hosts, MS, OnAir, PERIPHERAL, RAND, SIDES, SUCCESS};
use proptest::prelude::*;
use taut_air::hci::{self, PacketView, command as op, event};
use taut_air::{Phy, Role};

const KEY: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

impl Hosts {
    /// Parameters of Encryption Change or Encryption Key Refresh Complete without the handle.
    fn changed(&mut self, number: usize, code: u8) -> Option<Vec<u8>> {
        self.take(number, |packet| match packet {
            [4, is, _, status, _, _, rest @ ..] if *is == code => Some([&[*status], rest].concat()),
            _ => None,
        })
    }

    fn gone(&mut self, number: usize) -> Option<u8> {
        self.take(number, |packet| (packet[1] == event::DISCONNECTION_COMPLETE).then(|| packet[6]))
    }

    fn data(&mut self, number: usize) -> Option<Vec<u8>> {
        self.take(number, |packet| match PacketView::parse(packet) {
            Ok(PacketView::Acl(acl)) => Some(acl.data.to_vec()),
            _ => None,
        })
    }

    /// Connected and encrypted.
    fn encrypted(set: &[(&str, &str)]) -> (Self, [[u8; 2]; 2]) {
        let mut hosts = Self::new(set);
        let handles = hosts.connect(6);
        assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], KEY), SUCCESS);
        hosts.pass(50 * MS);
        assert!(hosts.key_wanted().is_some());
        hosts.reply(handles[PERIPHERAL], KEY);
        hosts.pass(50 * MS);
        for number in SIDES {
            assert_eq!(hosts.changed(number, event::ENCRYPTION_CHANGE), Some(vec![SUCCESS, 1]));
        }
        (hosts, handles)
    }

    /// Who sent which control PDU, and whether in cipher text; repetitions left out.
    fn control(&mut self) -> Vec<(Role, u8, bool)> {
        let once = |pdu: &&OnAir| pdu.is_control && !pdu.is_retransmission;
        let control =
            self.pdus.iter().filter(once).map(|pdu| (pdu.from, pdu.payload[0], pdu.sealed.is_some())).collect();
        self.pdus.clear();
        control
    }
}

const C: Role = Role::Central;
const P: Role = Role::Peripheral;
/// LL_ENC_REQ, LL_ENC_RSP, LL_START_ENC_REQ, LL_START_ENC_RSP from either side.
const START: [(Role, u8, bool); 5] = [(C, 3, false), (P, 4, false), (P, 5, false), (C, 6, true), (P, 6, true)];

#[test]
fn a_link_is_encrypted_in_the_specified_order_and_data_waits_meanwhile() {
    let mut hosts = Hosts::new(&[]);
    let handles = hosts.connect(6);
    hosts.pass(50 * MS);
    hosts.control();
    // The controllers agree on nothing else meanwhile.
    for number in SIDES {
        hosts.send_data(number, handles, &[number as u8; 20]);
    }
    hosts.pass(50 * MS);
    assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], KEY), SUCCESS);
    assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], KEY), hci::COMMAND_DISALLOWED);
    hosts.pass(50 * MS);
    assert_eq!(hosts.key_wanted(), Some([&handles[PERIPHERAL][..], &RAND, &EDIV].concat()));
    for number in SIDES {
        assert_eq!(hosts.data(number), Some(vec![1 - number as u8; 20]));
        hosts.send_data(number, handles, &[0x50 + number as u8; 27]);
    }
    // Another procedure waits as well.
    hosts.ok(CENTRAL, op::LE_READ_REMOTE_FEATURES, &handles[CENTRAL]);
    // The peripheral's host takes its time; an update with an instant would go on.
    hosts.pass(300 * MS);
    assert!(SIDES.into_iter().all(|number| hosts.data(number).is_none()));
    hosts.reply(handles[PERIPHERAL], KEY);
    hosts.pass(50 * MS);
    for number in SIDES {
        assert_eq!(hosts.changed(number, event::ENCRYPTION_CHANGE), Some(vec![SUCCESS, 1]));
        assert_eq!(hosts.data(number), Some(vec![0x51 - number as u8; 27]));
    }
    assert!(hosts.le_event(CENTRAL, event::LE_REMOTE_FEATURES_COMPLETE).is_some());

    // On the air: clear text before, cipher text after, 4 bytes longer, and another one for the same data.
    let data: Vec<_> = hosts.pdus.iter().filter(|pdu| !pdu.is_control).cloned().collect();
    let [clear, sealed] = [&data[..2], &data[2..]];
    assert!(clear.iter().all(|pdu| pdu.sealed.is_none() && pdu.time == Phy::Le1M.air_time(20, false)), "{clear:?}");
    assert_eq!(sealed.len(), 2);
    for pdu in sealed {
        let octets = pdu.sealed.as_ref().unwrap();
        assert_eq!((octets.len(), pdu.time), (31, Phy::Le1M.air_time(31, false)));
        assert_ne!(octets[..27], pdu.payload[..]);
    }
    hosts.send_data(CENTRAL, handles, &[0x50; 27]);
    hosts.pass(50 * MS);
    assert_eq!(hosts.data(PERIPHERAL), Some(vec![0x50; 27]));
    let again = hosts.pdus.last().unwrap().sealed.clone();
    let first = sealed.iter().find(|pdu| pdu.from == C).unwrap().sealed.clone();
    assert!(again.is_some() && again != first);
    let control = hosts.control();
    assert_eq!((&control[..5], &control[5..]), (&START[..], &[(C, 8, true), (P, 9, true)][..]));
}

#[test]
fn a_key_is_refreshed_after_a_pause() {
    let (mut hosts, handles) = Hosts::encrypted(&[]);
    hosts.control();
    hosts.unmask();
    let other = [0x33; 16];
    assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], other), SUCCESS);
    for number in SIDES {
        hosts.send_data(number, handles, &[number as u8; 20]);
    }
    hosts.pass(80 * MS);
    assert!(hosts.key_wanted().is_some());
    assert!(hosts.pdus.iter().all(|pdu| pdu.is_control), "data in a pause");
    hosts.reply(handles[PERIPHERAL], other);
    hosts.pass(50 * MS);
    let pause = [(C, 0x0a, true), (P, 0x0b, true), (C, 0x0b, false)];
    assert_eq!(hosts.control(), [&pause[..], &START].concat());
    for number in SIDES {
        assert_eq!(hosts.changed(number, event::ENCRYPTION_KEY_REFRESH), Some(vec![SUCCESS]));
        assert_eq!(hosts.changed(number, event::ENCRYPTION_CHANGE), None);
        assert_eq!(hosts.data(number), Some(vec![1 - number as u8; 20]));
    }
    // Without a key the link ends: it does not go on in clear text.
    assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], KEY), SUCCESS);
    hosts.pass(80 * MS);
    assert!(hosts.key_wanted().is_some());
    hosts.ok(PERIPHERAL, op::LE_LONG_TERM_KEY_NEGATIVE_REPLY, &handles[PERIPHERAL]);
    hosts.pass(50 * MS);
    assert_eq!(SIDES.map(|number| hosts.gone(number)), [Some(hci::KEY_MISSING); 2]);
}

#[test]
fn a_wrong_key_is_a_mic_failure() {
    let mut hosts = Hosts::new(&[]);
    let handles = hosts.connect(6);
    assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], KEY), SUCCESS);
    hosts.pass(50 * MS);
    assert!(hosts.key_wanted().is_some());
    let mut wrong = KEY;
    wrong[15] ^= 0x80;
    hosts.reply(handles[PERIPHERAL], wrong);
    hosts.pass(1000 * MS);
    // Who reads it first says nothing more; the other hears nothing more.
    assert_eq!(SIDES.map(|number| hosts.gone(number)), [Some(hci::CONNECTION_TIMEOUT), Some(hci::MIC_FAILURE)]);
    assert_eq!(SIDES.map(|number| hosts.changed(number, event::ENCRYPTION_CHANGE)), [None, None]);
}

#[test]
fn a_missing_key_is_a_refusal_and_the_link_goes_on() {
    let mut hosts = Hosts::new(&[]);
    let handles = hosts.connect(6);
    // A host that has the request masked out has none either.
    for (masked, mask) in [(false, 0x1f), (true, 0x0f)] {
        hosts.ok(PERIPHERAL, op::LE_SET_EVENT_MASK, &[mask, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(hosts.enable(CENTRAL, handles[CENTRAL], KEY), SUCCESS);
        hosts.send_data(CENTRAL, handles, &[9; 20]);
        hosts.pass(50 * MS);
        assert_eq!(hosts.key_wanted().is_none(), masked);
        if !masked {
            hosts.ok(PERIPHERAL, op::LE_LONG_TERM_KEY_NEGATIVE_REPLY, &handles[PERIPHERAL]);
        }
        hosts.pass(50 * MS);
        assert_eq!(hosts.changed(CENTRAL, event::ENCRYPTION_CHANGE), Some(vec![hci::KEY_MISSING, 0]));
        assert_eq!(hosts.changed(PERIPHERAL, event::ENCRYPTION_CHANGE), None);
        assert_eq!(hosts.data(PERIPHERAL), Some(vec![9; 20]));
    }
    assert!(hosts.pdus.iter().all(|pdu| pdu.sealed.is_none()));
}

#[test]
fn commands_are_refused_where_they_have_no_place() {
    let mut hosts = Hosts::new(&[]);
    let handles = hosts.connect(6);
    assert_eq!(hosts.enable(PERIPHERAL, handles[PERIPHERAL], KEY), hci::COMMAND_DISALLOWED);
    assert_eq!(hosts.enable(CENTRAL, [9, 9], KEY), hci::UNKNOWN_CONNECTION);
    let reply = [&handles[PERIPHERAL][..], &KEY].concat();
    let refused = [&[hci::COMMAND_DISALLOWED], &handles[PERIPHERAL][..]].concat();
    assert_eq!(hosts.command(PERIPHERAL, op::LE_LONG_TERM_KEY_REPLY, &reply), refused);
    assert_eq!(hosts.command(PERIPHERAL, op::LE_LONG_TERM_KEY_NEGATIVE_REPLY, &handles[PERIPHERAL]), refused);
    // FIPS 197, appendix B, from the least significant octet on.
    let key: [u8; 16] = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_le_bytes();
    let text: [u8; 16] = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_le_bytes();
    let expected = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_le_bytes();
    assert_eq!(hosts.command(CENTRAL, op::LE_ENCRYPT, &[key, text].concat())[1..], expected);
    let [first, second] = [(); 2].map(|()| hosts.command(CENTRAL, op::LE_RAND, &[]));
    assert!(first.len() == 9 && first != second, "{first:?}");
}

#[test]
fn a_link_that_is_ended_during_the_procedure_ends() {
    // Before the key is there, and after.
    for (replied, who) in [(false, CENTRAL), (false, PERIPHERAL), (true, CENTRAL), (true, PERIPHERAL)] {
        let mut hosts = Hosts::new(&[]);
        let handles = hosts.connect(6);
        hosts.enable(CENTRAL, handles[CENTRAL], KEY);
        hosts.pass(50 * MS);
        if replied {
            hosts.reply(handles[PERIPHERAL], KEY);
            hosts.pass(50 * MS);
        }
        hosts.ok(who, op::DISCONNECT, &[handles[who][0], handles[who][1], hci::REMOTE_USER_TERMINATED]);
        hosts.pass(100 * MS);
        assert_eq!(hosts.gone(who), Some(hci::LOCAL_HOST_TERMINATED), "{replied} {who}");
        assert_eq!(hosts.gone(1 - who), Some(hci::REMOTE_USER_TERMINATED), "{replied} {who}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is lost, sent and refreshed at whatever time: all data arrives, once, in order, and links
    /// that are encrypted say nothing in clear text. A PDU that is repeated is the same cipher text.
    #[test]
    fn losses_do_not_unsettle_an_encrypted_link(
        per in 0.0f64..0.35,
        burst in any::<bool>(),
        steps in prop::collection::vec((0usize..2, 1usize..27, 0u64..40, 0u8..8), 1..40),
    ) {
        let per = format!("{per:.3}");
        let set: &[(&str, &str)] = if burst {
            &[("burst.enter", "0.02"), ("burst.exit", "0.3"), ("burst.per", "0.9")]
        } else {
            &[("per", &per)]
        };
        let mut hosts = Hosts::new(set);
        hosts.unmask();
        hosts.advertise(PERIPHERAL, 0);
        hosts.create_connection(6);
        hosts.pass(1500 * MS);
        let handle = |hosts: &mut Hosts, number| {
            hosts.le_event(number, event::LE_CONNECTION_COMPLETE).map(|complete| [complete[1], complete[2]])
        };
        let (Some(central), Some(peripheral)) = (handle(&mut hosts, CENTRAL), handle(&mut hosts, PERIPHERAL)) else {
            // CONNECT_IND was lost.
            return Ok(());
        };
        // A connection may fail to be established.
        prop_assume!(SIDES.into_iter().all(|number| hosts.gone(number).is_none()));
        let handles = [central, peripheral];
        let (mut sent, mut received) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        let (mut begun, mut keys) = (0_u32, Vec::new());
        for (step, (number, length, later, act)) in steps.into_iter().enumerate() {
            let data = vec![step as u8; length];
            hosts.send_data(number, handles, &data);
            sent[1 - number].push(data);
            if act == 0 {
                let key = [step as u8; 16];
                if hosts.enable(CENTRAL, handles[CENTRAL], key) == SUCCESS {
                    begun += 1;
                    keys.push(key);
                }
            }
            hosts.pass(later * MS);
            settle(&mut hosts, handles, &mut keys, &mut received);
        }
        for _ in 0..40 {
            hosts.pass(100 * MS);
            settle(&mut hosts, handles, &mut keys, &mut received);
        }
        prop_assert!(SIDES.into_iter().all(|number| hosts.gone(number).is_none()));
        prop_assert_eq!(&received, &sent);
        for number in SIDES {
            let mut changes = 0;
            while hosts.changed(number, event::ENCRYPTION_CHANGE).is_some() {
                changes += 1;
            }
            prop_assert_eq!(changes, begun.min(1));
            while hosts.changed(number, event::ENCRYPTION_KEY_REFRESH).is_some() {
                changes += 1;
            }
            prop_assert_eq!(changes, begun);
        }
        for side in [C, P] {
            let from: Vec<_> = hosts.pdus.iter().filter(|pdu| pdu.from == side).collect();
            for pair in from.windows(2).filter(|pair| pair[1].is_retransmission) {
                prop_assert_eq!((&pair[0].payload, &pair[0].sealed), (&pair[1].payload, &pair[1].sealed));
            }
            if let Some(first) = from.iter().position(|pdu| pdu.sealed.is_some()) {
                prop_assert!(from[first..].iter().all(|pdu| pdu.is_control || pdu.sealed.is_some()));
            }
        }
    }
}

/// The peripheral's host answers, both take what has come.
fn settle(hosts: &mut Hosts, handles: [[u8; 2]; 2], keys: &mut Vec<[u8; 16]>, received: &mut [Vec<Vec<u8>>; 2]) {
    if hosts.key_wanted().is_some() {
        let key = keys.remove(0);
        hosts.reply(handles[PERIPHERAL], key);
    }
    for number in SIDES {
        while let Some(data) = hosts.data(number) {
            received[number].push(data);
        }
    }
}
