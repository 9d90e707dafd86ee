//! Bluetooth links on the kernel's own sockets (`AF_BLUETOOTH`): L2CAP channels and RFCOMM.
//!
//! - `address`: devices, and what stands in an endpoint's address.
//! - `socket`: sockets, from the first option to the last.
//! - `management` and `adapter`: adapters, switched on and made visible for as long as that is needed.
//! - `monitor`: what the two controllers agreed on.
//! - `parameters`: connection interval, latency and timeout of links to come.
//! - `virtual_adapter`: adapters whose controllers we are.
//!
//! Numbers of socket options and commands are those of the kernel's `include/net/bluetooth` and of BlueZ's mgmt-api.

mod adapter;
mod address;
mod management;
mod monitor;
mod parameters;
mod socket;
mod virtual_adapter;

pub use adapter::{is_set_up, restore as restore_adapters};
pub(crate) use address::Protocol;
pub use address::{AddressType, BluetoothAddress, DeviceAddress, Phy, Security};
pub use parameters::{ConnectionParameters, set_connection_parameters};
pub(crate) use socket::{apply_to_accepted, bound, connect, facts, listen};
pub use virtual_adapter::VirtualAdapter;

/// A little-endian `u16` in bytes that are there.
fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
