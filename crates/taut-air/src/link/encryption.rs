//! Starting, pausing and restarting encryption (Core Specification, Vol 6, Part B, 5.1.3).
//!
//! While one of these procedures runs, data and the control PDUs of other procedures wait
//! ([`super::queue::Queue::hold`]). Each side turns to cipher text in one direction at a time: the
//! peripheral receives it once LL_START_ENC_REQ is acknowledged, the central does both once that
//! has come, the peripheral sends it once LL_START_ENC_RSP has come in cipher text.

use crate::cipher::{Half, Key, Session};
use crate::pdu::control::Control;
use crate::pdu::{Llid, Pdu};
use crate::rng::Random;
use crate::role::Role;

/// How a link stands with encryption.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    /// For SKD and IV.
    random: Random,
    pub(super) stage: Stage,
    pub(super) session: Option<Session>,
    pub(super) sends: bool,
    pub(super) receives: bool,
    /// What is in flight is in cipher text.
    in_flight: bool,
    /// There was a session before the procedure under way.
    pub(super) is_refresh: bool,
}

/// What a central's host wants the link to be encrypted with (HCI_LE_Enable_Encryption).
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyChoice {
    /// Rand and EDIV, by which the peripheral's host finds the key.
    pub(crate) random: [u8; 8],
    pub(crate) diversifier: u16,
    pub(crate) key: Key,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// No procedure runs.
    Idle,
    /// Central: LL_PAUSE_ENC_REQ is sent.
    Pausing(KeyChoice),
    /// Central: LL_ENC_REQ is sent.
    Asked(Key, Half),
    /// Central: LL_ENC_RSP has come.
    Answered,
    /// Central: LL_START_ENC_RSP is sent.
    Starting,
    /// Peripheral: LL_PAUSE_ENC_RSP is sent.
    Paused,
    /// Peripheral: the central's has come.
    AwaitsRequest,
    /// Peripheral: LL_ENC_RSP is sent, and the host asked for the key.
    AwaitsKey(Half, Half),
    /// Peripheral: LL_START_ENC_REQ is sent.
    AwaitsStart,
}

impl Encryption {
    /// A link in clear text.
    pub(crate) const fn new(random: Random) -> Self {
        Self {
            random,
            stage: Stage::Idle,
            session: None,
            sends: false,
            receives: false,
            in_flight: false,
            is_refresh: false,
        }
    }

    /// Whether no procedure runs.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Whether this side sends cipher text.
    pub(crate) const fn sends(&self) -> bool {
        self.sends
    }

    /// Whether the peer does.
    pub(crate) const fn receives(&self) -> bool {
        self.receives
    }

    /// A PDU as it goes on the air; `None` in clear text. One that was sent before stays as it was.
    pub(crate) fn seal(&mut self, role: Role, clear: &Pdu, retransmission: bool) -> Option<Pdu> {
        if !retransmission {
            self.in_flight = self.sends && !clear.payload().is_empty();
        }
        self.session.as_ref().filter(|_| self.in_flight).map(|session| session.seal(role, clear))
    }

    /// What was in flight has arrived.
    pub(crate) const fn acknowledged(&mut self, role: Role) {
        if self.in_flight
            && let Some(session) = &mut self.session
        {
            session.next(role);
        }
        self.in_flight = false;
    }

    /// A new PDU of the peer that isn't empty, in clear text; `None` when its MIC is wrong.
    pub(crate) fn open(&mut self, role: Role, sealed: &Pdu) -> Option<Pdu> {
        let session = self.session.as_mut()?;
        let clear = session.open(role.other(), sealed)?;
        session.next(role.other());
        Some(clear)
    }

    pub(super) fn draw(&mut self) -> Half {
        let (skd, iv) = (self.random.next_u64().to_le_bytes(), (self.random.next_u64() as u32).to_le_bytes());
        Half { skd, iv }
    }

    /// What the peer may still send: once both sides know of a procedure, nothing but what belongs
    /// to it and LL_TERMINATE_IND, or the link ends as with a wrong MIC.
    pub(crate) fn may_come(&self, llid: Llid, payload: &[u8]) -> bool {
        const TERMINATE: u8 = 0x02;
        let expected: &[u8] = match self.stage {
            Stage::Idle | Stage::Pausing(_) | Stage::Asked(..) => return true,
            Stage::Answered => &[TERMINATE, Control::START_ENCRYPTION_REQUEST, Control::REJECT],
            Stage::Starting | Stage::AwaitsStart => &[TERMINATE, Control::START_ENCRYPTION_RESPONSE],
            Stage::Paused => &[TERMINATE, Control::PAUSE_ENCRYPTION_RESPONSE],
            Stage::AwaitsRequest => &[TERMINATE, Control::ENCRYPTION_REQUEST],
            Stage::AwaitsKey(..) => &[TERMINATE],
        };
        llid == Llid::Control && payload.first().is_some_and(|opcode| expected.contains(opcode))
    }
}
