//! The multiplexer of RFCOMM on an L2CAP channel, and the connections on it.

use taut_event::{Channel as Kind, Closed, Direction, L2cap, Sink};

use super::Bluetooth;
use super::out::Out;
use super::rfcomm::{self, Command, Connection, Head};

/// Longest information where nothing else was agreed on (RFCOMM, section 5.3).
const DEFAULT_MTU: u16 = 127;
/// DLCIs 2 to 61 are connections.
const DLCIS: std::ops::RangeInclusive<u8> = 2..=61;

/// Which part of a PDU is the program's, and of which connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Information {
    pub(super) slot: usize,
    /// Octets before it, without the header of L2CAP.
    pub(super) at: usize,
}

impl Bluetooth {
    /// A frame begins on the L2CAP channel in slot `below`. Tells whose the information is, if it has any.
    pub(super) fn frame(
        &mut self,
        (adapter, index): (usize, usize),
        below: usize,
        way: Direction,
        payload: &[u8],
        out: &mut Out<'_, impl Sink>,
    ) -> Option<Information> {
        let Some(head) = Head::parse(payload) else {
            out.counts.malformed += u64::from(!out.is_cut());
            out.counts.hci_cut += u64::from(out.is_cut());
            self.uncounted(below, out);
            return None;
        };
        if head.dlci == 0 {
            self.control(adapter, index, below, way, (&head, payload), out);
            return None;
        }
        let its = self.connection(below, head.dlci);
        match head.kind {
            rfcomm::Kind::Sabm => {
                // Credits are agreed on before, with PN (RFCOMM, section 5.5.3), which the log may lack.
                let is_whole = self.adapters[adapter].links[index].facts.from_start;
                let new = Connection {
                    dlci: head.dlci,
                    slot: 0,
                    has_credits: is_whole.then_some(false),
                    mtu: DEFAULT_MTU,
                    credits: [0; 2],
                    stops: [[false; 2]; 2],
                    is_opening: true,
                };
                match its {
                    Some(its) if its.is_opening => {}
                    _ => self.begins((adapter, index), below, way, new, out),
                }
            }
            rfcomm::Kind::Ua => match its {
                Some(its) if its.is_opening => {
                    self.change(below, head.dlci, |its| its.is_opening = false);
                    let opened =
                        L2cap::Opened { mtu: [its.mtu; 2], mps: [its.mtu.saturating_add(6); 2], credits: its.credits };
                    self.say(its.slot, Direction::Forward, opened, out);
                    match its.has_credits {
                        Some(true) => {}
                        Some(false) => Direction::BOTH
                            .iter()
                            .for_each(|&way| self.say(its.slot, way, L2cap::Stopped { is_stopped: false }, out)),
                        None => self.say(its.slot, Direction::Forward, L2cap::NotCounted, out),
                    }
                }
                Some(its) => self.close(its.slot, Closed::Over, out),
                None => {}
            },
            rfcomm::Kind::Dm => {
                if let Some(its) = its {
                    self.close(its.slot, Closed::Over, out);
                }
            }
            rfcomm::Kind::Disc => {}
            rfcomm::Kind::Uih => return self.information((adapter, index), below, way, (&head, payload), out),
        }
        None
    }

    /// What a frame of data says of credits, and where its data stands.
    fn information(
        &mut self,
        (adapter, index): (usize, usize),
        below: usize,
        way: Direction,
        (head, payload): (&Head, &[u8]),
        out: &mut Out<'_, impl Sink>,
    ) -> Option<Information> {
        let its = match self.connection(below, head.dlci) {
            Some(its) => its,
            None => {
                let new = Connection {
                    dlci: head.dlci,
                    slot: 0,
                    has_credits: None,
                    mtu: 0,
                    credits: [0; 2],
                    stops: [[false; 2]; 2],
                    is_opening: false,
                };
                self.begins((adapter, index), below, way, new, out);
                self.connection(below, head.dlci)?
            }
        };
        if head.is_final && its.has_credits == Some(false) {
            // Only where credits were agreed on is that bit set in such frames.
            self.change(below, head.dlci, |its| its.has_credits = None);
            self.say(its.slot, Direction::Forward, L2cap::NotCounted, out);
        }
        let has_octet = head.is_final;
        if has_octet {
            match payload.get(head.size) {
                Some(&count) => {
                    self.say(its.slot, way.reverse(), L2cap::Credits { count: count.into() }, out);
                }
                _ => {
                    out.counts.hci_cut += 1;
                    self.say(its.slot, way.reverse(), L2cap::NotCounted, out);
                }
            }
        }
        // Credits alone take none (RFCOMM, section 6.5).
        (head.length > 0).then_some(Information { slot: its.slot, at: head.size + usize::from(has_octet) })
    }

