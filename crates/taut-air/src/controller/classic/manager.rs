//! The link manager's procedures (Core Specification, Vol 2, Part C, 4): connections from host to
//! host, what each side can do, names, and the end.

use alloc::vec::Vec;

use taut_time::Instant;

use super::super::state::Controller;
use super::setup::Setup;
use crate::bredr::{SLOT, lmp};
use crate::hci::{self, event};
use crate::pdu::advertising::Address;
use crate::role::Role;
use crate::time::{Nanos, after};

impl Controller {
    /// Begins a transaction of this side's.
    fn send_lmp(&mut self, now: Instant, index: usize, opcode: u8, parameters: &[u8]) {
        let acl = &mut self.classic.lines[index].acl;
        acl.manage(now, lmp::pdu(acl.role == Role::Peripheral, opcode, parameters));
    }

    fn answer(&mut self, now: Instant, index: usize, by_peripheral: bool, opcode: u8, parameters: &[u8]) {
        self.classic.lines[index].acl.manage(now, lmp::pdu(by_peripheral, opcode, parameters));
    }

    /// The central's first request, once a link is there.
    pub(super) fn ask_for_connection(&mut self, now: Instant, index: usize) {
        self.send_lmp(now, index, lmp::HOST_CONNECTION_REQ, &[]);
    }

    /// A PDU of the peer.
    pub(super) fn manage(&mut self, now: Instant, index: usize, bytes: &[u8]) {
        let Some(lmp::View { by_peripheral, opcode, parameters }) = lmp::View::parse(bytes) else { return };
        let features = self.classic_features();
        match (opcode, parameters) {
            (lmp::HOST_CONNECTION_REQ, _) => self.host_connection(now, index),
            (lmp::SETUP_COMPLETE, _) => {
                if let Setup::Completing { heard, .. } = &mut self.classic.lines[index].setup {
                    *heard = true;
                }
                self.complete_setup(index);
            }
            (lmp::DETACH, [reason, ..]) => self.classic.lines[index].acl.leave(now, *reason),
            (lmp::MAX_SLOT, [slots, ..]) => self.classic.lines[index].acl.peer_slots(*slots),
            (lmp::FEATURES_REQ, _) => self.answer(now, index, by_peripheral, lmp::FEATURES_RES, &features),
            (lmp::FEATURES_RES, page) if page.len() >= 8 => {
                self.tell_of(index, event::REMOTE_FEATURES_COMPLETE, &page[..8]);
            }
            (lmp::VERSION_REQ, _) => {
                self.answer(now, index, by_peripheral, lmp::VERSION_RES, &[0x0d, 0xff, 0xff, 0, 0]);
            }
            (lmp::VERSION_RES, version) if version.len() >= 5 => {
                self.tell_of(index, event::REMOTE_VERSION_COMPLETE, &version[..5]);
            }
            (lmp::CLOCK_OFFSET_REQ, _) => self.answer(now, index, by_peripheral, lmp::CLOCK_OFFSET_RES, &[0, 0]),
            (lmp::CLOCK_OFFSET_RES, [low, high, ..]) => {
                self.tell_of(index, event::CLOCK_OFFSET_COMPLETE, &[*low, *high]);
            }
            (lmp::NAME_REQ, [offset, ..]) => self.tell_name(now, index, by_peripheral, *offset),
            (lmp::NAME_RES, [offset, length, part @ ..]) => self.hear_name(now, index, *offset, *length, part),
            (lmp::ACCEPTED, [accepted, ..]) => self.accepted(now, index, *accepted),
            (lmp::NOT_ACCEPTED, [lmp::HOST_CONNECTION_REQ, reason, ..]) => {
                self.classic.lines[index].setup = Setup::Refused(*reason);
                self.detach(now, index, hci::LOCAL_HOST_TERMINATED);
            }
            (lmp::ESCAPE, [lmp::EXT_PACKET_TYPE_TABLE_REQ, ..]) => {
                self.classic.lines[index].acl.enhance();
                let accepted = [lmp::EXT_ACCEPTED, lmp::ESCAPE, lmp::EXT_PACKET_TYPE_TABLE_REQ];
                self.answer(now, index, by_peripheral, lmp::ESCAPE, &accepted);
            }
            (lmp::ESCAPE, [lmp::EXT_ACCEPTED, lmp::ESCAPE, lmp::EXT_PACKET_TYPE_TABLE_REQ, ..]) => {
                self.classic.lines[index].acl.enhance();
            }
            _ => {}
        }
    }

    /// A PDU of ours is through.
    pub(super) fn managed(&mut self, now: Instant, index: usize, pdu: &[u8]) {
        match lmp::View::parse(pdu) {
            Some(lmp::View { opcode: lmp::DETACH, .. }) => self.classic.lines[index].acl.detached(now),
            Some(lmp::View { opcode: lmp::SETUP_COMPLETE, .. }) => {
                if let Setup::Completing { told, .. } = &mut self.classic.lines[index].setup {
                    *told = true;
                }
                self.complete_setup(index);
            }
            _ => {}
        }
    }

    fn host_connection(&mut self, now: Instant, index: usize) {
        let until = after(now, SLOT * Nanos::from(self.classic.wishes.accept_timeout.max(1)));
        let line = &mut self.classic.lines[index];
        if line.setup != Setup::Waiting {
            return;
        }
        line.setup = Setup::Asking { until };
        // The class of device came with FHS, and nobody asks for it here. Link type: ACL.
        let request = hci::event_packet(event::CONNECTION_REQUEST, &line.acl.peer, &[0, 0, 0, 1]);
        self.tell_host(request);
    }

