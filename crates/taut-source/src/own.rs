//! Which addresses are this host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether it is an address of this network namespace: to these the kernel sends from the same one. That it can be
/// bound to tells nothing where `net.ipv4.ip_nonlocal_bind` is set.
pub fn is_own_address(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Of UDP that sends nothing.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    address.is_loopback() || from().is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_host_s_and_test_net_is_not() {
        for (address, is_own) in
            [("127.0.0.1", true), ("127.9.9.9", true), ("192.0.2.9", false), ("2001:db8::9", false)]
        {
            assert_eq!(is_own_address(address.parse().unwrap()), is_own, "{address}");
        }
    }
}
