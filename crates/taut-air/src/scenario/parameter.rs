use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::ScenarioError;
use super::terms::{Scenario, Side};
use super::value::{self, Expected};
use crate::controller::PROFILES;
use crate::role::Role;

/// What a parameter belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// The connection: table `[link]`.
    Link,
    /// The air: table `[medium]`.
    Medium,
    /// One machine, or both alike: tables `[central]`, `[peripheral]`, `[both]`.
    Side,
}

/// A parameter that can be set by name.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name, without a side.
    pub name: &'static str,
    /// What it belongs to.
    pub scope: Scope,
    /// What it is, with unit and range.
    pub help: &'static str,
    access: Access,
}

#[derive(Clone, Copy, Debug)]
enum Access {
    Whole { set: fn(&mut Scenario, &str) -> Result<(), Expected>, get: fn(&Scenario) -> String },
    Side { set: fn(&mut Side, &str) -> Result<(), Expected>, get: fn(&Side) -> String },
}

/// What a value is given to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Target {
    Link,
    Medium,
    Side(Role),
}

impl Target {
    pub(super) const fn scope(self) -> Scope {
        match self {
            Self::Link => Scope::Link,
            Self::Medium => Scope::Medium,
            Self::Side(_) => Scope::Side,
        }
    }
}

impl Parameter {
    pub(super) fn expects(&self, got: &str) -> String {
        format!("`{}` can't be {got}", self.name)
    }
}

/// A parameter of the link or the medium: name, help, how it is set and printed.
macro_rules! whole {
    ($scope:ident, $name:literal, $help:literal, $field:ident $(. $inner:ident)*, $read:expr, $print:expr) => {
        Parameter {
            name: $name,
            scope: Scope::$scope,
            help: $help,
            access: Access::Whole {
                set: |scenario, text| {
                    scenario.$field $(. $inner)* = $read(text)?;
                    Ok(())
                },
                get: |scenario| $print(scenario.$field $(. $inner)*),
            },
        }
    };
}

/// A parameter of a side.
macro_rules! side {
    ($name:literal, $help:literal, $field:ident $(. $inner:ident)*, $read:expr, $print:expr) => {
        Parameter {
            name: $name,
            scope: Scope::Side,
            help: $help,
            access: Access::Side {
                set: |side, text| {
                    side.$field $(. $inner)* = $read(text)?;
                    Ok(())
                },
                get: |side| $print(side.$field $(. $inner)*),
            },
        }
    };
}

fn print<T: ToString>(value: T) -> String {
    value.to_string()
}

fn number<T: TryFrom<i64> + Default>(low: i64, high: i64) -> impl Fn(&str) -> Result<T, Expected> {
    move |text| value::integer(text, low, high).map(|number| T::try_from(number).unwrap_or_default())
}

fn size<T: TryFrom<i64> + Default>(low: i64, high: i64) -> impl Fn(&str) -> Result<T, Expected> {
    move |text| value::bytes(text, low, high).map(|number| T::try_from(number).unwrap_or_default())
}

