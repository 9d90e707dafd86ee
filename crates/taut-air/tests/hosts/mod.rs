//! The controllers of a scenario under two hosts that a test plays.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use taut_air::hci::{self, Boundary, command as op, event};
use taut_air::{Air, AirEvent, Happening, Instant, Nanos, Role, Scenario};

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SUCCESS: u8 = 0;
pub(crate) const CENTRAL: usize = 0;
pub(crate) const PERIPHERAL: usize = 1;
pub(crate) const SIDES: [usize; 2] = [CENTRAL, PERIPHERAL];
/// By which a peripheral's host finds the key.
pub(crate) const RAND: [u8; 8] = [8, 7, 6, 5, 4, 3, 2, 1];
pub(crate) const EDIV: [u8; 2] = [0x74, 0x24];

/// Access address of all advertising.
const ADVERTISING: u32 = 0x8e89_bed6;

/// Both hosts and the time.
pub(crate) struct Hosts {
    pub(crate) air: Air,
    pub(crate) now: Instant,
    pub(crate) addresses: Vec<[u8; 6]>,
    /// What hosts got and have not looked at.
    pub(crate) got: Vec<(usize, Vec<u8>)>,
    /// PDUs of links on the air, those without payload left out.
    pub(crate) pdus: Vec<OnAir>,
    /// Gets all that happens on the air.
    pub(crate) watch: Option<Watch>,
}

/// Who looks on.
pub(crate) type Watch = Box<dyn FnMut(&AirEvent<'_>)>;

/// A PDU of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OnAir {
    pub(crate) from: Role,
    /// What it says, after its header.
    pub(crate) payload: Vec<u8>,
    /// The same in cipher text.
    pub(crate) sealed: Option<Vec<u8>>,
    pub(crate) is_control: bool,
    pub(crate) is_retransmission: bool,
    pub(crate) time: Nanos,
}

impl Hosts {
    pub(crate) fn new(set: &[(&str, &str)]) -> Self {
        let mut scenario = Scenario::default();
        for (name, value) in set {
            scenario.set(name, value).unwrap();
        }
        let air = Air::new(&scenario, 7, Instant::default()).unwrap();
        let addresses = air.controllers().map(|(address, _)| address).collect();
        Self { air, now: Instant::default(), addresses, got: Vec::new(), pdus: Vec::new(), watch: None }
    }

