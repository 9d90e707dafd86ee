//! All parameters of a simulation, by name.

mod error;
mod parameter;
mod terms;
mod text;
mod value;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::controller::{ClassicConfig, Completion, ControllerConfig};
use crate::limit::{Limit, SDU_LENGTH_BYTES};
use crate::phy::{MAX_LENGTH, MIN_LENGTH, Phy};
use crate::role::Role;
use crate::time::{MS, Nanos, SECOND, US};

pub use error::ScenarioError;
pub use parameter::{PARAMETERS, Parameter, Scope};
pub use terms::{Scenario, Side};

impl Scenario {
    /// Reads a scenario. Everything in it is checked; the error tells where and what was expected.
    ///
    /// ```
    /// use taut_air::Scenario;
    /// let scenario = Scenario::from_toml("[link]\nci = '7.5ms'\n[both]\nmtu = 672\n")?;
    /// assert_eq!(scenario.ci, 7_500_000);
    /// let error = Scenario::from_toml("[link]\nci = 'soon'\n").unwrap_err();
    /// assert_eq!((error.line(), error.column()), (Some(2), Some(6)));
    /// # Ok::<(), taut_air::ScenarioError>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let mut scenario = Self::default();
        text::read(&mut scenario, text)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// The scenario as [`from_toml`](Self::from_toml) takes it: the name, and what is not as usual.
    ///
    /// ```
    /// use taut_air::Scenario;
    /// let scenario = Scenario::from_toml("[link]\nci = '7.5ms'\n[central]\nmtu = 247\n")?;
    /// assert_eq!(Scenario::from_toml(&scenario.to_toml())?, scenario);
    /// # Ok::<(), taut_air::ScenarioError>(())
    /// ```
    pub fn to_toml(&self) -> String {
        text::write(self)
    }

    /// Sets one parameter by its name, as `--set NAME=VALUE`: `ci`, `phy`, `per`, …; parameters of a side with
    /// `central.`, `peripheral.`, `sender.` or `receiver.` in front, or for both sides alike without.
    ///
    /// What parameters have to do with each other isn't checked here but by [`check`](Self::check).
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ScenarioError> {
        parameter::set(self, name, value)
    }

    /// The value of a parameter, as [`set`](Self::set) takes it. Where the sides differ and none is named, both with a
    /// slash in between, the central's first.
    pub fn get(&self, name: &str) -> Result<String, ScenarioError> {
        parameter::get(self, name)
    }

    /// Supervision timeout.
    pub fn timeout(&self) -> Nanos {
        let least = (6 * self.ci * (1 + Nanos::from(self.latency))).div_ceil(10 * MS) * 10 * MS;
        self.timeout.unwrap_or_else(|| least.max(420 * MS))
    }

    /// Unit of the interval: 1.25 ms, or 125 us where Core 6.2's shorter intervals are wanted.
    pub const fn interval_unit(&self) -> Nanos {
        if self.ci.is_multiple_of(1_250 * US) { 1_250 * US } else { 125 * US }
    }

    /// Longest information payload that a side states.
    pub fn mps(&self, role: Role) -> u16 {
        let side = self.side(role);
        side.host.mps.unwrap_or_else(|| side.acl_size.saturating_sub(4).min(side.host.mtu)).max(23)
    }

    /// The limit for the SDUs that the sender fills: as long as the receiver takes them, and no longer than a block.
    pub fn limit(&self) -> Limit {
        let receiver = self.sender.other();
        let block = self.side(self.sender).host.block as usize;
        Limit {
            phy: self.phy,
            length: self.length.into(),
            mic: self.encrypted,
            ifs: self.ifs,
            sdu: usize::from(self.side(receiver).host.mtu).min(block),
            header: SDU_LENGTH_BYTES,
            mps: self.mps(receiver).into(),
        }
    }

    /// Whether the parameters fit each other.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let fail = |message: String| Err(ScenarioError::whole(message));
        if !self.ci.is_multiple_of(125 * US) || !(375 * US..=4 * SECOND).contains(&self.ci) {
            return fail(
                "`ci` must be a multiple of 125us from 375us to 4s (usual controllers: of 1.25ms from 7.5ms)"
                    .to_string(),
            );
        }
        if self.timeout() <= (1 + Nanos::from(self.latency)) * self.ci * 2 {
            return fail("`timeout` must be more than twice `ci` times (1 + `latency`)".to_string());
        }
        if self.timeout() > 32 * SECOND || self.timeout() < 10 * MS {
            return fail("`timeout` must be from 10ms to 32s".to_string());
        }
        let smallest = 2 * self.phy.air_time(0, false) + self.ifs;
        if smallest + self.ifs > self.ci {
            return fail("`ci` is too short for one exchange of empty packets on this `phy`".to_string());
        }
        if self.ci / Nanos::from(self.links) < smallest + self.ifs {
            return fail("`links` is too many for this `ci`: not even empty packets fit".to_string());
        }
        for role in [Role::Central, Role::Peripheral] {
            let (name, side) = (role.name(), self.side(role));
            if let Completion::Batch(count) = side.nocp
                && count > side.acl_buffers
            {
                return fail(alloc::format!("`{name}.nocp` waits for more packets than `{name}.acl_buffers` holds"));
            }
            if let Some(mps) = side.host.mps
                && mps > side.host.mtu
            {
                return fail(alloc::format!("`{name}.mps` must not be more than `{name}.mtu`"));
            }
            let one_sdu = (side.host.mtu as usize + 2).div_ceil(self.mps(role).into());
            if side.host.credits.initial(side.host.mtu.into(), self.mps(role).into()) == 0 {
                return fail(alloc::format!(
                    "`{name}.credits` must be at least 1; an SDU of `mtu` bytes takes {one_sdu}"
                ));
            }
        }
        Ok(())
    }

    /// How the controller of a side is made; of a peripheral, that of link `index`.
    pub fn controller(&self, role: Role, index: u16) -> ControllerConfig {
        let side = self.side(role);
        ControllerConfig {
            address: address(role, index),
            acl_buffers: side.acl_buffers,
            acl_size: side.acl_size,
            completion: side.nocp,
            packets_per_event: side.packets_per_event,
            event_length: side.event_length,
            event_margin: side.event_margin,
            tx_slots: side.tx_slots,
            pickup: side.pickup,
            max_length: self.length.clamp(MIN_LENGTH as u16, MAX_LENGTH as u16),
            phy: None,
            coded_s2: self.phy == Phy::CodedS2,
            ifs: self.ifs,
            encrypted: self.encrypted,
            clock_ppm: side.clock_ppm,
            accuracy_ppm: side.sca_ppm,
            interval_unit: self.interval_unit(),
            links: self.links,
            classic: ClassicConfig {
                on: self.bredr,
                rate: self.rate,
                slots: self.slots,
                acl_buffers: side.classic_buffers,
                acl_size: side.classic_size,
                t_poll: self.t_poll,
                active: self.active,
            },
        }
    }

    /// Names of all parameters with their values, in the order of [`PARAMETERS`].
    pub fn values(&self) -> Vec<(&'static str, String)> {
        PARAMETERS.iter().map(|parameter| (parameter.name, parameter::value(self, parameter))).collect()
    }
}

/// The public address of a machine: 00:AA:01 and which one it is, as BlueZ's emulator numbers its own.
pub(crate) const fn address(role: Role, index: u16) -> [u8; 6] {
    [index as u8, (index >> 8) as u8, role as u8, 0x01, 0xaa, 0x00]
}
