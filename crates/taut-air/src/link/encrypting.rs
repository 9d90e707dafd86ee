//! The procedures that start, pause and restart encryption (Core Specification, Vol 6, Part B, 5.1.3), over the link.

use super::encryption::{KeyChoice, Stage};
use super::state::Link;
use super::terms::Update;
use crate::cipher::{Half, Key, Session};
use crate::hci;
use crate::pdu::control::Control;
use crate::role::Role;

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
