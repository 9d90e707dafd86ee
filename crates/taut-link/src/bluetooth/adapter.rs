//! Adapters made ready, and put back as they were.

use std::sync::{Mutex, PoisonError};

use super::management::{AdapterInfo, Management, Switch};
use super::{BluetoothAddress, DeviceAddress, Security};
use crate::{Error, Result};

/// What this process has switched on, in that order.
static SWITCHED: Mutex<Vec<(u16, Switch)>> = Mutex::new(Vec::new());

/// What an adapter is wanted for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// To connect to a device.
    Connect(DeviceAddress),
    /// To be connected to.
    Listen,
}

/// The adapter that an address means, switched on as far as the role needs it.
///
/// What is switched on stays so until [`restore`]: rounds follow each other, and each would else
/// begin with a cold adapter.
///
/// # Errors
/// [`Error::Input`] when there is no such adapter, [`Error::Unavailable`] when there is none at all
/// or a right is missing.
pub(super) fn ready(address: &BluetoothAddress, role: Role) -> Result<AdapterInfo> {
    let management = Management::open()?;
    let adapter = choose(&management.adapters()?, address, role)?;
    let mut switches = wanted(&adapter, address.is_le(), role == Role::Listen);
    // Without it the kernel refuses every peer that would keep the key, as those with a bluetoothd do
    // (smp_cmd_pairing_req of smp.c). One that connects asks for no more than it may have by itself.
    let is_secured = address.security.is_some_and(|security| security > Security::Low);
    if role == Role::Listen && is_secured && !adapter.is_on(Switch::Bondable) {
        switches.insert(0, Switch::Bondable);
    }
    for switch in switches {
        management.set(adapter.index, switch, true)?;
        lock().push((adapter.index, switch));
    }
    Ok(adapter)
}

/// Switches an adapter on for LE and for BR/EDR, as far as it has them; with `visible` it can be
/// connected to and advertises. It stays so.
///
/// # Errors
/// [`Error::Unavailable`] without the right (`CAP_NET_ADMIN`) and when there is no such adapter.
pub fn switch_on(index: u16, visible: bool) -> Result<()> {
    let management = Management::open()?;
    let adapter = management.adapter(index)?;
    wanted(&adapter, true, visible).into_iter().try_for_each(|switch| management.set(index, switch, true))
}

/// Whether the kernel has finished setting up this adapter.
///
/// # Errors
/// [`Error::Unavailable`] where the kernel has no Bluetooth.
pub fn is_set_up(index: u16) -> Result<bool> {
    Ok(Management::open()?.indices()?.contains(&index))
}

/// The public address of an adapter that is set up.
///
/// # Errors
/// [`Error::Unavailable`] where the kernel has no Bluetooth; [`Error::Host`] when it has no such adapter.
pub fn address_of(index: u16) -> Result<DeviceAddress> {
    Ok(Management::open()?.adapter(index)?.address)
}

/// Numbers of the adapters that are set up, in order.
///
/// # Errors
/// [`Error::Unavailable`] where the kernel has no Bluetooth.
pub fn adapters() -> Result<Vec<u16>> {
    Management::open()?.indices()
}

/// An adapter as it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AdapterState {
    /// Its public address.
    pub address: DeviceAddress,
    /// Whether it is switched on.
    pub is_on: bool,
    /// Whether its controller has LE.
    pub has_le: bool,
}

/// How an adapter that is set up is.
///
/// # Errors
/// [`Error::Unavailable`] where the kernel has no Bluetooth; [`Error::Host`] when it has no such adapter.
pub fn state_of(index: u16) -> Result<AdapterState> {
    let adapter = Management::open()?.adapter(index)?;
    let (is_on, has_le) = (adapter.is_on(Switch::Powered), adapter.has(Switch::Le));
    Ok(AdapterState { address: adapter.address, is_on, has_le })
}

/// Puts back all that this process has switched on. Adapters that are gone by now need nothing.
pub fn restore() {
    let mut switched = lock();
    if switched.is_empty() {
        return;
    }
    if let Ok(management) = Management::open() {
        while let Some((index, switch)) = switched.pop() {
            let _ = management.set(index, switch, false);
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<(u16, Switch)>> {
    SWITCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn choose(adapters: &[AdapterInfo], address: &BluetoothAddress, role: Role) -> Result<AdapterInfo> {
    let Some(first) = adapters.first() else {
        return Err(Error::Unavailable(
            "there is no Bluetooth adapter here: plug one in and load its driver (lsusb, dmesg | grep -i bluetooth)"
                .to_owned(),
        ));
    };
    let names =
        || adapters.iter().map(|adapter| format!("hci{} ({})", adapter.index, adapter.address)).collect::<Vec<_>>();
    let none = |what: String| Error::Input(format!("{what}; there are: {}", names().join(", ")));
    if let Some(index) = address.adapter {
        let named = adapters.iter().find(|adapter| adapter.index == index).copied();
        let named = named.ok_or_else(|| none(format!("there is no adapter hci{index}")))?;
        return match (role, address.device) {
            (Role::Listen, Some(device)) if device != named.address => {
                Err(none(format!("hci{index} has not the address {device}")))
            }
            _ => Ok(named),
        };
    }
    match (role, address.device) {
        (Role::Listen, Some(device)) => {
            let owner = adapters.iter().find(|adapter| adapter.address == device).copied();
            owner.ok_or_else(|| {
                none(format!("no adapter here has the address {device}; to listen, give one of them, or any"))
            })
        }
        (Role::Listen, None) => Ok(*first),
        // One can't call oneself.
        (Role::Connect(peer), _) => {
            let other = adapters.iter().find(|adapter| adapter.address != peer).copied();
            other.ok_or_else(|| none(format!("{peer} is this machine's only adapter")))
        }
    }
}

/// What has to be switched on, in that order.
fn wanted(adapter: &AdapterInfo, le: bool, visible: bool) -> Vec<Switch> {
    let mut switches = Vec::new();
    if le && adapter.has(Switch::Le) {
        switches.push(Switch::Le);
    }
    if visible {
        switches.push(Switch::Connectable);
    }
    switches.push(Switch::Powered);
    if visible && le {
        switches.push(Switch::Advertising);
    }
    switches.retain(|&switch| !adapter.is_on(switch));
    switches
}
