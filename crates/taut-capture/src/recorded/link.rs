//! Links of Bluetooth in such a file: what a flow of one is called, and a line's words for each event of it.

use std::fmt::Write;

use taut_event::{Hci, LinkKey};

use super::fields::{address, flag, number, write_address};

/// No PDU is longer, with its header.
const LONGEST: u32 = u16::MAX as u32 + 4;

/// Writes a flow's name behind the word that says it is a link.
pub(super) fn write_key(key: &LinkKey, line: &mut String) {
    // Writing to a string does not fail.
    let _ = write!(line, " {} {} ", key.adapter, key.handle);
    match key.peer {
        Some(peer) => write_address(peer, line),
        None => line.push('-'),
    }
    line.push_str(match key.is_central {
        Some(true) => " central",
        Some(false) => " peripheral",
        None => " -",
    });
}

pub(super) fn read_key<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Option<LinkKey> {
    let (adapter, handle) = (number(fields)?, number(fields)?);
    let peer = match fields.next()? {
        "-" => None,
        peer => Some(address(peer)?),
    };
    let is_central = match fields.next()? {
        "central" => Some(true),
        "peripheral" => Some(false),
        "-" => None,
        _ => return None,
    };
    Some(LinkKey { adapter, handle, peer, is_central })
}

pub(super) fn write_event(what: &Hci, line: &mut String) {
    let _ = match what {
        Hci::Part { begins, length, pdu, sum } => {
            write!(line, " part {} {length} {pdu} {sum:x}", u8::from(*begins))
        }
        Hci::Completed { packets } => write!(line, " completed {packets}"),
        Hci::Lost => write!(line, " lost"),
    };
}

pub(super) fn read_event<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Option<Hci> {
    Some(match fields.next()? {
        "part" => Hci::Part {
            begins: flag(fields)?,
            length: number(fields)?,
            pdu: number(fields).filter(|pdu| *pdu <= LONGEST)?,
            sum: u64::from_str_radix(fields.next()?, 16).ok()?,
        },
        "completed" => Hci::Completed { packets: number(fields)? },
        "lost" => Hci::Lost,
        _ => return None,
    })
}
