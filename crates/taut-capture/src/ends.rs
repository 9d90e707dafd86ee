//! Ends of flows as keys.

use std::net::IpAddr;

use taut_event::Address;

/// An end as numbers, which are compared and hashed faster than an address.
pub(crate) fn as_numbers(end: Address) -> (u128, u16) {
    let ip = match end.ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip.to_bits(), end.port)
}
