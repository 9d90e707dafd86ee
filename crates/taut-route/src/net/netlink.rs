//! rtnetlink(7): devices, addresses, ways and neighbours, as far as routes and their bench need them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

// Messages, flags and attributes (linux/rtnetlink.h, if_link.h, if_addr.h, neighbour.h, veth.h).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
#[cfg(test)]
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
pub(super) const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_ACK: u16 = 4;
pub(super) const NLM_F_DUMP: u16 = 0x300;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
/// States in which the address of a neighbour may be used: reachable, stale, delay, probe, no ARP, permanent.
const NUD_USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
const NTF_USE: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// An address of this host (linux/rtnetlink.h), and the number of the loopback device, which is the
/// first one (`LOOPBACK_IFINDEX`).
const RTN_LOCAL: u8 = 2;
pub(crate) const LOOPBACK: u32 = 1;
const IFLA_MTU: u16 = 4;
/// No search for others with the address (linux/if_addr.h).
const IFA_F_NODAD: u8 = 2;

/// A device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Its Ethernet address, if it has one.
    pub(crate) address: Option<[u8; 6]>,
    /// What virtual device it is (`veth`, `bridge` …); `None` for others.
    pub(crate) kind: Option<String>,
    /// Most bytes of an IP packet.
    pub(crate) mtu: u32,
}

/// The way to an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NextHop {
    pub(crate) ifindex: u32,
    /// The next host on it.
    pub(crate) next: IpAddr,
}

/// A socket of rtnetlink, in the network namespace in which it was made.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// A message being written.
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(header);
        Self(bytes)
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// An attribute made of others, with something before them.
    pub(super) fn nested(&mut self, kind: u16, before: &[u8], inner: impl FnOnce(&mut Self)) {
        let at = self.0.len();
        self.0.extend([0; 4]);
        self.0.extend(before);
        inner(self);
        let length = (self.0.len() - at) as u16;
        self.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// `struct ifinfomsg`.
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&change.to_ne_bytes());
    header
}

