//! The procedures of link layer control (Core Specification, Vol 6, Part B, section 5), over the link.

use super::encrypting;
use super::event::Wanted;
use super::procedure::Change;
use super::state::Link;
use super::terms::Update;
use crate::pdu::control::{Control, ControlBytes, Length};
use crate::phy::{MIN_LENGTH, Phy};
use crate::role::Role;
use crate::time::{MS, Nanos, US};

/// Events between LL_CONNECTION_UPDATE_IND or LL_PHY_UPDATE_IND and its instant: at least 6 (5.1.1).
const INSTANT_DISTANCE: u16 = 6;
/// Unit of transmit windows.
const WINDOW_UNIT: Nanos = 1_250 * US;

/// A control PDU was acknowledged: the reason when it was LL_TERMINATE_IND.
pub(crate) fn acknowledged(control: ControlBytes) -> Option<u8> {
    match Control::parse(control.as_slice()) {
        Ok(Control::Terminate { reason }) => Some(reason),
        _ => None,
    }
}

fn own_length(link: &Link) -> Length {
    // Packets may be as long as LE Coded makes them: the number of bytes is what limits here.
    let time = |octets: u16| (Phy::CodedS8.air_time(octets.into(), true) / US) as u16;
    let rx = link.settings.max_length;
    let octets = link.procedures.tx_wanted.unwrap_or(rx);
    Length { rx_octets: rx, rx_time: time(rx), tx_octets: octets, tx_time: time(octets) }
}

pub(crate) fn request(link: &mut Link, wanted: Wanted) {
    match wanted {
        Wanted::Length { octets } => {
            let octets = octets.clamp(MIN_LENGTH as u16, link.settings.max_length);
            link.procedures.tx_wanted = Some(octets);
            link.control(Control::LengthRequest(own_length(link)));
        }
        Wanted::Features => {
            link.procedures.asked_features = true;
            let features = link.settings.features;
            link.control(match link.role {
                Role::Central => Control::FeatureRequest { features },
                Role::Peripheral => Control::PeripheralFeatureRequest { features },
            });
        }
        Wanted::Phy { tx, rx, s2 } => {
            link.settings.s2 |= s2;
            // From now on these are the connection's preferences, whatever the defaults are (Vol 4, Part E, 7.8.49).
            link.settings.phys = tx | rx;
            link.procedures.asked = Some([tx, rx]);
            link.control(Control::PhyRequest { tx, rx });
        }
        Wanted::Connection { interval, latency, timeout } => {
            let instant = link.clock.counter.wrapping_add(INSTANT_DISTANCE + link.clock.latency);
            let control =
                Control::ConnectionUpdate { window_size: 1, window_offset: 0, interval, latency, timeout, instant };
            link.control(control);
            keep_connection_update(link, control);
        }
        Wanted::Terminate { reason } => link.urgent(Control::Terminate { reason }),
    }
}

fn keep_connection_update(link: &mut Link, control: Control) {
    if let Control::ConnectionUpdate { window_size, window_offset, interval, latency, timeout, instant } = control {
        let change = Change {
            interval: link.settings.unit * Nanos::from(interval.max(1)),
            latency,
            timeout: 10 * MS * Nanos::from(timeout.max(1)),
            offset: WINDOW_UNIT * Nanos::from(window_offset),
            window: WINDOW_UNIT * Nanos::from(window_size),
        };
        link.procedures.connection = Some((instant, change));
    }
}

/// A control PDU came in: answers it and keeps what it says.
pub(crate) fn received(link: &mut Link, payload: &[u8]) -> Option<Update> {
    let control = match Control::parse(payload) {
        Ok(control) => control,
        Err(opcode) => {
            link.control(Control::Unknown { opcode });
            return None;
        }
    };
    match control {
        Control::ConnectionUpdate { .. } => {
            if link.role == Role::Peripheral {
                keep_connection_update(link, control);
            }
            None
        }
        Control::Terminate { reason } => {
            link.leaving = Some(reason);
            None
        }
        Control::FeatureRequest { features } | Control::PeripheralFeatureRequest { features } => {
            // 5.1.4: of the first octet what both sides have.
            let mut own = link.settings.features;
            own[0] &= features[0];
            link.control(Control::FeatureResponse { features: own });
            None
        }
        Control::FeatureResponse { features } => {
            core::mem::take(&mut link.procedures.asked_features).then_some(Update::Features(Some(features)))
        }
        Control::EncryptionRequest { .. }
        | Control::EncryptionResponse { .. }
        | Control::StartEncryptionRequest
        | Control::StartEncryptionResponse
        | Control::PauseEncryptionRequest
        | Control::PauseEncryptionResponse
        | Control::Reject { .. }
        | Control::Unknown { opcode: Control::ENCRYPTION_REQUEST } => encrypting::received(link, control),
        Control::Unknown { opcode: 0x08 | 0x0e } => {
            core::mem::take(&mut link.procedures.asked_features).then_some(Update::Features(None))
        }
        Control::Unknown { .. } => None,
        Control::LengthRequest(peer) => {
            let own = own_length(link);
            link.control(Control::LengthResponse(own));
            settle_length(link, own, peer)
        }
        Control::LengthResponse(peer) => {
            let own = own_length(link);
            settle_length(link, own, peer)
        }
        Control::PhyRequest { tx, rx } => {
            let phys = link.settings.phys;
            match link.role {
                Role::Central => update_phy(link, [phys & rx, phys & tx]),
                Role::Peripheral => link.control(Control::PhyResponse { tx: phys, rx: phys }),
            }
            None
        }
        Control::PhyResponse { tx, rx } => {
            if let Some([own_tx, own_rx]) = link.procedures.asked.take() {
                update_phy(link, [own_tx & rx, own_rx & tx]);
            }
            None
        }
        Control::PhyUpdate { central, peripheral, instant } => {
            if link.role == Role::Peripheral {
                link.procedures.phy = Some((instant, [central, peripheral]));
            }
            None
        }
    }
}

/// The host hears of it when something has changed (Vol 4, Part E, 7.7.65.7).
fn settle_length(link: &mut Link, own: Length, peer: Length) -> Option<Update> {
    let tx = own.tx_octets.min(peer.rx_octets).max(MIN_LENGTH as u16);
    let rx = own.rx_octets.min(peer.tx_octets).max(MIN_LENGTH as u16);
    let before = (link.tx_length, link.procedures.rx_length.replace(rx).unwrap_or(MIN_LENGTH as u16));
    link.tx_length = tx.into();
    (before != (link.tx_length, rx)).then_some(Update::Length { tx, rx })
}

/// The central decides: the fastest PHY in each mask.
fn update_phy(link: &mut Link, masks: [u8; 2]) {
    let fastest = |mask: u8| [2, 1, 4].into_iter().find(|phy| mask & phy != 0).unwrap_or(0);
    let [central, peripheral] = masks.map(fastest);
    let instant = link.clock.counter.wrapping_add(INSTANT_DISTANCE + link.clock.latency);
    link.control(Control::PhyUpdate { central, peripheral, instant });
    link.procedures.phy = Some((instant, [central, peripheral]));
}
