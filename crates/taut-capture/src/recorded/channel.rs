//! Channels of Bluetooth in such a file: what a flow of one is called, and a line's words for each event of it.

use std::fmt::Write;

use taut_event::{Acl, Channel, ChannelEnd, ChannelKey, L2cap, RadioLink, Turn};
use taut_time::ByteRange;

use super::fields::{address, flag, number, two, write_address};
use super::line::{LARGEST, value_of, word_of};

const TURNS: [(u8, Turn); 4] = [(0, Turn::Free), (1, Turn::Asks), (2, Turn::Answers), (3, Turn::NotKnown)];
/// No packet is longer.
const LONGEST: u64 = u16::MAX as u64;

/// Writes a flow's name behind the word that says it is a channel.
pub(super) fn write_key(key: &ChannelKey, line: &mut String) {
    let (kind, number) = match key.channel {
        Channel::Att => ("att", 0),
        Channel::CreditBased(number) => ("credit", number),
        Channel::Dynamic(number) => ("dynamic", number),
        Channel::Basic(number) => ("basic", number),
        Channel::Unopened(number) => ("unopened", number),
        Channel::Rfcomm(number) => ("rfcomm", number.into()),
        Channel::Media(number) => ("media", number),
    };
    // Writing to a string does not fail.
    let _ = write!(line, " {} {} ", key.adapter, key.handle);
    match key.peer {
        Some(peer) => write_address(peer, line),
        None => line.push('-'),
    }
    let _ = write!(line, " {kind} {number}");
}

pub(super) fn read_key<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Option<ChannelKey> {
    let (adapter, handle) = (number(fields)?, number(fields)?);
    let peer = match fields.next()? {
        "-" => None,
        peer => Some(address(peer)?),
    };
    let kind = fields.next()?;
    let number: u16 = number(fields)?;
    let channel = match kind {
        "att" if number == 0 => Channel::Att,
        "credit" => Channel::CreditBased(number),
        "dynamic" => Channel::Dynamic(number),
        "basic" => Channel::Basic(number),
        "unopened" => Channel::Unopened(number),
        "rfcomm" => Channel::Rfcomm(u8::try_from(number).ok()?),
        "media" => Channel::Media(number),
        _ => return None,
    };
    Some(ChannelKey { adapter, handle, peer, channel })
}

/// Writes which channel a socket is an end of.
pub(super) fn write_end(end: &ChannelEnd, line: &mut String) {
    line.push(' ');
    let _ = match end.adapter {
        Some(adapter) => write!(line, "{adapter}"),
        None => write!(line, "-"),
    };
    let _ = write!(line, " {} ", end.handle);
    write_address(end.own, line);
    line.push(' ');
    write_address(end.peer, line);
    let _ = write!(line, " {} {} {} {}", end.number, end.cids[0], end.cids[1], u8::from(end.is_nonblocking));
}

pub(super) fn read_end<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Option<ChannelEnd> {
    let adapter = match fields.next()? {
        "-" => None,
        adapter => Some(adapter.parse().ok()?),
    };
    let (handle, own, peer) = (number(fields)?, address(fields.next()?)?, address(fields.next()?)?);
    let (number, cids, is_nonblocking) = (number(fields)?, two(fields)?, flag(fields)?);
    Some(ChannelEnd { adapter, handle, own, peer, number, cids, is_nonblocking })
}

