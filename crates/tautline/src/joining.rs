//! Several captures of one path on one timeline.

use taut_capture::{
    AirPayload, Flows, HostPacket, HostPackets, Packet, Skipped, TcpPacket, UdpPacket, air_payload, decode, decode_udp,
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
        see(&packet, &mut self.internet);
        self.host_packet(&packet);
        match air_payload(&packet) {
            Some(payload) => {
                let mut both = Both { sink, links: &mut self.bluetooth, payload };
                flows.packet(&packet, VantageId(0), &mut both);
            }
            None => flows.packet(&packet, VantageId(0), sink),
        }
    }

    /// What it has of TCP and UDP.
    pub(crate) const fn internet(&self) -> &Sightings {
        &self.internet
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
                (HostPacket::Lost, _) | (_, None) => bluetooth.lost(),
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
    match decode(packet) {
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

/// A file on the timeline of the first one. Where that can't be, it is an error if it must be; else the file says
/// why, unless they have nothing to do with each other.
pub(crate) fn join(
    (reference, first): &(String, Seen),
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
        Ok(mut joined) => {
            if let Some(ways) = &mut joined.bluetooth {
                ways.name(reference, &file.file);
            }
            Ok(Some(Joined { reference: reference.clone(), other: file.file.clone(), ..joined }))
        }
        Err(why) if is_wanted => anyhow::bail!("{reference} and {} can't be joined: {why}", file.file),
        Err(NotJoined::NothingInCommon | NotJoined::OtherPackets | NotJoined::OtherLinks) => Ok(None),
        Err(why) => {
            file.remarks.push(format!("It is not joined with {reference}: {why}."));
            Ok(None)
        }
    }
}

/// What a trace is on the timeline of a capture. Where that can't be, the same holds as of [`join`].
pub(crate) fn joined_trace(
    joined: Result<JoinedTrace, NotJoined>,
    reference: &str,
    trace: &mut ExplainedTrace,
    is_wanted: bool,
) -> anyhow::Result<Option<JoinedTrace>> {
    match joined {
        Ok(joined) => Ok(Some(JoinedTrace { reference: reference.to_owned(), trace: trace.file.clone(), ..joined })),
        Err(why) if is_wanted => anyhow::bail!("{reference} and {} can't be joined: {why}", trace.file),
        Err(NotJoined::NoTcpInCommon) => Ok(None),
        Err(why) => {
            trace.remarks.push(format!("It is not joined with {reference}: {why}."));
            Ok(None)
        }
    }
}
