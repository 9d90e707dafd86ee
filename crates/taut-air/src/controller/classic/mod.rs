//! The BR/EDR side of a controller: its ACL links, paging and inquiry, and what HCI says of them. It
//! shares the radio with LE: an event of LE that is near is waited for, a turn that has begun is finished.

mod command;
mod discovery;
mod manager;
mod procedures;
mod setup;
mod state;

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_time::Instant;

use super::state::Controller;
use super::terms::Output;
use crate::bredr::{self, Acl, Llid, Packet, SLOT, Turn};
use crate::hci::{self, Boundary, event};
use crate::pdu::advertising::Address;
use crate::role::Role;
use crate::time::{Nanos, after};

pub(super) use command::COMMANDS;
use setup::Setup;
pub use state::ClassicConfig;
pub(super) use state::{Classic, FIRST_HANDLE};
use state::{Line, Listener};

impl Controller {
    pub(super) fn classic_timers(&mut self, now: Instant) {
        let count = self.classic.lines.len();
        for step in 0..count {
            let index = (self.classic.next + step) % count;
            if self.classic.lines[index].setup.due() <= now {
                self.connection_times_out(now, index);
            }
            if self.classic.lines[index].acl.due() <= now {
                self.line_turn(now, index);
            }
        }
        self.classic.lines.retain(|line| !line.acl.is_gone());
        self.discovery_turns(now);
    }

    fn line_turn(&mut self, now: Instant, index: usize) {
        let le_is_busy = self.le_busy();
        let next_le = self.wanted_by_others(usize::MAX);
        let is_busy = le_is_busy || self.classic.is_busy();
        let acl = &mut self.classic.lines[index].acl;
        let flushed = acl.flush_expired(now);
        if acl.wants_radio() && !acl.ends(now) {
            // Its own slots and one for the answer.
            let end = after(now, Nanos::from(acl.next_slots() + 1) * SLOT);
            if is_busy || next_le < end {
                acl.defer(after(now, 1));
            }
        } else if le_is_busy {
            acl.skip_response();
        }
        let turn = acl.turn(now);
        self.flushed(index, flushed);
        match turn {
            Turn::Nothing => {}
            Turn::Send(packet) => {
                self.classic.next = (index + 1) % self.classic.lines.len();
                self.transmit_classic(packet);
            }
            Turn::Left { reason, is_mutual } => {
                if !is_mutual {
                    self.reserve(now, index);
                }
                self.line_gone(index, reason);
            }
            Turn::Lost => self.line_gone(index, hci::CONNECTION_TIMEOUT),
            Turn::NeverThere => self.line_never_there(now, index),
        }
    }

    /// Packets that were given up: the host may send others.
    fn flushed(&mut self, index: usize, count: u16) {
        if count > 0 {
            let handle = self.classic.lines[index].acl.handle;
            self.classic.occupied = self.classic.occupied.saturating_sub(count);
            self.tell_host(hci::event_packet(event::FLUSH_OCCURRED, &handle.to_le_bytes(), &[]));
            self.tell_host(hci::completed_packets(handle, count));
        }
    }

    pub(super) fn transmit_classic(&mut self, packet: Packet) {
        self.out.push_back(Output::TransmitClassic(Box::new(packet)));
    }

    pub(super) fn classic_start(&mut self, packet: &Packet) {
        // One receiver: what begins while something comes in is not heard.
        if self.classic.listening.is_some() {
            return;
        }
        let is_free = !self.radio_busy();
        let line = self.classic.lines.iter_mut().position(|line| line.acl.air_start(packet, is_free));
        let listener = match line {
            Some(index) => Some(Listener::Line(self.classic.lines[index].acl.handle)),
            None => self.discovery_start(packet, is_free),
        };
        if let Some(listener) = listener {
            self.classic.listening = Some((listener, packet.start, packet.channel));
        }
    }

