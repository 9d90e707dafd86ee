//! How devices find each other (Core Specification, Vol 2, Part B, 8.3 and 8.4): paging and its
//! answer, inquiry and its answer.
//!
//! ID packets go out two to a slot, over the 16 channels of a train in 10 ms; a scanner listens to
//! one of them for its window in every interval. A pager does not guess at the other's clock: every
//! train has the channel that is listened to.

use alloc::vec::Vec;

use taut_time::Instant;

use super::super::state::Controller;
use super::manager::connection_complete;
use super::procedures::{INQUIRY_UNIT, Inquirer, Pager, Paging, Scanning, TRAIN, Train};
use super::setup::Setup;
use super::state::Listener;
use crate::bredr::{Body, INQUIRY, Packet, PacketType, SLOT, hop};
use crate::hci::{self, event};
use crate::pdu::advertising::Address;
use crate::role::Role;
use crate::time::{NEVER, Nanos, US, after};

/// ID packets of a train go out that far apart.
const HALF_SLOT: Nanos = SLOT / 2;
/// pagerespTO (8.3.3): slots until either side gives an answer up.
const PATIENCE: Nanos = 8 * SLOT;
/// FHS packets that a pager sends in that time.
const TRIES: u8 = 3;
/// When the answer must have begun: uncertainty, and the access code.
const WINDOW: Nanos = 10 * US + 68 * US;
/// Longest backoff of a device that has heard an inquiry (8.4.3), in slots.
const BACKOFF: u64 = 1024;

impl Controller {
    /// Begins to page. The host hears at the end.
    pub(super) fn page(&mut self, now: Instant, target: Address) {
        let deadline = after(now, SLOT * Nanos::from(self.classic.wishes.page_timeout.max(1)));
        self.page_until(now, target, deadline);
    }

    fn page_until(&mut self, now: Instant, target: Address, deadline: Instant) {
        let lt_addr = self.classic.free_lt_addr(now).unwrap_or(1);
        let paging = Paging::Train(Train { next: now, count: 0 });
        self.classic.pager = Some(Pager { target, deadline, paging, lt_addr });
    }

    pub(super) fn inquire(&mut self, now: Instant, length: u8, most: u8) {
        let until = after(now, INQUIRY_UNIT * Nanos::from(length));
        let train = Train { next: now, count: 0 };
        self.classic.inquirer = Some(Inquirer { until, train, hearing: false, most, found: Vec::new() });
    }

    /// A link that never came to be.
    pub(super) fn line_never_there(&mut self, now: Instant, index: usize) {
        let line = &self.classic.lines[index];
        if let Setup::Requesting { until } = line.setup {
            let peer = line.acl.peer;
            if self.classic.pager.is_none() {
                self.page_until(now, peer, until);
            } else {
                self.tell_host(connection_complete(hci::PAGE_TIMEOUT, 0, peer));
            }
        }
    }

    pub(super) fn discovery_turns(&mut self, now: Instant) {
        if self.classic.pager.as_ref().is_some_and(|pager| pager.due() <= now) {
            self.page_turn(now);
        }
        if self.classic.inquirer.as_ref().is_some_and(|inquirer| inquirer.due() <= now) {
            self.inquiry_turn(now);
        }
        if self.classic.scanner.due() <= now {
            self.scan_turn(now);
        }
    }

    /// Whether a slot pair that begins now is free for what isn't a link.
    fn slots_are_free(&self, now: Instant) -> bool {
        let end = after(now, 2 * SLOT);
        let lines = self.classic.lines.iter().map(|line| line.acl.due()).min().unwrap_or(NEVER);
        !self.radio_busy() && self.wanted_by_others(usize::MAX) >= end && lines >= end
    }

    /// The next ID packet of a train.
    fn train_turn(&mut self, now: Instant, access: Address, train: Train) -> Train {
        let is_first = train.count.is_multiple_of(2);
        if is_first && !self.slots_are_free(now) {
            return Train { next: after(now, 2 * SLOT), ..train };
        }
        let channel = hop(access, train.count % TRAIN);
        self.transmit_id(now, access, Role::Central, channel);
        let next = after(now, if is_first { HALF_SLOT } else { 2 * SLOT - HALF_SLOT });
        Train { next, count: train.count + 1 }
    }

    fn transmit_id(&mut self, now: Instant, access: Address, role: Role, channel: u8) -> Instant {
        self.transmit_setup(now, PacketType::Id, access, role, channel, Body::Empty)
    }

