//! The machines and what connects them. Everything happens in one order: time, then the air, then
//! the machines by number.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use super::account::Account;
use super::arrival::Arrival;
use super::node::{Node, link_of};
use super::observe::{AirEvent, Happening, Observer, is_active};
use super::outcome::Outcome;
use crate::controller::{self, Controller, FIRST_HANDLE, Transmission};
use crate::host::{self, Host, Plan, What, Wish};
use crate::link::{PduKind, Reception};
use crate::medium::Medium;
use crate::rng::Random;
use crate::role::Role;
use crate::scenario::{self, Scenario};
use crate::time::{MS, NEVER, deadline};
use crate::transport::Pipe;

#[derive(Clone, Debug)]
pub(super) struct World {
    now: Instant,
    nodes: Vec<Node>,
    medium: Medium,
    account: Account,
    /// What programs read, where they are outside.
    arrivals: Option<VecDeque<Arrival>>,
}

impl World {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let random = Random::new(seed);
        let unit = scenario.interval_unit();
        let wish = |link: u16| Wish {
            peer: scenario::address(Role::Peripheral, link),
            interval: (scenario.ci / unit) as u16,
            latency: scenario.latency,
            timeout: (scenario.timeout() / (10 * MS)) as u16,
            length: scenario.length,
            phy: scenario.phy,
        };
        let node = |role: Role, index: u16, plan: Plan| {
            let number = if role == Role::Central { 0 } else { 1 + u64::from(index) };
            let side = scenario.side(role);
            Node {
                role,
                controller: Controller::new(scenario.controller(role, index), random.fork(3 * number + 1)),
                host: Host::new(side.host.clone(), plan, random.fork(3 * number + 2)),
                down: Pipe::new(side.transport),
                up: Pipe::new(side.transport),
                due: Instant::default(),
            }
        };
        let mut nodes = Vec::from([node(Role::Central, 0, Plan::central((0..scenario.links).map(wish)))]);
        nodes.extend((0..scenario.links).map(|link| node(Role::Peripheral, link, Plan::Peripheral)));
        Self {
            now: Instant::default(),
            nodes,
            medium: Medium::new(scenario.loss, random.fork(0)),
            account: Account::new(scenario),
            arrivals: None,
        }
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    pub(super) const fn is_measuring(&self) -> bool {
        self.account.is_measuring()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.medium.on_air().is_empty() && self.nodes.iter().all(|node| node.host.is_ready())
    }

    pub(super) fn measure(&mut self, observer: &mut impl Observer) {
        self.account.begin(self.now);
        if is_active(observer) {
            observer.event(&AirEvent { at: self.now, link: 0, what: Happening::MeasurementBegins });
        }
    }

    pub(super) fn start_writing(&mut self, observer: &mut impl Observer) {
        let sender = self.account.sender();
        for number in 0..self.nodes.len() {
            if self.nodes[number].role == sender {
                self.nodes[number].host.start_writing(self.now);
                self.pump(number, observer);
            }
        }
    }

    /// From now on programs are outside.
    pub(super) fn keep_arrivals(&mut self) {
        self.arrivals = Some(VecDeque::new());
        self.account.programs_are_outside();
    }

    pub(super) fn arrival(&mut self) -> Option<Arrival> {
        self.arrivals.as_mut()?.pop_front()
    }

    /// The machine of the first link's side.
    fn node(&self, side: Role) -> &Node {
        &self.nodes[side as usize]
    }

    pub(super) fn write(&mut self, side: Role, bytes: &[u8]) {
        let (now, node) = (self.now, &mut self.nodes[side as usize]);
        node.host.write(now, FIRST_HANDLE, bytes);
        node.due = node.due();
    }

    pub(super) fn unwritten(&self, side: Role) -> usize {
        self.node(side).host.unwritten(FIRST_HANDLE)
    }

    pub(super) fn mtu(&self, side: Role) -> u16 {
        self.node(side).host.channel(FIRST_HANDLE).map_or(0, |parameters| parameters.peer_mtu)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        deadline(self.next().0)
    }

    pub(super) const fn disconnected(&self) -> Option<u8> {
        self.account.disconnected()
    }

    pub(super) fn outcome(&mut self, observer: &mut impl Observer) -> Outcome {
        self.account.outcome(self.now, observer)
    }

    /// What happens next: the end of a packet (a machine's number that there is not), or a machine that is due.
    fn next(&self) -> (Instant, usize) {
        let air = self.medium.next_end().unwrap_or(NEVER);
        let mut next = (air, usize::MAX);
        for (number, node) in self.nodes.iter().enumerate() {
            if node.due < next.0 {
                next = (node.due, number);
            }
        }
        next
    }