    /// The peripheral's host has decided, or let the time pass.
    pub(super) fn decide(&mut self, now: Instant, index: usize, refused: Option<u8>) {
        match refused {
            None => {
                self.classic.lines[index].setup = Setup::Completing { told: false, heard: false };
                self.answer(now, index, false, lmp::ACCEPTED, &[lmp::HOST_CONNECTION_REQ]);
                self.begin_setup(now, index);
            }
            Some(reason) => {
                let line = &mut self.classic.lines[index];
                let (peer, before) = (line.acl.peer, core::mem::replace(&mut line.setup, Setup::Ending));
                self.answer(now, index, false, lmp::NOT_ACCEPTED, &[lmp::HOST_CONNECTION_REQ, reason]);
                self.connection_failed(peer, before, reason);
            }
        }
    }

    fn accepted(&mut self, now: Instant, index: usize, what: u8) {
        if what == lmp::HOST_CONNECTION_REQ && matches!(self.classic.lines[index].setup, Setup::Requesting { .. }) {
            self.classic.lines[index].setup = Setup::Completing { told: false, heard: false };
            self.begin_setup(now, index);
        }
    }

    fn begin_setup(&mut self, now: Instant, index: usize) {
        let config = self.config.classic;
        self.send_lmp(now, index, lmp::MAX_SLOT, &[config.slots]);
        if self.classic.lines[index].acl.role == Role::Central && config.rate.is_enhanced() {
            self.send_lmp(now, index, lmp::ESCAPE, &[lmp::EXT_PACKET_TYPE_TABLE_REQ, 1]);
        }
        self.send_lmp(now, index, lmp::SETUP_COMPLETE, &[]);
    }

    fn complete_setup(&mut self, index: usize) {
        let line = &mut self.classic.lines[index];
        if line.setup != (Setup::Completing { told: true, heard: true }) {
            return;
        }
        line.setup = Setup::Open;
        let complete = connection_complete(hci::SUCCESS, line.acl.handle, line.acl.peer);
        self.tell_host(complete);
    }

    /// The host hears of a connection that is none, if it asked for it or was asked.
    pub(super) fn connection_failed(&mut self, peer: Address, setup: Setup, reason: u8) {
        let status = if let Setup::Refused(status) = setup { status } else { reason };
        if !matches!(setup, Setup::Waiting | Setup::Ending) {
            self.tell_host(connection_complete(status, 0, peer));
        }
    }

    pub(super) fn connection_times_out(&mut self, now: Instant, index: usize) {
        self.decide(now, index, Some(hci::ACCEPT_TIMEOUT));
    }

    fn tell_of(&mut self, index: usize, code: u8, parameters: &[u8]) {
        let [low, high] = self.classic.lines[index].acl.handle.to_le_bytes();
        self.tell_host(hci::event_packet(code, &[hci::SUCCESS, low, high], parameters));
    }

    fn tell_name(&mut self, now: Instant, index: usize, by_peripheral: bool, offset: u8) {
        let name = &self.classic.wishes.name;
        let part = name.get(usize::from(offset)..).unwrap_or_default();
        let mut parameters = Vec::from([offset, name.len() as u8]);
        parameters.extend(&part[..part.len().min(lmp::NAME_PART)]);
        parameters.resize(2 + lmp::NAME_PART, 0);
        self.answer(now, index, by_peripheral, lmp::NAME_RES, &parameters);
    }

    fn hear_name(&mut self, now: Instant, index: usize, offset: u8, length: u8, part: &[u8]) {
        let line = &mut self.classic.lines[index];
        if usize::from(offset) != line.name.len() {
            return;
        }
        let left = usize::from(length).saturating_sub(line.name.len());
        line.name.extend(&part[..part.len().min(left)]);
        if line.name.len() < usize::from(length) && !part.is_empty() {
            let next = line.name.len() as u8;
            self.send_lmp(now, index, lmp::NAME_REQ, &[next]);
            return;
        }
        let mut name = core::mem::take(&mut line.name);
        name.resize(248, 0);
        let mut front = Vec::from([hci::SUCCESS]);
        front.extend(line.acl.peer);
        self.tell_host(hci::event_packet(event::REMOTE_NAME_COMPLETE, &front, &name));
    }

    /// What the host asks of a link.
    pub(super) fn ask(&mut self, now: Instant, index: usize, opcode: u8) {
        let features = self.classic_features();
        let parameters: &[u8] = match opcode {
            lmp::FEATURES_REQ => &features,
            lmp::VERSION_REQ => &[0x0d, 0xff, 0xff, 0, 0],
            lmp::NAME_REQ => &[0],
            _ => &[],
        };
        self.classic.lines[index].name.clear();
        self.send_lmp(now, index, opcode, parameters);
    }

    /// This side ends a link. Its host hears of it when the link is over for both.
    pub(super) fn detach(&mut self, now: Instant, index: usize, reason: u8) {
        let acl = &mut self.classic.lines[index].acl;
        let pdu = lmp::pdu(acl.role == Role::Peripheral, lmp::DETACH, &[reason]);
        acl.detach(now, pdu, hci::LOCAL_HOST_TERMINATED);
    }
}

/// Connection Complete of an ACL link, not encrypted.
pub(super) fn connection_complete(status: u8, handle: u16, peer: Address) -> Vec<u8> {
    let [low, high] = handle.to_le_bytes();
    let mut front = Vec::from([status, low, high]);
    front.extend(peer);
    hci::event_packet(event::CONNECTION_COMPLETE, &front, &[1, 0])
}
