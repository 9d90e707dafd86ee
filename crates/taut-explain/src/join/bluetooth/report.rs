//! What two joined files of Bluetooth come to.

use taut_time::Duration;

use super::crossings::Crossings;
use super::pair::{Crossing, Paired, PairedLink, PairedWay};
use super::pdu::{MOST_AIR_PDUS, MOST_PDUS, Pdu};
use super::split::{Moment, Stay, split};
use super::told::{BluetoothWay, BluetoothWays, NAMES, TimesOn};
use super::within::Within;
use crate::join::fit::{Fit, Point, open_rate};
use crate::join::matching::Match;
use crate::join::report::{Joined, clock, strays, way};
use crate::join::stretches::{Placed, Stretches};

/// Times of the other file on the reference's clock, and the other way round.
struct Clocks<'a> {
    fit: &'a Fit,
}

impl Clocks<'_> {
    fn to_reference(&self, at: u64) -> u64 {
        // The clocks' rates differ by a thousandth at most, so a second step leaves nothing that counts.
        let near = |by: u64| at.wrapping_add_signed(-(self.fit.ahead(by).round() as i64));
        near(near(near(at)))
    }
}

fn times(mut all: Vec<(i64, [u64; 2])>) -> Option<TimesOn> {
    all.sort_unstable();
    let (&(least_ns, _), &(most_ns, most_frames)) = (all.first()?, all.last()?);
    let rank = |of_hundred: usize| all[(all.len() * of_hundred).div_ceil(100).max(1) - 1].0;
    Some(TimesOn { count: all.len() as u64, least_ns, median_ns: rank(50), p99_ns: rank(99), most_ns, most_frames })
}

/// What the controller did with what a log's host sent on a link, on the sniffer's clock.
#[derive(Debug)]
pub(super) struct WayOnAir {
    /// The link's number in the sniffer's file, and in the host's.
    pub(super) air: usize,
    pub(super) host: usize,
    pub(super) moments: Vec<Moment>,
}

pub(super) fn report(
    reference: &Crossings,
    other: &Crossings,
    paired: &Paired,
    stretches: &Stretches,
    is_told_early: bool,
    each: &mut impl FnMut(WayOnAir),
) -> Joined {
    let (best, fit) = stretches.longest();
    let map = fit.to_clock_map(Duration::from_nanos(other.resolution_ns.max(1)));
    let points = &stretches.all[best].packets;
    let at = |placed: &Placed| placed.point.at;
    let span = [points.iter().map(at).min().unwrap_or(0), points.iter().map(at).max().unwrap_or(0)];
    let clocks = Clocks { fit: &fit };
    let slack = 2 * (reference.resolution_ns + other.resolution_ns).max(1);
    let is_same_kind = paired.all.iter().all(|link| {
        let [ours, theirs] = [reference.links[link.links[0]].is_air(), other.links[link.links[1]].is_air()];
        ours == theirs
    });
    let is_same_place = is_same_kind && points.iter().all(|placed| fit.way(&placed.point).abs() <= slack as f64);
    let mut whole = Vec::new();
    let mut frames = Vec::new();
    let mut ways = Vec::new();
    let mut links = 0;
    let is_parted = stretches.steps() > 0 || stretches.strays > 0;
    let mut within = Within::of(points, is_parted, is_told_early, (paired, reference, other));
    for link in &paired.all {
        let before = whole.len();
        for paired_way in &link.ways {
            let all = Paired::crossings(link, paired_way, reference, other);
            let crossings: Vec<Crossing<'_>> =
                all.filter_map(|crossing| within.checked(crossing, link, paired_way, (reference, other))).collect();
            for crossing in &crossings {
                let place = frames.len() as u32;
                frames.push([crossing.reference.frames[0], crossing.other.frames[0]]);
                let [ours, theirs] = passes(reference, other, link, paired_way, crossing);
                let point =
                    Point { at: ours, ahead: theirs.wrapping_sub(ours) as i64, goes_there: paired_way.goes_there };
                whole.push(Placed { found: Match { reference: place, other: place }, point });
            }
            if !is_same_place && !crossings.is_empty() {
                ways.extend(bluetooth_way(
                    [reference, other],
                    link,
                    paired_way,
                    &crossings,
                    &clocks,
                    (span, &within),
                    each,
                ));
            }
        }
        links += u64::from(whole.len() > before);
    }
    ways.sort_by_key(|way: &BluetoothWay| std::cmp::Reverse(way.pdus));
    let frames_of = |placed: &Placed| frames[placed.found.reference as usize];
    let span_ns = span[1] - span[0];
    let mut by_time: Vec<&Placed> = whole.iter().collect();
    by_time.sort_by_key(|placed| (frames_of(placed)[0], placed.point.at));
    Joined {
        connections: links,
        matched_packets: whole.len() as u64,
        first_frames: by_time.first().map_or([0; 2], |placed| frames_of(placed)),
        last_frames: by_time.last().map_or([0; 2], |placed| frames_of(placed)),
        is_same_place,
        clock: clock(&fit, &map, span_ns, stretches.steps()),
        there: way(&whole, true, &fit, span_ns, frames_of),
        back: way(&whole, false, &fit, span_ns, frames_of),
        bluetooth: Some(BluetoothWays {
            programs: Vec::new(),
            by_bytes: paired.all.iter().map(|link| link.by_bytes).sum(),
            is_told_early,
            ways,
        }),
        remarks: [
            (fit.is_rate_open && !is_same_place).then(open_rate).into_iter().collect(),
            remarks(reference, other, stretches, is_told_early),
            left_out(paired, reference, other, within.left_out),
        ]
        .concat(),
        ..Joined::default()
    }
}

