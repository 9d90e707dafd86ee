use taut_air::{AirLink, Role, ScenarioError};
use taut_time::Duration;

use super::AirPlan;
use crate::Interrupt;
use crate::stream::Direction;
use taut_record::stats::{Interval, interval, median};
use taut_record::{Counted, Ended, StreamRound, StreamRow};

/// Throughput over a simulated link, in virtual time. `Up` is from the scenario's sender. Each round is a new link with
/// the next seed; the programs write `block_bytes` again as soon as their socket has taken what they wrote before.
///
/// # Errors
///
/// When the scenario's parameters do not fit each other, or its link does not come up.
pub fn stream(
    air: &AirPlan,
    direction: Direction,
    block_bytes: usize,
    (time, rounds): (Duration, usize),
    command: &str,
    interrupt: &Interrupt,
) -> Result<(StreamRow, Ended), ScenarioError> {
    let up = air.scenario.sender;
    let senders: &[Role] = match direction {
        Direction::Up => &[up],
        Direction::Down => &[up.other()],
        Direction::Both => &[up, up.other()],
    };
    let (mut measured, mut ended) = (Vec::new(), Ended::Complete);
    let mut options = Vec::new();
    for round in 0..rounds {
        if interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        let mut link = AirLink::open(&air.scenario, air.seed.wrapping_add(round as u64), &mut ())?;
        options = vec![format!("mtu {}", link.mtu(up)), format!("ci {} ns", air.scenario.ci)];
        measured.push(flow(
            &mut link,
            senders,
            block_bytes,
            time / u32::try_from(rounds).unwrap_or(u32::MAX),
            interrupt,
        ));
        if let Some(reason) = link.disconnected() {
            ended = Ended::PeerGone(format!("the link was lost (HCI error 0x{reason:02x})"));
            break;
        }
    }
    // One that the link or the user cut short is in no interval, but where there is no other.
    let rates = |whole: bool| -> Vec<f64> {
        measured.iter().filter(|round| round.complete || !whole).map(|round| round.throughput_bps).collect()
    };
    let (rates, all) = (rates(true), rates(false));
    let row = StreamRow {
        endpoint: air.endpoint(),
        transport: "air".to_owned(),
        command: command.to_owned(),
        direction: direction.name().to_owned(),
        connections: 1,
        block_bytes: block_bytes as u64,
        throughput_bps: median(&rates).or_else(|| median(&all)).unwrap_or(0.0),
        throughput_bps_ci: interval(&rates).map(Interval::ends),
        throughput_bps_ci_level: interval(&rates).map(|interval| interval.level),
        bytes: measured.iter().map(|round| round.bytes).sum(),
        counted: Counted::Received,
        lost_bytes: 0,
        unconfirmed_bytes: 0,
        coarse: None,
        // A model has no processor.
        cpu_ns: 0,
        peer_cpu_ns: None,
        bytes_per_cpu_second: 0.0,
        rounds: measured,
        placement: None,
        tcp: None,
        options,
    };
    Ok((row, ended))
}

/// One round: what arrives in the given time.
fn flow(
    link: &mut AirLink,
    senders: &[Role],
    block_bytes: usize,
    time: Duration,
    interrupt: &Interrupt,
) -> StreamRound {
    let block = vec![0x5a; block_bytes];
    let begun = link.now();
    let end = begun + time;
    let (mut bytes, mut first, mut last) = (0, None, begun);
    while link.now() < end && !interrupt.is_set() && link.disconnected().is_none() {
        for &sender in senders {
            // A whole block ahead, as a program that writes into a socket has it.
            if link.unwritten(sender) < block_bytes {
                link.write(sender, &block);
            }
        }
        if let Some(arrival) = link.wait(end, &mut ()) {
            bytes += arrival.bytes.len() as u64;
            last = arrival.at;
            // The time runs from the first arrival, so its own bytes are not in it.
            first.get_or_insert((arrival.at, arrival.bytes.len() as u64));
        }
    }
    let (since, before) = first.unwrap_or((last, 0));
    let took = last.saturating_since(since);
    let throughput_bps = if took.is_zero() { 0.0 } else { (bytes - before) as f64 * 8.0 / took.as_secs_f64() };
    let complete = !interrupt.is_set() && link.disconnected().is_none();
    StreamRound { throughput_bps, bytes, duration_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), complete }
}
