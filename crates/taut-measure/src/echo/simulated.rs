//! Round trips over a simulated link, in virtual time: the same loops, samples and row as over a socket.

use std::collections::VecDeque;

use taut_air::{AirLink, Role, ScenarioError};
use taut_time::{Duration, Instant};

use super::plan::{EchoPlan, Limit};
use super::samples::{Flight, Sampled, Samples};
use crate::Interrupt;
use crate::air::AirPlan;
use taut_record::{EchoRow, Ended};

/// Sends from the scenario's sender; the other side sends back what it reads. Each round is a new
/// link with the next seed.
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
    for round in 0..plan.rounds {
        if interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        let link = AirLink::open(&air.scenario, air.seed.wrapping_add(round as u64), &mut ())?;
        let near = air.scenario.sender;
        options = vec![format!("mtu {}", link.mtu(near)), format!("ci {} ns", air.scenario.ci)];
        let mut echo = Echo::new(plan, link, near);
        echo.round(round, interrupt);
        let lost = echo.link.disconnected();
        echo.samples.complete = lost.is_none() && !interrupt.is_set();
        sampled.add(&echo.samples);
        if let Some(reason) = lost {
            ended = Ended::PeerGone(format!("the link was lost (HCI error 0x{reason:02x})"));
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

struct Echo<'a> {
    plan: &'a EchoPlan,
    link: AirLink,
    near: Role,
    samples: Samples,
    /// Messages under way, oldest first, and whether each was given up. The channel keeps their order.
    flights: VecDeque<(Flight, bool)>,
    /// Bytes of the oldest one that have come back.
    back: usize,
    message: Vec<u8>,
}

impl<'a> Echo<'a> {
    fn new(plan: &'a EchoPlan, link: AirLink, near: Role) -> Self {
        let (samples, message) = (Samples::new(plan), vec![0x5a; plan.message_bytes]);
        Self { plan, link, near, samples, flights: VecDeque::new(), back: 0, message }
    }

    fn round(&mut self, round: usize, interrupt: &Interrupt) {
        let begun = self.link.now();
        let each =
            |whole: u64| whole / self.plan.rounds as u64 + u64::from((round as u64) < whole % self.plan.rounds as u64);
        let (messages, end) = match self.plan.limit {
            Limit::Count(count) => (each(count), None),
            Limit::Time(time) => (u64::MAX, Some(begun + time / u32::try_from(self.plan.rounds).unwrap_or(u32::MAX))),
        };
        for sequence in 0..messages {
            let period = self.plan.rate_hz.map(|rate| Duration::from_secs_f64(sequence as f64 / rate));
            let intended = period.map_or_else(|| self.link.now(), |offset| begun + offset);
            if end.is_some_and(|end| intended >= end) || interrupt.is_set() || self.link.disconnected().is_some() {
                break;
            }
            // Virtual time stands still for the program, so a message leaves just when it should.
            self.until(intended);
            self.samples.sent += 1;
            let flight = Flight { sequence, intended, sent: self.link.now() };
            if self.plan.rate_hz.is_some() {
                self.samples.sent_late_by(flight.sent.saturating_since(intended));
            }
            self.flights.push_back((flight, false));
            self.link.write(self.near, &self.message);
            if self.plan.rate_hz.is_none() {
                self.await_reply(flight);
            }
        }
        if let Some(&(last, _)) = self.flights.back() {
            self.until(last.sent + self.plan.timeout);
        }
        let missing = self.flights.drain(..).filter(|&(_, given_up)| !given_up).count();
        self.samples.lose(missing as u64);
    }

    /// A closed loop waits for this reply, or gives the message up.
    fn await_reply(&mut self, flight: Flight) {
        let deadline = flight.sent + self.plan.timeout;
        while self.flights.back().is_some_and(|(last, _)| last.sequence == flight.sequence) {
            if !self.step(deadline) {
                break;
            }
        }
        if let Some((_, given_up)) = self.flights.back_mut() {
            *given_up = true;
            self.samples.lose(1);
        }
    }

    fn until(&mut self, at: Instant) {
        while self.step(at) {}
    }

    /// Lets time pass to the next thing read, or to `until`; whether something was read.
    fn step(&mut self, until: Instant) -> bool {
        let Some(arrival) = self.link.wait(until, &mut ()) else { return false };
        if arrival.side != self.near {
            self.link.write(arrival.side, &arrival.bytes);
            return true;
        }
        self.back += arrival.bytes.len();
        while self.back >= self.plan.message_bytes {
            self.back -= self.plan.message_bytes;
            let Some((flight, given_up)) = self.flights.pop_front() else { break };
            let took = arrival.at.saturating_since(flight.sent);
            if given_up {
                self.samples.late_replies += 1;
            } else if took > self.plan.timeout {
                self.samples.lose(1);
                self.samples.late_replies += 1;
            } else {
                self.samples.replied(flight, arrival.at);
            }
        }
        true
    }
}
