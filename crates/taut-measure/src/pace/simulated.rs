//! Periodic sending over a simulated link, in virtual time: the same timeline and analysis as over a socket.

use taut_air::{AirLink, ScenarioError};
use taut_time::{ByteRange, Event, Host, Layer, What};

use super::analysis::{Receiver, Totals};
use super::plan::{PaceOutcome, PacePlan, SETTLE};
use super::sender::SentRound;
use crate::Interrupt;
use crate::air::{AirPlan, AirTimeline};
use taut_record::Ended;

/// Sends from the scenario's sender. Each round is a new link with the next seed. Of the plan only the messages, their
/// schedule and the limits play a part.
///
/// # Errors
///
/// When the scenario's parameters do not fit each other, or its link does not come up.
pub(super) fn run(plan: &PacePlan, air: &AirPlan, interrupt: &Interrupt) -> Result<PaceOutcome, ScenarioError> {
    let receiver = Receiver {
        endpoint: air.endpoint(),
        transport: "air".to_owned(),
        describe: "a program in virtual time".to_owned(),
        tells: true,
    };
    let (mut totals, mut ended) = (Totals::new(plan, receiver), Ended::Complete);
    for round in 0..plan.rounds {
        if interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        let (sent, lost) = send_round(plan, air, air.seed.wrapping_add(round as u64), interrupt)?;
        totals.add(sent);
        if let Some(reason) = lost {
            ended = Ended::PeerGone(format!("the link was lost (HCI error 0x{reason:02x})"));
            break;
        }
    }
    Ok(totals.finish(ended))
}

fn send_round(
    plan: &PacePlan,
    air: &AirPlan,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<(SentRound, Option<u8>), ScenarioError> {
    let mut seen = AirTimeline::of_writes();
    let mut link = AirLink::open(&air.scenario, seed, &mut seen)?;
    let sender = air.scenario.sender;
    let begun = link.now();
    let message = vec![0x5a; plan.message_bytes];
    let each = plan.time / u32::try_from(plan.rounds).unwrap_or(u32::MAX);
    let messages = (each.as_nanos() / plan.period.as_nanos().max(1)).max(1) as u64;
    let mut intended = Vec::new();
    for number in 0..messages {
        if interrupt.is_set() || link.disconnected().is_some() {
            break;
        }
        let at = begun + plan.period.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        while link.wait(at, &mut seen).is_some() {}
        link.write(sender, &message);
        let start = number * plan.message_bytes as u64;
        intended.push((at, ByteRange::new(start, start + plan.message_bytes as u64)));
    }
    let end = link.now() + SETTLE;
    while link.wait(end, &mut seen).is_some() {}
    let mut timeline = seen.finish();
    for (at, bytes) in &intended {
        for what in [What::Intended, What::WriteBegin] {
            timeline.push(Event { at: *at, host: Host::Local, layer: Layer::Application, what, bytes: *bytes });
        }
    }
    let sent = SentRound {
        timeline,
        messages: intended.len() as u64,
        segments: None,
        nagle: None,
        clock_uncertainty_ns: Some(0),
        tcp: None,
        is_told: true,
        is_placed: true,
        complete: !interrupt.is_set() && link.disconnected().is_none(),
        options: vec![format!("mtu {}", link.mtu(sender)), format!("ci {} ns", air.scenario.ci)],
    };
    Ok((sent, link.disconnected()))
}
