//! Books: where every nanosecond went, and what was counted.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use super::latency::Latencies;
use super::node::{Node, link_of};
use super::observe::{AirEvent, Happening, Observer, Purpose, is_active};
use super::outcome::{Counters, Negotiated, Outcome};
use super::purpose::Parts;
use crate::controller::{EventClosed, FIRST_HANDLE, Transmission};
use crate::host::{self, Blocked, Notice, What};
use crate::ledger::{Category, Ledger};
use crate::link::{CloseReason, Hold, PduKind, Reception};
use crate::medium::OnAir;
use crate::role::Role;
use crate::scenario::Scenario;
use crate::time::{Nanos, span};

/// Events with so many data PDUs or more share an entry.
const MOST_PDUS: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Account {
    sender: Role,
    /// Programs are outside: what they write isn't known, and either may.
    outside: bool,
    links: Vec<LinkAccount>,
    limit_bps: f64,
    quantised_limit_bps: f64,
    length: u16,
    begun: Option<Instant>,
    ledger: Ledger,
    /// Air time of the oldest packet on the air that is not in the ledger yet.
    unsettled: Nanos,
    /// The span that is going on, for the observer.
    open_span: Option<(Category, Instant, u16)>,
    connection_events: u64,
    events_by_data_pdus: Vec<u64>,
    latencies: Latencies,
    counters: Counters,
    negotiated: Option<Negotiated>,
    disconnected: Option<u8>,
}

#[derive(Clone, Debug, Default)]
struct LinkAccount {
    /// Data of the central, of the peripheral was lost on the air and has not been received since.
    failed: [bool; 2],
    event_open: bool,
    /// Data PDUs in the event, of both sides, and of the sender alone without repetitions.
    event_pdus: u32,
    sender_pdus: usize,
    /// By direction: central's, then peripheral's.
    flows: [Flow; 2],
}

#[derive(Clone, Debug, Default)]
struct Flow {
    parts: Parts,
    /// SDUs written and not read: when, and how long.
    written: VecDeque<(Instant, usize)>,
    sdus_written: u64,
    sdus_complete: u64,
    sdus_read: u64,
    position: u64,
    granted: u64,
    received: u64,
}

