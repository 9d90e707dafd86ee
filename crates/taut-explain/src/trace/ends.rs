//! The ends of a direction, in words.

use taut_event::{ChannelEnd, Direction as Way, FlowKey, LocalKey, LocalKind};

use super::connection::Connection;

/// What a direction is, and from where to where its data goes.
pub(super) struct Ends {
    pub(super) transport: &'static str,
    pub(super) from: String,
    pub(super) to: String,
}

impl Ends {
    pub(super) fn of(connection: &Connection, way: Way) -> Option<Self> {
        let (transport, own, peer) = match connection.flow.key {
            FlowKey::Tcp(own, peer) => ("tcp", own.to_string(), peer.to_string()),
            FlowKey::Local(key) => local(&key, connection.end.as_ref()),
            _ => return None,
        };
        let (from, to) = if way == Way::Forward { (own, peer) } else { (peer, own) };
        Some(Self { transport, from, to })
    }
}

/// What it is, its own end and the other one, in words.
fn local(key: &LocalKey, end: Option<&ChannelEnd>) -> (&'static str, String, String) {
    let LocalKey { kind, inode, ends } = key;
    let (own, peer) = match (kind, ends) {
        (LocalKind::Unix, _) => (format!("Unix socket {inode}"), "its peer".to_owned()),
        (LocalKind::Pipe, _) => (format!("pipe {inode}"), "its other end".to_owned()),
        (LocalKind::Udp, Some((own, peer))) if peer.port > 0 => (format!("UDP {own}"), format!("UDP {peer}")),
        (LocalKind::Udp, Some((own, _))) => (format!("UDP {own}"), "any peer".to_owned()),
        (LocalKind::L2cap | LocalKind::Rfcomm | LocalKind::Sco, _) => {
            return (kind.name(), own_end(key, end), peer_end(end));
        }
        (LocalKind::Udp, None) => (format!("UDP socket {inode}"), "any peer".to_owned()),
    };
    (kind.name(), own, peer)
}

/// The near end of a channel of Bluetooth.
fn own_end(key: &LocalKey, end: Option<&ChannelEnd>) -> String {
    let Some(end) = end else { return format!("{} socket {}", bluetooth(key.kind), key.inode) };
    end.adapter.map_or_else(|| device(end.own), |adapter| format!("hci{adapter}"))
}

/// The far end, with what tells the channel from others of the link.
fn peer_end(end: Option<&ChannelEnd>) -> String {
    let Some(end) = end else { return "its peer".to_owned() };
    let channel = match (end.number, end.cids) {
        (0, [_, cid]) => format!("CID {cid:#06x}"),
        (number, [0, 0]) => format!("RFCOMM channel {number}"),
        (psm, _) => format!("PSM {psm:#06x}"),
    };
    format!("{} {channel} (handle {})", device(end.peer), end.handle)
}

const fn bluetooth(kind: LocalKind) -> &'static str {
    match kind {
        LocalKind::Rfcomm => "RFCOMM",
        LocalKind::Sco => "SCO",
        _ => "L2CAP",
    }
}

/// `06:00:AA:01:00:00`
fn device([a, b, c, d, e, g]: [u8; 6]) -> String {
    format!("{g:02X}:{e:02X}:{d:02X}:{c:02X}:{b:02X}:{a:02X}")
}
