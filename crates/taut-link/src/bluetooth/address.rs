use std::fmt;
use std::str::FromStr;

use socket2::SockAddr;

use super::le16;
use crate::{Error, Result, sys};

/// Address of a Bluetooth device (Bluetooth Core Specification, Vol 6, Part B, section 1.3), written with the most
/// significant octet first, as `00:11:22:33:44:55`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceAddress([u8; 6]);

/// Kind of a device's address, which is also the kind of radio: as the kernel's `BDADDR_BREDR`, `BDADDR_LE_PUBLIC`,
/// `BDADDR_LE_RANDOM`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AddressType {
    /// `type=bredr`: BR/EDR.
    BrEdr,
    /// `type=public`: LE, a public address.
    Public,
    /// `type=random`: LE, a random address.
    Random,
}

/// Physical layer of an LE link (Bluetooth Core Specification, Vol 6, Part B, section 1.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phy {
    /// `phy=1m`.
    Le1M,
    /// `phy=2m`.
    Le2M,
    /// `phy=coded`.
    LeCoded,
}

/// What a link must be secured with before it opens (`BT_SECURITY`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Security {
    /// `security=low`: nothing.
    Low,
    /// `security=medium`: encryption.
    Medium,
    /// `security=high`: encryption with an authenticated key.
    High,
    /// `security=fips`: the same with LE Secure Connections.
    Fips,
}

/// What runs over the link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    L2cap,
    Rfcomm,
}

/// One end of an L2CAP channel or of RFCOMM: `ADDR/PSM?…` or `ADDR/CHANNEL?…`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct BluetoothAddress {
    /// `None` is written `any`: to listen, on the adapter named or the first.
    pub(crate) device: Option<DeviceAddress>,
    /// PSM or RFCOMM channel; 0 lets the kernel pick one to listen on.
    pub(crate) number: u16,
    /// `adapter=hciN`: by which of this machine's adapters.
    pub(crate) adapter: Option<u16>,
    /// `type=…`, public unless it is said. BR/EDR on RFCOMM.
    pub(crate) kind: AddressType,
    /// `mtu=BYTES`: the largest SDU that this end takes (`BT_RCVMTU`).
    pub(crate) mtu: Option<u16>,
    /// `rcvbuf=BYTES`: `SO_RCVBUF`, set before the connection exists; the kernel doubles it.
    pub(crate) rcvbuf: Option<u32>,
    /// `phy=…`: asked for when the link is up.
    pub(crate) phy: Option<Phy>,
    /// `security=…`
    pub(crate) security: Option<Security>,
    /// `interval=TIME`: the connection interval in units of 1.25 ms, asked for when the link is up.
    pub(crate) interval: Option<u16>,
    /// `length=BYTES`: longest payload of a PDU of the link layer that this side sends, asked for when the link is up.
    pub(crate) length: Option<u16>,
}

/// Of connection intervals, in us (Bluetooth Core Specification, Vol 6, Part B, section 4.5.1).
const INTERVAL_UNIT_US: u32 = 1250;
/// What there is of them, in that unit: 7.5 ms to 4 s.
pub(super) const INTERVALS: std::ops::RangeInclusive<u16> = 6..=3200;
/// Payload of a data PDU in bytes (the same, section 4.5.10).
pub(super) const LENGTHS: std::ops::RangeInclusive<u16> = 27..=251;

const L2CAP_FORM: &str = "write l2cap://ADDR/PSM, as l2cap://00:11:22:33:44:55/129, or any for ADDR to listen; after it, as ?NAME=VALUE&…: \
                          adapter=hciN, type=public|random|bredr, mtu=BYTES, rcvbuf=BYTES, phy=1m|2m|coded, interval=TIME (7.5ms to 4s), length=27..251, \
                          security=low|medium|high|fips";
const RFCOMM_FORM: &str = "write rfcomm://ADDR/CHANNEL, as rfcomm://00:11:22:33:44:55/3, or any for ADDR to listen; after it, as ?NAME=VALUE&…: \
                           adapter=hciN, rcvbuf=BYTES, security=low|medium|high|fips";

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::L2cap => "l2cap",
            Self::Rfcomm => "rfcomm",
        }
    }

    const fn form(self) -> &'static str {
        match self {
            Self::L2cap => L2CAP_FORM,
            Self::Rfcomm => RFCOMM_FORM,
        }
    }
}

