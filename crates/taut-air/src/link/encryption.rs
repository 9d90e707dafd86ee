//! Starting, pausing and restarting encryption (Core Specification, Vol 6, Part B, 5.1.3).
//!
//! While one of these procedures runs, data and the control PDUs of other procedures wait ([`super::queue::Queue::hold`]). Each side
//! turns to cipher text in one direction at a time: the peripheral receives it once LL_START_ENC_REQ is acknowledged, the central
//! does both once that has come, the peripheral sends it once LL_START_ENC_RSP has come in cipher text.

use super::{Link, Role, Update};
use crate::cipher::{Half, Key, Session};
use crate::hci;
use crate::pdu::control::Control;
use crate::pdu::{Llid, Pdu};
use crate::rng::Random;

/// How a link stands with encryption.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    /// For SKD and IV.
    random: Random,
    stage: Stage,
    session: Option<Session>,
    sends: bool,
    receives: bool,
    /// What is in flight is in cipher text.
    in_flight: bool,
    /// There was a session before the procedure under way.
    is_refresh: bool,
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
enum Stage {
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

    fn draw(&mut self) -> Half {
        let (skd, iv) = (self.random.next_u64().to_le_bytes(), (self.random.next_u64() as u32).to_le_bytes());
        Half { skd, iv }
    }

    /// What the peer may still send: once both sides know of a procedure, nothing but what belongs to it and LL_TERMINATE_IND, or
    /// the link ends as with a wrong MIC.
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

/// The central's host wants another state of encryption. `false` while a procedure runs already.
pub(crate) fn begin(link: &mut Link, choice: KeyChoice) -> bool {
    if !link.encryption.is_idle() {
        return false;
    }
    link.queue.hold();
    link.encryption.is_refresh = link.encryption.sends;
    if link.encryption.is_refresh {
        link.urgent(Control::PauseEncryptionRequest);
        link.encryption.stage = Stage::Pausing(choice);
    } else {
        ask(link, choice);
    }
    true
}

fn ask(link: &mut Link, KeyChoice { random, diversifier, key }: KeyChoice) {
    let half = link.encryption.draw();
    link.urgent(Control::EncryptionRequest { random, diversifier, skd: half.skd, iv: half.iv });
    link.encryption.stage = Stage::Asked(key, half);
}

/// The peripheral's host gives the key, or has none. `false` when it was not asked.
pub(crate) fn give_key(link: &mut Link, key: Option<Key>) -> bool {
    let Stage::AwaitsKey(central, own) = link.encryption.stage else { return false };
    match key {
        Some(key) => {
            link.encryption.session = Some(Session::new(key, central, own));
            link.urgent(Control::StartEncryptionRequest);
            link.encryption.stage = Stage::AwaitsStart;
        }
        // A link that was encrypted does not go on in clear text.
        None if link.encryption.is_refresh => link.urgent(Control::Terminate { reason: hci::KEY_MISSING }),
        None => {
            link.urgent(Control::Reject { reason: hci::KEY_MISSING });
            end(link);
        }
    }
    true
}

/// Other procedures and data go on.
fn end(link: &mut Link) {
    link.encryption.stage = Stage::Idle;
    link.queue.release();
}

fn done(link: &mut Link, status: u8) -> Option<Update> {
    end(link);
    Some(Update::Encryption { status, is_refresh: link.encryption.is_refresh })
}

/// A control PDU of ours was acknowledged: from now on the peer speaks otherwise.
pub(crate) fn acknowledged(link: &mut Link, opcode: Option<&u8>) {
    match (link.encryption.stage, opcode) {
        (Stage::AwaitsStart, Some(&Control::START_ENCRYPTION_REQUEST)) => link.encryption.receives = true,
        (Stage::Paused, Some(&Control::PAUSE_ENCRYPTION_RESPONSE)) => link.encryption.receives = false,
        _ => {}
    }
}

/// A control PDU of these procedures has come. What does not fit the stage is passed over where it may come at all.
pub(crate) fn received(link: &mut Link, control: Control) -> Option<Update> {
    match (link.role, link.encryption.stage, control) {
        (Role::Peripheral, Stage::Idle, Control::PauseEncryptionRequest) if link.encryption.sends => {
            link.queue.hold();
            link.encryption.is_refresh = true;
            link.encryption.stage = Stage::Paused;
            link.urgent(Control::PauseEncryptionResponse);
            None
        }
        (_, Stage::Pausing(choice), Control::PauseEncryptionResponse) => {
            (link.encryption.sends, link.encryption.receives) = (false, false);
            link.urgent(Control::PauseEncryptionResponse);
            ask(link, choice);
            None
        }
        (_, Stage::Paused, Control::PauseEncryptionResponse) => {
            link.encryption.sends = false;
            link.encryption.stage = Stage::AwaitsRequest;
            None
        }
        (
            Role::Peripheral,
            Stage::Idle | Stage::AwaitsRequest,
            Control::EncryptionRequest { random, diversifier, skd, iv },
        ) if !link.encryption.sends => {
            link.queue.hold();
            link.encryption.is_refresh = matches!(link.encryption.stage, Stage::AwaitsRequest);
            let own = link.encryption.draw();
            link.urgent(Control::EncryptionResponse { skd: own.skd, iv: own.iv });
            link.encryption.stage = Stage::AwaitsKey(Half { skd, iv }, own);
            Some(Update::KeyWanted { random, diversifier })
        }
        (_, Stage::Asked(key, own), Control::EncryptionResponse { skd, iv }) => {
            link.encryption.session = Some(Session::new(key, own, Half { skd, iv }));
            link.encryption.stage = Stage::Answered;
            None
        }
        (_, Stage::Answered, Control::StartEncryptionRequest) => {
            (link.encryption.sends, link.encryption.receives) = (true, true);
            link.urgent(Control::StartEncryptionResponse);
            link.encryption.stage = Stage::Starting;
            None
        }
        (_, Stage::AwaitsStart, Control::StartEncryptionResponse) => {
            link.encryption.sends = true;
            link.urgent(Control::StartEncryptionResponse);
            done(link, hci::SUCCESS)
        }
        (_, Stage::Starting, Control::StartEncryptionResponse) => done(link, hci::SUCCESS),
        (_, Stage::Asked(..) | Stage::Answered, Control::Reject { reason }) => done(link, reason),
        (_, Stage::Asked(..), Control::Unknown { opcode: Control::ENCRYPTION_REQUEST }) => {
            done(link, hci::UNSUPPORTED_REMOTE_FEATURE)
        }
        _ => None,
    }
}
