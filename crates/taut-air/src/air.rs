//! The controllers of a scenario around its medium, without hosts: whoever drives them brings the hosts.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::bredr;
use crate::controller::{self, Controller, Transmission};
use crate::hci;
use crate::link::{PduKind, Reception};
use crate::medium::{Medium, OnAir};
use crate::phy::Phy;
use crate::rng::Random;
use crate::role::Role;
use crate::scenario::{Scenario, ScenarioError};
use crate::sim::{AirEvent, Happening, Observer, Parts, Purpose};
use crate::time::NEVER;
use crate::transport::Pipe;

/// Controllers, numbered: 0 is made as the scenario's central, the others are made as its
/// peripherals. Which role a controller takes in a link is for its host to say.
///
/// Time is an argument, and may come late: what was due earlier happens at its own time, in order,
/// before anything else. Only a host's packet counts from when it is handed over.
#[derive(Clone, Debug)]
pub struct Air {
    now: Instant,
    nodes: Vec<Node>,
    medium: Medium,
    links: Vec<Heard>,
    out: VecDeque<ToHost>,
}

/// An HCI packet for a host, H4 indicator first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ToHost {
    /// When it comes out of the transport.
    pub at: Instant,
    /// Whose host.
    pub number: usize,
    /// The packet.
    pub packet: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Node {
    role: Role,
    controller: Controller,
    /// From the host to the controller, and back.
    down: Pipe,
    up: Pipe,
}

/// A connection, as the air tells of it.
#[derive(Clone, Debug)]
struct Heard {
    access_address: u32,
    /// By sender: central's, then peripheral's.
    parts: [Parts; 2],
}

/// Code of the Hardware Error event, ours to choose.
const SYNCHRONISATION_LOST: u8 = 0x01;
/// Connections that are told apart for observers; older ones make room.
const MOST_LINKS: usize = 64;

impl Node {
    fn due(&self) -> Instant {
        let machines = [self.controller.deadline(), self.down.deadline(), self.up.deadline()];
        machines.into_iter().flatten().min().unwrap_or(NEVER)
    }
}