/// `struct ndmsg`.
fn neighbour_header(way: NextHop, state: u16, flags: u8) -> [u8; 12] {
    let mut header = [0; 12];
    header[0] = family(way.next);
    header[4..8].copy_from_slice(&way.ifindex.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header[10] = flags;
    header
}

pub(super) fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Attributes that follow a header of that length.
fn attributes(bytes: &[u8], header: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes.get(header..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(short_at(rest, 0)?);
        let value = rest.get(4..length)?;
        let kind = short_at(rest, 2)? & 0x3fff;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(super) fn attribute(bytes: &[u8], header: usize, wanted: u16) -> Option<&[u8]> {
    attributes(bytes, header).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        _ => value.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
    }
}

const fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The device that an address of a link names, or 0.
const fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        // No protocol is NETLINK_ROUTE, which is 0.
        Self::of(None)
    }

    /// Of another protocol.
    pub(super) fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
        Ok(Self(socket))
    }

    /// Sends a request and hands over the messages that answer it.
    pub(super) fn ask(&self, message: Message, mut answer: impl FnMut(&[u8])) -> io::Result<()> {
        let request = message.finish();
        let is_dump = short_at(&request, 6).unwrap_or(0) & NLM_F_DUMP == NLM_F_DUMP;
        let expects_ack = short_at(&request, 6).unwrap_or(0) & NLM_F_ACK != 0;
        rustix::net::send(&self.0, &request, SendFlags::empty())?;
        let mut buffer = vec![0; 65_536];
        loop {
            let (length, _) = rustix::net::recv(&self.0, buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = &buffer[..length];
            while let (Some(size), Some(kind)) = (number_at(rest, 0), short_at(rest, 4)) {
                let Some(body) = rest.get(16..size as usize) else { break };
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let code = number_at(body, 0).unwrap_or(0).cast_signed();
                        return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                    }
                    _ => answer(body),
                }
                if !is_dump && !expects_ack {
                    return Ok(());
                }
                rest = rest.get((size as usize).next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    /// Sends several messages as one, and waits for the answer to the one that asks for it.
    #[cfg(test)]
    pub(super) fn tell_all(&self, messages: impl IntoIterator<Item = Message>) -> io::Result<()> {
        let bytes: Vec<u8> = messages.into_iter().flat_map(Message::finish).collect();
        rustix::net::send(&self.0, &bytes, SendFlags::empty())?;
        let mut buffer = [0; 4096];
        let (length, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        match number_at(&buffer[..length], 16).unwrap_or(0).cast_signed() {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        }
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        self.ask(message, |_| {})
    }

    /// A device by its number.
    pub(crate) fn device(&self, index: u32) -> io::Result<Device> {
        let mut device = Device { index, name: String::new(), address: None, kind: None, mtu: 0 };
        self.ask(Message::new(RTM_GETLINK, 0, &link_header(index, 0, 0)), |body| read_device(body, &mut device))?;
        Ok(device)
    }

    /// A device by its name.
    pub(crate) fn device_named(&self, name: &str) -> io::Result<Device> {
        let mut device = Device { index: 0, name: String::new(), address: None, kind: None, mtu: 0 };
        let mut message = Message::new(RTM_GETLINK, 0, &link_header(0, 0, 0));
        message.attribute(IFLA_IFNAME, format!("{name}\0").as_bytes());
        self.ask(message, |body| {
            device.index = number_at(body, 4).unwrap_or(0);
            read_device(body, &mut device);
        })?;
        Ok(device)
    }

    /// Number of the device that has an address of this host, on the device that it names if it does.
    pub(crate) fn device_of(&self, wanted: SocketAddr) -> io::Result<Option<u32>> {
        let (ip, scope) = (wanted.ip(), scope(wanted));
        let mut found = None;
        // struct ifaddrmsg: family first, the device's number last.
        let message = Message::new(RTM_GETADDR, NLM_F_DUMP, &[family(ip), 0, 0, 0, 0, 0, 0, 0]);
        self.ask(message, |body| {
            // IPv6 has it in the other attribute.
            let own = attribute(body, 8, IFA_LOCAL).or_else(|| attribute(body, 8, IFA_ADDRESS)).and_then(address);
            let device = number_at(body, 4).filter(|device| scope == 0 || *device == scope);
            if own == Some(ip) {
                found = found.or(device);
            }
        })?;
        Ok(found)
    }

    /// The address by which all hosts are reached on the network of an address of this host (IPv4).
    pub(crate) fn broadcast_of(&self, wanted: Ipv4Addr) -> io::Result<Option<Ipv4Addr>> {
        let mut found = None;
        let message = Message::new(RTM_GETADDR, NLM_F_DUMP, &[AF_INET, 0, 0, 0, 0, 0, 0, 0]);
        self.ask(message, |body| {
            if attribute(body, 8, IFA_LOCAL).and_then(address) == Some(wanted.into()) {
                found = attribute(body, 8, IFA_BROADCAST).and_then(|value| value.first_chunk::<4>()).copied();
            }
        })?;
        Ok(found.map(Ipv4Addr::from))
    }

    /// The way that datagrams to an address take.
    pub(crate) fn next_hop_to(&self, to: SocketAddr) -> io::Result<NextHop> {
        let ip = to.ip();
        let destination = octets(ip);
        // struct rtmsg: family, length of the destination in bits.
        let header = [family(ip), 8 * destination.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut message = Message::new(RTM_GETROUTE, 0, &header);
        message.attribute(RTA_DST, &destination);
        if scope(to) != 0 {
            message.attribute(RTA_OIF, &scope(to).to_ne_bytes());
        }
        let mut way = NextHop { ifindex: 0, next: ip };
        self.ask(message, |body| {
            way.ifindex = attribute(body, 12, RTA_OIF).and_then(|value| number_at(value, 0)).unwrap_or(0);
            // IPv6 names the device that has the address; what goes there takes loopback all the same.
            if body.get(7) == Some(&RTN_LOCAL) {
                way.ifindex = LOOPBACK;
            }
            way.next = attribute(body, 12, RTA_GATEWAY).and_then(address).unwrap_or(ip);
        })?;
        Ok(way)
    }

    /// The Ethernet address of a neighbour, if the kernel knows it.
    pub(crate) fn neighbour(&self, way: NextHop) -> Option<[u8; 6]> {
        let mut message = Message::new(RTM_GETNEIGH, 0, &neighbour_header(way, 0, 0));
        message.attribute(NDA_DST, &octets(way.next));
        let mut found = None;
        let asked = self.ask(message, |body| {
            let usable = short_at(body, 8).is_some_and(|state| state & NUD_USABLE != 0);
            found = attribute(body, 12, NDA_LLADDR).and_then(|value| value.first_chunk().copied()).filter(|_| usable);
        });
        asked.ok().and(found)
    }

    /// Has the kernel find out a neighbour, or make sure of it, as if something were sent there (`NTF_USE`).
    pub(crate) fn use_neighbour(&self, way: NextHop) -> io::Result<()> {
        let header = neighbour_header(way, 0, NTF_USE);
        let mut message = Message::new(RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &header);
        message.attribute(NDA_DST, &octets(way.next));
        self.tell(message)
    }

    /// Has the kernel forget a neighbour.
    #[cfg(test)]
    pub(crate) fn forget_neighbour(&self, way: NextHop) -> io::Result<()> {
        let mut message = Message::new(RTM_DELNEIGH, NLM_F_ACK, &neighbour_header(way, 0, 0));
        message.attribute(NDA_DST, &octets(way.next));
        self.tell(message)
    }

    /// Makes a pair of virtual devices joined by a cable, one here and one in another network namespace.
    pub(crate) fn add_veth(&self, here: &str, there: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &link_header(0, 0, 0));
        message.attribute(IFLA_IFNAME, format!("{here}\0").as_bytes());
        message.nested(IFLA_LINKINFO, &[], |info| {
            info.attribute(IFLA_INFO_KIND, b"veth");
            info.nested(IFLA_INFO_DATA, &[], |data| {
                data.nested(VETH_INFO_PEER, &link_header(0, 0, 0), |peer| {
                    peer.attribute(IFLA_IFNAME, format!("{there}\0").as_bytes());
                    peer.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.tell(message)
    }

    /// Gives a device addresses in networks of 24 bits (IPv6: 64), and sets it up.
    pub(crate) fn set_up(&self, index: u32, own: &[IpAddr]) -> io::Result<()> {
        for own in own {
            let bits = if own.is_ipv4() { 24 } else { 64 };
            let mut header = [family(*own), bits, IFA_F_NODAD, 0, 0, 0, 0, 0];
            header[4..].copy_from_slice(&index.to_ne_bytes());
            let mut message = Message::new(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &header);
            message.attribute(IFA_LOCAL, &octets(*own));
            message.attribute(IFA_ADDRESS, &octets(*own));
            self.tell(message)?;
        }
        // IFF_UP.
        self.tell(Message::new(RTM_NEWLINK, NLM_F_ACK, &link_header(index, 1, 1)))
    }

    /// Writes down the Ethernet address of a neighbour for good, so that nothing need ask for it.
    pub(crate) fn set_neighbour(&self, way: NextHop, at: [u8; 6]) -> io::Result<()> {
        let header = neighbour_header(way, NUD_PERMANENT, 0);
        let mut message = Message::new(RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &header);
        message.attribute(NDA_DST, &octets(way.next));
        message.attribute(NDA_LLADDR, &at);
        self.tell(message)
    }
}

fn read_device(body: &[u8], device: &mut Device) {
    for (kind, value) in attributes(body, 16) {
        match kind {
            IFLA_IFNAME => device.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            IFLA_ADDRESS => device.address = value.try_into().ok(),
            IFLA_MTU => device.mtu = number_at(value, 0).unwrap_or(0),
            IFLA_LINKINFO => {
                let kind = attribute(value, 0, IFLA_INFO_KIND);
                device.kind = kind.map(|kind| String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned());
            }
            _ => {}
        }
    }
}
