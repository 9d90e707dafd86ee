use core::fmt;

/// An L2CAP channel on a link of Bluetooth.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ChannelKey {
    /// Number of the adapter whose controller was listened to.
    pub adapter: u16,
    /// Handle of the link (Core Specification, Vol 4, Part E, section 5.4.2).
    pub handle: u16,
    /// The peer's address, its last byte first as on the air; `None` where the link's begin was not seen.
    pub peer: Option<[u8; 6]>,
    /// What it is.
    pub channel: Channel,
}

/// What an L2CAP channel is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Channel {
    /// The attribute protocol of LE (fixed channel 4).
    Att,
    /// A credit-based channel, by its protocol/service multiplexer.
    CreditBased(u16),
    /// A channel whose opening was not seen, by the identifier first seen.
    Dynamic(u16),
    /// A channel of BR/EDR without credits, by its protocol/service multiplexer.
    Basic(u16),
    /// A channel of BR/EDR whose opening was not seen, by the identifier first seen.
    Unopened(u16),
    /// A connection of RFCOMM, by its data link connection identifier, 2 to 61.
    Rfcomm(u8),
    /// The media packets of a stream of AVDTP (A2DP), by the identifier of the channel.
    Media(u16),
}

impl Channel {
    /// Whether only links of BR/EDR have it, which have no connection events.
    pub const fn is_classic(self) -> bool {
        matches!(self, Self::Basic(_) | Self::Unopened(_) | Self::Rfcomm(_) | Self::Media(_))
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Att => f.write_str("ATT"),
            Self::CreditBased(psm) => write!(f, "PSM {psm:#06x}"),
            Self::Dynamic(cid) | Self::Unopened(cid) => write!(f, "CID {cid:#06x}"),
            Self::Basic(psm) => write!(f, "PSM {psm:#06x}"),
            // Two connections may have the same server channel, one at each end.
            Self::Rfcomm(dlci) => write!(f, "RFCOMM channel {} (DLCI {dlci})", dlci >> 1),
            Self::Media(cid) => write!(f, "A2DP media CID {cid:#06x}"),
        }
    }
}

impl ChannelKey {
    /// The host that was listened to, as a report names it.
    pub const fn near(&self) -> impl fmt::Display + use<> {
        Near(self.adapter)
    }

    /// The other host with the channel, as a report names it.
    pub const fn far(&self) -> impl fmt::Display + '_ {
        Far(self)
    }
}

/// Writes `hci0`.
struct Near(u16);

/// Writes `06:00:AA:01:00:00 ATT (handle 64)`.
struct Far<'a>(&'a ChannelKey);

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hci{}", self.0)
    }
}

impl fmt::Display for Far<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChannelKey { handle, peer, channel, .. } = self.0;
        match peer {
            Some([a, b, c, d, e, g]) => write!(f, "{g:02X}:{e:02X}:{d:02X}:{c:02X}:{b:02X}:{a:02X}")?,
            None => f.write_str("peer")?,
        }
        write!(f, " {channel} (handle {handle})")
    }
}

/// A socket of Bluetooth that is connected, as its kernel tells it. Addresses have their last byte first, as on the
/// air.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ChannelEnd {
    /// Number of the adapter; `None` where it was not found.
    pub adapter: Option<u16>,
    /// Handle of the link.
    pub handle: u16,
    /// Address of the adapter, or the one that it goes by.
    pub own: [u8; 6],
    /// The peer's address.
    pub peer: [u8; 6],
    /// The protocol/service multiplexer of L2CAP, or the server channel of RFCOMM; 0 where there is none.
    pub number: u16,
    /// Identifiers of the L2CAP channel, the own one first; 0 of others.
    pub cids: [u16; 2],
    /// Whether its program does not want to wait in calls (`O_NONBLOCK`).
    pub is_nonblocking: bool,
}

impl ChannelEnd {
    /// Whether a log of the host controller interface means the same channel.
    pub fn is_of(&self, key: &ChannelKey) -> bool {
        let is_link = self.handle == key.handle
            && self.adapter.is_none_or(|adapter| adapter == key.adapter)
            && key.peer.is_none_or(|peer| peer == self.peer);
        is_link
            && match key.channel {
                Channel::Att => self.number == 0 && self.cids.contains(&4),
                Channel::CreditBased(psm) | Channel::Basic(psm) => self.number == psm && self.cids != [0; 2],
                Channel::Dynamic(cid) | Channel::Unopened(cid) | Channel::Media(cid) => self.cids.contains(&cid),
                Channel::Rfcomm(dlci) => self.cids == [0; 2] && self.number == u16::from(dlci >> 1),
            }
    }
}

