//! The air between two radios: what is lost on it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::controller::Transmission;
use crate::link::Reception;
use crate::phy::{ACCESS_ADDRESS_BYTES, CRC_BYTES, HEADER_BYTES, MIC_BYTES};
use crate::rng::Random;
use crate::time::Nanos;

/// Kinds of loss; any of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Probability that a bit is wrong, each by itself, 0 to 1.
    pub ber: f64,
    /// Probability that a packet's CRC is wrong, 0 to 1.
    pub per: f64,
    /// Losses in bursts.
    pub burst: Burst,
    /// A source of interference that comes and goes.
    pub interference: Interference,
}

/// The Gilbert-Elliott model: a good state in which nothing is lost by it, and a bad one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Burst {
    /// Probability to enter the bad state with a packet; 0 for no bursts.
    pub enter: f64,
    /// Probability to leave it with a packet.
    pub exit: f64,
    /// Probability that a packet is wrong in the bad state.
    pub per: f64,
}

/// On for some time in every period, as another network's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interference {
    /// Period; 0 for none.
    pub period: Nanos,
    /// Time that it is on, from the beginning of each period.
    pub on: Nanos,
    /// Probability that a packet which overlaps with it is wrong.
    pub per: f64,
}

/// The medium, with its state and the packets on it.
#[derive(Clone, Debug)]
pub struct Medium {
    loss: Loss,
    random: Random,
    bad: bool,
    clean: bool,
    on_air: Vec<OnAir>,
}

/// A packet on the air.
#[derive(Clone, Debug)]
pub(crate) struct OnAir {
    pub(crate) transmission: Box<Transmission>,
    pub(crate) reception: Reception,
    /// Number of the machine that sends it.
    pub(crate) from: usize,
}

impl Medium {
    /// A medium in the good state.
    pub fn new(loss: Loss, random: Random) -> Self {
        let clean = loss.ber <= 0.0 && loss.per <= 0.0 && loss.burst.enter <= 0.0 && loss.interference.period == 0;
        Self { loss, random, bad: false, clean, on_air: Vec::new() }
    }

    /// Packets on the air now.
    pub(crate) fn on_air(&self) -> &[OnAir] {
        &self.on_air
    }

    /// When the first of them ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.on_air.iter().map(|packet| packet.transmission.end).min()
    }

    /// A packet begins. What receivers will make of it, unless another one comes upon it.
    pub(crate) fn begin(&mut self, transmission: &Transmission) -> Reception {
        let mut reception = self.judge(transmission);
        // Two at once on a channel: neither can be read.
        for other in &mut self.on_air {
            if other.transmission.channel == transmission.channel {
                other.reception = Reception::CrcError;
                reception = Reception::CrcError;
            }
        }
        reception
    }

    /// Carries a packet that has begun until it ends.
    pub(crate) fn carry(&mut self, from: usize, transmission: Box<Transmission>, reception: Reception) {
        self.on_air.push(OnAir { transmission, reception, from });
    }

    /// Takes the first packet that has ended by `now`.
    pub(crate) fn end(&mut self, now: Instant) -> Option<OnAir> {
        let index = self.on_air.iter().position(|packet| packet.transmission.end <= now)?;
        Some(self.on_air.remove(index))
    }

    /// Decides what a listening receiver makes of a packet.
    fn judge(&mut self, transmission: &Transmission) -> Reception {
        if self.clean {
            return Reception::Received;
        }
        let Loss { ber, per, burst, interference } = self.loss;
        if ber > 0.0 {
            // An access address with a wrong bit isn't found.
            if self.random.chance(1.0 - none(ber, 8 * ACCESS_ADDRESS_BYTES)) {
                return Reception::Missed;
            }
            let mic = if transmission.mic { MIC_BYTES } else { 0 };
            let bytes = HEADER_BYTES + transmission.pdu.payload().len() + mic + CRC_BYTES;
            if self.random.chance(1.0 - none(ber, 8 * bytes)) {
                return Reception::CrcError;
            }
        }
        if burst.enter > 0.0 {
            self.bad = if self.bad { !self.random.chance(burst.exit) } else { self.random.chance(burst.enter) };
            if self.bad && self.random.chance(burst.per) {
                return Reception::CrcError;
            }
        }
        if interference.period > 0 {
            let (start, end) = (transmission.start.as_nanos(), transmission.end.as_nanos());
            let begun = start % interference.period;
            let overlaps = begun < interference.on || begun + (end - start) > interference.period;
            if overlaps && self.random.chance(interference.per) {
                return Reception::CrcError;
            }
        }
        if self.random.chance(per) { Reception::CrcError } else { Reception::Received }
    }
}

/// Probability that none of `bits` is wrong: (1 - ber) to that power, by squaring.
fn none(ber: f64, mut bits: usize) -> f64 {
    let (mut result, mut factor) = (1.0, 1.0 - ber);
    while bits > 0 {
        if bits & 1 == 1 {
            result *= factor;
        }
        factor *= factor;
        bits >>= 1;
    }
    result
}
