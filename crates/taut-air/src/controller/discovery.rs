//! How links begin: advertising, scanning, initiating (Core Specification, Vol 6, Part B, 4.4). Legacy
//! advertising on one channel; a scanner listens whenever the radio is free, whatever its window.

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_time::Instant;

use super::procedures::{Advertiser, Stage, Target};
use super::profile;
use super::state::Controller;
use super::terms::{Output, Transmission};
use crate::hci;
use crate::link::PduKind;
use crate::pdu::Pdu;
use crate::pdu::advertising::{self, Address, Advertisement, ConnectInd, Kind, ScanRequest};
use crate::phy::Phy;
use crate::role::Role;
use crate::time::{MS, NEVER, Nanos, US, after, span};

const WINDOW_UNIT: Nanos = 1_250 * US;
/// From CONNECT_IND to the transmit window (4.5.3).
const TRANSMIT_WINDOW_DELAY: Nanos = 1_250 * US;
/// Longest exchange on an advertising channel: ADV_IND, SCAN_REQ, SCAN_RSP and what is between them.
const EXCHANGE: Nanos = 1_500 * US;
/// Directed advertising of a high duty cycle lasts so long (4.4.2.4.3); its PDUs follow each other by 3.75 ms at most.
const HIGH_DUTY_TIME: Nanos = 1_280 * MS;
/// From the end of one, and of the time in which an answer could begin, to the next: they take 0.5 ms together.
const HIGH_DUTY_PAUSE: Nanos = 3 * MS;
/// Received signal strength in the reports, in dBm: devices on one table.
const RSSI: i8 = -40;
/// Advertisers that a scanner remembers, to report each once.
const MOST_SEEN: usize = 256;

impl Controller {
    /// When something here is due.
    pub(super) fn discovery_due(&self) -> Instant {
        let advertiser = match self.advertiser.stage {
            Stage::Next(at) | Stage::Listening(at) | Stage::Respond(at) => at,
            Stage::Off | Stage::Receiving => NEVER,
        };
        let initiator = self.initiator.and_then(|initiator| initiator.answer).map_or(NEVER, |(at, _)| at);
        let scanner = self.scanner.ask.map_or(NEVER, |(at, _)| at);
        advertiser.min(initiator).min(scanner)
    }

    pub(super) fn discovery_timers(&mut self, now: Instant) {
        match self.advertiser.stage {
            Stage::Next(at) if at <= now => self.advertise(now),
            Stage::Listening(until) if until <= now => self.advertise_later(now),
            Stage::Respond(at) if at <= now => self.respond(now),
            _ => {}
        }
        if self.initiator.and_then(|initiator| initiator.answer).is_some_and(|(at, _)| at <= now) {
            self.connect(now);
        }
        if let Some((_, peer)) = self.scanner.ask.take_if(|(at, _)| *at <= now)
            && self.is_free(now)
        {
            self.scanner.asked = Some(peer);
            let scanner = self.own_address(self.scanner.random);
            let request = ScanRequest { scanner, advertiser: peer.1, advertiser_random: peer.0 };
            self.transmit_advertising(now, request.to_pdu(), Role::Central);
        }
    }

    /// The address that goes by that type.
    pub(super) const fn own_address(&self, random: bool) -> Address {
        if random { self.random_address } else { self.config.address }
    }

    /// Whether no link needs the radio for an exchange that begins now.
    fn is_free(&self, now: Instant) -> bool {
        !self.radio_busy() && self.wanted_by_others(usize::MAX) > after(now, EXCHANGE)
    }

    fn advertise(&mut self, now: Instant) {
        if let Some(Target { end, high_duty: true, .. }) = &mut self.advertiser.target
            && now >= *end.get_or_insert(after(now, HIGH_DUTY_TIME))
        {
            self.advertiser.stage = Stage::Off;
            let mut parameters = [0; 18];
            (parameters[0], parameters[3]) = (hci::ADVERTISING_TIMEOUT, 1);
            self.tell_host(hci::le_event(hci::event::LE_CONNECTION_COMPLETE, &parameters));
            return;
        }
        if !self.is_free(now) {
            self.advertise_later(now);
            return;
        }
        let Advertiser { kind, random, target, .. } = self.advertiser;
        let advertiser = self.own_address(random);
        let (target_random, address) = target.map_or((false, [0; 6]), |target| target.peer);
        let data = if target.is_some() { &address[..] } else { &self.advertiser.data };
        let pdu = Advertisement { kind, advertiser, random, data, target_random }.to_pdu();
        let end = self.transmit_advertising(now, pdu, Role::Peripheral);
        self.advertiser.stage = if kind == Kind::Silent {
            Stage::Listening(end)
        } else {
            Stage::Listening(after(end, self.config.ifs + 4 * US + Phy::Le1M.sync_time()))
        };
    }

