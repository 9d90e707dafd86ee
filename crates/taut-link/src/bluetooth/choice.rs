use super::address::interval_text;
use super::{Phy, Protocol};
use crate::Endpoint;

/// What can be chosen of an LE link; `None` is what the endpoint says, or the kernel does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkChoice {
    /// Largest SDU that this end takes, in bytes (`mtu=`).
    pub mtu: Option<u16>,
    /// `SO_RCVBUF` in bytes (`rcvbuf=`).
    pub receive_buffer: Option<u32>,
    /// Physical layer of both directions (`phy=`).
    pub phy: Option<Phy>,
    /// Connection interval in units of 1.25 ms (`interval=`).
    pub interval: Option<u16>,
    /// Longest payload of a data PDU in bytes (`length=`).
    pub length: Option<u16>,
}

impl LinkChoice {
    /// The same link with this chosen; `None` where it isn't one of LE.
    pub fn on(self, endpoint: &Endpoint) -> Option<Endpoint> {
        let (Protocol::L2cap, address) = endpoint.bluetooth()? else { return None };
        address.is_le().then(|| {
            let mut address = address.clone();
            address.mtu = self.mtu.or(address.mtu);
            address.rcvbuf = self.receive_buffer.or(address.rcvbuf);
            address.phy = self.phy.or(address.phy);
            address.interval = self.interval.or(address.interval);
            address.length = self.length.or(address.length);
            Endpoint::L2cap(address)
        })
    }
}

/// A connection interval in units of 1.25 ms as an endpoint has it: `7.5ms`.
pub fn interval_in_words(units: u16) -> String {
    interval_text(units)
}