impl BluetoothAddress {
    /// Parses what stands after `l2cap://` or `rfcomm://`.
    pub(crate) fn parse(protocol: Protocol, rest: &str) -> Result<Self> {
        let wrong = |why: String| Error::Input(format!("`{}://{rest}`: {why}; {}", protocol.name(), protocol.form()));
        let (place, parameters) = rest.split_once('?').map_or((rest, None), |(place, list)| (place, Some(list)));
        let (device, number) = place.split_once('/').ok_or_else(|| wrong("the `/` is missing".to_owned()))?;
        let device = match device {
            "any" => None,
            device => Some(device.parse().map_err(|error: Error| wrong(error.to_string()))?),
        };
        let mut address = Self {
            device,
            number: parse_number(number).ok_or_else(|| wrong(format!("`{number}` is no number")))?,
            adapter: None,
            kind: if protocol == Protocol::Rfcomm { AddressType::BrEdr } else { AddressType::Public },
            mtu: None,
            rcvbuf: None,
            phy: None,
            security: None,
            interval: None,
            length: None,
        };
        for parameter in parameters.into_iter().flat_map(|list| list.split('&')) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address.set(protocol, name, value).map_err(&wrong)?;
        }
        address.check(protocol).map_err(wrong)?;
        Ok(address)
    }

    fn set(&mut self, protocol: Protocol, name: &str, value: &str) -> std::result::Result<(), String> {
        let is_l2cap = protocol == Protocol::L2cap;
        let unknown = || format!("`{name}={value}` is not known here");
        match name {
            "adapter" => self.adapter = Some(parse_adapter(value).ok_or_else(unknown)?),
            "security" => self.security = Some(choice(value, &SECURITIES).ok_or_else(unknown)?),
            "rcvbuf" => {
                let bytes = value.parse().ok().filter(|&bytes| i32::try_from(bytes).is_ok_and(|bytes| bytes > 0));
                self.rcvbuf = Some(bytes.ok_or_else(unknown)?);
            }
            "type" if is_l2cap => self.kind = choice(value, &TYPES).ok_or_else(unknown)?,
            "phy" if is_l2cap => self.phy = Some(choice(value, &PHYS).ok_or_else(unknown)?),
            "interval" if is_l2cap => self.interval = Some(parse_interval(value).ok_or_else(unknown)?),
            "length" if is_l2cap => {
                let bytes = value.parse().ok().filter(|bytes| LENGTHS.contains(bytes));
                self.length = Some(bytes.ok_or_else(unknown)?);
            }
            "mtu" if is_l2cap => self.mtu = Some(value.parse().map_err(|_| unknown())?),
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn check(&self, protocol: Protocol) -> std::result::Result<(), String> {
        let number = self.number;
        match (protocol, self.kind) {
            (Protocol::Rfcomm, _) if number > 30 => return Err(format!("`{number}` is no channel (1 to 30)")),
            // Bluetooth Core Specification, Vol 3, Part A, section 4.22.
            (Protocol::L2cap, AddressType::Public | AddressType::Random) if number > 0xFF => {
                return Err(format!("`{number}` is no PSM of LE (1 to 255, of which 128 to 255 are free to use)"));
            }
            // The same, section 4.2.
            (Protocol::L2cap, AddressType::BrEdr) if number != 0 && number & 0x0101 != 1 => {
                return Err(format!(
                    "`{number}` is no PSM of BR/EDR (odd, with an even upper octet; free from 4097 on)"
                ));
            }
            _ => {}
        }
        // The least that the specification lets an end offer: section 5.1 there, and section 4.22 for LE.
        let least = if self.kind == AddressType::BrEdr { 48 } else { 23 };
        match self.mtu {
            Some(mtu) if mtu < least => Err(format!("`mtu={mtu}` is below the least, {least}")),
            _ if self.kind == AddressType::BrEdr && self.asks_controllers() => {
                Err("only LE has PHYs, connection intervals and data lengths".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The same address bound to a device and a number.
    pub(crate) fn bound(&self, device: DeviceAddress, number: u16) -> Self {
        Self { device: Some(device), number, ..self.clone() }
    }

    /// The same where the type goes without saying.
    pub(crate) fn without_type(&self) -> Self {
        Self { kind: AddressType::Public, ..self.clone() }
    }

    /// Whether something is asked of the controllers once the link is up.
    pub(super) const fn asks_controllers(&self) -> bool {
        self.phy.is_some() || self.interval.is_some() || self.length.is_some()
    }

    pub(crate) const fn is_le(&self) -> bool {
        !matches!(self.kind, AddressType::BrEdr)
    }
}

fn parse_number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x") {
        // A sign would pass else.
        Some(hexadecimal) if hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u16::from_str_radix(hexadecimal, 16).ok()
        }
        Some(_) => None,
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// A multiple of 1.25 ms, written in ms.
fn parse_interval(text: &str) -> Option<u16> {
    let milliseconds: f64 = text.strip_suffix("ms")?.parse().ok()?;
    let units = milliseconds * 1000.0 / f64::from(INTERVAL_UNIT_US);
    let whole = units.fract() == 0.0 && INTERVALS.contains(&(units as u16)) && units <= f64::from(u16::MAX);
    whole.then_some(units as u16)
}

/// An interval in units of 1.25 ms as it is written.
pub(super) fn interval_text(units: u16) -> String {
    format!("{}ms", f64::from(u32::from(units) * INTERVAL_UNIT_US) / 1000.0)
}

fn parse_adapter(text: &str) -> Option<u16> {
    // 0xFFFF is no adapter (HCI_DEV_NONE).
    parse_number(text.strip_prefix("hci")?).filter(|&index| index != 0xFFFF)
}

const TYPES: [(&str, AddressType); 3] =
    [("public", AddressType::Public), ("random", AddressType::Random), ("bredr", AddressType::BrEdr)];
const PHYS: [(&str, Phy); 3] = [("1m", Phy::Le1M), ("2m", Phy::Le2M), ("coded", Phy::LeCoded)];
const SECURITIES: [(&str, Security); 4] =
    [("low", Security::Low), ("medium", Security::Medium), ("high", Security::High), ("fips", Security::Fips)];

fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Option<T> {
    choices.iter().find(|(name, _)| *name == text).map(|&(_, choice)| choice)
}

fn name_of<T: Copy + PartialEq>(value: T, choices: &[(&'static str, T)]) -> &'static str {
    choices.iter().find(|(_, choice)| *choice == value).map_or("", |&(name, _)| name)
}

impl AddressType {
    /// `bdaddr_type` of `struct sockaddr_l2`.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::BrEdr => 0,
            Self::Public => 1,
            Self::Random => 2,
        }
    }
}

impl Phy {
    /// Its number in HCI events (Bluetooth Core Specification, Vol 4, Part E, section 7.7.65.12).
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Le1M => 1,
            Self::Le2M => 2,
            Self::LeCoded => 3,
        }
    }

    /// Its bit in HCI_LE_Set_PHY (Bluetooth Core Specification, Vol 4, Part E, section 7.8.49).
    pub(super) const fn bit(self) -> u8 {
        match self {
            Self::Le1M => 1,
            Self::Le2M => 2,
            Self::LeCoded => 4,
        }
    }
}

impl Security {
    /// `level` of `struct bt_security`.
    pub(super) const fn level(self) -> u8 {
        match self {
            Self::Low => 1,
            Self::Medium => 2,
            Self::High => 3,
            Self::Fips => 4,
        }
    }
}

impl DeviceAddress {
    /// Any device, or none (`BDADDR_ANY`).
    pub(super) const ANY: Self = Self([0; 6]);

    /// From the order on the air and in the kernel, least significant octet first.
    pub fn from_wire(mut bytes: [u8; 6]) -> Self {
        bytes.reverse();
        Self(bytes)
    }

    /// In that order.
    pub(super) fn to_wire(self) -> [u8; 6] {
        let mut bytes = self.0;
        bytes.reverse();
        bytes
    }
}

impl FromStr for DeviceAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::Input(format!("`{text}` is no device's address (00:11:22:33:44:55)"));
        let mut bytes = [0; 6];
        let mut octets = text.split(':');
        for byte in &mut bytes {
            let octet = octets.next().filter(|octet| octet.len() == 2).ok_or_else(wrong)?;
            let is_hexadecimal = octet.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(octet, 16).ok().filter(|_| is_hexadecimal).ok_or_else(wrong)?;
        }
        let address = Self(bytes);
        if octets.next().is_some() || address == Self::ANY {
            return Err(wrong());
        }
        Ok(address)
    }
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

impl fmt::Display for BluetoothAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device {
            Some(device) => write!(f, "{device}/{}", self.number)?,
            None => write!(f, "any/{}", self.number)?,
        }
        let mut separator = '?';
        let mut parameter = |name: &str, value: Option<String>| match value {
            Some(value) => {
                write!(f, "{separator}{name}={value}")?;
                separator = '&';
                Ok(())
            }
            None => Ok(()),
        };
        parameter("adapter", self.adapter.map(|index| format!("hci{index}")))?;
        // RFCOMM has one type, L2CAP a usual one.
        let kind = Some(self.kind).filter(|kind| *kind != AddressType::Public);
        parameter("type", kind.map(|kind| name_of(kind, &TYPES).to_owned()))?;
        parameter("mtu", self.mtu.map(|mtu| mtu.to_string()))?;
        parameter("rcvbuf", self.rcvbuf.map(|bytes| bytes.to_string()))?;
        parameter("phy", self.phy.map(|phy| name_of(phy, &PHYS).to_owned()))?;
        parameter("interval", self.interval.map(interval_text))?;
        parameter("length", self.length.map(|bytes| bytes.to_string()))?;
        parameter("security", self.security.map(|security| name_of(security, &SECURITIES).to_owned()))
    }
}

