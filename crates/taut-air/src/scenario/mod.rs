//! All parameters of a simulation, by name.

mod error;
mod parameter;
mod text;
mod value;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::bredr::{Rate, SLOT};
use crate::controller::{ClassicConfig, Completion, ControllerConfig, PROFILES};
use crate::host::{HostConfig, Latency};
use crate::l2cap::CreditPolicy;
use crate::limit::Limit;
use crate::link::Pickup;
use crate::medium::Loss;
use crate::phy::{MAX_LENGTH, MIN_LENGTH, Phy};
use crate::role::Role;
use crate::time::{MS, Nanos, SECOND, US};
use crate::transport::Transport;

pub use error::ScenarioError;
pub use parameter::{PARAMETERS, Parameter, Scope};

/// A central, one or several peripherals that are all alike, and what is between them. The defaults
/// are the kind of link that the article measured, between hosts that take no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it is called; the file says so or nothing does.
    pub name: String,
    /// Connection interval.
    pub ci: Nanos,
    /// Physical layer.
    pub phy: Phy,
    /// Longest payload of a data PDU, 27 to 251 bytes.
    pub length: u16,
    /// PDUs carry a MIC.
    pub encrypted: bool,
    /// Inter frame space.
    pub ifs: Nanos,
    /// Events that the peripheral may skip.
    pub latency: u16,
    /// Supervision timeout; `None` for 420 ms, as Linux, or six intervals if that is longer.
    pub timeout: Option<Nanos>,
    /// Peripherals, each with a link to the one central.
    pub links: u16,
    /// Controllers have BR/EDR beside LE.
    pub bredr: bool,
    /// Packets that carry data on links of BR/EDR.
    pub rate: Rate,
    /// Most slots of one of them: 1, 3 or 5.
    pub slots: u8,
    /// Longest time between two polls of a central of BR/EDR.
    pub t_poll: Nanos,
    /// Time after data during which it polls at every turn.
    pub active: Nanos,
    /// The side that writes.
    pub sender: Role,
    /// What the medium loses.
    pub loss: Loss,
    /// The central.
    pub central: Side,
    /// Each peripheral.
    pub peripheral: Side,
}

/// A machine: its controller, the transport to it, and its host.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Name of the profile that the controller's values began with.
    pub profile: &'static str,
    /// ACL buffers in the controller.
    pub acl_buffers: u16,
    /// Bytes in each.
    pub acl_size: u16,
    /// ACL buffers in the controller for links of BR/EDR.
    pub classic_buffers: u16,
    /// Bytes in each.
    pub classic_size: u16,
    /// When the controller reports completed packets.
    pub nocp: Completion,
    /// Most data PDUs that it sends in one event.
    pub packets_per_event: Option<u16>,
    /// Longest event.
    pub event_length: Option<Nanos>,
    /// Time that it keeps free before an anchor.
    pub event_margin: Nanos,
    /// Transmit descriptors; 0 when there are always enough.
    pub tx_slots: u16,
    /// When the link layer notices packets that come while an event is open.
    pub pickup: Pickup,
    /// Error of the sleep clock in ppm.
    pub clock_ppm: i32,
    /// Accuracy declared for it in ppm.
    pub sca_ppm: u16,
    /// Between host and controller.
    pub transport: Transport,
    /// Host and programs.
    pub host: HostConfig,
}

impl Default for Side {
    fn default() -> Self {
        let mut side = Self {
            profile: "",
            acl_buffers: 0,
            acl_size: 0,
            classic_buffers: 8,
            classic_size: 1021,
            nocp: Completion::Each,
            packets_per_event: None,
            event_length: None,
            event_margin: 0,
            tx_slots: 0,
            pickup: Pickup::AtOnce,
            clock_ppm: 0,
            sca_ppm: 0,
            transport: Transport::None,
            host: HostConfig {
                mtu: 672,
                mps: None,
                credits: CreditPolicy::LinuxOld,
                recvbuf: 212_992,
                skb_overhead: 232,
                sndbuf: 212_992,
                block: 4096,
                first: 0,
                block_work: Latency::default(),
                period: 0,
                send: Latency::default(),
                recv: Latency::default(),
                wakeup: Latency::default(),
                rx: Latency::default(),
                tx: Latency::default(),
            },
        };
        side.take_profile(&PROFILES[0]);
        side
    }
}

impl Side {
    pub(crate) const fn take_profile(&mut self, profile: &crate::controller::Profile) {
        self.profile = profile.name;
        self.acl_buffers = profile.acl_buffers;
        self.acl_size = profile.acl_size;
        self.nocp = profile.completion;
        self.packets_per_event = profile.packets_per_event;
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            ci: 50 * MS,
            phy: Phy::Le1M,
            length: MAX_LENGTH as u16,
            encrypted: false,
            ifs: 150 * US,
            latency: 0,
            timeout: None,
            links: 1,
            bredr: false,
            rate: Rate::Dh,
            slots: 5,
            t_poll: 40 * SLOT,
            active: 40 * SLOT,
            sender: Role::Peripheral,
            loss: Loss::default(),
            central: Side::default(),
            peripheral: Side::default(),
        }
    }
}

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

    /// One side.
    pub const fn side(&self, role: Role) -> &Side {
        match role {
            Role::Central => &self.central,
            Role::Peripheral => &self.peripheral,
        }
    }

    /// One side, to be changed.
    pub const fn side_mut(&mut self, role: Role) -> &mut Side {
        match role {
            Role::Central => &mut self.central,
            Role::Peripheral => &mut self.peripheral,
        }
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
