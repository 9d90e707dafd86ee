//! The run of a scenario as the log of one of its hosts would have it: followed by the rules that followed the log that
//! it is held against, so that both are measured alike.

use std::collections::VecDeque;

use taut_air::{AirEvent, Happening, Instant, Nanos, Observer, Outcome, Role, Scenario, Simulation};
use taut_event::{
    Acl, Channel as Kind, ChannelKey, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, L2cap, RadioLink, Turn,
    VantageId, What,
};
use taut_time::{ByteRange, Layer};

use super::Channel;

/// Packet indicators of HCI (Core Specification, Vol 4, Part A, section 2).
const ACL: u8 = 2;
const EVENT: u8 = 4;
/// Number Of Completed Packets (Vol 4, Part E, section 7.7.19).
const COMPLETED: u8 = 0x13;
/// Signalling channel of LE, and Flow Control Credit Indication (Vol 3, Part A, sections 2.1 and 4.24).
const SIGNALLING: u16 = 5;
const CREDITS: u8 = 0x16;

/// A PDU of which parts are still to come, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    is_data: bool,
    left: usize,
    sdu_left: usize,
}

struct Replay {
    side: Role,
    channel: Channel,
    is_open: bool,
    open: [Open; 2],
    /// What the controller has: whether it is data of the channel.
    queue: VecDeque<bool>,
    of: usize,
    is_full: bool,
}

/// Runs a scenario, and follows it in the log of the side that sends the data (`Way::Forward`), or of the other.
/// `None`: the scenario cannot be, or its link was lost.
pub(super) fn replay(
    scenario: &Scenario,
    way: Way,
    link: &RadioLink,
    seed: u64,
    duration: Nanos,
) -> Option<(Channel, Outcome)> {
    let side = if way == Way::Forward { scenario.sender } else { scenario.sender.other() };
    let key = ChannelKey { adapter: 0, handle: 0, peer: None, channel: Kind::CreditBased(0) };
    let flow = Flow { key: FlowKey::L2cap(key), from_start: true, coverage: Coverage::default() };
    let mut replay = Replay {
        side,
        channel: Channel::new(flow),
        is_open: false,
        open: [Open::default(); 2],
        queue: VecDeque::new(),
        of: scenario.side(side).acl_buffers.into(),
        is_full: false,
    };
    replay.tell(Instant::default(), Way::Forward, L2cap::Link(*link), 0);
    let mut simulation = Simulation::new(scenario, seed).ok()?;
    let outcome = simulation.run(duration, &mut replay);
    replay.tell(simulation.now(), Way::Forward, L2cap::Ended { tells_completions: true }, 0);
    replay.channel.finish();
    (outcome.duration_ns > 0 && outcome.disconnected.is_none()).then_some((replay.channel, outcome))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

impl Replay {
    fn tell(&mut self, at: Instant, direction: Way, what: L2cap, bytes: u64) {
        self.channel.event(&Event {
            at,
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction,
            layer: Layer::Driver,
            what: What::L2cap(what),
            bytes: ByteRange::new(0, bytes),
            who: None,
            place: 0,
        });
    }

    fn buffers(&mut self, at: Instant) {
        let is_full = self.queue.len() >= self.of;
        if is_full != self.is_full || self.queue.is_empty() && !self.is_open {
            self.is_full = is_full;
            let (in_use, of) = (self.queue.len() as u16, self.of as u16);
            self.tell(at, Way::Forward, L2cap::Buffers { in_use, of }, 0);
        }
    }

    /// A packet of the link, from its L2CAP header on if a PDU begins with it.
    fn packet(&mut self, at: Instant, way: Way, begins: bool, data: &[u8]) -> Option<()> {
        let open = &mut self.open[way.index()];
        if begins {
            let cid = word(data, 2)?;
            let is_data = cid >= 0x40;
            *open = Open { is_data, left: 4 + usize::from(word(data, 0)?), ..*open };
            if cid == SIGNALLING && data.get(4) == Some(&CREDITS) {
                let count = word(data, 10)?;
                self.tell(at, way.reverse(), L2cap::Credits { count }, 0);
            }
        }
        let open = &mut self.open[way.index()];
        let is_data = open.is_data && self.is_open;
        let mut bytes = data.len();
        open.left = open.left.saturating_sub(bytes);
        if is_data && begins {
            bytes = bytes.saturating_sub(4);
            if open.sdu_left == 0 {
                open.sdu_left = word(data, 4)?.into();
                bytes = bytes.saturating_sub(2);
            }
        }
        if is_data {
            open.sdu_left = open.sdu_left.saturating_sub(bytes);
        }
        let ends_sdu = open.left == 0 && open.sdu_left == 0;
        if way == Way::Forward {
            self.queue.push_back(is_data);
            self.buffers(at);
        }
        if is_data {
            let acl = Acl { length: data.len() as u16, begins_pdu: begins, ends_sdu, turn: Turn::default() };
            self.tell(at, way, L2cap::Packet(acl), bytes as u64);
        }
        Some(())
    }

    fn hci(&mut self, at: Instant, to_host: bool, bytes: &[u8]) -> Option<()> {
        match *bytes.first()? {
            ACL => {
                let begins = word(bytes, 1)? >> 12 & 3 != 1;
                let way = if to_host { Way::Backward } else { Way::Forward };
                self.packet(at, way, begins, bytes.get(5..)?)?;
            }
            EVENT if bytes.get(1) == Some(&COMPLETED) => {
                for n in 0..usize::from(*bytes.get(3)?) {
                    let count = usize::from(word(bytes, 6 + 4 * n)?).min(self.queue.len());
                    let packets = self.queue.drain(..count).filter(|&is_data| is_data).count() as u16;
                    if packets > 0 {
                        self.tell(at, Way::Forward, L2cap::Completed { packets }, 0);
                    }
                }
                self.buffers(at);
            }
            _ => {}
        }
        Some(())
    }
}

impl Observer for Replay {
    fn event(&mut self, event: &AirEvent<'_>) {
        match event.what {
            Happening::HciSent { side, to_host: false, bytes } if side == self.side => {
                self.hci(event.at, false, bytes);
            }
            Happening::HciArrived { side, to_host: true, bytes } if side == self.side => {
                self.hci(event.at, true, bytes);
            }
            Happening::ChannelOpen { side, parameters } if side == self.side => {
                let opened = L2cap::Opened {
                    mtu: [parameters.peer_mtu, parameters.mtu],
                    mps: [parameters.peer_mps, parameters.mps],
                    credits: [parameters.peer_credits, parameters.credits],
                };
                self.tell(event.at, Way::Forward, opened, 0);
                self.buffers(event.at);
                self.is_open = true;
            }
            _ => {}
        }
    }
}
