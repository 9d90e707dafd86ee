//! Data of connections: what programs write and read, and what L2CAP makes of it.

use alloc::vec::Vec;

use taut_time::Instant;

use super::connection::Connection;
use super::state::Host;
use super::terms::{Notice, Output, What};
use super::writer::{Activity, Blocked, pattern};
use crate::hci::{self, ACL_HEADER_BYTES, Acl, Boundary};
use crate::l2cap::{Channel, Frame, SIGNALLING_CID, Signal};
use crate::time::{NEVER, after};

impl Host {
    /// The writing program goes on, if it is time.
    pub(super) fn write_some(&mut self, now: Instant, index: usize) {
        while self.connections[index].writer.due() <= now {
            if !self.send_one(now, index) {
                return;
            }
        }
    }

    /// One `send`, or what keeps it from happening. Whether to go on.
    fn send_one(&mut self, now: Instant, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let Some(channel) = &mut connection.channel else {
            connection.writer.rest();
            return false;
        };
        let mtu = usize::from(channel.parameters().peer_mtu);
        let writer = &mut connection.writer;
        if writer.writes_blocks() && writer.left == 0 {
            let begins = writer.position == 0 && self.config.first > 0;
            writer.left = if begins { self.config.first } else { self.config.block };
            writer.begun = now;
        }
        let size = if writer.writes_blocks() { mtu.min(writer.left as usize) } else { writer.next_given(mtu) };
        if size == 0 {
            writer.rest();
            return false;
        }
        let blocked = if channel.tx_credits() == 0 {
            Some(Blocked::Credits)
        } else if connection.charged >= self.config.sndbuf {
            Some(Blocked::SendBuffer)
        } else {
            None
        };
        if let Some(why) = blocked {
            writer.block(why);
            self.out.push_back(Output::Notice(Notice { handle: connection.handle, what: What::Blocked(why) }));
            return false;
        }
        let pdus = if writer.writes_blocks() {
            let mut sdu = [0; 2048];
            let mut long;
            let sdu = if size <= sdu.len() {
                &mut sdu[..size]
            } else {
                long = alloc::vec![0; size];
                &mut long[..]
            };
            pattern(writer.position, sdu);
            channel.send(sdu, ACL_HEADER_BYTES)
        } else {
            channel.send(&writer.take_given(size), ACL_HEADER_BYTES)
        };
        let pdus = pdus.unwrap_or(0);
        writer.position += size as u64;
        let call = after(now, self.config.send.draw(&mut self.random));
        if writer.writes_blocks() {
            writer.left -= size as u32;
            if writer.left > 0 {
                writer.send_at(call);
            } else {
                let made = after(call, self.config.block_work.draw(&mut self.random));
                writer.produce_until(made.max(after(writer.begun, self.config.period)));
            }
        } else if writer.pending() > 0 {
            writer.send_at(call);
        } else {
            writer.rest();
        }
        self.out
            .push_back(Output::Notice(Notice { handle: connection.handle, what: What::Written { bytes: size, pdus } }));
        self.flush(index);
        true
    }

    /// Moves PDUs with credits to the queue of ACL packets.
    fn flush(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(channel) = &mut connection.channel else { return };
        let size = usize::from(self.acl_size).max(1);
        while let Some(mut pdu) = channel.next_pdu() {
            let length = pdu.len() - ACL_HEADER_BYTES;
            if length <= size {
                let header = hci::acl_header(connection.handle, Boundary::FirstFromHost, length);
                pdu[..ACL_HEADER_BYTES].copy_from_slice(&header);
                connection.charged += pdu.len() + self.config.skb_overhead;
                connection.packets.push_back(pdu);
                continue;
            }
            let mut boundary = Boundary::FirstFromHost;
            for part in pdu[ACL_HEADER_BYTES..].chunks(size) {
                let packet = hci::acl(connection.handle, boundary, part);
                connection.charged += packet.len() + self.config.skb_overhead;
                connection.packets.push_back(packet);
                boundary = Boundary::Continuing;
            }
        }
    }

    /// The reading program goes on, if it is time.
    pub(super) fn read_some(&mut self, now: Instant, index: usize) {
        while self.connections[index].read_at <= now {
            let connection = &mut self.connections[index];
            let Some(sdu) = connection.sdus.pop_front() else {
                connection.read_at = NEVER;
                return;
            };
            let Some(channel) = &connection.channel else { return };
            let mps = channel.parameters().mps.into();
            connection.queued = connection.queued.saturating_sub(Connection::charge(sdu.len(), mps));
            connection.read_at =
                if connection.sdus.is_empty() { NEVER } else { after(now, self.config.recv.draw(&mut self.random)) };
            let after_read = channel.due_after_read();
            self.out.push_back(Output::Notice(Notice { handle: connection.handle, what: What::Read { sdu } }));
            if after_read {
                self.grant(index);
            }
        }
    }

