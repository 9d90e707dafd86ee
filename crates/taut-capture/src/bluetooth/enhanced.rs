//! Commands that open several channels at once, as the enhanced ATT bearers (EATT) do (Core
//! Specification, Vol 3, Part A, sections 4.25 and 4.26).

/// L2CAP_CREDIT_BASED_CONNECTION_REQ.
const REQUEST: u8 = 0x17;
/// L2CAP_CREDIT_BASED_CONNECTION_RSP.
const RESPONSE: u8 = 0x18;
/// L2CAP_CREDIT_BASED_RECONFIGURE_REQ (section 4.27): the MTU and MPS of its sender change.
pub(super) const RECONFIGURE_REQUEST: u8 = 0x19;
/// All channels are pending, without a reason, or for authentication or authorization: another response follows.
const PENDING: std::ops::RangeInclusive<u16> = 0x000d..=0x000f;
/// So many channels are asked for at most.
const MOST: usize = 5;

/// Such a command.
#[derive(Debug)]
pub(super) struct Enhanced<'a> {
    /// Of a request.
    pub(super) spsm: Option<u16>,
    /// Longest SDU, longest PDU and credits, of each channel.
    pub(super) limits: [u16; 3],
    /// Whether it is a response that another one follows.
    pub(super) is_pending: bool,
    cids: &'a [u8],
}

impl<'a> Enhanced<'a> {
    /// The command with its identifier, if it is one of these.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<(u8, Self)> {
        let [code @ (REQUEST | RESPONSE), identifier, low, high, data @ ..] = bytes else { return None };
        let (words, cids) = data.split_at_checked(8)?;
        if data.len() != usize::from(u16::from_le_bytes([*low, *high])) || cids.len() > 2 * MOST {
            return None;
        }
        let word = |index: usize| u16::from_le_bytes([words[2 * index], words[2 * index + 1]]);
        // A response has its result last, and a request what it asks for first.
        let command = match *code {
            REQUEST => Self { spsm: Some(word(0)), limits: [word(1), word(2), word(3)], is_pending: false, cids },
            _ => {
                let is_pending = PENDING.contains(&word(3));
                Self { spsm: None, limits: [word(0), word(1), word(2)], is_pending, cids }
            }
        };
        Some((*identifier, command))
    }

    /// The channels' identifiers at its sender; 0 for one that is refused.
    pub(super) fn cids(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.cids.as_chunks::<2>().0.iter().map(|cid| u16::from_le_bytes(*cid))
    }
}
