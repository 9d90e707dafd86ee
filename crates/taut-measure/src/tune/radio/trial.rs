//! One way to have the link, measured once.

use taut_link::bluetooth::{CreditRule, IntervalLimits, Phy};
use taut_link::wire::{AckPolicy, Shape};
use taut_link::{Endpoint, Error, Link, Result, Shaper, SocketOption};
use taut_time::Duration;

use super::choice::{Choice, InitialLink};
use super::plan::RadioPlan;
use crate::interrupt::Interrupt;
use crate::stream::{self, Direction, StreamPlan};
use taut_record::fact;

/// What it gave.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) bps: f64,
    pub(super) options: Vec<String>,
}

/// Where trials are made: a link to the peer stays open meanwhile, so that the connection below all channels does.
pub(super) struct Bench<'a> {
    plan: &'a RadioPlan,
    /// The server's receiving, where it is `taut serve`.
    shaper: Option<Shaper>,
    /// Any other peer: a channel that nothing is sent on.
    #[expect(dead_code, reason = "held open, no more")]
    plain: Option<Link>,
    found: InitialLink,
}

/// For every answer of the peer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Time of one trial: so many intervals, so that some SDUs come even when each takes two of them,
/// and at least the second.
const INTERVALS: u32 = 16;
const LEAST: Duration = Duration::from_millis(500);

impl<'a> Bench<'a> {
    pub(super) fn open(plan: &'a RadioPlan) -> Result<Self> {
        if !plan.endpoint.has_radio() {
            return Err(Error::Input(format!("{}: that is no link of Bluetooth LE", plan.endpoint)));
        }
        let (shaper, plain) = if plan.plain {
            (None, Some(Link::connect(&plan.endpoint, PATIENCE)?))
        } else {
            (Some(Shaper::open(&plan.endpoint, PATIENCE)?), None)
        };
        let link = shaper.as_ref().map(|shaper| shaper.session().link()).or(plain.as_ref());
        let options = link.map(SocketOption::in_force).unwrap_or_default();
        Ok(Self { found: found(&options, plan.direction), plan, shaper, plain })
    }

    pub(super) fn found(&self) -> InitialLink {
        self.found.clone()
    }

    /// Measures.
    pub(super) fn trial(&self, choice: &Choice, interrupt: &Interrupt) -> Result<Trial> {
        if let Some(shaper) = &self.shaper {
            let shaped = shaper.shape(choice.there(self.plan))?;
            if shaped.errno != 0 {
                return Err(refused(&self.plan.endpoint, shaped.errno));
            }
        }
        measure(self.plan, &self.found, choice, interrupt)
    }

    /// Whether the link that is held open is gone too.
    pub(super) fn has_lost_the_peer(&self) -> bool {
        self.shaper.as_ref().is_none_or(|shaper| shaper.shape(Shape::default()).is_err())
    }

    /// Asks the peer for something beyond the trials; whether it did it.
    pub(super) fn ask(&self, shape: Shape) -> bool {
        self.shaper.as_ref().is_some_and(|shaper| shaper.shape(shape).is_ok_and(|shaped| shaped.errno == 0))
    }

    /// The limits of intervals of the peer's adapter, where they are known.
    pub(super) fn peer_intervals(&self) -> Option<IntervalLimits> {
        self.shaper.as_ref()?.shape(Shape::default()).ok()?.intervals
    }

    /// Puts the peer's receiving back, or has it stay as the last trial had it.
    pub(super) fn close(self, keep: bool) -> Result<()> {
        match self.shaper {
            Some(shaper) if keep => shaper.shape(Shape { keep, ..Shape::default() }).map(drop),
            _ => Ok(()),
        }
    }
}

pub(super) fn refused(endpoint: &Endpoint, errno: u32) -> Error {
    let error = std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
    Error::Refused { endpoint: endpoint.to_string(), reason: format!("it can't set that: {error}") }
}

pub(super) fn measure(plan: &RadioPlan, found: &InitialLink, choice: &Choice, interrupt: &Interrupt) -> Result<Trial> {
    let interval = Duration::from_micros(1250 * u64::from(choice.interval.or(found.interval).unwrap_or(0)));
    let endpoint = choice.here(plan).on(&plan.endpoint).unwrap_or_else(|| plan.endpoint.clone());
    let outcome = stream::run(
        &StreamPlan {
            endpoint,
            direction: plan.direction,
            connections: 1,
            block_bytes: choice.block(plan, found),
            time: plan.time.unwrap_or_else(|| LEAST.max(interval * INTERVALS)),
            rounds: 1,
            options: Vec::new(),
            acks: AckPolicy::System,
            plain: plan.plain,
            spot: crate::placement::Spot::default(),
            command: plan.command.clone(),
        },
        interrupt,
        &mut |_, _| {},
    )?;
    match outcome.ended {
        taut_record::Ended::PeerGone(why) => Err(Error::Refused { endpoint: plan.endpoint.to_string(), reason: why }),
        _ => Ok(Trial { bps: outcome.row.throughput_bps, options: outcome.row.options }),
    }
}

fn found(options: &[String], direction: Direction) -> InitialLink {
    let number = |name: &str| fact(options, name)?.parse::<u32>().ok();
    let short = |name: &str| number(name).and_then(|value| u16::try_from(value).ok());
    let [length, mtu, mps, rule] = match direction {
        Direction::Down => ["rx_octets", "rcv_mtu", "rcv_mps", "credit_rule"],
        _ => ["tx_octets", "snd_mtu", "snd_mps", "peer_credit_rule"],
    };
    let phy = fact(options, "phy").map(|names| match names.split('+').next() {
        Some("2m_tx") => Phy::Le2M,
        Some("coded_tx") => Phy::LeCoded,
        _ => Phy::Le1M,
    });
    InitialLink {
        interval: number("connection_interval_us").and_then(|us| u16::try_from(us / 1250).ok()),
        phy,
        length: short(length),
        mtu: short(mtu),
        mps: short(mps),
        for_one_sdu: fact(options, rule) == Some(CreditRule::Sdu.name()),
    }
}