/// What passed between a host and its controller about a channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum L2cap {
    /// One end asked for the channel.
    Asked,
    /// The channel is open. Each pair is by direction: what the receiver of that direction said.
    Opened {
        /// Longest SDU, in bytes.
        mtu: [u16; 2],
        /// Longest PDU, in bytes of information payload.
        mps: [u16; 2],
        /// PDUs that may be sent before more credits come.
        credits: [u16; 2],
    },
    /// An ACL packet with a part of a PDU. The event's bytes are those of the program in it.
    Packet(Acl),
    /// The packet before this one began a PDU of the attribute protocol.
    Att(Att),
    /// A server told the type of an attribute.
    Characteristic(Characteristic),
    /// The controller told that it sent so many of the flow's packets, and that the peer's took them
    /// (Number Of Completed Packets).
    Completed {
        /// ACL packets.
        packets: u16,
    },
    /// The receiver of this direction allowed so many further PDUs.
    Credits {
        /// PDUs.
        count: u16,
    },
    /// No credits limit this direction. Its receiver may still say that it takes nothing for now.
    Stopped {
        /// Whether it takes nothing from now on (RFCOMM: MSC with the FC bit, or FCoff).
        is_stopped: bool,
    },
    /// Something limits both directions whose state is not known from now on: credits that were not seen, or
    /// the window of a retransmission mode.
    NotCounted,
    /// The packet that comes next begins with this header of RTP (RFC 3550, section 5.1).
    Media {
        /// Its number.
        sequence: u16,
        /// When its first sample plays, in units of the stream's sampling rate.
        timestamp: u32,
    },
    /// The stream was started, suspended or configured.
    Stream {
        /// Samples a second, of which timestamps count; 0: not known.
        hz: u32,
    },
    /// Whether all buffers that the controller has for such links are taken, by whatever channel.
    Buffers {
        /// ACL packets in the controller.
        in_use: u16,
        /// ACL packets that it takes.
        of: u16,
    },
    /// Whether the controller may have packets that the log lacks: of before the log, or of before a loss.
    Hidden {
        /// Of this link.
        of_link: bool,
        /// Of any link that takes the same buffers.
        of_any: bool,
    },
    /// What the link is like from now on.
    Link(RadioLink),
    /// Packets are missing from the log before this, of whatever channel and kind.
    Lost,
    /// The channel turns out to be one of BR/EDR. What follows is told of another one.
    Classic,
    /// Nothing more is seen of the channel: it or its link has ended, or the log has.
    Ended {
        /// Whether the log ever told of this adapter that packets are through (Number Of Completed Packets).
        tells_completions: bool,
    },
}

/// An ACL packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Acl {
    /// Bytes in it, with headers of L2CAP.
    pub length: u16,
    /// Whether a PDU begins with it, which takes a credit.
    pub begins_pdu: bool,
    /// Whether it ends an SDU.
    pub ends_sdu: bool,
    /// Whose turn it is after this.
    pub turn: Turn,
}

/// A PDU of the attribute protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Att {
    /// What it is.
    pub kind: AttKind,
    /// The attribute's handle, where it has one.
    pub handle: Option<u16>,
    /// Bytes of the attribute's value in it.
    pub bytes: u16,
}

/// What a PDU of the attribute protocol is (Core Specification, Vol 3, Part F, section 3.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the specification")]
pub enum AttKind {
    /// An answer that says why not.
    Error {
        /// The opcode of the question.
        of: u8,
        /// Why.
        code: u8,
    },
    /// The longest PDU that the client takes.
    MtuRequest {
        mtu: u16,
    },
    /// The same of the server; the lesser one holds.
    MtuResponse {
        mtu: u16,
    },
    ReadRequest,
    ReadBlobRequest,
    ReadResponse,
    WriteRequest,
    WriteResponse,
    PrepareWriteRequest,
    WriteCommand,
    Notification,
    Indication,
    Confirmation,
    /// Another question.
    OtherRequest,
    /// The answer to another question.
    OtherResponse,
}

impl AttKind {
    /// Whether it answers something: a response, an error, or a confirmation.
    pub const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::Error { .. }
                | Self::MtuResponse { .. }
                | Self::ReadResponse
                | Self::WriteResponse
                | Self::Confirmation
                | Self::OtherResponse
        )
    }
}

/// An attribute with its type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Characteristic {
    /// The handle of its value.
    pub handle: u16,
    /// Its type.
    pub uuid: AttUuid,
}

/// A type of attributes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AttUuid {
    /// One of the Bluetooth SIG.
    Short(u16),
    /// Another one, its last byte first.
    Long([u8; 16]),
}

impl fmt::Display for AttUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(short) => write!(f, "{short:#06x}"),
            Self::Long(bytes) => {
                for (number, byte) in bytes.iter().rev().enumerate() {
                    if matches!(number, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// What a PDU of a protocol that takes turns is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Turn {
    /// It waits for nothing.
    #[default]
    Free,
    /// Nothing further may be asked before the peer answers.
    Asks,
    /// It is the answer.
    Answers,
    /// As [`Turn::Asks`], in a transaction of its own: one of either kind may be open (Core Specification, Vol 3,
    /// Part F, section 3.3.2).
    Indicates,
    /// It is the answer to that.
    Confirms,
    /// So little of it was kept that nobody can tell.
    NotKnown,
}

/// What a radio link is like, as far as was seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RadioLink {
    /// Connection interval, in nanoseconds; 0: not seen.
    pub interval_ns: u64,
    /// Events that the peripheral may skip.
    pub latency: u16,
    /// Whether the log's host is the central; `None`: not seen.
    pub is_central: Option<bool>,
    /// Physical layer of each direction, as in LE PHY Update Complete: 1 LE 1M, 2 LE 2M, 3 LE Coded.
    /// A link begins with LE 1M, but for those that extended advertising makes.
    pub phy: [u8; 2],
    /// Longest payload of a data PDU in each direction, in bytes; 27 until extended.
    pub length: [u16; 2],
    /// Whether encryption was seen to begin.
    pub is_encrypted: bool,
    /// Whether the link's begin was seen, so that what stands here is known.
    pub from_start: bool,
    /// Of BR/EDR: the interval of sniff mode, in nanoseconds; 0: it is not in that mode, as far as was seen. It is told
    /// when data goes.
    pub sniff_ns: u64,
}
