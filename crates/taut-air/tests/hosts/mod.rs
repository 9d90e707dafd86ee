//! The controllers of a scenario under two hosts that a test plays.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use taut_air::hci::{self, event};
use taut_air::{Air, Instant, Nanos, Scenario};

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SUCCESS: u8 = 0;
pub(crate) const CENTRAL: usize = 0;
pub(crate) const PERIPHERAL: usize = 1;

/// Both hosts and the time.
pub(crate) struct Hosts {
    pub(crate) air: Air,
    pub(crate) now: Instant,
    pub(crate) addresses: Vec<[u8; 6]>,
    /// What hosts got and have not looked at.
    pub(crate) got: Vec<(usize, Vec<u8>)>,
}

impl Hosts {
    pub(crate) fn new(set: &[(&str, &str)]) -> Self {
        let mut scenario = Scenario::default();
        for (name, value) in set {
            scenario.set(name, value).unwrap();
        }
        let air = Air::new(&scenario, 7, Instant::default()).unwrap();
        let addresses = air.controllers().map(|(address, _)| address).collect();
        Self { air, now: Instant::default(), addresses, got: Vec::new() }
    }

    pub(crate) fn pass(&mut self, time: Nanos) {
        self.now = Instant::from_nanos(self.now.as_nanos() + time);
        while let Some(to_host) = self.air.poll(self.now, &mut ()) {
            assert!(to_host.at <= self.now);
            self.got.push((to_host.number, to_host.packet));
        }
    }

    pub(crate) fn send(&mut self, number: usize, packet: Vec<u8>) {
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
}