    fn transmit_setup(
        &mut self,
        now: Instant,
        kind: PacketType,
        access: Address,
        role: Role,
        channel: u8,
        body: Body,
    ) -> Instant {
        let end = after(now, kind.air_time(0));
        self.transmit_classic(Packet {
            access,
            kind,
            lt_addr: 0,
            arqn: false,
            seqn: false,
            body,
            channel,
            start: now,
            end,
            retransmission: false,
            role,
            slot: 0,
        });
        end
    }

    fn page_turn(&mut self, now: Instant) {
        let Some(mut pager) = self.classic.pager.take() else { return };
        pager.paging = match pager.paging {
            Paging::Train(_) if pager.deadline <= now => {
                self.tell_host(connection_complete(hci::PAGE_TIMEOUT, 0, pager.target));
                return;
            }
            Paging::Train(train) => Paging::Train(self.train_turn(now, pager.target, train)),
            Paging::Fhs { tries: TRIES, train, .. } => Paging::Train(Train { next: now, ..train }),
            Paging::Fhs { tries, train, .. } => {
                let (address, class) = (self.config.address, self.classic.wishes.class);
                let body = Body::Fhs { address, class, lt_addr: pager.lt_addr };
                let channel = hop(pager.target, train.count % TRAIN);
                self.transmit_setup(now, PacketType::Fhs, pager.target, Role::Central, channel, body);
                Paging::Answer { sent: now, until: after(now, SLOT + WINDOW), tries: tries + 1, train }
            }
            Paging::Answer { sent, tries, train, .. } => Paging::Fhs { at: after(sent, 2 * SLOT), tries, train },
            hearing @ Paging::Hearing { .. } => hearing,
        };
        self.classic.pager = Some(pager);
    }

    fn inquiry_turn(&mut self, now: Instant) {
        let Some(mut inquirer) = self.classic.inquirer.take() else { return };
        if inquirer.until <= now {
            self.tell_host(hci::event_packet(event::INQUIRY_COMPLETE, &[hci::SUCCESS], &[]));
            return;
        }
        inquirer.train = self.train_turn(now, INQUIRY, inquirer.train);
        self.classic.inquirer = Some(inquirer);
    }

    fn scan_turn(&mut self, now: Instant) {
        let own = self.config.address;
        let le_is_busy = self.le_busy();
        self.classic.scanner.scanning = match self.classic.scanner.scanning {
            Scanning::Respond { .. } | Scanning::Ack { .. } | Scanning::Found { .. } if le_is_busy => Scanning::Idle,
            Scanning::Respond { channel, .. } => {
                self.transmit_id(now, own, Role::Peripheral, channel);
                Scanning::Fhs { until: after(now, PATIENCE) }
            }
            Scanning::Ack { channel, central, lt_addr, origin, .. } => {
                let end = self.transmit_id(now, own, Role::Peripheral, channel);
                self.open_line(Role::Peripheral, central, lt_addr, origin, Setup::Waiting);
                Scanning::Sending { end }
            }
            Scanning::Found { channel, .. } => {
                let body = Body::Fhs { address: own, class: self.classic.wishes.class, lt_addr: 0 };
                let end = self.transmit_setup(now, PacketType::Fhs, INQUIRY, Role::Peripheral, channel, body);
                Scanning::Sending { end }
            }
            _ => Scanning::Idle,
        };
    }

    /// A packet that belongs to no link begins: who listens to it.
    pub(super) fn discovery_start(&mut self, packet: &Packet, is_free: bool) -> Option<Listener> {
        if packet.role == Role::Central { self.scanner_start(packet, is_free) } else { self.seeker_start(packet) }
    }

    fn scanner_start(&mut self, packet: &Packet, is_free: bool) -> Option<Listener> {
        let now = packet.start;
        let wishes = &self.classic.wishes;
        let scanner = &mut self.classic.scanner;
        let is_page = packet.access == self.config.address;
        match (packet.kind, scanner.scanning) {
            (PacketType::Fhs, Scanning::Fhs { .. }) if is_page => scanner.scanning = Scanning::HearingFhs,
            (PacketType::Id, Scanning::Idle) if is_free => {
                let inquiry = packet.access == INQUIRY;
                let (scan, bit) = if inquiry { (wishes.inquiry_scan, 1) } else { (wishes.page_scan, 2) };
                let index = scanner.listens(now, scan)?;
                let is_on = wishes.scan & bit != 0 && (inquiry || is_page);
                if !is_on || packet.channel != hop(packet.access, index) {
                    return None;
                }
                scanner.scanning = Scanning::Hearing { inquiry };
            }
            _ => return None,
        }
        Some(Listener::Scanner)
    }