    fn respond(&mut self, now: Instant) {
        let random = self.advertiser.random;
        let advertiser = self.own_address(random);
        let (kind, data) = (Kind::Response, &self.advertiser.response);
        let response = Advertisement { kind, advertiser, random, data, target_random: false };
        self.transmit_advertising(now, response.to_pdu(), Role::Peripheral);
        self.advertise_later(now);
    }

    fn advertise_later(&mut self, now: Instant) {
        if self.advertiser.target.is_some_and(|target| target.high_duty) {
            self.advertiser.stage = Stage::Next(after(now, HIGH_DUTY_PAUSE));
            return;
        }
        // 4.4.2.2.1: each advertising event is delayed by up to 10 ms at random.
        let delay = self.random.below(10 * MS);
        self.advertiser.stage = Stage::Next(after(now, self.advertiser.interval + delay));
    }

    fn transmit_advertising(&mut self, now: Instant, pdu: Pdu, role: Role) -> Instant {
        let end = after(now, Phy::Le1M.air_time(pdu.payload().len(), false));
        self.out.push_back(Output::Transmit(Box::new(Transmission {
            access_address: advertising::ACCESS_ADDRESS,
            crc_init: advertising::CRC_INIT,
            channel: advertising::CHANNEL,
            phy: Phy::Le1M,
            mic: false,
            start: now,
            end,
            pdu,
            clear: None,
            kind: PduKind::Advertising,
            retransmission: false,
            handle: 0,
            role,
            counter: 0,
        })));
        end
    }

    /// A packet begins on the advertising channel.
    pub(super) fn advertising_start(&mut self) {
        if let Stage::Listening(_) = self.advertiser.stage {
            self.advertiser.stage = Stage::Receiving;
        } else {
            self.hears = (self.scanner.on || self.initiator.is_some()) && !self.radio_busy();
        }
    }

    pub(super) fn advertising_end(&mut self, now: Instant, transmission: &Transmission, crc_right: bool) {
        if self.advertiser.stage == Stage::Receiving {
            self.asked(now, transmission, crc_right);
        } else if core::mem::take(&mut self.hears)
            && crc_right
            && let Some(advertisement) = Advertisement::parse(&transmission.pdu)
        {
            self.heard(now, advertisement);
        }
    }

    /// Something came in after an advertisement of ours.
    fn asked(&mut self, now: Instant, transmission: &Transmission, crc_right: bool) {
        let own = (self.advertiser.random, self.own_address(self.advertiser.random));
        if crc_right && self.advertiser.kind.connects() {
            let target = self.advertiser.target.map(|target| target.peer);
            let is_meant = |connect: &ConnectInd| {
                let from = (connect.initiator_random, connect.initiator);
                (connect.advertiser_random, connect.advertiser) == own && target.is_none_or(|target| target == from)
            };
            let connect = ConnectInd::parse(&transmission.pdu);
            if let Some(connect) = connect.filter(is_meant) {
                self.advertiser.stage = Stage::Off;
                let first = after(now, TRANSMIT_WINDOW_DELAY + WINDOW_UNIT * Nanos::from(connect.window_offset));
                let window = WINDOW_UNIT * Nanos::from(connect.window_size);
                self.open(now, Role::Peripheral, connect, first, window);
                return;
            }
        }
        let request = ScanRequest::parse(&transmission.pdu).filter(|_| crc_right && self.advertiser.kind.answers());
        match request.filter(|request| (request.advertiser_random, request.advertiser) == own) {
            Some(_) => self.advertiser.stage = Stage::Respond(after(now, self.config.ifs)),
            None => self.advertise_later(now),
        }
    }

