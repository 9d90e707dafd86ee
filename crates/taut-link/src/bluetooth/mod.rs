//! Bluetooth links on the kernel's own sockets (`AF_BLUETOOTH`): L2CAP channels and RFCOMM.
//!
//! - `address`: devices, and what stands in an endpoint's address.
//! - `socket`: sockets, from the first option to the last.
//! - `management` and `adapter`: adapters, switched on and made visible for as long as that is needed.
//! - `log`: all that adapters and kernel say to each other, with the kernel's times.
//! - `end`: which channel a socket is an end of, also another program's.
//! - `monitor`, `heard` and `agreed`: what the two controllers and the two ends agreed on.
//! - `radio`: interval, PHY and data length asked for on a link that is up.
//! - `security`: what came of pairing and encryption.
//! - `choice`: what can be chosen of a link, put into its endpoint.
//! - `controller`: what a controller says of itself.
//! - `credit_rule`: how this kernel gives credits.
//! - `trap`: whether this kernel has a trap that programs fall into.
//! - `parameters`: connection interval, latency and timeout of links to come.
//! - `virtual_adapter`: adapters whose controllers we are.
//! - `serial_adapter`: adapters whose controller is at the other end of a serial line.
//!
//! Numbers of socket options and commands are those of the kernel's `include/net/bluetooth` and of BlueZ's mgmt-api.

mod adapter;
mod address;
mod agreed;
mod choice;
mod controller;
mod credit_rule;
mod end;
mod heard;
mod log;
mod management;
mod monitor;
mod number;
mod parameters;
mod radio;
mod security;
mod serial_adapter;
mod socket;
mod trap;
mod virtual_adapter;

pub use adapter::{AdapterState, adapters, address_of, is_set_up, restore as restore_adapters, state_of, switch_on};
pub use address::{AddressType, BluetoothAddress, DeviceAddress, Phy, Security};
pub(crate) use address::{Protocol, bound};
pub use agreed::Agreed;
pub use choice::{LinkChoice, interval_in_words};
pub use controller::Controller;
pub use credit_rule::CreditRule;
pub use end::end_of;
pub use log::{HciFrame, HciLog, has_adapter};
pub use parameters::{ConnectionParameters, IntervalLimits, set_connection_parameters};
pub(crate) use security::Confirming;
pub use serial_adapter::SerialAdapter;
pub(crate) use socket::{
    AdapterObserver, LinkObserver, Listening, adapter_of, apply_to_accepted, connect, facts, listen, set_mtu_of,
};
pub use trap::{receiving_blocks_others, sending_waits_all_the_same};
pub use virtual_adapter::VirtualAdapter;

/// A little-endian `u16` in bytes that are there.
fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
