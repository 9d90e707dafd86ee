use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{CreditPolicy, ReceiveBuffer};
use crate::limit::{L2CAP_HEADER_BYTES, SDU_LENGTH_BYTES};

/// What the two sides told each other when the channel was opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChannelParameters {
    /// Channel on this side.
    pub source: u16,
    /// Channel on the other side.
    pub destination: u16,
    /// Longest SDU that this side takes.
    pub mtu: u16,
    /// Longest information payload that this side takes.
    pub mps: u16,
    /// Longest SDU that the other side takes.
    pub peer_mtu: u16,
    /// Longest information payload that the other side takes.
    pub peer_mps: u16,
    /// Credits that this side gave at first.
    pub credits: u16,
    /// Credits that the other side gave at first.
    pub peer_credits: u16,
}

/// What a peer did that closes the channel (Core Specification, Vol 3, Part A, 10.1: both sides shall disconnect it).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChannelError {
    /// A PDU without a credit for it.
    #[error("the peer sent a PDU without a credit")]
    NoCredit,
    /// More than 65,535 credits outstanding.
    #[error("the peer gave so many credits that {0} would be outstanding, more than 65,535")]
    TooManyCredits(u32),
    /// Longer than our MPS.
    #[error("PDU of {got} bytes, more than the MPS of {mps}")]
    Mps {
        /// Bytes of its information payload.
        got: usize,
        /// Our MPS.
        mps: usize,
    },
    /// The SDU is longer than our MTU, or than it said.
    #[error("SDU of {got} bytes or more where {limit} were allowed")]
    Sdu {
        /// Bytes of the SDU.
        got: usize,
        /// Our MTU, or what the SDU's first PDU had said.
        limit: usize,
    },
    /// The first PDU of an SDU without the SDU's length.
    #[error("first PDU of an SDU without the SDU's length")]
    NoLength,
}

/// One side of an open LE credit-based channel.
#[derive(Clone, Debug)]
pub struct Channel {
    parameters: ChannelParameters,
    policy: CreditPolicy,
    /// PDUs that may still be sent.
    tx_credits: u32,
    /// Information payloads that wait for credits.
    waiting: VecDeque<Vec<u8>>,
    /// Credits that the peer still has.
    rx_credits: u32,
    /// The SDU that is being received.
    sdu: Vec<u8>,
    sdu_length: Option<usize>,
}

impl Channel {
    /// A channel just opened.
    pub fn new(parameters: ChannelParameters, policy: CreditPolicy) -> Self {
        Self {
            tx_credits: parameters.peer_credits.into(),
            rx_credits: parameters.credits.into(),
            parameters,
            policy,
            waiting: VecDeque::new(),
            sdu: Vec::new(),
            sdu_length: None,
        }
    }

    /// What was agreed.
    pub const fn parameters(&self) -> &ChannelParameters {
        &self.parameters
    }

    /// PDUs that may be sent now.
    pub const fn tx_credits(&self) -> u32 {
        self.tx_credits
    }

    /// Credits that the peer still has.
    pub const fn rx_credits(&self) -> u32 {
        self.rx_credits
    }

    /// PDUs that wait for credits.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Cuts an SDU into PDUs (3.4.3: the first one begins with the SDU's length); they wait for [`Self::next_pdu`].
    ///
    /// `room` bytes are left in front of each L2CAP PDU for whoever carries it on. Longer than the
    /// peer's MTU is an error that tells the MTU, and nothing is queued.
    pub fn send(&mut self, sdu: &[u8], room: usize) -> Result<usize, u16> {
        if sdu.len() > self.parameters.peer_mtu.into() {
            return Err(self.parameters.peer_mtu);
        }
        let mps = usize::from(self.parameters.peer_mps);
        let (mut rest, mut front, mut pdus) = (sdu, SDU_LENGTH_BYTES, 0);
        while front > 0 || !rest.is_empty() {
            let information = (front + rest.len()).min(mps);
            let (part, remaining) = rest.split_at(information - front);
            let mut pdu = Vec::with_capacity(room + L2CAP_HEADER_BYTES + information);
            pdu.resize(room, 0);
            pdu.extend((information as u16).to_le_bytes());
            pdu.extend(self.parameters.destination.to_le_bytes());
            if front > 0 {
                pdu.extend((sdu.len() as u16).to_le_bytes());
            }
            pdu.extend(part);
            self.waiting.push_back(pdu);
            (rest, front, pdus) = (remaining, 0, pdus + 1);
        }
        Ok(pdus)
    }

    /// The next L2CAP PDU for which there is a credit, which it takes.
    pub fn next_pdu(&mut self) -> Option<Vec<u8>> {
        if self.tx_credits == 0 {
            return None;
        }
        let pdu = self.waiting.pop_front()?;
        self.tx_credits -= 1;
        Some(pdu)
    }

    /// Takes credits that the peer gave.
    pub const fn credits(&mut self, credits: u16) -> Result<(), ChannelError> {
        let sum = self.tx_credits + credits as u32;
        if sum > u16::MAX as u32 {
            return Err(ChannelError::TooManyCredits(sum));
        }
        self.tx_credits = sum;
        Ok(())
    }

    /// Takes the information payload of a PDU; gives the SDU that it completes.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Option<Vec<u8>>, ChannelError> {
        let (mps, mtu) = (usize::from(self.parameters.mps), usize::from(self.parameters.mtu));
        if payload.len() > mps {
            return Err(ChannelError::Mps { got: payload.len(), mps });
        }
        self.rx_credits = self.rx_credits.checked_sub(1).ok_or(ChannelError::NoCredit)?;
        let (length, part) = match (self.sdu_length, payload) {
            (Some(length), part) => (length, part),
            (None, [low, high, part @ ..]) => {
                let length = usize::from(u16::from_le_bytes([*low, *high]));
                if length > mtu {
                    return Err(ChannelError::Sdu { got: length, limit: mtu });
                }
                self.sdu = Vec::with_capacity(length);
                (length, part)
            }
            (None, _) => return Err(ChannelError::NoLength),
        };
        let got = self.sdu.len() + part.len();
        if got > length {
            return Err(ChannelError::Sdu { got, limit: length });
        }
        self.sdu.extend(part);
        self.sdu_length = (got < length).then_some(length);
        Ok((got == length).then(|| core::mem::take(&mut self.sdu)))
    }

    /// Credits to give back now, if any; they count as given.
    pub fn grant(&mut self, buffer: ReceiveBuffer) -> Option<u16> {
        let wanted = self.policy.wanted(
            self.parameters.mtu.into(),
            self.parameters.mps.into(),
            buffer,
            if self.sdu_length.is_some() { self.sdu.len() } else { 0 },
        );
        let credits = wanted.min(u16::MAX.into()).checked_sub(self.rx_credits as usize)?;
        if credits < self.policy.least() {
            return None;
        }
        self.rx_credits += credits as u32;
        Some(credits as u16)
    }

    /// The policy's way: whether credits are looked after now, after a PDU that completed an SDU or not.
    pub const fn due_after_pdu(&self, completed: bool) -> bool {
        match self.policy {
            CreditPolicy::LinuxOld | CreditPolicy::LinuxRecvbuf => completed || self.rx_credits == 0,
            CreditPolicy::Window(_) | CreditPolicy::Batch { .. } => true,
        }
    }

    /// Whether credits are looked after when the program reads.
    pub const fn due_after_read(&self) -> bool {
        matches!(self.policy, CreditPolicy::LinuxRecvbuf)
    }
}