impl Air {
    /// The controllers of `scenario` just powered on at `now`: one central and as many peripherals as it has links.
    ///
    /// Where the scenario wants another PHY than LE 1M the central's controller asks for it by
    /// itself, since a kernel may not.
    ///
    /// # Errors
    /// When the scenario's parameters don't fit each other.
    pub fn new(scenario: &Scenario, seed: u64, now: Instant) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let random = Random::new(seed);
        let node = |role: Role, index: u16, number: u64| {
            let mut config = scenario.controller(role, index);
            config.phy = (scenario.phy != Phy::Le1M).then_some(scenario.phy);
            let transport = scenario.side(role).transport;
            let controller = Controller::new(config, random.fork(3 * number + 1));
            Node { role, controller, down: Pipe::new(transport), up: Pipe::new(transport) }
        };
        let mut nodes = Vec::from([node(Role::Central, 0, 0)]);
        nodes.extend((0..scenario.links).map(|index| node(Role::Peripheral, index, 1 + u64::from(index))));
        let medium = Medium::new(scenario.loss, random.fork(0));
        Ok(Self { now, nodes, medium, links: Vec::new(), out: VecDeque::new() })
    }

    /// Address and role in the scenario of each controller.
    pub fn controllers(&self) -> impl Iterator<Item = (crate::pdu::advertising::Address, Role)> {
        self.nodes.iter().map(|node| (node.controller.config().address, node.role))
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Instant> {
        if self.out.is_empty() { crate::time::deadline(self.next().0) } else { Some(self.now) }
    }

    /// A host hands over an HCI packet, H4 indicator first, at `now`. A number that there is not is ignored.
    pub fn handle(&mut self, now: Instant, number: usize, packet: Vec<u8>, observer: &mut impl Observer) {
        self.run(now, observer);
        if number < self.nodes.len() {
            self.now = self.now.max(now);
            self.hci(number, false, false, &packet, observer);
            self.nodes[number].down.push(self.now, packet);
            self.pump(number, observer);
        }
    }

    /// Bytes of data that a host may put into an ACL packet for this controller; 0 for a number that there is not.
    pub fn acl_limit(&self, number: usize) -> usize {
        self.nodes.get(number).map_or(0, |node| {
            let config = node.controller.config();
            config.acl_size.max(config.classic.acl_size).into()
        })
    }

    /// ACL packets of hosts that were lost, as they sent more of them than their controllers have buffers.
    pub fn overflows(&self) -> u64 {
        self.nodes.iter().map(|node| node.controller.overflows()).sum()
    }

    /// The controller could not follow its host any more, and tells it (Hardware Error).
    pub fn lose_synchronisation(&mut self, now: Instant, number: usize, observer: &mut impl Observer) {
        self.run(now, observer);
        if number < self.nodes.len() {
            self.now = self.now.max(now);
            let packet = hci::hardware_error(SYNCHRONISATION_LOST);
            self.hci(number, true, false, &packet, observer);
            self.nodes[number].up.push(self.now, packet);
            self.pump(number, observer);
        }
    }

    /// The controller lost its host and with it its power: it is as it was in the beginning, its
    /// links are gone without a word, and so is all that was on its way to the host and back.
    pub fn power_cycle(&mut self, now: Instant, number: usize, observer: &mut impl Observer) {
        self.run(now, observer);
        if let Some(node) = self.nodes.get_mut(number) {
            self.now = self.now.max(now);
            node.controller.power_cycle();
            (node.up, node.down) = (node.up.emptied(), node.down.emptied());
            self.out.retain(|packet| packet.number != number);
        }
    }

    /// The next packet for a host, after all that is due up to `now` has happened.
    pub fn poll(&mut self, now: Instant, observer: &mut impl Observer) -> Option<ToHost> {
        if self.out.is_empty() {
            self.run(now, observer);
        }
        self.out.pop_front()
    }

    /// What happens next: when, and at which machine; `usize::MAX` is the medium.
    fn next(&self) -> (Instant, usize) {
        let mut next = (self.medium.next_end().unwrap_or(NEVER), usize::MAX);
        for (number, node) in self.nodes.iter().enumerate() {
            let due = node.due();
            if due < next.0 {
                next = (due, number);
            }
        }
        next
    }

    fn run(&mut self, now: Instant, observer: &mut impl Observer) {
        loop {
            let (at, number) = self.next();
            if at > now {
                return;
            }
            self.now = self.now.max(at);
            if number == usize::MAX {
                self.end_of_packet(observer);
            } else {
                self.pump(number, observer);
            }
        }
    }

    fn end_of_packet(&mut self, observer: &mut impl Observer) {
        if let Some(packet) = self.medium.end_classic(self.now) {
            self.end_of_classic(&packet, observer);
            return;
        }
        let Some(packet) = self.medium.end(self.now) else { return };
        let (transmission, reception) = (&packet.transmission, packet.reception);
        if is_active(observer) {
            let (link, purpose) = self.tell(transmission);
            let what = transmission.happening(reception, purpose);
            observer.event(&AirEvent { at: transmission.start, link, what });
        }
        for number in (0..self.nodes.len()).filter(|number| *number != packet.from) {
            let input = controller::Input::AirEnd(transmission, reception == Reception::Received);
            self.nodes[number].controller.handle(self.now, input);
            self.pump(number, observer);
        }
    }

    fn end_of_classic(&mut self, ended: &OnAir<bredr::Packet>, observer: &mut impl Observer) {
        let (packet, reception) = (&*ended.transmission, ended.reception);
        if is_active(observer) {
            observer.event(&AirEvent { at: packet.start, link: 0, what: Happening::Baseband { packet, reception } });
        }
        for number in (0..self.nodes.len()).filter(|number| *number != ended.from) {
            let input = controller::Input::ClassicEnd(packet, reception == Reception::Received);
            self.nodes[number].controller.handle(self.now, input);
            self.pump(number, observer);
        }
    }

    /// Which connection a packet belongs to, counted from 0, and what it is for.
    fn tell(&mut self, transmission: &Transmission) -> (u16, Purpose) {
        if transmission.kind == PduKind::Advertising {
            return (0, Purpose::Advertising);
        }
        let known = self.links.iter().position(|link| link.access_address == transmission.access_address);
        let index = known.unwrap_or_else(|| {
            if self.links.len() == MOST_LINKS {
                self.links.remove(0);
            }
            self.links.push(Heard { access_address: transmission.access_address, parts: Default::default() });
            self.links.len() - 1
        });
        let parts = &mut self.links[index].parts[transmission.role as usize];
        if transmission.kind == PduKind::Data && !transmission.retransmission {
            parts.sends(transmission.plain());
        }
        (index as u16, parts.purpose(transmission.kind))
    }

    fn begin_of_packet(&mut self, from: usize, transmission: Box<Transmission>) {
        let reception = self.medium.begin(&transmission);
        if reception != Reception::Missed {
            for number in (0..self.nodes.len()).filter(|number| *number != from) {
                self.nodes[number].controller.handle(self.now, controller::Input::AirStart(&transmission));
            }
        }
        self.medium.carry(from, transmission, reception);
    }

    fn begin_of_classic(&mut self, from: usize, packet: Box<bredr::Packet>) {
        let reception = self.medium.begin_classic(&packet);
        if reception != Reception::Missed {
            for number in (0..self.nodes.len()).filter(|number| *number != from) {
                self.nodes[number].controller.handle(self.now, controller::Input::ClassicStart(&packet));
            }
        }
        self.medium.carry_classic(from, packet, reception);
    }

    /// Lets a machine do all that it can now.
    fn pump(&mut self, number: usize, observer: &mut impl Observer) {
        let now = self.now;
        loop {
            let mut idle = true;
            while let Some(output) = self.nodes[number].controller.poll(now) {
                idle = false;
                match output {
                    controller::Output::Host(packet) => {
                        self.hci(number, true, false, &packet, observer);
                        self.nodes[number].up.push(now, packet);
                    }
                    controller::Output::Transmit(transmission) => self.begin_of_packet(number, transmission),
                    controller::Output::TransmitClassic(packet) => self.begin_of_classic(number, packet),
                    controller::Output::EventClosed(_) => {}
                }
            }
            while let Some(packet) = self.nodes[number].up.poll(now) {
                idle = false;
                self.hci(number, true, true, &packet, observer);
                self.out.push_back(ToHost { at: now, number, packet });
            }
            while let Some(packet) = self.nodes[number].down.poll(now) {
                idle = false;
                self.hci(number, false, true, &packet, observer);
                self.nodes[number].controller.handle(now, controller::Input::Host(packet));
            }
            if idle {
                return;
            }
        }
    }

    fn hci(&self, number: usize, to_host: bool, arrived: bool, bytes: &[u8], observer: &mut impl Observer) {
        if is_active(observer) {
            let side = self.nodes[number].role;
            let what = if arrived {
                Happening::HciArrived { side, to_host, bytes }
            } else {
                Happening::HciSent { side, to_host, bytes }
            };
            observer.event(&AirEvent { at: self.now, link: number.saturating_sub(1) as u16, what });
        }
    }
}

const fn is_active<O: Observer>(_: &O) -> bool {
    O::ACTIVE
}
