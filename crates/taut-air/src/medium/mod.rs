//! The air between two radios: what is lost on it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_time::Instant;

use crate::bredr;
use crate::controller::Transmission;
use crate::link::Reception;
use crate::phy::{ACCESS_ADDRESS_BYTES, CRC_BYTES, HEADER_BYTES, MIC_BYTES};
use crate::rng::Random;
use crate::time::{MS, Nanos, span};

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

/// The Gilbert-Elliott model: a good state in which nothing is lost by it, and a bad one, which is left
/// with a packet or in 10 ms without one: a burst does not last for longer because little is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Burst {
    /// Probability to enter the bad state with a packet; 0 for no bursts.
    pub enter: f64,
    /// Probability to leave it with a packet, and with each 10 ms of silence.
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

/// Silence that counts as a packet for a burst.
const SILENCE: Nanos = 10 * MS;
/// Bounds the work after a silence of hours; 1000 s of it.
const MOST_STEPS: Nanos = 100_000;

/// The medium, with its state and the packets on it.
#[derive(Clone, Debug)]
pub struct Medium {
    loss: Loss,
    random: Random,
    bad: bool,
    /// When the last packet ends.
    silent_from: Instant,
    clean: bool,
    on_air: Vec<OnAir>,
    classic: Vec<OnAir<bredr::Packet>>,
}

/// A packet on the air.
#[derive(Clone, Debug)]
pub(crate) struct OnAir<T = Transmission> {
    pub(crate) transmission: Box<T>,
    pub(crate) reception: Reception,
    /// Number of the machine that sends it.
    pub(crate) from: usize,
}

impl Medium {
    /// A medium in the good state.
    pub fn new(loss: Loss, random: Random) -> Self {
        let clean = loss.ber <= 0.0 && loss.per <= 0.0 && loss.burst.enter <= 0.0 && loss.interference.period == 0;
        Self {
            loss,
            random,
            bad: false,
            silent_from: Instant::from_nanos(0),
            clean,
            on_air: Vec::new(),
            classic: Vec::new(),
        }
    }

    /// Packets on the air now.
    pub(crate) fn on_air(&self) -> &[OnAir] {
        &self.on_air
    }

    /// When the first of them ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let le = self.on_air.iter().map(|packet| packet.transmission.end);
        le.chain(self.classic.iter().map(|packet| packet.transmission.end)).min()
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
        for other in &mut self.classic {
            if overlap(transmission.channel, other.transmission.channel) {
                other.reception = Reception::Missed;
                reception = Reception::CrcError;
            }
        }
        reception
    }

    /// The same of a packet of BR/EDR. What has no payload is missed when it is wrong.
    pub(crate) fn begin_classic(&mut self, packet: &bredr::Packet) -> Reception {
        let mut reception = self.judge_classic(packet);
        for other in &mut self.classic {
            if other.transmission.channel == packet.channel {
                other.reception = Reception::Missed;
                reception = Reception::Missed;
            }
        }
        for other in &mut self.on_air {
            if overlap(other.transmission.channel, packet.channel) {
                other.reception = Reception::CrcError;
                reception = Reception::Missed;
            }
        }
        reception
    }

    /// Carries a packet of BR/EDR that has begun until it ends.
    pub(crate) fn carry_classic(&mut self, from: usize, transmission: Box<bredr::Packet>, reception: Reception) {
        self.classic.push(OnAir { transmission, reception, from });
    }

    /// Takes the first packet of BR/EDR that has ended by `now`.
    pub(crate) fn end_classic(&mut self, now: Instant) -> Option<OnAir<bredr::Packet>> {
        let index = self.classic.iter().position(|packet| packet.transmission.end <= now)?;
        Some(self.classic.remove(index))
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
        let ber = self.loss.ber;
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
        if self.spoils(transmission.start, transmission.end) { Reception::CrcError } else { Reception::Received }
    }

    fn judge_classic(&mut self, packet: &bredr::Packet) -> Reception {
        if self.clean {
            return Reception::Received;
        }
        let ber = self.loss.ber;
        if ber > 0.0 && self.random.chance(1.0 - packet.kind.header_survives(ber)) {
            return Reception::Missed;
        }
        let survives = packet.kind.payload_survives(packet.payload().len(), ber);
        let wrong = (ber > 0.0 && self.random.chance(1.0 - survives)) || self.spoils(packet.start, packet.end);
        match (wrong, packet.kind.is_data()) {
            (false, _) => Reception::Received,
            (true, true) => Reception::CrcError,
            (true, false) => Reception::Missed,
        }
    }

    /// Leaves the bad state when the silence before a packet was long enough for it.
    fn outlast_silence(&mut self, start: Instant) {
        let exit = self.loss.burst.exit;
        if self.bad && exit > 0.0 {
            let steps = (span(self.silent_from, start) / SILENCE).min(MOST_STEPS);
            self.bad = !(0..steps).any(|_| self.random.chance(exit));
        }
    }

    /// Whether bursts, interference or chance make a packet's CRC wrong.
    fn spoils(&mut self, start: Instant, end: Instant) -> bool {
        let Loss { per, burst, interference, .. } = self.loss;
        if burst.enter > 0.0 {
            self.outlast_silence(start);
            self.silent_from = self.silent_from.max(end);
            self.bad = if self.bad { !self.random.chance(burst.exit) } else { self.random.chance(burst.enter) };
            if self.bad && self.random.chance(burst.per) {
                return true;
            }
        }
        if interference.period > 0 {
            let (start, end) = (start.as_nanos(), end.as_nanos());
            let begun = start % interference.period;
            let overlaps = begun < interference.on || begun + (end - start) > interference.period;
            if overlaps && self.random.chance(interference.per) {
                return true;
            }
        }
        self.random.chance(per)
    }
}

/// Whether a channel of LE, 2 MHz wide, and one of BR/EDR, 1 MHz wide, share some of the band (Vol
/// 6, Part A, 2; Vol 2, Part A, 2).
fn overlap(le: u8, classic: u8) -> bool {
    let place = match le {
        0..=10 => le + 1,
        11..=36 => le + 2,
        37 => 0,
        38 => 12,
        _ => 39,
    };
    (2 * place).abs_diff(classic) <= 1
}

/// Probability that none of `bits` is wrong.
fn none(ber: f64, bits: usize) -> f64 {
    bredr::power(1.0 - ber, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean number of packets that a burst spoils, with silence of so many ms before each.
    fn mean_burst(silence_ms: u64) -> f64 {
        let burst = Burst { enter: 0.001, exit: 0.02, per: 1.0 };
        let mut medium = Medium::new(Loss { burst, ..Loss::default() }, Random::new(1));
        let (mut spoilt, mut bursts, mut before) = (0_u32, 0_u32, false);
        let mut start = Instant::from_nanos(0);
        for _ in 0..400_000 {
            let end = start + taut_time::Duration::from_micros(100);
            let wrong = medium.spoils(start, end);
            spoilt += u32::from(wrong);
            bursts += u32::from(wrong && !before);
            before = wrong;
            start = end + taut_time::Duration::from_millis(silence_ms);
        }
        f64::from(spoilt) / f64::from(bursts)
    }

    #[test]
    fn a_burst_lasts_for_packets_or_for_time_whichever_is_over_first() {
        // 50 packets where they follow one another, within the noise of some 400 bursts.
        let dense = mean_burst(7);
        assert!((42.0..58.0).contains(&dense), "{dense}");
        // Advertisements, one in 1.28 s: 127 steps of silence, of which one ends it with 92 %.
        let sparse = mean_burst(1280);
        assert!((1.0..1.3).contains(&sparse), "{sparse}");
    }
}
