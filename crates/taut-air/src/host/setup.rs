//! From reset to an open channel.

use taut_time::Instant;

use super::connection::Connection;
use super::state::Host;
use super::step::Step;
use super::terms::{Notice, Output, What};
use crate::hci::command as op;
use crate::hci::{self, event};
use crate::l2cap::{Channel, ChannelParameters, FIRST_DYNAMIC_CID, Signal};
use crate::phy::{MIN_LENGTH, Phy};
use crate::role::Role;

/// PSM of the channel: one of the dynamic ones, as the article's.
const SPSM: u16 = 254;

impl Host {
    pub(super) fn start(&mut self) {
        self.out.push_back(Output::Controller(hci::command(op::RESET, &[])));
        self.due = crate::time::NEVER;
    }

    fn command(&mut self, now: Instant, opcode: u16, parameters: &[u8]) {
        self.transmit(now, hci::command(opcode, parameters));
    }

    /// An HCI event other than Number Of Completed Packets.
    pub(super) fn event(&mut self, now: Instant, code: u8, parameters: &[u8]) {
        match (code, parameters) {
            (event::COMMAND_COMPLETE, [_, low, high, result @ ..]) => {
                self.completed_command(now, u16::from_le_bytes([*low, *high]), result);
            }
            (event::DISCONNECTION_COMPLETE, [0, low, high, reason]) => {
                self.gone(u16::from_le_bytes([*low, *high]), *reason);
                self.try_again(now);
            }
            (event::LE_META, [event::LE_CONNECTION_COMPLETE, 0, low, high, ..]) => {
                self.connections.push(Connection::new(u16::from_le_bytes([*low, *high])));
                if self.setup.step == Step::Connection {
                    self.after_connection(now);
                }
            }
            (event::LE_META, [event::LE_DATA_LENGTH_CHANGE, ..]) if self.setup.step == Step::Length => {
                self.after_length(now);
            }
            (event::LE_META, [event::LE_PHY_UPDATE_COMPLETE, ..]) if self.setup.step == Step::Phy => {
                self.open_channel()
            }
            _ => {}
        }
    }

    fn completed_command(&mut self, now: Instant, opcode: u16, result: &[u8]) {
        match (opcode, self.setup.step, result) {
            (op::RESET, Step::Reset, _) => {
                self.setup.step = Step::BufferSize;
                self.command(now, op::LE_READ_BUFFER_SIZE, &[]);
            }
            (op::LE_READ_BUFFER_SIZE, Step::BufferSize, [0, low, high, count, ..]) => {
                self.acl_size = u16::from_le_bytes([*low, *high]);
                self.free = (*count).into();
                self.setup.step = Step::Connection;
                match self.setup.role() {
                    Role::Central => self.create_connection(now),
                    Role::Peripheral => self.advertise(now),
                }
            }
            _ => {}
        }
    }

    fn advertise(&mut self, now: Instant) {
        let mut parameters = [0; 15];
        // 20 ms, ADV_IND, public address, channel 37 alone.
        parameters[..4].copy_from_slice(&[0x20, 0, 0x20, 0]);
        parameters[13] = 0x01;
        self.command(now, op::LE_SET_ADV_PARAMETERS, &parameters);
        self.command(now, op::LE_SET_ADV_ENABLE, &[1]);
    }