    /// What the multiplexers' own connection says of others.
    fn control(
        &mut self,
        adapter: usize,
        index: usize,
        below: usize,
        way: Direction,
        (head, payload): (&Head, &[u8]),
        out: &mut Out<'_, impl Sink>,
    ) {
        if head.kind != rfcomm::Kind::Uih {
            return;
        }
        let (true, Some(bytes)) = (!out.is_cut(), payload.get(head.size..head.size + head.length)) else {
            out.counts.hci_cut += 1;
            return self.uncounted(below, out);
        };
        for command in rfcomm::commands(bytes) {
            match command {
                Command::Parameters { is_command: true, dlci, has_credits, mtu, credits } if DLCIS.contains(&dlci) => {
                    let mut new = Connection {
                        dlci,
                        slot: 0,
                        has_credits: Some(has_credits),
                        mtu,
                        credits: [0; 2],
                        stops: [[false; 2]; 2],
                        is_opening: true,
                    };
                    new.credits[way.reverse().index()] = credits.into();
                    self.begins((adapter, index), below, way, new, out);
                }
                Command::Parameters { is_command: false, dlci, has_credits, mtu, credits } => {
                    self.change(below, dlci, |its| {
                        its.has_credits = its.has_credits.map(|wanted| wanted && has_credits);
                        its.mtu = its.mtu.min(mtu);
                        its.credits[way.reverse().index()] = credits.into();
                    });
                }
                Command::Parameters { .. } => {}
                Command::Status { dlci, is_stopped } => {
                    self.stops(below, dlci, way.reverse(), (0, is_stopped), out);
                }
                Command::All { is_stopped } => {
                    let all: Vec<u8> = self.connections(below).iter().map(|its| its.dlci).collect();
                    all.into_iter().for_each(|dlci| self.stops(below, dlci, way.reverse(), (1, is_stopped), out));
                }
            }
        }
    }

    /// The receiver of a direction stops a connection, by itself (0) or with all (1), or lets it go on.
    fn stops(
        &mut self,
        below: usize,
        dlci: u8,
        towards: Direction,
        (which, is_stopped): (usize, bool),
        out: &mut Out<'_, impl Sink>,
    ) {
        self.change(below, dlci, |its| its.stops[towards.index()][which] = is_stopped);
        if let Some(its) = self.connection(below, dlci).filter(|its| its.has_credits == Some(false)) {
            let is_stopped = its.stops[towards.index()].contains(&true);
            self.say(its.slot, towards, L2cap::Stopped { is_stopped }, out);
        }
    }

    fn begins(
        &mut self,
        (adapter, index): (usize, usize),
        below: usize,
        way: Direction,
        mut new: Connection,
        out: &mut Out<'_, impl Sink>,
    ) {
        if let Some(dead) = self.connection(below, new.dlci) {
            self.close(dead.slot, Closed::Replaced, out);
        }
        if !DLCIS.contains(&new.dlci) {
            return;
        }
        new.slot = self.open(adapter, index, Kind::Rfcomm(new.dlci), [None; 2], out);
        // The channel below may have had to go for it.
        let Some(channel) = self.channels[below].as_mut().filter(|_| new.slot != below) else { return };
        channel.connections.push(new);
        let what = if new.is_opening { L2cap::Asked } else { L2cap::NotCounted };
        self.say(new.slot, way, what, out);
    }

    /// A frame was not read: who has which credits is not known from now on.
    fn uncounted(&mut self, below: usize, out: &mut Out<'_, impl Sink>) {
        for its in self.connections(below).iter().filter(|its| its.has_credits == Some(true)) {
            self.say(its.slot, Direction::Forward, L2cap::NotCounted, out);
        }
    }

    fn connections(&self, below: usize) -> &[Connection] {
        self.channels[below].as_ref().map_or(&[][..], |channel| &channel.connections)
    }

    fn connection(&self, below: usize, dlci: u8) -> Option<Connection> {
        self.connections(below).iter().find(|its| its.dlci == dlci).copied()
    }

    fn change(&mut self, below: usize, dlci: u8, change: impl FnOnce(&mut Connection)) {
        let channel = self.channels[below].as_mut();
        if let Some(its) = channel.and_then(|its| its.connections.iter_mut().find(|its| its.dlci == dlci)) {
            change(its);
        }
    }
}
