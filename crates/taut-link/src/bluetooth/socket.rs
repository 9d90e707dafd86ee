//! Sockets of L2CAP and RFCOMM.
//!
//! L2CAP's are `SOCK_STREAM` here, not `SOCK_SEQPACKET`: what is on the air is the same, each write
//! up to the peer's MTU being one SDU, but a read takes all that has arrived, and it doesn't hold
//! the socket's lock while it waits, which in Linux 5.10 stops the arrival of what it waits for.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use socket2::{Domain, SockAddr, Socket, Type};
use taut_time::Duration;

use super::adapter::{self, Role};
use super::agreed::Agreed;
use super::end::handle;
use super::heard::Heard;
use super::management::no_bluetooth;
use super::monitor::Monitor;
use super::number::{
    BT_PHY, BT_RCVMTU, BT_SECURITY, BT_SNDMTU, BTPROTO_L2CAP, BTPROTO_RFCOMM, L2CAP_CONNINFO, L2CAP_OPTIONS,
    SOL_BLUETOOTH, SOL_L2CAP,
};
use super::security::Confirming;
use super::{AddressType, BluetoothAddress, CreditRule, DeviceAddress, Protocol, Security, radio, security};
use crate::{Endpoint, Error, Result, clock, sys};

/// A channel that is open.
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    /// Most bytes that one write should have.
    pub(crate) write_limit: usize,
    /// Hears what both ends agree on; LE only.
    pub(crate) observer: Option<LinkObserver>,
}

/// Hears of one link, as far as that is allowed.
#[derive(Debug)]
pub(crate) struct LinkObserver {
    monitor: Arc<Monitor>,
    device: DeviceAddress,
    heard: Mutex<Heard>,
}

impl LinkObserver {
    /// What both ends have agreed on by now, as `name=value`.
    pub(crate) fn facts(&self) -> Vec<String> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.monitor.hear(self.device, &mut heard);
        heard.facts()
    }

    /// What is told by events alone and is not among the facts, with the reason, as `name=not heard: reason`.
    pub(crate) fn unheard(&self, facts: &[String]) -> Vec<String> {
        let why = if self.monitor.hears() { "link was up before" } else { "CAP_NET_RAW is missing" };
        let is_there = |fact: &str| facts.iter().any(|told| told.split_once('=').is_some_and(|(name, _)| name == fact));
        [("connection_interval_us", "connection_interval"), ("tx_octets", "data_lengths"), ("phy", "phys")]
            .into_iter()
            .filter(|(fact, _)| !is_there(fact))
            .map(|(_, name)| format!("{name}=not heard: {why}"))
            .collect()
    }

    /// What the controllers have agreed on by now, as far as it was heard.
    pub(crate) fn agreed(&self) -> Agreed {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.monitor.hear(self.device, &mut heard);
        heard.agreed()
    }

    /// Takes what the peer tells of the link, which may have been up before we listened.
    pub(crate) fn merge_peer_report(&self, told: Agreed) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.monitor.tell(self.device, &mut heard, told);
    }
}

/// A socket that accepts channels.
pub(crate) struct Listening {
    pub(crate) socket: Socket,
    /// Of the adapter; LE only.
    pub(crate) observer: Option<AdapterObserver>,
    /// Number of the adapter.
    pub(crate) adapter: u16,
    /// Answers for peers that pair.
    pub(crate) confirming: Option<Confirming>,
}

/// Hears of all links of an adapter.
#[derive(Debug)]
pub(crate) struct AdapterObserver(Arc<Monitor>);

impl AdapterObserver {
    /// For a link that was accepted.
    pub(crate) fn of(&self, socket: &Socket, from: &SockAddr) -> Option<LinkObserver> {
        // sockaddr_l2: family, PSM, address.
        let bytes = sys::address_bytes(from).get(4..10)?.try_into().ok()?;
        Some(LinkObserver {
            monitor: Arc::clone(&self.0),
            device: DeviceAddress::from_wire(bytes),
            heard: Mutex::new(Heard::of(handle(socket.as_fd(), SOL_L2CAP, L2CAP_CONNINFO).ok())),
        })
    }
}