/// All parameters, in the order of a listing.
pub const PARAMETERS: &[Parameter] = &[
    whole!(
        Link,
        "ci",
        "connection interval, 375us to 4s in steps of 125us; usual controllers 7.5ms and more in steps of 1.25ms",
        ci,
        value::time,
        value::print_time
    ),
    whole!(
        Link,
        "phy",
        "physical layer of both directions: 1m, 2m, s2 or s8 (LE Coded)",
        phy,
        value::phy,
        |phy: crate::Phy| phy.name().to_string()
    ),
    whole!(
        Link,
        "length",
        "longest payload of a data PDU, 27 to 251 bytes; more than 27 is data length extension",
        length,
        size(27, 251),
        print
    ),
    whole!(
        Link,
        "encrypted",
        "PDUs carry a MIC of 4 bytes, without a cipher; hosts of `taut air attach` encrypt links by themselves",
        encrypted,
        value::boolean,
        print
    ),
    whole!(Link, "ifs", "inter frame space; 150us before Core 6.0", ifs, value::time, value::print_time),
    whole!(
        Link,
        "latency",
        "events that the peripheral may skip when it has nothing to send, 0 to 499",
        latency,
        number(0, 499),
        print
    ),
    whole!(
        Link,
        "timeout",
        "supervision timeout, 10ms to 32s; none for Linux's 420ms, or six intervals if that is longer",
        timeout,
        |text: &str| value::optional(text, value::time),
        |timeout| value::print_optional(timeout, value::print_time)
    ),
    whole!(Link, "links", "peripherals, each with a link to the one central, 1 to 16", links, number(1, 16), print),
    whole!(
        Link,
        "sender",
        "the side whose program writes: central or peripheral",
        sender,
        value::role,
        |role: Role| role.name().to_string()
    ),
    whole!(Link, "bredr.on", "controllers have BR/EDR beside LE", bredr, value::boolean, print),
    whole!(
        Link,
        "bredr.packets",
        "packets that carry data on links of BR/EDR: dm (1 Mb/s, FEC), dh (1 Mb/s), 2-dh or 3-dh (2 and 3 Mb/s)",
        rate,
        value::rate,
        |rate: crate::bredr::Rate| rate.name().to_string()
    ),
    whole!(Link, "bredr.slots", "most slots of 625us that one of them takes: 1, 3 or 5", slots, value::slots, print),
    whole!(
        Link,
        "bredr.t_poll",
        "longest time between two polls of a central of BR/EDR",
        t_poll,
        value::time,
        value::print_time
    ),
    whole!(
        Link,
        "bredr.active",
        "time after data during which a central of BR/EDR polls at every turn, 0 for polls at t_poll alone",
        active,
        value::time,
        value::print_time
    ),
    whole!(Medium, "ber", "probability that a bit is wrong, 0 to 1", loss.ber, value::probability, print),
    whole!(Medium, "per", "probability that a packet's CRC is wrong, 0 to 1", loss.per, value::probability, print),
    whole!(
        Medium,
        "burst.enter",
        "probability to enter the bad state with a packet (Gilbert-Elliott), 0 for no bursts",
        loss.burst.enter,
        value::probability,
        print
    ),
    whole!(
        Medium,
        "burst.exit",
        "probability to leave the bad state with a packet, and with each 10ms of silence",
        loss.burst.exit,
        value::probability,
        print
    ),
    whole!(
        Medium,
        "burst.per",
        "probability that a packet is wrong in the bad state",
        loss.burst.per,
        value::probability,
        print
    ),
    whole!(
        Medium,
        "interference.period",
        "period of an interferer, 0 for none",
        loss.interference.period,
        value::time,
        value::print_time
    ),
    whole!(
        Medium,
        "interference.on",
        "time in each period that it is on",
        loss.interference.on,
        value::time,
        value::print_time
    ),
    whole!(
        Medium,
        "interference.per",
        "probability that a packet which overlaps with it is wrong",
        loss.interference.per,
        value::probability,
        print
    ),
    Parameter {
        name: "profile",
        scope: Scope::Side,
        help: "controller whose buffers and limits are taken: ideal, intel-ax200, cyw20704, cyw43439-old, macos, btvirt",
        access: Access::Side {
            set: |side, text| {
                let profile = PROFILES.iter().find(|profile| profile.name == text).ok_or_else(|| {
                    let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
                    format!("one of: {}", names.join(", "))
                })?;
                side.take_profile(profile);
                Ok(())
            },
            get: |side| side.profile.to_string(),
        },
    },
    side!(
        "acl_buffers",
        "ACL data packets that the controller buffers from its host, 1 to 255",
        acl_buffers,
        number(1, 255),
        print
    ),
    side!("acl_size", "bytes of data in each, 27 to 1024", acl_size, size(27, 1024), print),
    side!(
        "bredr.acl_buffers",
        "ACL data packets that the controller buffers from its host for links of BR/EDR, 1 to 255",
        classic_buffers,
        number(1, 255),
        print
    ),
    side!("bredr.acl_size", "bytes of data in each, 27 to 1021", classic_size, size(27, 1021), print),
    side!(
        "nocp",
        "when the controller reports packets completed: each, batch(N) or next-event",
        nocp,
        value::completion,
        value::print_completion
    ),
    side!(
        "packets_per_event",
        "most data PDUs that the controller sends in one connection event, 1 to 1000, or none",
        packets_per_event,
        |text: &str| value::optional(text, number(1, 1000)),
        |limit: Option<u16>| value::print_optional(limit, print)
    ),
    side!(
        "event_length",
        "longest connection event of the controller, or none",
        event_length,
        |text: &str| value::optional(text, value::time),
        |limit| value::print_optional(limit, value::print_time)
    ),
    side!(
        "event_margin",
        "time that the controller keeps free before the next anchor",
        event_margin,
        value::time,
        value::print_time
    ),
    side!(
        "tx_slots",
        "transmit descriptors of the link layer, filled again only when an event has closed with all of them free; 0 for no such limit, to 1000",
        tx_slots,
        number(0, 1000),
        print
    ),
    side!(
        "pickup",
        "when the link layer notices packets that its host sends down while an event is open: at-once, or after-ack (once it has fixed the last packet's MD, when an event has closed with all before them acknowledged)",
        pickup,
        value::pickup,
        value::print_pickup
    ),
    side!("clock_ppm", "error of the sleep clock in ppm, -500 to 500", clock_ppm, number(-500, 500), print),
    side!(
        "sca_ppm",
        "accuracy declared for the sleep clock in ppm, 0 to 500; what window widening reckons with",
        sca_ppm,
        number(0, 500),
        print
    ),
    side!(
        "transport",
        "between host and controller: none, uart(BAUD) or usb(TIME)",
        transport,
        value::transport,
        value::print_transport
    ),
    side!(
        "mtu",
        "longest SDU that the channel takes (BT_RCVMTU), 23 to 65535 bytes",
        host.mtu,
        size(23, 65_535),
        print
    ),
    side!(
        "mps",
        "longest PDU payload that the channel takes, 23 to 65533 bytes; none for Linux's, which is what one ACL packet holds",
        host.mps,
        |text: &str| value::optional(text, size(23, 65_533)),
        |mps: Option<u16>| value::print_optional(mps, print)
    ),
    side!(
        "credits",
        "how the receiver gives credits: linux-old, linux-recvbuf, window(N) or batch(WINDOW,N)",
        host.credits,
        value::credits,
        value::print_credits
    ),
    side!(
        "recvbuf",
        "receive buffer of the socket as the kernel counts it, in bytes",
        host.recvbuf,
        size(256, 1 << 30),
        print
    ),
    side!("skb_overhead", "sizeof(struct sk_buff) in bytes", host.skb_overhead, size(0, 65_536), print),
    side!(
        "sndbuf",
        "send buffer of the socket as the kernel counts it, in bytes",
        host.sndbuf,
        size(256, 1 << 30),
        print
    ),
    side!(
        "block",
        "bytes that the program writes at a time, cut into SDUs of at most the peer's MTU",
        host.block,
        size(1, 1 << 30),
        print
    ),
    side!(
        "first",
        "bytes of the program's first block, 0 for as many as in the others",
        host.first,
        number(0, 1 << 30),
        print
    ),
    side!(
        "block_work",
        "time between two blocks, a time or a range",
        host.block_work,
        value::latency,
        value::print_latency
    ),
    side!(
        "period",
        "time from one block's beginning to the next at least; 0 for as fast as it goes",
        host.period,
        value::time,
        value::print_time
    ),
    side!("send", "time of one send(), a time or a range", host.send, value::latency, value::print_latency),
    side!("recv", "time of one recv(), a time or a range", host.recv, value::latency, value::print_latency),
    side!(
        "wakeup",
        "from a socket's becoming ready to the program's next call, a time or a range",
        host.wakeup,
        value::latency,
        value::print_latency
    ),
    side!(
        "rx",
        "from a packet's arrival at the host to its handling in the kernel, a time or a range",
        host.rx,
        value::latency,
        value::print_latency
    ),
    side!(
        "tx",
        "from the kernel's handing over a packet to its reaching the driver, a time or a range",
        host.tx,
        value::latency,
        value::print_latency
    ),
];

