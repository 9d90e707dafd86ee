//! A TUN device (Linux, Documentation/networking/tuntap.rst), set up without help from any program.
#![expect(unsafe_code, reason = "rustix has no wrapper for the requests that set up a network interface")]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Error, Result};

const DEVICE: &str = "/dev/net/tun";
const INTERFACE: &str = "taut0";

/// A network interface of which this process is the other side. It goes away when this does.
#[derive(Debug)]
pub(crate) struct TunDevice(OwnedFd);

impl TunDevice {
    /// Creates an interface in the calling thread's network namespace, gives it an address and brings it up.
    pub(crate) fn open(address: Ipv4Addr, netmask: Ipv4Addr) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|errno| {
            Error::Unavailable(format!(
                "the foreign peer needs {DEVICE}: {errno} (load the module with `modprobe tun`, and let this user \
                 open the device; in a container pass --device {DEVICE})"
            ))
        })?;
        let kind = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        request("create", &device, libc::TUNSETIFF, INTERFACE, &kind.to_ne_bytes())?;

        let failed = |errno| failed("open a socket to set up", INTERFACE, errno);
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| failed(io::Error::from(errno)))?;
        request("set the address of", &socket, libc::SIOCSIFADDR as libc::Ioctl, INTERFACE, &socket_address(address))?;
        request(
            "set the netmask of",
            &socket,
            libc::SIOCSIFNETMASK as libc::Ioctl,
            INTERFACE,
            &socket_address(netmask),
        )?;
        bring_up(&socket, INTERFACE)?;
        bring_up(&socket, "lo")?;
        Ok(Self(device))
    }

    /// Takes the next packet that the kernel sent. `WouldBlock` when there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        rustix::io::read(&self.0, buffer)
    }

    /// Hands a packet to the kernel.
    pub(crate) fn send(&self, packet: &[u8]) -> rustix::io::Result<usize> {
        rustix::io::write(&self.0, packet)
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn bring_up(socket: &OwnedFd, interface: &'static str) -> Result<()> {
    let answer = request("read the flags of", socket, libc::SIOCGIFFLAGS as libc::Ioctl, interface, &[])?;
    let flags = i16::from_ne_bytes([answer.value[0], answer.value[1]]) | libc::IFF_UP as i16;
    request("bring up", socket, libc::SIOCSIFFLAGS as libc::Ioctl, interface, &flags.to_ne_bytes())?;
    Ok(())
}

/// `struct sockaddr_in`, the port left out.
fn socket_address(address: Ipv4Addr) -> [u8; 8] {
    let [family_0, family_1] = (libc::AF_INET as libc::sa_family_t).to_ne_bytes();
    let [a, b, c, d] = address.octets();
    [family_0, family_1, 0, 0, a, b, c, d]
}

/// `struct ifreq` (netdevice(7)): the name of an interface and the bytes of a union, here as large as on any
/// architecture.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());

/// Makes a request about an interface, with a value, and returns what the kernel made of the value.
fn request(
    operation: &'static str,
    fd: &OwnedFd,
    number: libc::Ioctl,
    interface: &'static str,
    value: &[u8],
) -> Result<InterfaceRequest> {
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], value: [0; 24] };
    request.name.iter_mut().zip(interface.bytes()).for_each(|(to, from)| *to = from);
    request.value.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
    interface_ioctl(fd.as_fd(), number, &mut request).map_err(|error| failed(operation, interface, error))?;
    Ok(request)
}

fn interface_ioctl(fd: BorrowedFd<'_>, number: libc::Ioctl, request: &mut InterfaceRequest) -> io::Result<()> {
    // SAFETY: this module's requests read and write at most one struct ifreq, which the live, exclusively borrowed
    // `request` is at least as large as; all its bytes are initialized, and any bytes are valid for it afterwards.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn failed(operation: &'static str, interface: &str, error: io::Error) -> Error {
    Error::Io { operation, endpoint: format!("the network interface {interface}"), error }
}