/// Opens a channel to a device, with an adapter made ready for it.
///
/// # Errors
/// [`Error::Unavailable`] without Bluetooth, adapter or right; [`Error::Input`] for an address that can't be meant;
/// [`Error::Io`] when the peer is not there or the kernel refuses a parameter.
pub(crate) fn connect(
    endpoint: &Endpoint,
    protocol: Protocol,
    address: &BluetoothAddress,
    timeout: Duration,
) -> Result<Opened> {
    let fail = |error| Error::io("connect to", endpoint, error);
    let (Some(peer), 1..) = (address.device, address.number) else {
        return Err(Error::Input(format!("{endpoint}: to connect, give the device's address and its number")));
    };
    let timeout = if address.is_le() { timeout.max(FINDING) } else { timeout };
    // Told apart from an adapter that is missing.
    drop(open(protocol)?);
    let adapter = adapter::ready(address, Role::Connect(peer))?;
    // An own address of the same kind makes the kernel take the radio that is meant.
    let ours = if address.is_le() { AddressType::Public } else { AddressType::BrEdr };
    let monitor = address.is_le().then(|| Arc::new(Monitor::open(adapter.index)));
    let begin = clock::now();
    let mut heard = Heard::default();
    let socket = loop {
        let socket = open(protocol)?;
        heard = heard.anew();
        socket.bind(&socket_address(protocol, adapter.address, 0, ours)).map_err(fail)?;
        set_parameters(&socket, endpoint, address)?;
        let to = socket_address(protocol, peer, address.number, address.kind);
        let connected = match &monitor {
            Some(monitor) => {
                security::connect(&socket, (address, &to), timeout, (monitor, adapter.index), (peer, &mut heard))
                    .map_err(|error| security::doubt(error, address))
            }
            None => socket.connect_timeout(&to, timeout),
        };
        match connected {
            Ok(()) => break socket,
            Err(error) if clock::now().saturating_since(begin) < settling(protocol, &error, timeout, &heard) => {
                clock::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(fail(error)),
        }
    };
    let observer = match monitor {
        Some(monitor) => {
            let handle = handle(socket.as_fd(), SOL_L2CAP, L2CAP_CONNINFO).map_err(fail)?;
            heard.be_of(handle);
            radio::ask(address, peer, (adapter.index, handle), &monitor, &mut heard)
                .map_err(|error| Error::io("change the connection to", endpoint, error))?;
            monitor.hear(peer, &mut heard);
            monitor.narrow();
            Some(LinkObserver { monitor, device: peer, heard: Mutex::new(heard) })
        }
        None => None,
    };
    Ok(Opened { write_limit: write_limit(&socket, protocol, address), observer, socket })
}

/// Number of the adapter by which one connects to an address.
pub(crate) fn adapter_of(address: &BluetoothAddress) -> Result<u16> {
    let peer = address.device.ok_or_else(|| Error::Input("to connect, give the device's address".to_owned()))?;
    adapter::ready(address, Role::Connect(peer)).map(|adapter| adapter.index)
}

/// Kernels advertise every 1.28 s and listen half of the time, first to find the device and then to connect
/// to it: that takes some tries. The kernel itself gives up after this time (`HCI_LE_CONN_TIMEOUT`).
const FINDING: Duration = Duration::from_secs(20);

/// For how long one connects again after an error that only tells that something before is not over yet; nothing
/// where it tells more.
fn settling(protocol: Protocol, error: &io::Error, timeout: Duration, heard: &Heard) -> Duration {
    const SETTLING: Duration = Duration::from_secs(3);
    match error.raw_os_error() {
        // The kernel closes a link 2 s after its last channel (`HCI_DISCONN_TIMEOUT`). A channel asked for while
        // the controllers are about it, for some connection intervals, goes down with the link: `bt_to_errno` of
        // `HCI_ERROR_LOCAL_HOST_TERM`.
        Some(libc::ECONNABORTED) => timeout,
        // RFCOMM has one connection for each pair of devices and channel, and for some time after its close the
        // next one is refused.
        Some(libc::EBUSY | libc::ECONNRESET) if protocol == Protocol::Rfcomm => SETTLING,
        // Where bluetoothd's own channels (EATT) come and go beside ours.
        _ if heard.number_is_taken() => SETTLING,
        _ => Duration::ZERO,
    }
}

/// Listens on an adapter made ready for it: powered, connectable and, for LE, advertising.
///
/// # Errors
/// As [`connect`].
pub(crate) fn listen(endpoint: &Endpoint, protocol: Protocol, address: &BluetoothAddress) -> Result<Listening> {
    let fail = |error| Error::io("listen on", endpoint, error);
    let socket = open(protocol)?;
    let adapter = adapter::ready(address, Role::Listen)?;
    socket.bind(&socket_address(protocol, adapter.address, address.number, address.kind)).map_err(fail)?;
    set_parameters(&socket, endpoint, address)?;
    let observer = address.is_le().then(|| {
        let monitor = Monitor::open(adapter.index);
        monitor.narrow();
        AdapterObserver(Arc::new(monitor))
    });
    socket.listen(64).map_err(fail)?;
    let is_secured = address.security.is_some_and(|security| security > Security::Low);
    let confirming = if address.is_le() && is_secured { Confirming::begin(adapter.index) } else { None };
    Ok(Listening { socket, observer, adapter: adapter.index, confirming })
}

/// Gives a listening socket another MTU for the channels that it accepts from now on.
pub(crate) fn set_mtu_of(socket: &Socket, address: &BluetoothAddress, mtu: u16) -> io::Result<()> {
    set_mtu(socket, address, mtu)
}

/// What an accepted socket does not inherit; gives the most bytes of one write.
pub(crate) fn apply_to_accepted(socket: &Socket, protocol: Protocol, address: &BluetoothAddress) -> io::Result<usize> {
    if let Some(bytes) = address.rcvbuf {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    Ok(write_limit(socket, protocol, address))
}

/// What the kernel tells of an open channel, as `name=value`.
pub(crate) fn facts(socket: &Socket, protocol: Protocol, address: &BluetoothAddress) -> Vec<String> {
    let mut facts = Vec::new();
    let mut add = |name: &str, value: Option<String>| facts.extend(value.map(|value| format!("{name}={value}")));
    match protocol {
        Protocol::L2cap => {
            let (receive, send) = mtus(socket, address);
            add("rcv_mtu", receive.map(|mtu| mtu.to_string()));
            add("snd_mtu", send.map(|mtu| mtu.to_string()));
            add("phy", phys(socket));
            let rule = address.is_le().then(CreditRule::of_this_kernel).flatten();
            add("credit_rule", rule.map(|rule| rule.to_string()));
        }
        Protocol::Rfcomm => {
            let dlcs = std::fs::read_to_string("/sys/kernel/debug/bluetooth/rfcomm_dlc").unwrap_or_default();
            let dlc = address.device.and_then(|device| dlc(&dlcs, device, address.number));
            let [mtu, granted, received] = dlc.map_or([None; 3], |values| values.map(Some));
            add("frame_bytes", mtu.map(|value| value.to_string()));
            add("credits_granted", granted.map(|value| value.to_string()));
            add("credits_received", received.map(|value| value.to_string()));
        }
    }
    let level = security::level(socket).ok();
    add("security_level", level.map(|(level, _)| level.to_string()));
    // The kernel tells it once there is a key in use.
    add("encryption_key_bytes", level.filter(|(_, key)| *key > 0).map(|(_, key)| key.to_string()));
    facts
}

fn open(protocol: Protocol) -> Result<Socket> {
    let number = match protocol {
        Protocol::L2cap => BTPROTO_L2CAP,
        Protocol::Rfcomm => BTPROTO_RFCOMM,
    };
    Socket::new(Domain::from(libc::AF_BLUETOOTH), Type::STREAM.cloexec(), Some(number.into())).map_err(no_bluetooth)
}

fn socket_address(protocol: Protocol, device: DeviceAddress, number: u16, kind: AddressType) -> SockAddr {
    let mut bytes = (libc::AF_BLUETOOTH as u16).to_ne_bytes().to_vec();
    match protocol {
        Protocol::L2cap => {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&device.to_wire());
            // The fixed channel, of which there is none.
            bytes.extend_from_slice(&[0, 0, kind.number(), 0]);
        }
        Protocol::Rfcomm => {
            bytes.extend_from_slice(&device.to_wire());
            // Channels have been checked to be small.
            bytes.extend_from_slice(&[number as u8, 0]);
        }
    }
    sys::socket_address(&bytes)
}

fn set_parameters(socket: &Socket, endpoint: &Endpoint, address: &BluetoothAddress) -> Result<()> {
    let fail = |what| move |error| Error::io(what, endpoint, error);
    if let Some(bytes) = address.rcvbuf {
        socket.set_recv_buffer_size(bytes as usize).map_err(fail("set the receive buffer of"))?;
    }
    if let Some(security) = address.security {
        set_security(socket, security).map_err(fail("set the security of"))?;
    }
    match address.mtu {
        Some(mtu) => set_mtu(socket, address, mtu).map_err(fail("set the MTU of")),
        None => Ok(()),
    }
}

fn set_security(socket: &Socket, security: Security) -> io::Result<()> {
    // struct bt_security: level, size of the key.
    sys::set_option_bytes(socket.as_fd(), SOL_BLUETOOTH, BT_SECURITY, &[security.level(), 0])
}

fn set_mtu(socket: &Socket, address: &BluetoothAddress, mtu: u16) -> io::Result<()> {
    if address.is_le() {
        return sys::set_option_bytes(socket.as_fd(), SOL_BLUETOOTH, BT_RCVMTU, &mtu.to_ne_bytes());
    }
    let mut options = l2cap_options(socket)?;
    options[2..4].copy_from_slice(&mtu.to_ne_bytes());
    sys::set_option_bytes(socket.as_fd(), SOL_L2CAP, L2CAP_OPTIONS, &options)
}

/// `struct l2cap_options`: the MTUs of sending and receiving come first.
fn l2cap_options(socket: &Socket) -> io::Result<[u8; 12]> {
    let mut options = [0; 12];
    sys::option_bytes(socket.as_fd(), SOL_L2CAP, L2CAP_OPTIONS, &mut options)?;
    Ok(options)
}

/// MTUs of receiving and sending, in bytes.
fn mtus(socket: &Socket, address: &BluetoothAddress) -> (Option<u16>, Option<u16>) {
    let native = |bytes: &[u8]| Some(u16::from_ne_bytes(bytes.try_into().ok()?));
    if address.is_le() {
        let read = |option| {
            let mut value = [0; 2];
            sys::option_bytes(socket.as_fd(), SOL_BLUETOOTH, option, &mut value).ok()?;
            native(&value)
        };
        return (read(BT_RCVMTU), read(BT_SNDMTU));
    }
    let options = l2cap_options(socket).ok();
    (options.and_then(|options| native(&options[2..4])), options.and_then(|options| native(&options[..2])))
}

/// A longer write than the peer's MTU is refused by L2CAP. RFCOMM splits it, and makes all of its
/// frames before it sends the first (`bt_skb_sendmmsg`, Linux 5.16 and updates of older ones); a
/// write whose frames do not fit into the send buffer waits for room that never comes. A frame
/// takes up to six times its payload there (127 bytes of payload, 768 of the buffer).
fn write_limit(socket: &Socket, protocol: Protocol, address: &BluetoothAddress) -> usize {
    match protocol {
        Protocol::L2cap => mtus(socket, address).1.unwrap_or(L2CAP_DEFAULT_MTU).max(1).into(),
        Protocol::Rfcomm => (socket.send_buffer_size().unwrap_or(0) / 8).max(RFCOMM_DEFAULT_MTU),
    }
}

/// rfcomm.h, in bytes.
const RFCOMM_DEFAULT_MTU: usize = 127;
/// l2cap.h.
const L2CAP_DEFAULT_MTU: u16 = 672;

/// The PHYs in use, `BT_PHY` (Linux 5.7): bits of bluetooth.h.
fn phys(socket: &Socket) -> Option<String> {
    const NAMES: [(u32, &str); 6] =
        [(9, "1m_tx"), (10, "1m_rx"), (11, "2m_tx"), (12, "2m_rx"), (13, "coded_tx"), (14, "coded_rx")];
    let bits = sys::option(socket.as_fd(), SOL_BLUETOOTH, BT_PHY).ok()? as u32;
    let names: Vec<&str> = NAMES.iter().filter(|(bit, _)| bits & 1 << bit != 0).map(|&(_, name)| name).collect();
    (!names.is_empty()).then(|| names.join("+"))
}

/// Frame size, our credits and the peer's of a connection, from `rfcomm_dlc` in debugfs: addresses,
/// state, DLCI, MTU, credits.
fn dlc(listing: &str, peer: DeviceAddress, channel: u16) -> Option<[u32; 3]> {
    listing.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, device, _, dlci, values @ ..] = words.as_slice() else { return None };
        // The lowest bit of a DLCI tells who began (ETSI TS 101 369, section 5.6).
        let is_it = device.parse::<DeviceAddress>().is_ok_and(|device| device == peer)
            && dlci.parse::<u16>().is_ok_and(|dlci| dlci >> 1 == channel);
        let values: Vec<u32> = values.iter().map_while(|value| value.parse().ok()).collect();
        values.get(..3).filter(|_| is_it)?.try_into().ok()
    })
}
