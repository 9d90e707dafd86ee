//! A Bluetooth controller for LE and BR/EDR: HCI packets above, packets on the air below. It has
//! one radio, which its links share.

mod classic;
mod command;
mod discovery;
mod parameters;
mod procedures;
mod profile;
mod secrets;
mod security;
mod state;
mod terms;

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::hci::{self, Boundary, PacketView};
use crate::link::{Clock, Delivered, Link, Opened, PduKind, Settings, Timer, Timing, Update, Wanted};
use crate::pdu::advertising::{self, ConnectInd};
use crate::pdu::{Header, Llid, Pdu};
use crate::phy::{MIN_LENGTH, Phy};
use crate::rng::Random;
use crate::role::Role;
use crate::time::{MS, NEVER, Nanos, US, after, deadline};

pub use classic::ClassicConfig;
pub use profile::{PROFILES, Profile};
pub use state::Controller;
pub(crate) use state::FIRST_HANDLE;
pub use terms::{Completion, ControllerConfig, EventClosed, Input, Output, Transmission};

impl Controller {
    /// Off and on again.
    pub(crate) fn power_cycle(&mut self) {
        self.out.clear();
        self.reset();
        self.settle();
    }

    /// How it is made.
    pub const fn config(&self) -> &ControllerConfig {
        &self.config
    }