/// Writes an event's words; `false` for what is not kept.
pub(super) fn write_event(what: &L2cap, bytes: ByteRange, line: &mut String) -> bool {
    let flag = u8::from;
    let _ = match what {
        L2cap::Asked => write!(line, " asked"),
        L2cap::Opened { mtu, mps, credits } => {
            let [a, b, c, d, e, f] = [mtu[0], mtu[1], mps[0], mps[1], credits[0], credits[1]];
            write!(line, " opened {a} {b} {c} {d} {e} {f}")
        }
        L2cap::Packet(Acl { length, begins_pdu, ends_sdu, turn }) => {
            let turn = word_of(&TURNS, turn).unwrap_or(3);
            let (begins, ends) = (flag(*begins_pdu), flag(*ends_sdu));
            write!(line, " acl {length} {begins} {ends} {turn} {} {}", bytes.start, bytes.len())
        }
        L2cap::Completed { packets } => write!(line, " completed {packets}"),
        L2cap::Credits { count } => write!(line, " credits {count}"),
        L2cap::Stopped { is_stopped } => write!(line, " stopped {}", flag(*is_stopped)),
        L2cap::NotCounted => write!(line, " not-counted"),
        L2cap::Media { sequence, timestamp } => write!(line, " media {sequence} {timestamp}"),
        L2cap::Stream { hz } => write!(line, " stream {hz}"),
        L2cap::Buffers { in_use, of } => write!(line, " buffers {in_use} {of}"),
        L2cap::Hidden { of_link, of_any } => write!(line, " hidden {} {}", flag(*of_link), flag(*of_any)),
        L2cap::Link(link) => {
            let central = link.is_central.map_or(2, flag);
            let ([a, b], [c, d]) = (link.phy, link.length);
            let (encrypted, begun) = (flag(link.is_encrypted), flag(link.from_start));
            write!(line, " link {} {} {central} {a} {b} {c} {d} {encrypted} {begun}", link.interval_ns, link.latency)
        }
        L2cap::Lost => write!(line, " lost"),
        L2cap::Classic => write!(line, " classic"),
        L2cap::Ended { tells_completions } => write!(line, " ended {}", flag(*tells_completions)),
        // Which attribute was asked for does not tell who held it.
        L2cap::Att(_) | L2cap::Characteristic(_) => return false,
    };
    true
}

pub(super) fn read_event<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Option<(L2cap, ByteRange)> {
    let mut bytes = ByteRange::default();
    let what = match fields.next()? {
        "asked" => L2cap::Asked,
        "opened" => L2cap::Opened { mtu: two(fields)?, mps: two(fields)?, credits: two(fields)? },
        "acl" => {
            let (length, begins_pdu, ends_sdu) = (number(fields)?, flag(fields)?, flag(fields)?);
            let turn = value_of(&TURNS, number(fields)?)?;
            let (start, of_program): (u64, u64) = (number(fields)?, number(fields)?);
            let end = start.checked_add(of_program).filter(|end| *end <= LARGEST && of_program <= LONGEST)?;
            bytes = ByteRange::new(start, end);
            L2cap::Packet(Acl { length, begins_pdu, ends_sdu, turn })
        }
        "completed" => L2cap::Completed { packets: number(fields)? },
        "credits" => L2cap::Credits { count: number(fields)? },
        "stopped" => L2cap::Stopped { is_stopped: flag(fields)? },
        "not-counted" => L2cap::NotCounted,
        "media" => L2cap::Media { sequence: number(fields)?, timestamp: number(fields)? },
        "stream" => L2cap::Stream { hz: number(fields)? },
        "buffers" => L2cap::Buffers { in_use: number(fields)?, of: number(fields)? },
        "hidden" => L2cap::Hidden { of_link: flag(fields)?, of_any: flag(fields)? },
        "link" => L2cap::Link(RadioLink {
            // An interval has 16 bits of 1.25 ms.
            interval_ns: number(fields).filter(|ns| *ns <= 65_535 * 1_250_000)?,
            latency: number(fields)?,
            is_central: match number(fields)? {
                0_u8 => Some(false),
                1 => Some(true),
                2 => None,
                _ => return None,
            },
            phy: two(fields)?,
            length: two(fields)?,
            is_encrypted: flag(fields)?,
            from_start: flag(fields)?,
            // Who held does not depend on sniff mode, and it is not kept.
            sniff_ns: 0,
        }),
        "lost" => L2cap::Lost,
        "classic" => L2cap::Classic,
        "ended" => L2cap::Ended { tells_completions: flag(fields)? },
        _ => return None,
    };
    Some((what, bytes))
}