    fn grant(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let buffer = connection.receive_buffer(self.config.recvbuf, self.config.skb_overhead);
        let Some(channel) = &mut connection.channel else { return };
        let Some(credits) = channel.grant(buffer) else { return };
        let cid = channel.parameters().source;
        let handle = connection.handle;
        self.signal(index, Signal::Credits { cid, credits }, None);
        self.out.push_back(Output::Notice(Notice { handle, what: What::Granted(credits) }));
    }

    /// Queues a signalling command, under its own identifier or the one that it answers.
    pub(super) fn signal(&mut self, index: usize, signal: Signal, answers: Option<u8>) {
        let connection = &mut self.connections[index];
        let identifier = answers.unwrap_or_else(|| {
            // 4 of Vol 3, Part A: 0 is not used.
            connection.identifier = connection.identifier.checked_add(1).unwrap_or(1);
            connection.identifier
        });
        let command = signal.to_bytes(identifier);
        let mut frame = Vec::with_capacity(4 + command.len());
        Frame { cid: SIGNALLING_CID, payload: &command }.write(&mut frame);
        connection.signals.push_back(hci::acl(connection.handle, Boundary::FirstFromHost, &frame));
    }

    /// Data came in.
    pub(super) fn data(&mut self, now: Instant, acl: Acl<'_>) {
        let Some(index) = self.connections.iter().position(|connection| connection.handle == acl.handle) else {
            return;
        };
        let mut reassembly = core::mem::take(&mut self.connections[index].reassembly);
        match reassembly.push(acl.boundary != Boundary::Continuing, acl.data) {
            Ok(None) => {}
            Ok(Some(bytes)) => match Frame::parse(bytes) {
                Ok(frame) => self.frame(now, index, frame),
                Err(_) => self.broken(index),
            },
            Err(_) => self.broken(index),
        }
        self.connections[index].reassembly = reassembly;
    }

    fn broken(&mut self, index: usize) {
        let handle = self.connections[index].handle;
        self.out.push_back(Output::Notice(Notice { handle, what: What::Broken }));
    }

    fn frame(&mut self, now: Instant, index: usize, frame: Frame<'_>) {
        if frame.cid == SIGNALLING_CID {
            match Signal::parse(frame.payload) {
                Ok((identifier, signal)) => self.signalled(now, index, identifier, signal),
                Err(_) => self.broken(index),
            }
            return;
        }
        let connection = &mut self.connections[index];
        let Some(channel) = connection.channel.as_mut().filter(|channel| channel.parameters().source == frame.cid)
        else {
            return;
        };
        let Ok(completed) = channel.receive(frame.payload) else {
            connection.channel = None;
            connection.writer.rest();
            self.broken(index);
            return;
        };
        let due = channel.due_after_pdu(completed.is_some());
        if let Some(sdu) = completed {
            connection.queued += Connection::charge(sdu.len(), channel.parameters().mps.into());
            let what = What::Complete { bytes: sdu.len() };
            self.out.push_back(Output::Notice(Notice { handle: connection.handle, what }));
            connection.sdus.push_back(sdu);
            if connection.read_at == NEVER {
                connection.read_at = after(now, self.config.wakeup.draw(&mut self.random));
            }
        }
        if due {
            self.grant(index);
        }
    }

    /// Credits came in: what waited for them goes on, then the program.
    pub(super) fn credits(&mut self, now: Instant, index: usize, credits: u16) {
        let connection = &mut self.connections[index];
        let Some(channel) = &mut connection.channel else { return };
        if channel.credits(credits).is_err() {
            connection.channel = None;
            self.broken(index);
            return;
        }
        let what = What::Received { credits, total: channel.tx_credits() };
        self.out.push_back(Output::Notice(Notice { handle: connection.handle, what }));
        self.flush(index);
        let connection = &mut self.connections[index];
        let left = connection.channel.as_ref().map_or(0, Channel::tx_credits);
        if left > 0 && connection.writer.activity() == Activity::Blocked(Blocked::Credits) {
            connection.writer.wake(after(now, self.config.wakeup.draw(&mut self.random)));
            self.out.push_back(Output::Notice(Notice { handle: connection.handle, what: What::Writable }));
        }
    }

    pub(super) fn gone(&mut self, handle: u16, reason: u8) {
        let Some(index) = self.connections.iter().position(|connection| connection.handle == handle) else { return };
        self.connections.remove(index);
        self.out.push_back(Output::Notice(Notice { handle, what: What::Closed(reason) }));
    }
}