fn left_out(paired: &Paired, reference: &Crossings, other: &Crossings, reports: u64) -> Vec<String> {
    let has_air = |link: &&PairedLink| reference.links[link.links[0]].is_air() || other.links[link.links[1]].is_air();
    let unlogged: u64 = paired.all.iter().filter(has_air).flat_map(|link| &link.ways).map(|way| way.unlogged).sum();
    let told = [
        (
            paired.copies,
            "× a link of one file has the same PDUs at the same times as another one of it, as a copy has; nothing \
             tells which of them it is, and one was taken.",
        ),
        (
            unlogged,
            "L2CAP PDUs on the air are not in the log; what its controller reported behind the first of those that \
             its host sent was left out, as nothing tells whose it is.",
        ),
        (reports, "reports of the controller are not of the stretch that is joined; they were left out."),
    ];
    told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
}

/// When a PDU passed both places, by their own clocks.
fn passes(
    reference: &Crossings,
    other: &Crossings,
    link: &PairedLink,
    way: &PairedWay,
    crossing: &Crossing<'_>,
) -> [u64; 2] {
    let is_air = [reference.links[link.links[0]].is_air(), other.links[link.links[1]].is_air()];
    let Crossing { reference, other, .. } = crossing;
    match (is_air, way.goes_there) {
        ([false, true], true) | ([true, false], false) | ([true, true], _) => [reference.begin, other.begin],
        _ => [reference.end, other.end],
    }
}