/// The address that a listening socket has.
pub(crate) fn bound(protocol: Protocol, address: &BluetoothAddress, local: &SockAddr) -> BluetoothAddress {
    let bytes = sys::address_bytes(local);
    let (device_at, number) = match protocol {
        // sockaddr_l2: family, PSM, address.
        Protocol::L2cap => (4, le16(bytes, 2)),
        // sockaddr_rc: family, address, channel.
        Protocol::Rfcomm => (2, bytes.get(8).map(|&channel| channel.into())),
    };
    let device =
        bytes.get(device_at..device_at + 6).and_then(|bytes| bytes.try_into().ok()).map(DeviceAddress::from_wire);
    match (device, number) {
        (Some(device), Some(number)) if device != DeviceAddress::ANY => address.bound(device, number),
        _ => address.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn l2cap(text: &str) -> Result<BluetoothAddress> {
        BluetoothAddress::parse(Protocol::L2cap, text)
    }

    #[test]
    fn an_address_is_written_from_its_most_significant_octet() {
        let address: DeviceAddress = "00:AA:01:00:00:2f".parse().unwrap();
        assert_eq!(address.to_string(), "00:AA:01:00:00:2F");
        assert_eq!(address.to_wire(), [0x2F, 0, 0, 1, 0xAA, 0]);
        assert_eq!(DeviceAddress::from_wire(address.to_wire()), address);
        for text in
            ["", "00:AA:01:00:00", "00:AA:01:00:00:2f:0", "00:AA:01:00:00:+f", "0:0:0:0:0:0", "00:00:00:00:00:00"]
        {
            assert!(text.parse::<DeviceAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_psm_is_one_of_its_kind_of_link() {
        for text in ["any/0", "any/129", "any/0x81", "any/255", "any/4097?type=bredr", "any/1?type=bredr"] {
            assert!(l2cap(text).is_ok(), "{text}");
        }
        for text in ["any/256", "any/-1", "any/+1", "any/0x", "any/4098?type=bredr", "any/257?type=bredr", "any/65536"]
        {
            assert!(l2cap(text).is_err(), "{text}");
        }
        assert!(BluetoothAddress::parse(Protocol::Rfcomm, "any/30").is_ok());
        assert!(BluetoothAddress::parse(Protocol::Rfcomm, "any/31").is_err());
    }

    #[test]
    fn a_parameter_that_means_nothing_here_is_an_error() {
        for parameter in [
            "",
            "adapter=1",
            "adapter=hci65535",
            "mtu=22",
            "mtu=70000",
            "rcvbuf=0",
            "phy=3m",
            "interval=7ms",
            "interval=6.25ms",
            "interval=4001.25ms",
            "interval=50",
            "interval=NaNms",
            "length=26",
            "length=252",
            "type=le",
            "security=x",
            "x=1",
        ] {
            let message = l2cap(&format!("any/129?{parameter}")).unwrap_err().to_string();
            assert!(message.contains("l2cap://ADDR/PSM"), "{message}");
        }
        for parameter in ["phy=2m", "interval=7.5ms", "length=27"] {
            assert!(l2cap(&format!("any/4097?type=bredr&{parameter}")).is_err(), "{parameter}");
        }
        for parameter in ["mtu=100", "phy=2m", "interval=50ms", "length=27", "type=public"] {
            assert!(BluetoothAddress::parse(Protocol::Rfcomm, &format!("any/3?{parameter}")).is_err(), "{parameter}");
        }
    }
}