    fn seeker_start(&mut self, packet: &Packet) -> Option<Listener> {
        if let Some(pager) = self.classic.pager.as_mut().filter(|pager| pager.target == packet.access) {
            pager.paging = match pager.paging {
                Paging::Train(train) if train.count > 0 => Paging::Hearing { fhs: None, train },
                Paging::Answer { sent, tries, train, .. } => Paging::Hearing { fhs: Some((sent, tries)), train },
                _ => return None,
            };
            return Some(Listener::Pager);
        }
        let inquirer = self.classic.inquirer.as_mut()?;
        if packet.access != INQUIRY || packet.kind != PacketType::Fhs || inquirer.hearing {
            return None;
        }
        inquirer.hearing = true;
        Some(Listener::Inquirer)
    }

    /// It ended.
    pub(super) fn discovery_end(&mut self, now: Instant, listener: Listener, packet: &Packet, right: bool) {
        match listener {
            Listener::Pager => self.page_answered(packet, right),
            Listener::Inquirer => self.found(now, packet, right),
            Listener::Scanner => self.scanner_end(packet, right),
            Listener::Line(_) => {}
        }
    }

    fn page_answered(&mut self, packet: &Packet, right: bool) {
        let Some(mut pager) = self.classic.pager.take() else { return };
        let Paging::Hearing { fhs, train } = pager.paging else { return };
        let next = after(packet.start, SLOT);
        pager.paging = match fhs {
            None if right => Paging::Fhs { at: next, tries: 0, train },
            None => Paging::Train(Train { next: train.next.max(next), ..train }),
            Some(_) if right => {
                let setup = Setup::Requesting { until: pager.deadline };
                self.open_line(Role::Central, pager.target, pager.lt_addr, next, setup);
                self.ask_for_connection(packet.end, self.classic.lines.len() - 1);
                return;
            }
            Some((sent, tries)) => Paging::Fhs { at: after(sent, 2 * SLOT), tries, train },
        };
        self.classic.pager = Some(pager);
    }

    fn found(&mut self, now: Instant, packet: &Packet, right: bool) {
        let Some(inquirer) = &mut self.classic.inquirer else { return };
        inquirer.hearing = false;
        inquirer.train.next = inquirer.train.next.max(now);
        let Body::Fhs { address, class, .. } = packet.body else { return };
        if !right || inquirer.found.contains(&address) {
            return;
        }
        inquirer.found.push(address);
        if inquirer.most > 0 && inquirer.found.len() >= usize::from(inquirer.most) {
            inquirer.until = now;
        }
        // One response: page scan repetition mode R1, two reserved octets, class, clock offset.
        let mut front = Vec::from([1]);
        front.extend(address);
        front.extend([1, 0, 0]);
        front.extend(class);
        self.tell_host(hci::event_packet(event::INQUIRY_RESULT, &front, &[0, 0]));
    }

    fn scanner_end(&mut self, packet: &Packet, right: bool) {
        let scanner = &mut self.classic.scanner;
        let at = after(packet.start, SLOT);
        scanner.scanning = match (scanner.scanning, &packet.body) {
            (Scanning::Hearing { inquiry: false }, _) if right => Scanning::Respond { at, channel: packet.channel },
            (Scanning::Hearing { inquiry: true }, _) if right => match scanner.backoff {
                Some(until) if until <= packet.start => {
                    scanner.backoff = None;
                    Scanning::Found { at, channel: packet.channel }
                }
                Some(_) => Scanning::Idle,
                None => {
                    scanner.backoff = Some(after(packet.end, SLOT * scanner.random.below(BACKOFF)));
                    Scanning::Idle
                }
            },
            (Scanning::HearingFhs, Body::Fhs { address, lt_addr, .. }) if right => Scanning::Ack {
                at,
                channel: packet.channel,
                central: *address,
                lt_addr: *lt_addr,
                origin: after(packet.start, 2 * SLOT),
            },
            (Scanning::HearingFhs, _) => Scanning::Fhs { until: after(packet.start, PATIENCE) },
            _ => Scanning::Idle,
        };
    }

    /// The host does not want it any more.
    pub(super) fn stop_paging(&mut self, target: Address) -> bool {
        self.classic.pager.take_if(|pager| pager.target == target && !pager.is_busy()).is_some()
    }
}