fn bluetooth_way(
    files: [&Crossings; 2],
    link: &PairedLink,
    way: &PairedWay,
    crossings: &[Crossing<'_>],
    clocks: &Clocks<'_>,
    (span, stretch): ([u64; 2], &Within),
    each: &mut impl FnMut(WayOnAir),
) -> Option<BluetoothWay> {
    let links = [0, 1].map(|file| &files[file].links[link.links[file]]);
    let is_air = links.map(|link| link.is_air());
    // All on the reference's clock.
    let on_reference = |pdu: &Pdu, is_others: bool| {
        let time = |at: u64| if is_others && at > 0 { clocks.to_reference(at) } else { at };
        Pdu { begin: time(pdu.begin), last: time(pdu.last), end: time(pdu.end), done: time(pdu.done), ..*pdu }
    };
    let all: Vec<[Pdu; 2]> = crossings
        .iter()
        .map(|crossing| {
            let mut both = [on_reference(crossing.reference, false), on_reference(crossing.other, true)];
            let logs = both.iter_mut().zip(is_air).filter(|(_, is_air)| !is_air && !crossing.is_reported);
            logs.for_each(|(pdu, _)| pdu.done = 0);
            if !crossing.is_acknowledged {
                both.iter_mut().for_each(|pdu| pdu.done = 0);
            }
            both
        })
        .collect();
    let between = |from: u64, to: u64| to.wrapping_sub(from) as i64;
    // Which of both files has what leaves, and what comes.
    let (left, came) = if way.goes_there { (0, 1) } else { (1, 0) };
    let name = |is: bool, file: usize| is.then(|| NAMES[file].to_owned());
    let missing = {
        let log = if is_air[0] { 1 } else { 0 };
        let seen = &links[log].ways[way.ways[log]];
        let within = |pdu: &&Pdu| {
            if let Some(frames) = stretch.frames(log) {
                return (frames[0]..=frames[1]).contains(&pdu.frames[0]);
            }
            let at = if log == 1 { clocks.to_reference(pdu.begin) } else { pdu.begin };
            (span[0]..=span[1]).contains(&at)
        };
        (seen.iter().filter(within).count() as u64).saturating_sub(all.len() as u64)
    };
    let log = if is_air[left] { came } else { left };
    let mut told = BluetoothWay {
        link: links[log].host(),
        pdus: all.len() as u64,
        missing,
        not_in_log: way.unlogged,
        ..BluetoothWay::default()
    };
    match is_air {
        [true, true] => return None,
        [false, false] => {
            told.sender = name(true, left);
            told.receiver = name(true, came);
            let whole = |pdus: &[Pdu; 2]| {
                (between(pdus[left].end, pdus[came].end), [pdus[left].frames[1], pdus[came].frames[1]])
            };
            told.end_to_end = times(all.iter().map(whole).collect());
            return Some(told);
        }
        _ => {}
    }
    let (air, host) = if is_air[0] { (0, 1) } else { (1, 0) };
    told.sniffer = name(true, air);
    told.repeats = all.iter().map(|pdus| u64::from(pdus[air].repeats)).sum();
    if came == host {
        told.receiver = name(true, host);
        let to_host =
            |pdus: &[Pdu; 2]| (between(pdus[air].end, pdus[host].end), [pdus[air].frames[1], pdus[host].frames[1]]);
        told.to_host = times(all.iter().map(to_host).collect());
        return Some(told);
    }
    told.sender = name(true, host);
    let to_air =
        |pdus: &[Pdu; 2]| (between(pdus[host].begin, pdus[air].begin), [pdus[host].frames[0], pdus[air].frames[0]]);
    told.to_air = times(all.iter().map(to_air).collect());
    let acknowledged = all.iter().filter(|pdus| pdus[air].done > 0);
    let to_acknowledgement =
        |pdus: &[Pdu; 2]| (between(pdus[host].begin, pdus[air].done), [pdus[host].frames[0], pdus[air].frames[1]]);
    told.to_acknowledgement = times(acknowledged.clone().map(to_acknowledgement).collect());
    let reported = acknowledged.filter(|pdus| pdus[host].done > 0);
    let to_report =
        |pdus: &[Pdu; 2]| (between(pdus[air].done, pdus[host].done), [pdus[air].frames[1], pdus[host].done_frame]);
    told.to_report = times(reported.map(to_report).collect());
    // The air is the longer one, so what is few goes to its clock.
    let to_air_clock = |at: u64| {
        if air == 1 { at.wrapping_add_signed(clocks.fit.ahead(at).round() as i64) } else { at }
    };
    let stays: Vec<Stay> = all
        .iter()
        .filter(|pdus| pdus[air].done > 0)
        .map(|pdus| Stay {
            from: to_air_clock(pdus[host].begin),
            last: to_air_clock(pdus[air].last),
            acknowledged: to_air_clock(pdus[air].done),
            // A log may lack the report.
            reported: to_air_clock(pdus[host].done.max(pdus[air].done)),
        })
        .collect();
    // A step of the sniffer's clock is no time of the air.
    let slots = links[air].air.as_ref().map_or(&[][..], |air| match stretch.frames(if is_air[0] { 0 } else { 1 }) {
        Some(frames) => air.slots_of(frames),
        None => &air.slots[..],
    });
    let mut moments = Vec::new();
    told.in_controller =
        (!stays.is_empty()).then(|| split(slots, way.ways[air], &stays, |moment| moments.push(moment)));
    each(WayOnAir { air: link.links[air], host: link.links[host], moments });
    Some(told)
}

fn remarks(reference: &Crossings, other: &Crossings, stretches: &Stretches, is_told_early: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    if stretches.steps() > 0 {
        remarks.push(format!(
            "{} × a clock was set, or changed its rate; only the stretch with the most packets is joined.",
            stretches.steps()
        ));
    }
    if is_told_early {
        remarks.push(
            "The controller tells that packets are through before they are acknowledged on the air, so this had no \
             part in the clocks."
                .to_owned(),
        );
    }
    if stretches.strays > 0 {
        remarks.push(strays(stretches.strays, "time"));
    }
    let timeless = reference.timeless + other.timeless;
    if timeless > 0 {
        let has = if timeless == 1 {
            "packet of links has no time, and was"
        } else {
            "packets of links have no time, and were"
        };
        remarks.push(format!("{timeless} {has} left out."));
    }
    let beyond = reference.beyond.max(other.beyond);
    if beyond > 0 {
        remarks.push(format!(
            "Only the first {MOST_PDUS} L2CAP PDUs of each file are held against each other, on the air the first \
             {} PDUs; one has {beyond} packets more.",
            MOST_AIR_PDUS
        ));
    }
    remarks
}
