//! Round trips in virtual time: the same client, samples and row as over a socket.

use taut_air::{AirLink, Role, ScenarioError};
use taut_link::Numbering;
use taut_time::{Framing, Instant};

use super::client::{EchoClient, Step};
use super::plan::EchoPlan;
use super::samples::Sampled;
use crate::air::AirPlan;
use crate::interrupt::Interrupt;
use taut_record::{EchoRow, Ended};

/// Sends from the scenario's sender; the other side sends back what it reads. Each round is a new
/// link with the next seed. There is no warm-up: nothing of a simulated link is cold.
///
/// # Errors
///
/// When the scenario's parameters do not fit each other, or its link does not come up.
pub fn run_simulated(
    plan: &EchoPlan,
    air: &AirPlan,
    command: &str,
    interrupt: &Interrupt,
) -> Result<(EchoRow, Ended), ScenarioError> {
    let (mut sampled, mut ended) = (Sampled::new(plan), Ended::Complete);
    let mut options = Vec::new();
    // What comes over a simulated link is believed, as from a server of the tests.
    let numbering = Numbering::of_session(Framing::Stream, 0);
    for round in 0..plan.rounds {
        if interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        let link = AirLink::open(&air.scenario, air.seed.wrapping_add(round as u64), &mut ())?;
        let near = air.scenario.sender;
        options = vec![format!("mtu {}", link.mtu(near)), format!("ci {} ns", air.scenario.ci)];
        let mut echo = AirEcho { link, near };
        let mut client = EchoClient::new(plan, [numbering]);
        let (messages, end) = plan.share_of(round, echo.now());
        client.count(messages, end, echo.now());
        let broken = run(&mut client, &mut echo, interrupt).err();
        let mut samples = client.into_samples();
        samples.lose_under_way();
        let lost = echo.link.disconnected();
        samples.complete = lost.is_none() && broken.is_none() && !interrupt.is_set();
        sampled.add(&samples);
        if let Some(reason) = lost {
            ended = Ended::PeerGone(format!("the link was lost (HCI error 0x{reason:02x})"));
            break;
        }
        if let Some(broken) = broken {
            ended = Ended::Failed(broken);
            break;
        }
    }
    let row = sampled.enter(EchoRow {
        endpoint: air.endpoint(),
        transport: "air".to_owned(),
        command: command.to_owned(),
        engine: "virtual time".to_owned(),
        message_bytes: plan.message_bytes as u64,
        writes: "write".to_owned(),
        connections: 1,
        rate_hz: plan.rate_hz,
        timeout_ns: u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX),
        options,
        peer_acks: "its own way".to_owned(),
        ..EchoRow::default()
    });
    Ok((row, ended))
}

/// A link in virtual time to a peer that sends back what it reads.
pub(super) trait SimulatedLink {
    /// Virtual time.
    fn now(&self) -> Instant;
    /// Sends a message; there is always room.
    fn write(&mut self, message: &[u8]);
    /// Lets time pass until something has come back, at most to `until`.
    fn wait(&mut self, until: Instant) -> Option<(Instant, Vec<u8>)>;
    /// Whether nothing will ever come any more.
    fn is_gone(&self) -> bool;
}

/// Drives a client over a simulated link until it has enough.
pub(super) fn run(
    client: &mut EchoClient<'_>,
    link: &mut impl SimulatedLink,
    interrupt: &Interrupt,
) -> Result<(), String> {
    while !link.is_gone() {
        if interrupt.is_set() {
            client.stop(link.now());
        }
        match client.poll(link.now()) {
            // There is always room.
            Step::Done | Step::Stuck { .. } => break,
            Step::Write { .. } => {
                let (message, written) = client.unwritten();
                let rest = &message[written..];
                let bytes = rest.len();
                link.write(rest);
                client.wrote(bytes);
            }
            Step::Wait => {
                let Some(until) = client.deadline() else { break };
                if let Some((at, bytes)) = link.wait(until) {
                    client.handle(0, &bytes, at)?;
                }
            }
        }
    }
    Ok(())
}

/// A simulated radio link whose far side echoes.
struct AirEcho {
    link: AirLink,
    near: Role,
}

impl SimulatedLink for AirEcho {
    fn now(&self) -> Instant {
        self.link.now()
    }

    fn write(&mut self, message: &[u8]) {
        self.link.write(self.near, message);
    }

    fn wait(&mut self, until: Instant) -> Option<(Instant, Vec<u8>)> {
        loop {
            let arrival = self.link.wait(until, &mut ())?;
            if arrival.side == self.near {
                return Some((arrival.at, arrival.bytes));
            }
            self.link.write(arrival.side, &arrival.bytes);
        }
    }

    fn is_gone(&self) -> bool {
        self.link.disconnected().is_some()
    }
}
