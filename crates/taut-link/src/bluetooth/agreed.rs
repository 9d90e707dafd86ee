/// What the two controllers of an LE connection agreed on, as one side sees it; `None` is what that side has not heard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Agreed {
    /// Connection interval in units of 1.25 ms, 6 to 3200.
    pub interval: Option<u16>,
    /// Events that the peripheral may skip.
    pub latency: Option<u16>,
    /// Supervision timeout in units of 10 ms.
    pub timeout: Option<u16>,
    /// Longest payload of a PDU of the link layer that this side sends, in bytes, 27 to 251.
    pub tx_octets: Option<u16>,
    /// The same of the peer.
    pub rx_octets: Option<u16>,
    /// PHYs of sending and receiving, as events number them (Bluetooth Core Specification, Vol 4,
    /// Part E, section 7.7.65.12): 1M, 2M, Coded.
    pub phys: Option<[u8; 2]>,
}

impl Agreed {
    /// The same as the other side sees it.
    pub fn from_the_other_side(self) -> Self {
        let phys = self.phys.map(|[tx, rx]| [rx, tx]);
        Self { tx_octets: self.rx_octets, rx_octets: self.tx_octets, phys, ..self }
    }

    /// With what another knows where this one has nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            interval: self.interval.or(other.interval),
            latency: self.latency.or(other.latency),
            timeout: self.timeout.or(other.timeout),
            tx_octets: self.tx_octets.or(other.tx_octets),
            rx_octets: self.rx_octets.or(other.rx_octets),
            phys: self.phys.or(other.phys),
        }
    }
}
