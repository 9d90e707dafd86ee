//! From a channel's state to the report of one direction.

use taut_event::{Channel as Kind, Direction as Way, FlowKey, Holder, RadioLink};

use super::modelled::modelled;
use super::{Channel, classic, model, verdict};
use crate::engine::{Breakdown, ChannelFacts, Direction, Timed, TimesOf, held};
use crate::words;

/// Time that could be had back.
fn weight(breakdown: &Breakdown) -> u64 {
    let held = [
        Holder::Credits,
        Holder::RfcommCredits,
        Holder::ControllerBuffers,
        Holder::ConnectionInterval,
        Holder::Handshake,
    ];
    held.iter().map(|&holder| breakdown.ns(holder)).sum()
}

/// The report of a direction in which data went, with its breakdown and its weight among others; its causes
/// in the order of the link's model, if that is wanted.
pub(crate) fn direction(
    channel: &Channel,
    way: Way,
    start: u64,
    is_modelled: bool,
) -> Option<(Direction, &Breakdown, u64)> {
    let half = channel.half(way);
    let tally = &half.tally;
    let FlowKey::L2cap(key) = channel.flow.key else { return None };
    if tally.packets == 0 || channel.is_classic {
        return None;
    }
    let (near, far) = (key.near().to_string(), key.far().to_string());
    let (from, to) = if way == Way::Forward { (near, far) } else { (far, near) };
    let link = &channel.link(way);
    let is_le = !key.channel.is_classic();
    let seen = |value: u16| Some(value).filter(|&value| value > 0);
    let facts = ChannelFacts {
        kind: match key.channel {
            Kind::Att => "att",
            Kind::CreditBased(_) => "credit_based",
            Kind::Dynamic(_) | Kind::Unopened(_) => "dynamic",
            Kind::Basic(_) => "basic",
            Kind::Rfcomm(_) => "rfcomm",
            Kind::Media(_) => "media",
        }
        .to_owned(),
        interval_ns: Some(link.interval_ns).filter(|&interval| interval > 0),
        latency: (is_le && link.from_start).then_some(link.latency),
        phy: (is_le && link.from_start).then(|| verdict::phy_name(model::phy(link, way.index())).to_owned()),
        length_bytes: seen(link.length[way.index()]).filter(|_| is_le && link.from_start),
        is_encrypted: link.is_encrypted,
        mtu_bytes: seen(half.limits.mtu),
        mps_bytes: seen(half.limits.mps),
        initial_credits: Some(half.limits.credits).filter(|_| half.knows_credits()),
        controller_buffers: seen(half.buffers),
        sdus: tally.sdus,
        pdus: tally.pdus,
        pdus_of_unknown_sdus: tally.pdus_of_unknown_sdus,
        most_packets_per_interval: half.uses.main().map_or(0, |its| its.per_interval),
        median_completion_ns: tally.completions.median(),
        max_completion_ns: Some(tally.completions.max()).filter(|&most| most > 0),
        on_air_ns: tally.air_ns,
        gatt: channel.gatt.as_ref().and_then(|gatt| gatt.facts(way, half, link, channel.mtu())),
    };
    let (verdicts, model) = if is_le {
        let (verdicts, gains) = verdict::verdicts(channel, way, is_modelled);
        (verdicts, modelled(channel, way, is_modelled, gains.as_ref()))
    } else {
        (classic::verdicts(channel, way), modelled(channel, way, is_modelled, None))
    };
    let report = Direction {
        from,
        to,
        bytes: tally.bytes,
        segments: tally.packets,
        begin_ns: half.span_start.unwrap_or(start).saturating_sub(start),
        span_ns: half.breakdown.total_ns(),
        frames: [tally.first_place, tally.last_place],
        vantage: Some(if way == Way::Forward { 0.0 } else { 1.0 }),
        min_rtt_ns: 0,
        median_rtt_ns: None,
        mss_bytes: tally.largest_packet.into(),
        largest_window_bytes: None,
        peak_flight_bytes: tally.peak_bytes,
        repeated_segments: 0,
        breakdown: held(&half.breakdown, start),
        verdicts,
        model: Some(model),
        remarks: remarks(channel, way),
        times: Vec::new(),
        channel: Some(facts),
        datagrams: None,
        air: None,
        picture: None,
    };
    Some((report, &half.breakdown, weight(&half.breakdown)))
}