    pub(crate) fn pass(&mut self, time: Nanos) {
        self.now = Instant::from_nanos(self.now.as_nanos() + time);
        let (pdus, watch) = (&mut self.pdus, &mut self.watch);
        let mut observer = |event: &AirEvent<'_>| {
            if let Some(watch) = watch {
                watch(event);
            }
            if let Happening::Pdu {
                from,
                bytes: [first, _, payload @ ..],
                sealed,
                retransmission,
                duration,
                access_address,
                ..
            } = event.what
                && access_address != ADVERTISING
                && !payload.is_empty()
            {
                pdus.push(OnAir {
                    from,
                    payload: payload.to_vec(),
                    sealed: sealed.map(|sealed| sealed[2..].to_vec()),
                    is_control: first & 0b11 == 0b11,
                    is_retransmission: retransmission,
                    time: duration,
                });
            }
        };
        while let Some(to_host) = self.air.poll(self.now, &mut observer) {
            assert!(to_host.at <= self.now);
            self.got.push((to_host.number, to_host.packet));
        }
    }

    pub(crate) fn send(&mut self, number: usize, packet: Vec<u8>) {
        // All up to now has been seen.
        self.pass(0);
        self.air.handle(self.now, number, packet, &mut ());
        self.pass(0);
    }

    /// A command, and its return parameters or the status that it was begun with.
    pub(crate) fn command(&mut self, number: usize, opcode: u16, parameters: &[u8]) -> Vec<u8> {
        self.send(number, hci::command(opcode, parameters));
        let [low, high] = opcode.to_le_bytes();
        let answer = self.take(number, |packet| match packet {
            [4, event::COMMAND_COMPLETE, _, _, l, h, rest @ ..] if [*l, *h] == [low, high] => Some(rest.to_vec()),
            [4, event::COMMAND_STATUS, _, status, _, l, h] if [*l, *h] == [low, high] => Some(vec![*status]),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("no answer to {opcode:#06x}"))
    }

    pub(crate) fn ok(&mut self, number: usize, opcode: u16, parameters: &[u8]) {
        assert_eq!(self.command(number, opcode, parameters)[0], SUCCESS, "{opcode:#06x}");
    }

    pub(crate) fn take<T>(&mut self, number: usize, wanted: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let found = self
            .got
            .iter()
            .enumerate()
            .find_map(|(at, (to, packet))| Some((at, wanted(packet).filter(|_| *to == number)?)));
        found.map(|(at, value)| {
            self.got.remove(at);
            value
        })
    }

    /// Parameters of an LE event, after its subevent.
    pub(crate) fn le_event(&mut self, number: usize, subevent: u8) -> Option<Vec<u8>> {
        self.take(number, |packet| match packet {
            [4, event::LE_META, _, sub, rest @ ..] if *sub == subevent => Some(rest.to_vec()),
            _ => None,
        })
    }

    pub(crate) fn advertise(&mut self, number: usize, kind: u8) {
        let mut parameters = [0; 15];
        parameters[..5].copy_from_slice(&[0x20, 0, 0x20, 0, kind]);
        parameters[13] = 7;
        self.ok(number, op::LE_SET_ADV_PARAMETERS, &parameters);
        let mut data = [0; 32];
        data[..4].copy_from_slice(&[3, 2, 1, 6]);
        self.ok(number, op::LE_SET_ADV_DATA, &data);
        self.ok(number, op::LE_SET_ADV_ENABLE, &[1]);
    }

    /// LE Create Connection to the other side, at an interval in units of 1.25 ms.
    pub(crate) fn create_connection(&mut self, interval: u16) -> u8 {
        let mut parameters = [0; 25];
        parameters[..4].copy_from_slice(&[0x60, 0, 0x60, 0]);
        parameters[6..12].copy_from_slice(&self.addresses[PERIPHERAL]);
        for (at, word) in [(13, interval), (15, interval), (17, 0), (19, 42)] {
            parameters[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        self.command(CENTRAL, op::LE_CREATE_CONNECTION, &parameters)[0]
    }

    /// Connects, and gives both handles.
    pub(crate) fn connect(&mut self, interval: u16) -> [[u8; 2]; 2] {
        self.advertise(PERIPHERAL, 0);
        assert_eq!(self.create_connection(interval), SUCCESS);
        self.pass(100 * MS);
        [(CENTRAL, 0), (PERIPHERAL, 1)].map(|(number, role)| {
            let complete = self.le_event(number, event::LE_CONNECTION_COMPLETE).expect("connected");
            assert_eq!((complete[0], complete[3]), (SUCCESS, role));
            assert_eq!(complete[5..11], self.addresses[1 - number]);
            assert_eq!(complete[11..13], interval.to_le_bytes());
            [complete[1], complete[2]]
        })
    }

    /// LE Enable Encryption; its status.
    pub(crate) fn enable(&mut self, number: usize, handle: [u8; 2], key: [u8; 16]) -> u8 {
        self.command(number, op::LE_ENABLE_ENCRYPTION, &[&handle[..], &RAND, &EDIV, &key].concat())[0]
    }

    /// The peripheral's host is asked for the key.
    pub(crate) fn key_wanted(&mut self) -> Option<Vec<u8>> {
        self.le_event(PERIPHERAL, event::LE_LONG_TERM_KEY_REQUEST)
    }

    /// As kernels do: of the two events about encryption only the first is told unless it is asked for.
    pub(crate) fn unmask(&mut self) {
        SIDES.into_iter().for_each(|number| self.ok(number, op::SET_EVENT_MASK, &[0xff; 8]));
    }

    pub(crate) fn reply(&mut self, handle: [u8; 2], key: [u8; 16]) {
        self.ok(PERIPHERAL, op::LE_LONG_TERM_KEY_REPLY, &[&handle[..], &key].concat());
    }

    pub(crate) fn send_data(&mut self, number: usize, handles: [[u8; 2]; 2], data: &[u8]) {
        self.send(number, hci::acl(u16::from_le_bytes(handles[number]), Boundary::FirstFromHost, data));
    }
}