    pub(super) fn classic_end(&mut self, now: Instant, packet: &Packet, crc_right: bool) {
        let heard = (packet.start, packet.channel);
        let Some((listener, ..)) = self.classic.listening.take_if(|(_, start, channel)| (*start, *channel) == heard)
        else {
            return;
        };
        let Listener::Line(handle) = listener else {
            self.discovery_end(now, listener, packet, crc_right);
            return;
        };
        let Some(index) = self.classic.line(handle) else { return };
        let received = self.classic.lines[index].acl.air_end(now, packet, crc_right);
        if received.completed {
            self.classic.occupied = self.classic.occupied.saturating_sub(1);
            self.tell_host(hci::completed_packets(handle, 1));
        }
        if let Some(pdu) = received.lmp {
            self.managed(now, index, &pdu);
        }
        let Some(delivered) = received.delivered else { return };
        let boundary = match delivered.llid {
            Llid::Lmp => {
                self.manage(now, index, &delivered.bytes);
                return;
            }
            Llid::Start => Boundary::FirstFromController,
            Llid::Continuation => Boundary::Continuing,
        };
        self.tell_host(hci::acl(handle, boundary, &delivered.bytes));
    }

    /// An ACL packet from the host.
    pub(super) fn classic_data(&mut self, now: Instant, handle: u16, boundary: Boundary, data: &[u8]) {
        let config = self.config.classic;
        let sound = !data.is_empty() && data.len() <= config.acl_size.into();
        let Some(index) = self.classic.line(handle).filter(|_| sound) else { return };
        if self.classic.occupied >= config.acl_buffers {
            return self.overflow();
        }
        let (start, flushable) = match boundary {
            Boundary::FirstFromHost => (true, false),
            Boundary::FirstFromController => (true, true),
            // It goes with what it continues.
            Boundary::Continuing => (false, false),
        };
        if self.classic.lines[index].acl.enqueue(now, data.to_vec(), start, flushable) {
            self.classic.occupied += 1;
        } else {
            self.tell_host(hci::completed_packets(handle, 1));
        }
    }

    /// A link begins. One with the same peer that this side still has is over: its packets would be
    /// taken for this one's.
    fn open_line(&mut self, role: Role, peer: Address, lt_addr: u8, origin: Instant, setup: Setup) {
        if let Some(stale) = self.classic.line_with(peer) {
            let reason = self.classic.lines[stale].acl.leaves_for().unwrap_or(hci::CONNECTION_TIMEOUT);
            self.line_gone(stale, reason);
        }
        let used = |handle: u16| self.classic.lines.iter().any(|line| line.acl.handle == handle);
        let Some(handle) = (FIRST_HANDLE..).find(|handle| !used(*handle)) else { return };
        let config = self.config.classic;
        let settings =
            bredr::Settings { rate: config.rate, slots: config.slots, t_poll: config.t_poll, active: config.active };
        let central = if role == Role::Central { self.config.address } else { peer };
        let acl = Acl::new(role, handle, [central, peer], lt_addr, settings, origin);
        self.classic.lines.push(Line { acl, setup, name: Vec::new() });
    }

    /// A central's peripheral does not know that the link is over, and has it until its own supervision timeout.
    fn reserve(&mut self, now: Instant, index: usize) {
        let acl = &self.classic.lines[index].acl;
        let (lt_addr, until) = (acl.lt_addr, after(now, acl.supervision));
        self.classic.reserved.retain(|(_, until)| now < *until);
        if acl.role == Role::Central {
            self.classic.reserved.push((lt_addr, until));
        }
    }

    fn line_gone(&mut self, index: usize, reason: u8) {
        let line = &mut self.classic.lines[index];
        let (handle, peer, packets) = (line.acl.handle, line.acl.peer, line.acl.packets());
        line.acl.end();
        let setup = core::mem::replace(&mut line.setup, Setup::Ending);
        self.classic.occupied = self.classic.occupied.saturating_sub(packets);
        match setup {
            Setup::Open => self.tell_host(hci::disconnection_complete(handle, reason)),
            _ => self.connection_failed(peer, setup, reason),
        }
    }
}
