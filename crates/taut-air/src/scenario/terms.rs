//! What a scenario is: the link, the medium, and the machines on both sides.

use alloc::string::String;

use crate::bredr::{Rate, SLOT};
use crate::controller::{Completion, PROFILES, Profile};
use crate::host::{HostConfig, Latency};
use crate::l2cap::CreditPolicy;
use crate::link::Pickup;
use crate::medium::Loss;
use crate::phy::{MAX_LENGTH, Phy};
use crate::role::Role;
use crate::time::{MS, Nanos, US};
use crate::transport::Transport;

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
    pub(crate) const fn take_profile(&mut self, profile: &Profile) {
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
}
