//! What two joined files come to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_time::ClockMap;

use super::bluetooth::BluetoothWays;
use super::datagrams::DatagramLosses;
use super::fit::{Fit, open_rate};
use super::losses::{Acknowledged, Losses, Told, losses};
use super::matching::Matches;
use super::sightings::{MOST_SIGHTINGS, Sightings};
use super::stretches::{Placed, Stretches};

/// Two files of one path on the timeline of the first.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Joined {
    /// The file whose clock counts.
    pub reference: String,
    /// The file that was joined to it.
    pub other: String,
    /// Connections of TCP of which both have packets.
    pub connections: u64,
    /// Flows of UDP (two addresses, two ports) of which both have packets.
    #[serde(default)]
    pub udp_flows: u64,
    /// Packets that are in both, and by which the clocks were fitted.
    pub matched_packets: u64,
    /// The first of them: its number in the reference, and in the other file.
    pub first_frames: [u64; 2],
    /// The last of them.
    pub last_frames: [u64; 2],
    /// Whether both files have the same packets at the same times, as far as their clocks tell: they were
    /// taken at one place.
    pub is_same_place: bool,
    /// The clock of the other file.
    pub clock: ClockFit,
    /// The way from the reference's place to the other one.
    #[serde(default)]
    pub there: Way,
    /// The way back.
    #[serde(default)]
    pub back: Way,
    /// Of links of Bluetooth what their packets waited for; absent elsewhere. There `connections` are links, and
    /// `matched_packets` L2CAP PDUs, whose losses and acknowledgements are not in `there` and `back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bluetooth: Option<BluetoothWays>,
    /// What could not be joined, and what that means, a sentence each.
    pub remarks: Vec<String>,
}

/// The clock of one file, as the packets tell that both files have.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClockFit {
    /// By how much it is ahead of the reference's, at the middle of `span_ns`; negative: behind.
    pub offset_ns: i64,
    /// The offset may be wrong by so much, either way, at any time of `span_ns`. The true offset is within
    /// this as long as both clocks run evenly; how the least round trip is shared between both ways can't be
    /// told.
    pub uncertainty_ns: u64,
    /// By how much faster it runs, in parts per million.
    pub rate_ppm: f64,
    /// The least and the greatest rate at which no packet arrives before it left.
    pub rate_between_ppm: [f64; 2],
    /// The least round trip between both places.
    pub least_round_trip_ns: u64,
    /// From the first to the last packet that is in both files.
    pub span_ns: u64,
    /// How often one of the clocks was set, or changed its rate, among the packets of both files. The fit is that of
    /// the stretch with the most packets.
    pub steps: u64,
}

/// The time that packets took from one place to the other, in one direction.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Way {
    /// Packets that went it and are in both files.
    pub packets: u64,
    /// The least time, which may be wrong by the `uncertainty_ns` of the clock, either way. What one way has
    /// too much the other has too little.
    pub least_ns: i64,
    /// Median of what packets took beyond the least time. It does not depend on the offset of the clocks.
    pub median_beyond_ns: u64,
    /// What 99 of 100 took beyond it at most.
    pub p99_beyond_ns: u64,
    /// The most.
    pub most_beyond_ns: u64,
    /// What is beyond the least time may be wrong by so much, since the rate of the clock is not known exactly.
    pub beyond_uncertainty_ns: u64,
    /// The packet that took the most: its number in the file at whose place it left, and where it came.
    pub slowest_frames: [u64; 2],
    /// What became of the segments that went this way.
    #[serde(default)]
    pub losses: Losses,
    /// How soon the receiver of this way's data acknowledged it.
    #[serde(default)]
    pub acknowledged: Acknowledged,
    /// What became of the datagrams of UDP that went this way.
    #[serde(default)]
    pub datagrams: DatagramLosses,
}

impl Way {
    /// Whether packets wait on this way and not on the way back: a hundredth of them by more than 5 ms, and by more
    /// than four times what is so on the way back. It has to be more whatever the rate of the clocks is.
    pub fn has_the_queue(&self, back: &Self) -> bool {
        let surely = self.p99_beyond_ns.saturating_sub(self.beyond_uncertainty_ns);
        let at_most = back.p99_beyond_ns.saturating_add(back.beyond_uncertainty_ns);
        surely > at_most.max(5_000_000) && self.p99_beyond_ns > back.p99_beyond_ns.saturating_mul(4)
    }
}

/// The packets of one direction, by the line; the frames are those of reference and other file.
pub(super) fn way(
    packets: &[Placed],
    goes_there: bool,
    fit: &Fit,
    span_ns: u64,
    frames: impl Fn(&Placed) -> [u64; 2],
) -> Way {
    let of_way = packets.iter().filter(|placed| placed.point.goes_there == goes_there);
    let mut times: Vec<(i64, &Placed)> = of_way.map(|placed| (fit.way(&placed.point).round() as i64, placed)).collect();
    times.sort_by_key(|(ns, _)| *ns);
    let (Some(&(least_ns, _)), Some(&(most, slowest))) = (times.first(), times.last()) else { return Way::default() };
    let beyond = |ns: i64| ns.abs_diff(least_ns);
    let rank = |of_hundred: usize| beyond(times[(times.len() * of_hundred).div_ceil(100).max(1) - 1].0);
    let doubt = (fit.rates[1] - fit.rate).max(fit.rate - fit.rates[0]) * span_ns as f64;
    let [ours, theirs] = frames(slowest);
    Way {
        packets: times.len() as u64,
        least_ns,
        median_beyond_ns: rank(50),
        p99_beyond_ns: rank(99),
        most_beyond_ns: beyond(most),
        beyond_uncertainty_ns: doubt.ceil() as u64,
        slowest_frames: if goes_there { [ours, theirs] } else { [theirs, ours] },
        ..Way::default()
    }
}

