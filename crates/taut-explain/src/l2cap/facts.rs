//! What was negotiated on a channel, read back from a recording's `name=value`.

use taut_air::{Limit, Phy, SDU_LENGTH_BYTES};

/// Facts of an L2CAP channel of LE.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// Connection interval in us.
    pub(super) interval_us: Option<u32>,
    /// The interval before the peer had it changed.
    pub(super) put_back_from_us: Option<u32>,
    /// PDUs that came before the channel was open.
    pub(super) early: u32,
    /// Longest payload that is sent and received, in bytes.
    octets: [Option<u32>; 2],
    /// The end that receives what the peer sends, and the one that receives what is sent.
    ends: [Receiver; 2],
    phy: Option<Phy>,
    encrypted: bool,
}

/// The end of a channel that receives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Receiver {
    /// Largest SDU and largest PDU that it takes, in bytes.
    pub(super) mtu: Option<u32>,
    pub(super) mps: Option<u32>,
    /// Credits that it gave at first, and the most that it gave later in one signal.
    pub(super) credits: Option<u32>,
    pub(super) largest_grant: Option<u32>,
    /// `SO_RCVBUF` in bytes.
    pub(super) buffer: Option<u32>,
    pub(super) rule: Option<Rule>,
}

/// How its kernel gives credits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    /// For one SDU.
    Sdu,
    /// For what fits into the receive buffer.
    ReceiveBuffer,
}

/// Bytes of SDU length in an SDU's first PDU.
const SDU_LENGTH: u32 = 2;
/// Inter frame space (Bluetooth Core Specification, Vol 6, Part B, section 4.1.1).
const IFS_NS: u64 = 150_000;

impl Facts {
    /// From the options of a row.
    pub fn of(options: &[String]) -> Self {
        let text = |name: &str| options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let rule = |name: &str| match text(name)? {
            "sdu" => Some(Rule::Sdu),
            "rcvbuf" => Some(Rule::ReceiveBuffer),
            _ => None,
        };
        let here = Receiver {
            mtu: number("rcv_mtu"),
            mps: number("rcv_mps"),
            credits: number("credits_granted"),
            largest_grant: number("largest_grant"),
            buffer: number("rcvbuf"),
            rule: rule("credit_rule"),
        };
        let there = Receiver {
            mtu: number("snd_mtu"),
            mps: number("snd_mps"),
            credits: number("credits_received"),
            largest_grant: number("largest_grant_received"),
            buffer: number("peer_rcvbuf"),
            rule: rule("peer_credit_rule"),
        };
        Self {
            interval_us: number("connection_interval_us"),
            put_back_from_us: number("interval_put_back_from_us"),
            early: number("data_before_response").unwrap_or(0),
            octets: [number("tx_octets"), number("rx_octets")],
            ends: [here, there],
            phy: text("phy").map(|phys| match phys {
                _ if phys.contains("2m") => Phy::Le2M,
                _ if phys.contains("coded") => Phy::CodedS8,
                _ => Phy::Le1M,
            }),
            // Where the controllers are not heard, what the socket asked for.
            encrypted: number("encrypted") == Some(1) || number("security_level").is_some_and(|level| level > 1),
        }
    }

    /// The end that receives in a direction.
    pub(super) const fn receiver(&self, down: bool) -> Receiver {
        self.ends[if down { 0 } else { 1 }]
    }

    /// Longest payload of a PDU of the link layer in a direction, in bytes.
    pub(super) const fn octets(&self, down: bool) -> Option<u32> {
        self.octets[if down { 1 } else { 0 }]
    }

    /// What the air can carry in a direction when nothing else holds it up, in bits per second,
    /// with PDUs of another length or as they are.
    pub(super) fn limit_bps(&self, down: bool, octets: Option<u32>) -> Option<f64> {
        let receiver = self.receiver(down);
        let limit = Limit {
            phy: self.phy?,
            length: octets.or_else(|| self.octets(down))? as usize,
            mic: self.encrypted,
            ifs: IFS_NS,
            sdu: receiver.mtu? as usize,
            header: SDU_LENGTH_BYTES,
            mps: receiver.mps? as usize,
        };
        Some(limit.bps())
    }
}

impl Receiver {
    /// PDUs of its largest SDU.
    pub(super) fn pdus(&self) -> Option<u32> {
        Some((self.mtu? + SDU_LENGTH).div_ceil(self.mps.filter(|mps| *mps > 0)?))
    }

    /// PDUs that may be on their way to it, as far as its credits show.
    pub(super) fn window(&self) -> Option<u32> {
        // Without a grant that was heard nothing is known: the first credits are few in either rule.
        Some(self.credits?.max(self.largest_grant?))
    }

    /// Whether no second SDU may be on its way while one is.
    pub(super) fn is_one_sdu(&self) -> bool {
        // MTU / MPS + 1 may be one more than an SDU has.
        matches!((self.window(), self.pdus()), (Some(window), Some(pdus)) if window <= pdus + 1)
    }
}