    /// ACL packets of the host that were lost as there was no buffer left for them.
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// When [`poll`](Self::poll) has something to do at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        deadline(self.due())
    }

    /// The same, and the end of time for none.
    #[inline]
    pub(crate) fn due(&self) -> Instant {
        if self.out.is_empty() { self.due } else { Instant::default() }
    }

    /// Takes an input that happens at `now`.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Host(packet) => self.host(now, packet),
            Input::AirStart(transmission) => self.air_start(transmission),
            Input::AirEnd(transmission, crc_right) => self.air_end(now, transmission, crc_right),
            Input::ClassicStart(packet) => self.classic_start(packet),
            Input::ClassicEnd(packet, crc_right) => self.classic_end(now, packet, crc_right),
        }
        self.settle();
    }

    /// The next output, after doing what is due at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.out.is_empty() && self.due <= now {
            self.timers(now);
            self.settle();
        }
        self.out.pop_front()
    }

    pub(crate) fn link(&self, handle: u16) -> Option<&Link> {
        self.links.get(usize::from(handle.wrapping_sub(FIRST_HANDLE)))
    }

    fn settle(&mut self) {
        let mut due = NEVER;
        for link in &self.links {
            due = due.min(link.due());
        }
        self.due = due.min(self.discovery_due()).min(self.classic.due());
    }

    fn timers(&mut self, now: Instant) {
        for index in 0..self.links.len() {
            if self.links[index].due() <= now {
                let timer = if self.links[index].asleep_until().is_some() && self.radio_busy() {
                    self.links[index].skip(now)
                } else {
                    let other = self.wanted_by_others(index);
                    let woke = self.links[index].asleep_until().is_some();
                    if woke && self.config.completion == Completion::NextEvent {
                        self.report(index);
                    }
                    self.links[index].timer(now, other)
                };
                self.timer(now, index, timer);
            }
        }
        self.discovery_timers(now);
        self.classic_timers(now);
    }

    /// Whether the radio is in use, by LE or BR/EDR.
    fn radio_busy(&self) -> bool {
        self.le_busy() || self.classic.is_busy()
    }

    /// Whether a connection event of some link is open.
    fn le_busy(&self) -> bool {
        self.links.iter().any(|link| !link.is_gone() && link.asleep_until().is_none())
    }

    /// When another link wants the radio.
    fn wanted_by_others(&self, index: usize) -> Instant {
        let others = self.links.iter().enumerate().filter(|(other, _)| *other != index);
        others.filter_map(|(_, link)| link.asleep_until()).min().unwrap_or(NEVER)
    }

    fn timer(&mut self, now: Instant, index: usize, timer: Timer) {
        match timer {
            Timer::Nothing => {}
            Timer::Send(send) => {
                let link = &self.links[index];
                self.out.push_back(Output::Transmit(Box::new(Transmission {
                    access_address: link.access_address,
                    crc_init: link.crc_init,
                    channel: link.clock.channel,
                    phy: link.tx_phy(),
                    mic: link.settings.mic && send.kind != PduKind::Empty && send.clear.is_none(),
                    start: now,
                    end: after(now, send.duration),
                    pdu: send.pdu,
                    clear: send.clear,
                    kind: send.kind,
                    retransmission: send.retransmission,
                    handle: link.handle,
                    role: link.role,
                    counter: link.counter(),
                })));
            }
            Timer::Closed { counter, reason, packets, update } => {
                let link = &self.links[index];
                let (handle, role) = (link.handle, link.role);
                let next_anchor = link.clock.anchor();
                self.out.push_back(Output::EventClosed(EventClosed {
                    handle,
                    role,
                    counter,
                    reason,
                    packets,
                    next_anchor,
                }));
                if let Some(update) = update {
                    self.updated(index, update);
                }
            }
        }
    }

    fn air_start(&mut self, transmission: &Transmission) {
        if transmission.access_address == advertising::ACCESS_ADDRESS {
            self.advertising_start();
            return;
        }
        let found = self
            .links
            .iter_mut()
            .position(|link| link.access_address == transmission.access_address && link.air_start(transmission.start));
        if found.is_some() {
            self.receiving = found;
        }
    }

    fn air_end(&mut self, now: Instant, transmission: &Transmission, crc_right: bool) {
        if transmission.access_address == advertising::ACCESS_ADDRESS {
            self.advertising_end(now, transmission, crc_right);
            return;
        }
        let Some(index) =
            self.receiving.take_if(|index| self.links[*index].access_address == transmission.access_address)
        else {
            return;
        };
        let (timer, delivered) = self.links[index].air_end(now, &transmission.pdu, crc_right);
        if let Some(delivered) = delivered {
            self.delivered(index, &transmission.pdu, delivered);
        }
        self.timer(now, index, timer);
    }

    fn delivered(&mut self, index: usize, pdu: &Pdu, delivered: Delivered) {
        if delivered.completed {
            self.unreported[index] += 1;
            let due = match self.config.completion {
                Completion::Each => true,
                Completion::Batch(count) => self.unreported[index] >= count,
                Completion::NextEvent => false,
            };
            if due {
                self.report(index);
            }
        }
        if let Some(reason) = delivered.terminated {
            self.disconnected(
                index,
                if reason == hci::REMOTE_USER_TERMINATED { hci::LOCAL_HOST_TERMINATED } else { reason },
            );
        }
        if !delivered.new || pdu.payload().is_empty() {
            return;
        }
        let opened = self.links[index].open(pdu);
        let pdu = match &opened {
            Some(Opened::AsItIs) => pdu,
            Some(Opened::Clear(clear)) => clear,
            None => return self.disconnected(index, hci::MIC_FAILURE),
        };
        let (Some(header), payload) = (Header::parse(pdu.header()), pdu.payload()) else { return };
        let handle = self.links[index].handle;
        match header.llid {
            Llid::Control => {
                if let Some(update) = self.links[index].controlled(payload) {
                    self.updated(index, update);
                }
            }
            Llid::Continuation => self.tell_host(hci::acl(handle, Boundary::Continuing, payload)),
            Llid::Start => self.tell_host(hci::acl(handle, Boundary::FirstFromController, payload)),
        }
    }

    fn tell_host(&mut self, packet: Vec<u8>) {
        self.out.push_back(Output::Host(packet));
    }

    fn report(&mut self, index: usize) {
        let count = core::mem::take(&mut self.unreported[index]);
        if count > 0 {
            self.occupied -= count.min(self.occupied);
            self.tell_host(hci::completed_packets(self.links[index].handle, count));
        }
    }

    fn updated(&mut self, index: usize, update: Update) {
        let link = &self.links[index];
        let [low, high] = link.handle.to_le_bytes();
        match update {
            Update::Connection => {
                let interval = (link.clock.interval / self.config.interval_unit) as u16;
                let timeout = (link.clock.timeout / (10 * MS)) as u16;
                let mut parameters = [0; 9];
                parameters[1..3].copy_from_slice(&[low, high]);
                for (at, word) in [(3, interval), (5, link.clock.latency), (7, timeout)] {
                    parameters[at..at + 2].copy_from_slice(&word.to_le_bytes());
                }
                self.tell_host(hci::le_event(hci::event::LE_CONNECTION_UPDATE_COMPLETE, &parameters));
            }
            Update::Length { tx, rx } => {
                let time = |octets: u16, phy: Phy| (phy.air_time(octets.into(), true) / US) as u16;
                let mut parameters = [0; 10];
                parameters[..2].copy_from_slice(&[low, high]);
                let words = [tx, time(tx, link.phy[0]), rx, time(rx, link.phy[1])];
                for (at, word) in words.into_iter().enumerate() {
                    parameters[2 + 2 * at..4 + 2 * at].copy_from_slice(&word.to_le_bytes());
                }
                self.tell_host(hci::le_event(hci::event::LE_DATA_LENGTH_CHANGE, &parameters));
            }
            Update::Phy => {
                let (tx, rx) = (link.tx_phy().number(), link.rx_phy().number());
                self.tell_host(hci::le_event(hci::event::LE_PHY_UPDATE_COMPLETE, &[hci::SUCCESS, low, high, tx, rx]));
            }
            Update::Features(features) => {
                let status = if features.is_some() { hci::SUCCESS } else { hci::UNSUPPORTED_REMOTE_FEATURE };
                let mut parameters = Vec::from([status, low, high]);
                parameters.extend(features.unwrap_or_default());
                self.tell_host(hci::le_event(hci::event::LE_REMOTE_FEATURES_COMPLETE, &parameters));
            }
            Update::KeyWanted { random, diversifier } => self.key_wanted(index, random, diversifier),
            Update::Encryption { status, is_refresh } => {
                let handle = link.handle;
                self.encryption_changed(handle, status, is_refresh);
            }
            Update::Terminated(reason) => self.disconnected(index, reason),
            Update::Lost => self.disconnected(index, hci::CONNECTION_TIMEOUT),
            Update::NeverThere => self.disconnected(index, hci::FAILED_TO_ESTABLISH),
        }
    }

    fn disconnected(&mut self, index: usize, reason: u8) {
        let packets = self.links[index].packets();
        self.links[index].end();
        // 4.1.1 of Vol 4, Part E: the host takes all packets of the link as flushed.
        let unreported = core::mem::take(&mut self.unreported[index]);
        self.occupied = self.occupied.saturating_sub(packets + unreported);
        let handle = self.links[index].handle;
        self.tell_host(hci::disconnection_complete(handle, reason));
    }

    fn settings(&self) -> Settings {
        let config = &self.config;
        Settings {
            ifs: config.ifs,
            mic: config.encrypted,
            margin: config.event_margin,
            event_length: config.event_length.unwrap_or(u64::MAX / 4),
            packets_per_event: config.packets_per_event.unwrap_or(u16::MAX),
            tx_slots: config.tx_slots,
            pickup: config.pickup,
            max_length: config.max_length,
            phys: self.default_phys,
            features: self.features(),
            s2: config.coded_s2,
            unit: config.interval_unit,
        }
    }

    /// The first link that is gone, or one behind the last.
    fn free_slot(&self) -> usize {
        self.links.iter().position(Link::is_gone).unwrap_or(self.links.len())
    }

    fn open(&mut self, now: Instant, role: Role, connect: ConnectInd, first: Instant, window: Nanos) {
        let index = self.free_slot();
        let handle = FIRST_HANDLE + index as u16;
        let timing = Timing {
            interval: self.config.interval_unit * Nanos::from(connect.interval.max(1)),
            latency: connect.latency,
            timeout: 10 * MS * Nanos::from(connect.timeout.max(1)),
            hop: connect.hop,
            ppm: self.config.clock_ppm,
            accuracy_ppm: match role {
                Role::Central => 0,
                Role::Peripheral => u32::from(self.config.accuracy_ppm) + profile::accuracy_of_class(connect.accuracy),
            },
        };
        let clock = Clock::new(now, first, window, timing);
        let secrets = Random::new(self.security.random.next_u64());
        let mut link =
            Link::new(role, handle, connect.access_address, connect.crc_init, self.settings(), clock, secrets);
        let length = self.default_length.min(self.config.max_length);
        if usize::from(length) > MIN_LENGTH {
            link.request(Wanted::Length { octets: length });
        }
        if let Some(phy) = self.config.phy.filter(|_| role == Role::Central) {
            link.request(Wanted::Phy { tx: phy.mask(), rx: phy.mask(), s2: self.config.coded_s2 });
        }
        match self.links.get_mut(index) {
            Some(gone) => *gone = link,
            None => {
                self.links.push(link);
                self.unreported.push(0);
            }
        }
        let (random, peer) = match role {
            Role::Central => (connect.advertiser_random, connect.advertiser),
            Role::Peripheral => (connect.initiator_random, connect.initiator),
        };
        let mut parameters = [0; 18];
        parameters[1..3].copy_from_slice(&handle.to_le_bytes());
        parameters[3] = (role == Role::Peripheral).into();
        parameters[4] = random.into();
        parameters[5..11].copy_from_slice(&peer);
        for (at, word) in [(11, connect.interval), (13, connect.latency), (15, connect.timeout)] {
            parameters[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        parameters[17] = connect.accuracy;
        self.tell_host(hci::le_event(hci::event::LE_CONNECTION_COMPLETE, &parameters));
    }

    /// The host sent an ACL packet for which there is no buffer: it is lost, and the host is told.
    fn overflow(&mut self) {
        self.overflows += 1;
        self.tell_host(hci::data_buffer_overflow());
    }

    fn host(&mut self, now: Instant, packet: Vec<u8>) {
        match PacketView::parse(&packet) {
            Ok(PacketView::Acl(acl)) if acl.handle >= classic::FIRST_HANDLE => {
                self.classic_data(now, acl.handle, acl.boundary, acl.data);
            }
            Ok(PacketView::Acl(acl)) => {
                let index = usize::from(acl.handle.wrapping_sub(FIRST_HANDLE));
                let sound = !acl.data.is_empty() && acl.data.len() <= self.config.acl_size.into();
                // A host that sends longer ones than there are buffers for loses them.
                let Some(link) = self.links.get_mut(index).filter(|link| sound && !link.is_gone()) else { return };
                if self.occupied < self.config.acl_buffers {
                    self.occupied += 1;
                    link.enqueue(now, packet);
                } else {
                    self.overflow();
                }
            }
            Ok(PacketView::Command { opcode, parameters }) => {
                let parameters = parameters.to_vec();
                self.command(now, opcode, &parameters);
            }
            Ok(PacketView::Event { .. }) | Err(_) => {}
        }
    }
}
