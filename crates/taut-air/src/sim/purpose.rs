use super::observe::{Happening, Purpose};
use crate::controller::Transmission;
use crate::limit::{L2CAP_HEADER_BYTES, SDU_LENGTH_BYTES};
use crate::link::{PduKind, Reception};
use crate::pdu::{Header, Llid, Pdu};
use crate::time::span;

/// Of credit-based channels (Vol 3, Part A, 2.1).
const FIRST_DYNAMIC_CID: u16 = 0x0040;

/// What the data PDUs of one direction are parts of: signalling, or SDUs of a credit-based channel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// The L2CAP PDU under way is signalling.
    signalling: bool,
    /// Bytes of the SDU under way that have not been sent.
    sdu_left: usize,
    /// Application bytes of the last data PDU, for its repetitions.
    last: usize,
}

impl Parts {
    /// A data PDU is sent for the first time.
    pub(crate) fn sends(&mut self, pdu: &Pdu) {
        let payload = pdu.payload();
        let start = Header::parse(pdu.header()).is_some_and(|header| header.llid == Llid::Start);
        if !start {
            self.last = if self.signalling { 0 } else { payload.len().min(self.sdu_left) };
            self.sdu_left -= self.last;
            return;
        }
        let [_, _, cid_low, cid_high, information @ ..] = payload else {
            self.last = 0;
            return;
        };
        // All fixed channels: the Security Manager's and ATT's are no application's either.
        self.signalling = u16::from_le_bytes([*cid_low, *cid_high]) < FIRST_DYNAMIC_CID;
        if self.signalling {
            self.last = 0;
            return;
        }
        let mut front = L2CAP_HEADER_BYTES;
        if self.sdu_left == 0
            && let [low, high, ..] = information
        {
            self.sdu_left = usize::from(u16::from_le_bytes([*low, *high]));
            front += SDU_LENGTH_BYTES;
        }
        self.last = payload.len().saturating_sub(front).min(self.sdu_left);
        self.sdu_left -= self.last;
    }

    pub(crate) const fn is_signalling(&self) -> bool {
        self.signalling
    }

    /// What the last PDU of that kind was for.
    pub(crate) const fn purpose(&self, kind: PduKind) -> Purpose {
        match kind {
            PduKind::Advertising => Purpose::Advertising,
            PduKind::Empty => Purpose::Empty,
            PduKind::Control => Purpose::Control,
            PduKind::Data if self.signalling => Purpose::Signalling,
            PduKind::Data => Purpose::Payload(self.last),
        }
    }
}

impl Transmission {
    /// Header and payload in clear text, without MIC.
    pub(crate) fn plain(&self) -> &Pdu {
        self.clear.as_deref().unwrap_or(&self.pdu)
    }

    /// The packet as observers see it.
    pub(crate) fn happening(&self, reception: Reception, purpose: Purpose) -> Happening<'_> {
        let header = Header::parse(self.pdu.header()).filter(|_| purpose != Purpose::Advertising);
        Happening::Pdu {
            from: self.role,
            duration: span(self.start, self.end),
            phy: self.phy,
            access_address: self.access_address,
            crc_init: self.crc_init,
            channel: self.channel,
            counter: self.counter,
            bytes: self.plain(),
            mic: self.mic || self.clear.is_some(),
            sealed: self.clear.is_some().then_some(&self.pdu),
            sn: header.is_some_and(|header| header.sn),
            nesn: header.is_some_and(|header| header.nesn),
            md: header.is_some_and(|header| header.md),
            retransmission: self.retransmission,
            reception,
            purpose,
        }
    }
}