    fn create_connection(&mut self, now: Instant) {
        let Some(wish) = self.setup.wish() else {
            self.setup.step = Step::Done;
            return;
        };
        self.setup.step = Step::Connection;
        let mut parameters = [0; 25];
        // Scans without a pause: 60 ms of every 60 ms.
        parameters[..4].copy_from_slice(&[0x60, 0, 0x60, 0]);
        parameters[6..12].copy_from_slice(&wish.peer);
        for (at, word) in [(13, wish.interval), (15, wish.interval), (17, wish.latency), (19, wish.timeout)] {
            parameters[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        self.command(now, op::LE_CREATE_CONNECTION, &parameters);
    }

    /// A link was lost. While links are being set up that is made good; later it is the program's affair.
    fn try_again(&mut self, now: Instant) {
        if self.setup.is_done() {
            return;
        }
        self.setup.step = Step::Connection;
        match self.setup.role() {
            Role::Central => self.create_connection(now),
            Role::Peripheral => self.command(now, op::LE_SET_ADV_ENABLE, &[1]),
        }
    }

    fn handle_bytes(&self) -> [u8; 2] {
        self.connections.last().map_or(0, |connection| connection.handle).to_le_bytes()
    }

    fn after_connection(&mut self, now: Instant) {
        let Some(wish) = self.setup.wish() else {
            self.setup.step = Step::Channel;
            return;
        };
        if usize::from(wish.length) <= MIN_LENGTH {
            self.after_length(now);
            return;
        }
        self.setup.step = Step::Length;
        let [low, high] = self.handle_bytes();
        let [length_low, length_high] = wish.length.to_le_bytes();
        // 0x4290: 17,040 us, the longest packet of LE Coded.
        self.command(now, op::LE_SET_DATA_LENGTH, &[low, high, length_low, length_high, 0x90, 0x42]);
    }

    fn after_length(&mut self, now: Instant) {
        let phy = self.setup.wish().map_or(Phy::Le1M, |wish| wish.phy);
        if phy == Phy::Le1M {
            self.open_channel();
            return;
        }
        self.setup.step = Step::Phy;
        let [low, high] = self.handle_bytes();
        let options = match phy {
            Phy::CodedS2 => 1,
            Phy::CodedS8 => 2,
            Phy::Le1M | Phy::Le2M => 0,
        };
        self.command(now, op::LE_SET_PHY, &[low, high, 0, phy.mask(), phy.mask(), options, 0]);
    }

    /// MTU, MPS and credits that this side states.
    fn own_parameters(&self) -> (u16, u16, u16) {
        let mtu = self.config.mtu;
        let linux = self.acl_size.saturating_sub(4).min(mtu);
        let mps = self.config.mps.unwrap_or(linux).max(23);
        let credits = self.config.credits.initial(mtu.into(), mps.into()).min(u16::MAX.into()) as u16;
        (mtu, mps, credits)
    }

    fn open_channel(&mut self) {
        self.setup.step = Step::Channel;
        let (mtu, mps, credits) = self.own_parameters();
        let index = self.connections.len() - 1;
        let request = Signal::ConnectionRequest { spsm: SPSM, source: FIRST_DYNAMIC_CID, mtu, mps, credits };
        self.signal(index, request, None);
    }

    /// A signalling command came in.
    pub(super) fn signalled(&mut self, now: Instant, index: usize, identifier: u8, signal: Signal) {
        let (mtu, mps, credits) = self.own_parameters();
        match signal {
            Signal::ConnectionRequest { source, mtu: peer_mtu, mps: peer_mps, credits: peer_credits, .. } => {
                let response =
                    Signal::ConnectionResponse { destination: FIRST_DYNAMIC_CID, mtu, mps, credits, result: 0 };
                self.signal(index, response, Some(identifier));
                let parameters = ChannelParameters {
                    source: FIRST_DYNAMIC_CID,
                    destination: source,
                    mtu,
                    mps,
                    peer_mtu,
                    peer_mps,
                    credits,
                    peer_credits,
                };
                self.opened(index, parameters);
                self.setup.step = Step::Done;
            }
            Signal::ConnectionResponse {
                destination,
                mtu: peer_mtu,
                mps: peer_mps,
                credits: peer_credits,
                result: 0,
            } => {
                let source = FIRST_DYNAMIC_CID;
                let parameters =
                    ChannelParameters { source, destination, mtu, mps, peer_mtu, peer_mps, credits, peer_credits };
                self.opened(index, parameters);
                self.setup.next += 1;
                self.create_connection(now);
            }
            Signal::Credits { credits, .. } => self.credits(now, index, credits),
            Signal::DisconnectionRequest { destination, source } => {
                self.signal(index, Signal::DisconnectionResponse { destination, source }, Some(identifier));
                self.connections[index].channel = None;
            }
            Signal::ConnectionResponse { .. } | Signal::DisconnectionResponse { .. } | Signal::Reject { .. } => {}
        }
    }

    fn opened(&mut self, index: usize, parameters: ChannelParameters) {
        let connection = &mut self.connections[index];
        connection.channel = Some(Channel::new(parameters, self.config.credits));
        self.out.push_back(Output::Notice(Notice { handle: connection.handle, what: What::Open(parameters) }));
    }
}