/// What is said of the line.
pub(super) fn clock(fit: &Fit, map: &ClockMap, span_ns: u64, steps: u64) -> ClockFit {
    ClockFit {
        offset_ns: fit.offset.round() as i64,
        uncertainty_ns: u64::try_from(map.uncertainty.as_nanos()).unwrap_or(u64::MAX),
        rate_ppm: fit.rate * 1e6,
        rate_between_ppm: fit.rates.map(|rate| rate * 1e6),
        least_round_trip_ns: fit.round_trip as u64,
        span_ns,
        steps,
    }
}

pub(super) fn report(
    reference: &Sightings,
    other: &Sightings,
    matches: &Matches,
    stretches: &Stretches,
    best: usize,
    fit: Fit,
    map: &ClockMap,
) -> Joined {
    let packets = &stretches.all[best].packets;
    let mut flows: Vec<u32> =
        packets.iter().map(|placed| reference.seen[placed.found.reference as usize].flow).collect();
    flows.sort_unstable();
    flows.dedup();
    let udp_flows = flows.iter().filter(|&&flow| reference.ends[flow as usize].2).count() as u64;
    let frames = |placed: &Placed| {
        [reference.seen[placed.found.reference as usize].frame, other.seen[placed.found.other as usize].frame]
    };
    let times = || packets.iter().map(|placed| placed.point.at);
    let span_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
    let clock = clock(&fit, map, span_ns, stretches.steps());
    let slack = 2 * (reference.resolution_ns + other.resolution_ns).max(1);
    let is_same_place = packets.iter().all(|placed| fit.way(&placed.point).abs() <= slack as f64);
    let [there, back] = losses(reference, other, matches, stretches);
    let is_crowded = there.is_crowded || back.is_crowded;
    let with =
        |way: Way, Told { losses, acknowledged, datagrams, .. }: Told| Way { losses, acknowledged, datagrams, ..way };
    Joined {
        connections: flows.len() as u64 - udp_flows,
        udp_flows,
        matched_packets: packets.len() as u64,
        first_frames: packets.first().map_or([0; 2], frames),
        last_frames: packets.last().map_or([0; 2], frames),
        is_same_place,
        clock,
        there: with(way(packets, true, &fit, span_ns, frames), there),
        back: with(way(packets, false, &fit, span_ns, frames), back),
        remarks: [
            (fit.is_rate_open && !is_same_place).then(open_rate).into_iter().collect(),
            remarks(reference, other, matches, stretches, is_crowded),
        ]
        .concat(),
        ..Joined::default()
    }
}

/// What is said of packets, or of times of them, that no line explains.
pub(super) fn strays(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what} fits no clock that runs evenly; it was left out."),
        _ => format!("{count} {what}s fit no clock that runs evenly; they were left out."),
    }
}

fn remarks(
    reference: &Sightings,
    other: &Sightings,
    matches: &Matches,
    stretches: &Stretches,
    is_crowded: bool,
) -> Vec<String> {
    let mut remarks = Vec::new();
    if matches.is_translated {
        remarks.push(
            "The addresses are not the same in both files, as behind a NAT; packets were matched by their \
             sequence and acknowledgement numbers, datagrams by their payload."
                .to_owned(),
        );
    }
    if stretches.steps() > 0 {
        remarks.push(format!(
            "{} × a clock was set, or changed its rate; only the stretch with the most packets is joined.",
            stretches.steps()
        ));
    }
    if is_crowded {
        remarks.push("Some bytes are in more than 32 segments at once; what became of those is not told.".to_owned());
    }
    let beyond = reference.beyond.max(other.beyond);
    let told = [
        (
            matches.ambiguous,
            "packets are in both files, but nothing tells which is which, as a repetition without another \
             identification or timestamp; they were left out.",
        ),
        (
            stretches.of_one_direction,
            "packets are of connections of which only one direction is in both files; they were left out.",
        ),
        (
            reference.cut + other.cut,
            "datagrams of UDP are cut off in the first 16 bytes of their payload, and were left out; capture at least \
             128 bytes of each packet.",
        ),
    ];
    remarks.extend(told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    if stretches.strays > 0 {
        remarks.push(strays(stretches.strays, "packet"));
    }
    if beyond > 0 {
        remarks.push(format!(
            "Only the first {MOST_SIGHTINGS} packets of TCP and UDP of each file are held against each other; one has {beyond} more."
        ));
    }
    remarks
}
