//! Several captures of one path on one timeline.

use taut_capture::{
    AirPayload, Flows, HostPacket, HostPackets, Packet, Skipped, TcpPacket, UdpPacket, air_payload, decode, decode_udp,
    tunnelled,
};
use taut_event::{Closed, Content, Event, Flow, FlowId, FlowKey, Le, SegmentFlags, Sink, VantageId, What};
use taut_explain::join::{
    Crossings, DatagramSighting, Joined, JoinedTrace, NotJoined, OnAir, Sighting, Sightings, join as on_one_timeline,
    join_bluetooth,
};
use taut_report::{ExplainedFile, ExplainedTrace};
use taut_time::Instant;

/// What one file has to hold against another: packets of TCP and UDP, and what links of Bluetooth carried.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    internet: Sightings,
    bluetooth: Crossings,
    host: HostPackets,
}

impl Seen {
    /// Keeps what there is to keep of a packet, and hands it on.
    #[inline(never)]
    pub(crate) fn packet(&mut self, packet: Packet<'_>, flows: &mut Flows, sink: &mut impl Sink) {
        let copies = flows.counts().tunnel_copies;
        self.host_packet(&packet);
        match air_payload(&packet) {
            Some(payload) => {
                let mut both = Both { sink, links: &mut self.bluetooth, payload };
                flows.packet(&packet, VantageId(0), &mut both);
            }
            None => flows.packet(&packet, VantageId(0), sink),
        }
        // A copy is cut into other segments than the other file may have.
        if flows.counts().tunnel_copies == copies {
            see(&packet, &mut self.internet);
        }
    }

    /// What it has of TCP and UDP.
    pub(crate) const fn internet(&self) -> &Sightings {
        &self.internet
    }

    /// What it has of links of Bluetooth.
    pub(crate) const fn bluetooth(&self) -> &Crossings {
        &self.bluetooth
    }

    /// Nothing more comes; the clock's smallest step.
    pub(crate) fn finish(&mut self, resolution_ns: u64) {
        self.internet.set_resolution(resolution_ns);
        self.bluetooth.set_resolution(resolution_ns);
        self.bluetooth.finish();
    }

    fn host_packet(&mut self, packet: &Packet<'_>) {
        let Self { bluetooth, host, .. } = self;
        host.read(packet, |told| {
            let place = packet.at.map(|at| (at, packet.frame));
            match (told, place) {
                (HostPacket::Acl { link, is_received, begins, kept, length }, Some(place)) => {
                    bluetooth.acl(place, link, is_received, begins, kept, length);
                }
                (HostPacket::Completed { link, packets }, Some(place)) => bluetooth.completed(place, link, packets),
                (HostPacket::Connected { link, is_central, peer }, _) => bluetooth.connected(link, is_central, peer),
                (HostPacket::Disconnected { link }, _) => bluetooth.disconnected(link),
                (HostPacket::Reset { adapter }, _) => bluetooth.reset(adapter),
                (HostPacket::Lost, _) => bluetooth.lost(),
                (_, None) => bluetooth.timeless(),
            }
        });
    }
}

/// Hands on what a sniffer's packet comes to, and keeps what its links carried.
struct Both<'a, S> {
    sink: &'a mut S,
    links: &'a mut Crossings,
    payload: AirPayload<'a>,
}

impl<S: Sink> Sink for Both<'_, S> {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        if let FlowKey::Le(key) = flow.key {
            self.links.air_link(id.0, key.ends);
        }
        self.sink.flow(id, flow);
    }

    fn event(&mut self, event: &Event) {
        match event.what {
            What::Le(Le::Link(link)) => self.links.air_encrypted(event.flow.0, link.is_encrypted),
            What::Le(Le::Pdu(pdu)) => {
                let on_air = OnAir { payload: self.payload.bytes, is_deciphered: self.payload.is_deciphered };
                self.links.air_pdu((event.at, event.place), event.flow.0, event.direction, &pdu, on_air);
            }
            _ => {}
        }
        self.sink.event(event);
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.links.air_over(id.0);
        self.sink.close(id, why);
    }
}

/// Keeps what a packet is held against those of the other file by, if it is one of TCP or UDP with a time.
fn see(packet: &Packet<'_>, sightings: &mut Sightings) {
    let Some(at) = packet.at else { return };
    let (mut packet, mut decoded) = (packet, decode(packet));
    let inner = if decoded == Err(Skipped::NotTcp) { tunnelled(packet) } else { None };
    if let Some(inner) = &inner {
        (packet, decoded) = (inner, decode(inner));
    }
    match decoded {
        Ok(tcp) => sightings.add(&segment(at, packet.frame, &tcp)),
        Err(Skipped::NotTcp) => {
            if let Ok(udp) = decode_udp(packet) {
                sightings.add_datagram(&datagram(at, packet.frame, &udp));
            }
        }
        Err(_) => {}
    }
}

fn segment(at: Instant, frame: u64, tcp: &TcpPacket<'_>) -> Sighting {
    Sighting {
        at,
        frame,
        from: tcp.ends.from(),
        to: tcp.ends.to(),
        sequence: tcp.sequence,
        acknowledgement: tcp.acknowledgement,
        flags: SegmentFlags(tcp.flags),
        payload: tcp.payload,
        window: tcp.window,
        identification: tcp.identification,
        timestamps: tcp.timestamps,
        sack: tcp.sack,
        permits_sack: tcp.permits_sack,
    }
}