/// The parameter of that name in a table.
pub(super) fn find(name: &str, scope: Scope) -> Result<&'static Parameter, ScenarioError> {
    PARAMETERS.iter().find(|parameter| parameter.name == name && parameter.scope == scope).ok_or_else(|| {
        let names: Vec<_> =
            PARAMETERS.iter().filter(|parameter| parameter.scope == scope).map(|parameter| parameter.name).collect();
        ScenarioError::whole(format!("`{name}` is not known here; there are: {}", names.join(", ")))
    })
}

/// The parameter that a name of `--set` means, and what it is given to.
fn resolve(scenario: &Scenario, name: &str) -> Result<(&'static Parameter, Vec<Target>), ScenarioError> {
    let (role, bare) = match name.split_once('.') {
        Some(("central", rest)) => (Some(Role::Central), rest),
        Some(("peripheral", rest)) => (Some(Role::Peripheral), rest),
        Some(("sender", rest)) => (Some(scenario.sender), rest),
        Some(("receiver", rest)) => (Some(scenario.sender.other()), rest),
        Some(("both" | "link" | "medium", rest)) => (None, rest),
        _ => (None, name),
    };
    let found = PARAMETERS
        .iter()
        .find(|parameter| parameter.name == bare && (role.is_none() || parameter.scope == Scope::Side))
        .ok_or_else(|| {
            let names: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
            ScenarioError::whole(format!("there is no parameter `{name}`; there are: {}", names.join(", ")))
        })?;
    let targets = match (found.scope, role) {
        (Scope::Link, _) => Vec::from([Target::Link]),
        (Scope::Medium, _) => Vec::from([Target::Medium]),
        (Scope::Side, Some(role)) => Vec::from([Target::Side(role)]),
        (Scope::Side, None) => Vec::from([Target::Side(Role::Central), Target::Side(Role::Peripheral)]),
    };
    Ok((found, targets))
}