    /// An advertisement of another came in.
    fn heard(&mut self, now: Instant, advertisement: Advertisement<'_>) {
        let target = advertisement.target();
        let is_for = |random: bool, address: Address| target.is_none_or(|target| target == (random, address));
        let Advertisement { kind, advertiser, random, data, .. } = advertisement;
        let peer = (random, advertiser);
        let [public, own] = [false, true].map(|random| self.own_address(random));
        let accepted = self.accept_list.contains(&peer);
        let answer = after(now, self.config.ifs);
        if let Some(initiator) = &mut self.initiator
            && kind.connects()
            && is_for(initiator.random, if initiator.random { own } else { public })
            && initiator.peer.map_or(accepted, |wanted| wanted == peer)
        {
            initiator.answer = Some((answer, peer));
            return;
        }
        let scanner = &mut self.scanner;
        if !scanner.on || (scanner.accept_list && !accepted) {
            return;
        }
        if !is_for(scanner.random, if scanner.random { own } else { public }) {
            return;
        }
        // A report has no place for whom it was directed at: that is us.
        let data = if target.is_some() { &[][..] } else { data };
        if kind == Kind::Response && scanner.asked.take() != Some(peer) {
            return;
        }
        if scanner.active && kind.answers() {
            scanner.ask = Some((answer, peer));
        }
        if scanner.once {
            if scanner.seen.contains(&(kind, peer)) {
                return;
            }
            if scanner.seen.len() == MOST_SEEN {
                scanner.seen.remove(0);
            }
            scanner.seen.push((kind, peer));
        }
        let mut report = Vec::from([1, kind.event_type(), random.into()]);
        report.extend(advertiser);
        report.push(data.len() as u8);
        report.extend(data);
        report.push(RSSI as u8);
        self.tell_host(hci::le_event(hci::event::LE_ADVERTISING_REPORT, &report));
    }

    /// Sends CONNECT_IND and opens the link, unless the radio is needed before its end.
    fn connect(&mut self, now: Instant) {
        let Some(mut initiator) = self.initiator.take() else { return };
        let Some((_, (advertiser_random, advertiser))) = initiator.answer.take() else { return };
        let end = after(now, Phy::Le1M.air_time(34, false));
        let earliest = after(end, TRANSMIT_WINDOW_DELAY);
        if self.radio_busy() || self.wanted_by_others(usize::MAX) < earliest {
            self.initiator = Some(initiator);
            return;
        }
        let first = self.first_anchor(earliest, self.config.interval_unit * Nanos::from(initiator.interval));
        let connect = ConnectInd {
            initiator: self.own_address(initiator.random),
            advertiser,
            initiator_random: initiator.random,
            advertiser_random,
            access_address: self.access_address(),
            crc_init: self.random.below(1 << 24) as u32,
            window_size: 2,
            window_offset: (span(earliest, first) / WINDOW_UNIT) as u16,
            interval: initiator.interval,
            latency: initiator.latency,
            timeout: initiator.timeout,
            hop: 5 + self.random.below(12) as u8,
            accuracy: profile::accuracy_class(self.config.accuracy_ppm),
        };
        self.transmit_advertising(now, connect.to_pdu(), Role::Central);
        self.open(end, Role::Central, connect, first, 0);
    }

    /// The first link's anchor is as early as possible; the k-th of n lies k/n of an interval behind the first's.
    fn first_anchor(&self, earliest: Instant, interval: Nanos) -> Instant {
        let Some(first) = self.links.iter().find(|link| !link.is_gone()) else { return earliest };
        let links = Nanos::from(self.config.links.max(1));
        let offset = interval * (self.free_slot() as Nanos % links) / links;
        let grid = after(first.clock.anchor(), offset);
        let behind = span(grid, earliest).div_ceil(interval.max(1));
        after(grid, behind * interval)
    }

    /// 32 bits that keep the rules of Vol 6, Part B, 2.1.2 as far as they matter here: not the advertising
    /// address, none of our other links', no run of more than six equal bits, all four octets different.
    fn access_address(&mut self) -> u32 {
        loop {
            let address = self.random.next_u64() as u32;
            let changes = address ^ (address >> 1);
            let run = (0..=25).any(|at| (changes >> at) & 0x3f == 0);
            let octets = address.to_le_bytes();
            let alike = (1..4).any(|i| octets[..i].contains(&octets[i]));
            let transitions = (changes & 0x7fff_ffff).count_ones();
            let early = (changes >> 25).count_ones() >= 2;
            let apart = (address ^ advertising::ACCESS_ADDRESS).count_ones() > 1;
            let taken = self.links.iter().any(|link| link.access_address == address);
            if !run && !alike && transitions <= 24 && early && apart && !taken {
                return address;
            }
        }
    }
}