fn datagram<'a>(at: Instant, frame: u64, udp: &UdpPacket<'a>) -> DatagramSighting<'a> {
    DatagramSighting {
        at,
        frame,
        from: udp.ends.from(),
        to: udp.ends.to(),
        payload: udp.payload,
        kept: udp.kept,
        identification: udp.identification,
        transaction: match udp.seen.content {
            Content::Dns(dns) => Some(dns.id),
            _ => None,
        },
    }
}

/// The captures so far. Each later one is held against the first, and traces against all.
#[derive(Debug)]
pub(crate) struct Captures {
    seen: Vec<Seen>,
    first: String,
    has_traces: bool,
}

impl Captures {
    /// `has_traces`: traces are held against them, so that all are kept and not only the first one.
    pub(crate) const fn new(has_traces: bool) -> Self {
        Self { seen: Vec::new(), first: String::new(), has_traces }
    }

    /// The next one, on the timeline of the first one. Where that can't be, it is an error if it must be; else the file
    /// says why, unless they have nothing to do with each other.
    pub(crate) fn take(
        &mut self,
        file: &mut ExplainedFile,
        seen: Seen,
        is_wanted: bool,
    ) -> anyhow::Result<Option<Joined>> {
        let Some(first) = self.seen.first() else {
            self.first.clone_from(&file.file);
            self.seen.push(seen);
            return Ok(None);
        };
        let joined = join((&self.first, first), file, &seen, is_wanted)?;
        if self.has_traces {
            self.seen.push(seen);
        }
        Ok(joined)
    }

    /// What they have to hold against a trace, in order.
    pub(crate) fn seen(&self) -> &[Seen] {
        &self.seen
    }
}

fn join(
    (reference, first): (&str, &Seen),
    file: &mut ExplainedFile,
    other: &Seen,
    is_wanted: bool,
) -> anyhow::Result<Option<Joined>> {
    let are_of_bluetooth = !first.bluetooth.is_empty() && !other.bluetooth.is_empty();
    let joined = match are_of_bluetooth {
        true => join_bluetooth(&first.bluetooth, &other.bluetooth),
        false => on_one_timeline(&first.internet, &other.internet),
    };
    match joined {
        Ok(joined) => Ok(Some(named(joined, reference, &file.file))),
        Err(why) if is_wanted => anyhow::bail!("{reference} and {} can't be joined: {why}", file.file),
        Err(NotJoined::NothingInCommon | NotJoined::OtherPackets | NotJoined::OtherLinks) => Ok(None),
        Err(why) => {
            file.remarks.push(format!("It is not joined with {reference}: {why}."));
            Ok(None)
        }
    }
}

fn named(mut joined: Joined, reference: &str, other: &str) -> Joined {
    if let Some(ways) = &mut joined.bluetooth {
        ways.name(reference, other);
    }
    Joined { reference: reference.to_owned(), other: other.to_owned(), ..joined }
}

/// What a trace is on the timelines of captures.
#[derive(Debug, Default)]
pub(crate) struct OnTimelines {
    /// By its connections of TCP.
    pub(crate) traces: Vec<JoinedTrace>,
    /// By its links of Bluetooth.
    pub(crate) links: Vec<Joined>,
    /// Where it can't be joined: the capture, and why.
    refused: Vec<(String, NotJoined)>,
}

impl OnTimelines {
    /// The trace on the timeline of a capture by TCP.
    pub(crate) fn trace(&mut self, joined: Result<JoinedTrace, NotJoined>, reference: &str, trace: &str) {
        match joined {
            Ok(joined) => {
                let (reference, trace) = (reference.to_owned(), trace.to_owned());
                self.traces.push(JoinedTrace { reference, trace, ..joined });
            }
            Err(why) => self.refused.push((reference.to_owned(), why)),
        }
    }

    /// The same by links of Bluetooth.
    pub(crate) fn links(&mut self, joined: Result<Joined, NotJoined>, reference: &str, trace: &str) {
        match joined {
            Ok(joined) => self.links.push(named(joined, reference, trace)),
            Err(why) => self.refused.push((reference.to_owned(), why)),
        }
    }

    /// Where it could not be joined the trace says why, unless it has nothing to do with that capture. It is an error
    /// if it has to be joined, and is with no capture.
    pub(crate) fn told(&mut self, trace: &mut ExplainedTrace, is_wanted: bool) -> anyhow::Result<()> {
        let is_joined = !self.traces.is_empty() || !self.links.is_empty();
        let is_of_others = |why: &NotJoined| matches!(why, NotJoined::NoTcpInCommon | NotJoined::OtherLinks);
        if is_wanted && !is_joined {
            let telling = self.refused.iter().find(|(_, why)| !is_of_others(why)).or_else(|| self.refused.first());
            if let Some((reference, why)) = telling {
                anyhow::bail!("{reference} and {} can't be joined: {why}", trace.file);
            }
        }
        let refused = self.refused.drain(..).filter(|(_, why)| !is_of_others(why));
        trace.remarks.extend(refused.map(|(reference, why)| format!("It is not joined with {reference}: {why}.")));
        Ok(())
    }
}