    /// On to the next thing that happens, if that is not after `end`; else to `end`. Whether there is more before it.
    pub(super) fn step(&mut self, end: Instant, observer: &mut impl Observer) -> bool {
        let (at, number) = self.next();
        let to = at.min(end).max(self.now);
        if to > self.now {
            self.account.pass(self.now, to, &self.nodes, self.medium.on_air(), observer);
            self.now = to;
        }
        if at > end || at == NEVER {
            return false;
        }
        if number == usize::MAX {
            self.end_of_packet(observer);
        } else {
            self.pump(number, observer);
        }
        true
    }

    /// The first packet on the air that ends now is delivered.
    fn end_of_packet(&mut self, observer: &mut impl Observer) {
        let Some(packet) = self.medium.end(self.now) else { return };
        let crc_right = packet.reception == Reception::Received;
        self.account.packet(&packet, observer);
        for number in 0..self.nodes.len() {
            if number != packet.from {
                let input = controller::Input::AirEnd(&packet.transmission, crc_right);
                self.nodes[number].controller.handle(self.now, input);
                self.pump(number, observer);
            }
        }
    }

    /// A packet begins: who listens hears its beginning, unless the medium spoils it.
    fn begin_of_packet(&mut self, from: usize, transmission: Box<Transmission>, observer: &mut impl Observer) {
        if transmission.kind != PduKind::Advertising {
            self.account.transmits(self.now, from, &transmission, observer);
        }
        let reception = self.medium.begin(&transmission);
        if reception != Reception::Missed {
            for number in 0..self.nodes.len() {
                if number != from {
                    self.nodes[number].controller.handle(self.now, controller::Input::AirStart(&transmission));
                    self.nodes[number].due = self.nodes[number].due();
                }
            }
        }
        self.medium.carry(from, transmission, reception);
    }

    /// Lets a machine do all that it can now.
    fn pump(&mut self, number: usize, observer: &mut impl Observer) {
        let now = self.now;
        // Whichever machine is due; what one gives may make another due at the same time.
        loop {
            let node = &mut self.nodes[number];
            if node.controller.due() <= now {
                self.pump_controller(number, observer);
            } else if node.up.due() <= now {
                while let Some(packet) = self.nodes[number].up.poll(now) {
                    self.hci(number, true, true, &packet, observer);
                    self.nodes[number].host.handle(now, packet);
                }
            } else if node.host.due() <= now {
                self.pump_host(number, observer);
            } else if node.down.due() <= now {
                while let Some(packet) = self.nodes[number].down.poll(now) {
                    self.hci(number, false, true, &packet, observer);
                    self.nodes[number].controller.handle(now, controller::Input::Host(packet));
                }
            } else {
                node.due = node.due();
                return;
            }
        }
    }

    fn pump_controller(&mut self, number: usize, observer: &mut impl Observer) {
        let now = self.now;
        while let Some(output) = self.nodes[number].controller.poll(now) {
            match output {
                controller::Output::Host(packet) => {
                    self.hci(number, true, false, &packet, observer);
                    self.nodes[number].up.push(now, packet);
                }
                controller::Output::Transmit(transmission) => self.begin_of_packet(number, transmission, observer),
                // Hosts of the model know of LE alone.
                controller::Output::TransmitClassic(_) => {}
                controller::Output::EventClosed(closed) => {
                    self.account.closed(now, number, &closed, &self.nodes, observer);
                }
            }
        }
    }

    fn pump_host(&mut self, number: usize, observer: &mut impl Observer) {
        let now = self.now;
        while let Some(output) = self.nodes[number].host.poll(now) {
            match output {
                host::Output::Controller(packet) => {
                    self.hci(number, false, false, &packet, observer);
                    self.nodes[number].down.push(now, packet);
                }
                host::Output::Notice(notice) => {
                    if let (Some(arrivals), What::Read { sdu }) = (&mut self.arrivals, &notice.what) {
                        let side = self.nodes[number].role;
                        arrivals.push_back(Arrival { at: now, side, bytes: sdu.clone() });
                    }
                    self.account.notice(now, number, self.nodes[number].role, notice, observer);
                }
            }
        }
    }

    fn hci(&self, number: usize, to_host: bool, arrived: bool, bytes: &[u8], observer: &mut impl Observer) {
        if !is_active(observer) {
            return;
        }
        let side = self.nodes[number].role;
        let what = if arrived {
            Happening::HciArrived { side, to_host, bytes }
        } else {
            Happening::HciSent { side, to_host, bytes }
        };
        observer.event(&AirEvent { at: self.now, link: link_of(number), what });
    }
}