pub(super) fn set(scenario: &mut Scenario, name: &str, value: &str) -> Result<(), ScenarioError> {
    let (parameter, targets) = resolve(scenario, name)?;
    targets.into_iter().try_for_each(|target| apply(scenario, parameter, target, value))
}

pub(super) fn get(scenario: &Scenario, name: &str) -> Result<String, ScenarioError> {
    let (parameter, targets) = resolve(scenario, name)?;
    Ok(match (parameter.access, &targets[..]) {
        (Access::Side { get, .. }, [Target::Side(role)]) => get(scenario.side(*role)),
        _ => value(scenario, parameter),
    })
}

/// A parameter's value, both sides' when it has two.
pub(super) fn value(scenario: &Scenario, parameter: &Parameter) -> String {
    match parameter.access {
        Access::Whole { get, .. } => get(scenario),
        Access::Side { get, .. } => {
            let (central, peripheral) = (get(&scenario.central), get(&scenario.peripheral));
            if central == peripheral { central } else { format!("{central}/{peripheral}") }
        }
    }
}

/// A parameter's value of one table; of a parameter of both sides as a whole there is none.
pub(super) fn value_of(scenario: &Scenario, parameter: &Parameter, target: Target) -> Option<String> {
    match (parameter.access, target) {
        (Access::Whole { get, .. }, _) => Some(get(scenario)),
        (Access::Side { get, .. }, Target::Side(role)) => Some(get(scenario.side(role))),
        (Access::Side { .. }, _) => None,
    }
}

pub(super) fn apply(
    scenario: &mut Scenario,
    parameter: &Parameter,
    target: Target,
    value: &str,
) -> Result<(), ScenarioError> {
    let result = match (parameter.access, target) {
        (Access::Whole { set, .. }, _) => set(scenario, value),
        (Access::Side { set, .. }, Target::Side(role)) => set(scenario.side_mut(role), value),
        (Access::Side { .. }, _) => Err("a side".to_string()),
    };
    result.map_err(|expected| ScenarioError::whole(format!("`{}` takes {expected}, not {value}", parameter.name)))
}
