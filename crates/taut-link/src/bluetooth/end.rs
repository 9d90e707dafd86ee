//! What the kernel tells of a socket of Bluetooth, whosever it is.

use std::io;
use std::os::fd::BorrowedFd;

use socket2::SockRef;
use taut_event::ChannelEnd;

use super::number::{BTPROTO_L2CAP, BTPROTO_RFCOMM, L2CAP_CONNINFO, SOL_L2CAP};
use super::{le16, management};
use crate::sys;

/// `SOL_RFCOMM` and `RFCOMM_CONNINFO` (rfcomm.h).
const SOL_RFCOMM: i32 = 18;
const RFCOMM_CONNINFO: i32 = 2;

/// Asks a socket which channel it is an end of.
///
/// # Errors
/// As getsockopt(2): `ENOTCONN` while it is not connected.
pub fn end_of(socket: BorrowedFd<'_>) -> io::Result<ChannelEnd> {
    let protocol = sys::option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL)?;
    let (level, name) = match protocol {
        BTPROTO_L2CAP => (SOL_L2CAP, L2CAP_CONNINFO),
        BTPROTO_RFCOMM => (SOL_RFCOMM, RFCOMM_CONNINFO),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let handle = handle(socket, level, name)?;
    let is_nonblocking = rustix::fs::fcntl_getfl(socket)?.contains(rustix::fs::OFlags::NONBLOCK);
    let socket = SockRef::from(&socket);
    let (own, peer) = (socket.local_addr()?, socket.peer_addr()?);
    let parse = if protocol == BTPROTO_L2CAP { l2cap } else { rfcomm };
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    let (own, own_cid, _) = parse(sys::address_bytes(&own)).ok_or_else(short)?;
    let (peer, peer_cid, number) = parse(sys::address_bytes(&peer)).ok_or_else(short)?;
    let adapters = management::Management::open().and_then(|management| management.adapters()).unwrap_or_default();
    let adapter = adapters.iter().find(|adapter| adapter.address.to_wire() == own).map(|adapter| adapter.index);
    // One adapter alone is the one, whatever address it goes by.
    let adapter = adapter.or_else(|| Some(adapters.first()?.index).filter(|_| adapters.len() == 1));
    Ok(ChannelEnd { adapter, handle, own, peer, number, cids: [own_cid, peer_cid], is_nonblocking })
}

/// The handle by which controller and kernel know the connection.
pub(super) fn handle(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u16> {
    // struct l2cap_conninfo and rfcomm_conninfo: handle, class of device.
    let mut information = [0; 6];
    sys::option_bytes(socket, level, name, &mut information)?;
    Ok(u16::from_ne_bytes([information[0], information[1]]))
}

/// Device, channel identifier and number of `struct sockaddr_l2`.
fn l2cap(address: &[u8]) -> Option<([u8; 6], u16, u16)> {
    Some((*address.get(4..)?.first_chunk()?, le16(address, 10)?, le16(address, 2)?))
}

/// The same of `struct sockaddr_rc`.
fn rfcomm(address: &[u8]) -> Option<([u8; 6], u16, u16)> {
    Some((*address.get(2..)?.first_chunk()?, 0, (*address.get(8)?).into()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_lays_them_out() {
        let device = [1, 2, 3, 4, 5, 6];
        // Family; multiplexer; device; channel identifier; type of address.
        let of_l2cap = [31, 0, 0x85, 0, 1, 2, 3, 4, 5, 6, 0x41, 0, 1, 0];
        assert_eq!(l2cap(&of_l2cap), Some((device, 0x41, 0x85)));
        assert_eq!(rfcomm(&[31, 0, 1, 2, 3, 4, 5, 6, 9, 0]), Some((device, 0, 9)));
        assert_eq!((l2cap(&of_l2cap[..11]), rfcomm(&[31, 0])), (None, None));
    }

    #[test]
    fn a_socket_of_another_kind_is_refused() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(end_of(socket.as_fd()).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