impl Account {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let limit = scenario.limit();
        Self {
            sender: scenario.sender,
            outside: false,
            links: (0..scenario.links).map(|_| LinkAccount::default()).collect(),
            limit_bps: limit.bps(),
            quantised_limit_bps: limit.quantised_bps(scenario.ci),
            length: scenario.length,
            begun: None,
            ledger: Ledger::default(),
            unsettled: 0,
            open_span: None,
            connection_events: 0,
            events_by_data_pdus: alloc::vec![0; MOST_PDUS + 1],
            latencies: Latencies::default(),
            counters: Counters::default(),
            negotiated: None,
            disconnected: None,
        }
    }

    pub(super) const fn is_measuring(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) const fn begin(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    pub(super) const fn programs_are_outside(&mut self) {
        self.outside = true;
    }

    pub(super) const fn disconnected(&self) -> Option<u8> {
        self.disconnected
    }

    pub(super) const fn sender(&self) -> Role {
        self.sender
    }

    /// Link and handle of a notice or packet: at the central the handle tells the link.
    const fn link(number: usize, handle: u16) -> usize {
        if number == 0 { handle.wrapping_sub(FIRST_HANDLE) as usize } else { number - 1 }
    }

    fn node_of(&self, role: Role, link: usize) -> (usize, u16) {
        match role {
            Role::Central => (0, FIRST_HANDLE + link as u16),
            Role::Peripheral => (link + 1, FIRST_HANDLE),
        }
    }

    /// Time passes in which nothing happens.
    pub(super) fn pass(
        &mut self,
        from: Instant,
        to: Instant,
        nodes: &[Node],
        on_air: &[OnAir],
        observer: &mut impl Observer,
    ) {
        if self.begun.is_none() {
            return;
        }
        let nanos = span(from, to);
        if !on_air.is_empty() {
            self.unsettled += nanos;
            return;
        }
        let (category, link) =
            if self.links.iter().any(|link| link.event_open) { (Category::Ifs, 0) } else { self.holder(nodes) };
        self.charge(category, link, from, nanos, observer);
    }

    fn charge(&mut self, category: Category, link: u16, from: Instant, nanos: Nanos, observer: &mut impl Observer) {
        self.ledger.charge(category, nanos);
        if is_active(observer)
            && self.open_span.is_none_or(|(open, _, open_link)| (open, open_link) != (category, link))
        {
            self.end_span(from, observer);
            self.open_span = Some((category, from, link));
        }
    }

    fn end_span(&mut self, now: Instant, observer: &mut impl Observer) {
        if let Some((category, since, link)) = self.open_span.take() {
            let duration = span(since, now);
            observer.event(&AirEvent { at: since, link, what: Happening::Span { category, duration } });
        }
    }

    /// Who holds the data while the air is idle: of all links, the one whose data is nearest to the air.
    fn holder(&self, nodes: &[Node]) -> (Category, u16) {
        let other = self.outside.then(|| self.sender.other());
        let senders = core::iter::once(self.sender).chain(other);
        let holders = senders.flat_map(|sender| {
            (0..self.links.len()).map(move |link| (self.holder_of(sender, link, nodes), link as u16))
        });
        holders.min_by_key(|(category, _)| nearness(*category)).unwrap_or((Category::ApplicationHadNone, 0))
    }

    fn holder_of(&self, from: Role, link: usize, nodes: &[Node]) -> Category {
        if self.links[link].failed[from as usize] {
            return Category::Retransmission;
        }
        let (number, handle) = self.node_of(from, link);
        let (sender, receiver) = (&nodes[number], &nodes[self.node_of(from.other(), link).0]);
        if let Some(at) = sender.controller.link(handle)
            && at.has_new_data()
        {
            return match at.hold() {
                Some(Hold::DoesNotFit) => Category::DoesNotFit,
                Some(Hold::Controller) => Category::ControllerBuffer,
                Some(Hold::EventClosed) | None => Category::EventClosedEarly,
            };
        }
        if has_data(&sender.down) {
            return Category::HostTransport;
        }
        match sender.host.hold(handle) {
            host::Hold::Buffers => Category::ControllerBuffer,
            host::Hold::WakeUp => Category::WakeUp,
            host::Hold::Application => Category::ApplicationHadNone,
            host::Hold::Credit => {
                let flow = &self.links[link].flows[from as usize];
                if flow.granted > flow.received {
                    Category::CreditInFlight
                } else if has_data(&receiver.up) {
                    Category::HostTransport
                } else {
                    Category::NoCredit
                }
            }
        }
    }

    /// A data channel packet begins.
    pub(super) fn transmits(
        &mut self,
        now: Instant,
        from: usize,
        transmission: &Transmission,
        observer: &mut impl Observer,
    ) {
        let link = Self::link(from, transmission.handle);
        let Some(account) = self.links.get_mut(link) else { return };
        if transmission.role == Role::Central && !account.event_open {
            account.event_open = true;
            account.event_pdus = 0;
            account.sender_pdus = 0;
            if is_active(observer) {
                let what = Happening::EventBegins { counter: transmission.counter, channel: transmission.channel };
                observer.event(&AirEvent { at: now, link: link as u16, what });
            }
        }
        if transmission.kind == PduKind::Data {
            account.event_pdus += 1;
            if !transmission.retransmission {
                account.flows[transmission.role as usize].parts.sends(transmission.plain());
                if transmission.role == self.sender && !account.flows[self.sender as usize].parts.is_signalling() {
                    account.sender_pdus += 1;
                }
            }
        }
        if is_active(observer) {
            self.end_span(now, observer);
        }
    }

    /// A packet has ended.
    pub(super) fn packet(&mut self, packet: &OnAir, observer: &mut impl Observer) {
        let OnAir { transmission, reception, from } = packet;
        let link = if transmission.kind == PduKind::Advertising {
            usize::from(link_of(*from))
        } else {
            Self::link(*from, transmission.handle)
        };
        let Some(account) = self.links.get_mut(link) else { return };
        let purpose = account.flows[transmission.role as usize].parts.purpose(transmission.kind);
        if transmission.kind == PduKind::Data {
            account.failed[transmission.role as usize] = *reception != Reception::Received;
        }
        if self.begun.is_some() {
            let again = (transmission.retransmission && transmission.kind != PduKind::Empty)
                || (*reception != Reception::Received && transmission.kind == PduKind::Data);
            self.settle(transmission, purpose, again);
            self.count(transmission, purpose, *reception);
        }
        if is_active(observer) {
            let what = transmission.happening(*reception, purpose);
            observer.event(&AirEvent { at: transmission.start, link: link as u16, what });
        }
    }

    /// Splits the air time of a packet, as much of it as has passed, into the ledger.
    fn settle(&mut self, transmission: &Transmission, purpose: Purpose, again: bool) {
        let air = core::mem::take(&mut self.unsettled);
        let category = match purpose {
            _ if again => Category::Retransmission,
            Purpose::Payload(bytes) => {
                let payload = (bytes as Nanos * transmission.phy.nanos_per_byte()).min(air);
                self.ledger.charge(Category::Payload, payload);
                self.ledger.charge(Category::Headers, air - payload);
                return;
            }
            Purpose::Empty => Category::EmptyPolls,
            Purpose::Signalling => Category::Signalling,
            Purpose::Control | Purpose::Advertising => Category::Control,
        };
        self.ledger.charge(category, air);
    }

    fn count(&mut self, transmission: &Transmission, purpose: Purpose, reception: Reception) {
        let counters = &mut self.counters;
        match reception {
            Reception::Received => {}
            Reception::CrcError => counters.crc_errors += 1,
            Reception::Missed => counters.missed += 1,
        }
        match purpose {
            Purpose::Empty => counters.empty_pdus += 1,
            _ if transmission.retransmission => counters.retransmissions += 1,
            Purpose::Payload(_) => counters.data_pdus += 1,
            _ => {}
        }
    }

    /// A connection event has ended on one side.
    pub(super) fn closed(
        &mut self,
        now: Instant,
        number: usize,
        closed: &EventClosed,
        nodes: &[Node],
        observer: &mut impl Observer,
    ) {
        // The central's word counts: it began the event. Its peripheral may have had a reason for not going on.
        if closed.role != Role::Central {
            return;
        }
        let link = Self::link(number, closed.handle);
        let (peripheral, handle) = self.node_of(Role::Peripheral, link);
        let Some(account) = self.links.get_mut(link) else { return };
        let was_open = core::mem::take(&mut account.event_open);
        if self.begun.is_some() {
            self.connection_events += 1;
            self.events_by_data_pdus[if was_open { account.sender_pdus.min(MOST_PDUS) } else { 0 }] += 1;
        }
        if is_active(observer) {
            self.end_span(now, observer);
            let account = &self.links[link];
            let reason = match closed.reason {
                CloseReason::MdCleared => {
                    let peer = nodes[peripheral].controller.link(handle);
                    peer.and_then(crate::link::Link::stop).unwrap_or(closed.reason)
                }
                reason => reason,
            };
            let what = Happening::EventEnds {
                counter: closed.counter,
                reason,
                data_pdus: if was_open { account.event_pdus } else { 0 },
                unused: span(now, closed.next_anchor),
            };
            observer.event(&AirEvent { at: now, link: link as u16, what });
        }
    }

    /// Something happened in a host.
    pub(super) fn notice(
        &mut self,
        now: Instant,
        number: usize,
        side: Role,
        notice: Notice,
        observer: &mut impl Observer,
    ) {
        let link = Self::link(number, notice.handle);
        let measuring = self.begun.is_some();
        let Some(account) = self.links.get_mut(link) else { return };
        let [own, peer] = {
            let (central, peripheral) = account.flows.split_at_mut(1);
            let (central, peripheral) = (&mut central[0], &mut peripheral[0]);
            match side {
                Role::Central => [central, peripheral],
                Role::Peripheral => [peripheral, central],
            }
        };
        let what = match notice.what {
            What::Open(parameters) => {
                if side == self.sender && link == 0 {
                    self.negotiated = Some(Negotiated {
                        mtu: parameters.peer_mtu,
                        mps: parameters.peer_mps,
                        initial_credits: parameters.peer_credits,
                        length: self.length,
                    });
                }
                Happening::ChannelOpen { side, parameters }
            }
            What::Closed(reason) => {
                self.disconnected = self.disconnected.or_else(|| measuring.then_some(reason));
                account.event_open = false;
                Happening::Disconnected { side, reason }
            }
            What::Written { bytes, pdus } => {
                let sequence = own.sdus_written;
                own.sdus_written += 1;
                own.written.push_back((now, bytes));
                self.counters.sdus_written += u64::from(measuring);
                Happening::SduWritten { side, sequence, bytes, pdus }
            }
            What::Blocked(why) => {
                match why {
                    Blocked::Credits => self.counters.blocked_on_credits += 1,
                    Blocked::SendBuffer => self.counters.blocked_on_send_buffer += 1,
                }
                Happening::Blocked { side, why }
            }
            What::Writable => Happening::Writable { side },
            What::Complete { bytes } => {
                let sequence = peer.sdus_complete;
                peer.sdus_complete += 1;
                Happening::SduComplete { side, sequence, bytes }
            }
            What::Read { sdu } => {
                let sequence = peer.sdus_read;
                peer.sdus_read += 1;
                let (written, bytes) = peer.written.pop_front().unwrap_or((now, usize::MAX));
                let sound = bytes == sdu.len() && (self.outside || host::is_pattern(peer.position, &sdu));
                peer.position += sdu.len() as u64;
                let latency = span(written, now);
                self.counters.sdus_read += 1;
                self.counters.sdus_damaged += u64::from(!sound);
                self.counters.bytes_read += sdu.len() as u64;
                self.latencies.record(latency);
                Happening::SduRead { side, sequence, bytes: sdu.len(), latency }
            }
            What::Granted(credits) => {
                peer.granted += u64::from(credits);
                self.counters.credits_granted += u64::from(credits);
                self.counters.credit_packets += 1;
                Happening::CreditsGranted { side, credits }
            }
            What::Received { credits, total } => {
                own.received += u64::from(credits);
                Happening::CreditsReceived { side, credits, total }
            }
            What::Completed { packets, free } => Happening::CompletedPackets { side, packets, free },
            What::Broken => return,
        };
        if is_active(observer) {
            observer.event(&AirEvent { at: now, link: link as u16, what });
        }
    }

    pub(super) fn outcome(&mut self, now: Instant, observer: &mut impl Observer) -> Outcome {
        if is_active(observer) {
            self.end_span(now, observer);
        }
        let mut ledger = self.ledger;
        // A packet that is on the air at the end: headers come first.
        ledger.charge(Category::Headers, self.unsettled);
        let duration_ns = self.begun.map_or(0, |begun| span(begun, now));
        let seconds = duration_ns as f64 / 1e9;
        let bits = self.counters.bytes_read as f64 * 8.0;
        Outcome {
            duration_ns,
            throughput_bps: if seconds > 0.0 { bits / seconds } else { 0.0 },
            limit_bps: self.limit_bps,
            quantised_limit_bps: self.quantised_limit_bps,
            ledger,
            connection_events: self.connection_events,
            events_by_data_pdus: self.events_by_data_pdus.clone(),
            sdu_latency: self.latencies.clone(),
            counters: self.counters,
            negotiated: self.negotiated,
            disconnected: self.disconnected,
        }
    }
}

/// Whether a transport carries data.
fn has_data(pipe: &crate::transport::Pipe) -> bool {
    pipe.packets().any(|packet| packet.first() == Some(&2))
}

/// How near to the air data is that this category holds.
const fn nearness(category: Category) -> u8 {
    match category {
        Category::Retransmission => 0,
        Category::DoesNotFit => 1,
        Category::EventClosedEarly => 2,
        Category::ControllerBuffer => 3,
        Category::HostTransport => 4,
        Category::WakeUp => 5,
        Category::CreditInFlight => 6,
        Category::NoCredit => 7,
        _ => 8,
    }
}