/// How long the peer's answers took, and packets in the controller.
pub(crate) fn times(channel: &Channel, way: Way) -> Vec<Timed<'_>> {
    let tally = &channel.half(way).tally;
    let unanswered = u64::from(tally.unanswered.is_some());
    let timed = |of, spread, unanswered| Timed { of, spread, unanswered, is_judged: true };
    let turns = timed(TimesOf::Turn, (!tally.is_turnless).then_some(&tally.answers), unanswered);
    let completions = timed(TimesOf::Completion, Some(&tally.completion_times), 0);
    let has_turns = tally.is_turnless || tally.answers.count() + unanswered > 0;
    has_turns.then_some(turns).into_iter().chain((tally.completions.count() > 0).then_some(completions)).collect()
}

/// What matters of a link.
fn kind(link: &RadioLink, way: Way) -> String {
    if !link.from_start {
        return match link.interval_ns {
            0 => "not known".to_owned(),
            interval => format!("interval {}", words::time(interval)),
        };
    }
    let (phy, length) = (verdict::phy_name(model::phy(link, way.index())), link.length[way.index()]);
    format!("interval {}, LE {phy}, {length} B", words::time(link.interval_ns))
}

/// What the log lacks, and what follows from that.
fn remarks(channel: &Channel, way: Way) -> Vec<String> {
    let mut remarks = Vec::new();
    let (link, tally) = (channel.link(way), &channel.half(way).tally);
    let is_le = !channel.half(way).is_classic;
    let is_dynamic = matches!(channel.flow.key, FlowKey::L2cap(key) if matches!(key.channel, Kind::Dynamic(_)));
    if !is_le {
        let missing = channel.half(way).media.missing();
        if !link.from_start && !tally.is_lossy {
            remarks.push(
                "The log lacks the link's begin, or packets since: what its channels are is not known.".to_owned(),
            );
        }
        if missing > 0 {
            remarks.push(format!("{missing} numbers are missing between those of the media packets."));
        }
    } else if link.from_start || tally.is_lossy {
        // Behind a loss nothing is known of the link either, but for another reason.
    } else if link.interval_ns == 0 && is_dynamic {
        remarks.push("The link was made before the log begins, and may be one of BR/EDR: log from before.".to_owned());
    } else {
        remarks.push(
            "The log lacks the link's begin, or packets since: its interval and PHY are not known unless they changed \
             later."
                .to_owned(),
        );
    }
    let mut kinds: Vec<String> =
        channel.half(way).uses.all().filter(|_| is_le).map(|its| kind(&its.link, way)).collect();
    kinds.dedup();
    if kinds.len() > 1 {
        remarks.push(format!(
            "The link changed while it was used: {}. The model is that of the part with most time.",
            kinds.join("; then ")
        ));
    }
    if tally.is_lossy && !tally.is_blind {
        remarks.push(
            "Packets are missing from the log: what the controller had and how many credits were left is not known from \
             then on, nor whether the link changed (interval, PHY, lengths) or became that of another peer."
                .to_owned(),
        );
    }
    if let Some(silence) = tally.silence.filter(|_| !tally.is_blind) {
        remarks.push(format!(
            "Between frames {} and {} nothing is told of the channel for {}, with packets in the controller, and the \
             link would not have lasted that long: the clock may have been set forward, or the host slept. This counts \
             as time that passed.",
            silence.places.0,
            silence.places.1,
            words::time(silence.length())
        ));
    }
    if let Some(place) = tally.overdrawn {
        let place = if place > 0 { format!(" (frame {place})") } else { String::new() };
        remarks.push(format!(
            "A PDU went although no credit was left{place}: the log lacks credits, and from there on they are \
             not known."
        ));
    }
    if tally.is_turnless {
        remarks
            .push("Too little of the packets was kept to tell who waited for whose turn; log them whole.".to_owned());
    } else if tally.sdus == 0 {
        remarks.push("No SDU is seen to end: how long they are is not known.".to_owned());
    }
    if tally.is_blind {
        remarks.push(
            "The log lacks Number Of Completed Packets, so nobody can tell how long packets waited and for whom."
                .to_owned(),
        );
    }
    if way == Way::Backward {
        remarks.push(
            "Received here: what the peer's host and controller had before it is not in this log; log there too."
                .to_owned(),
        );
    }
    remarks
}
