//! What a capture of the air says of a link's data: connection events with their SDU parts and credits.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A connection event's data: empty packets and link layer control left out.
pub(super) type Event = Vec<Part>;

/// A data PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) from_central: bool,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// Of an SDU: so many bytes of payload of the link layer.
    Data(u8),
    /// Credits given back.
    Credits(u16),
    /// Other signalling.
    Signal,
}

const ENHANCED_PACKET: u32 = 6;
/// In front of a packet's bytes: flags of the block, time, lengths.
const PACKET_AT: usize = 20;
/// The pseudo header of LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR.
const PHDR: usize = 10;
const ADVERTISING: [u8; 4] = 0x8e89_bed6_u32.to_le_bytes();
/// L2CAP's signalling channel on LE, and LE Flow Control Credit (Core Specification, Vol 3, Part A, 2.1 and 4.24).
const SIGNALLING: [u8; 2] = [5, 0];
const CREDITS: u8 = 0x16;

/// Reads a capture of one link. Events follow each other on different channels (the hop is never
/// 0), which tells them apart.
pub(super) fn read(path: &Path) -> Result<Vec<Event>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let events = events(&bytes).with_context(|| format!("{} is no capture of ours", path.display()))?;
    if events.is_empty() {
        bail!("{}: there is no connection in it", path.display());
    }
    Ok(events)
}

fn events(mut bytes: &[u8]) -> Option<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    let mut channel = None;
    // Whether the L2CAP PDU under way in each direction is data; its continuations have no channel of their own.
    let mut is_data = [false; 2];
    while !bytes.is_empty() {
        let kind = u32::from_le_bytes(*bytes.first_chunk()?);
        let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
        let block = bytes.get(8..length.checked_sub(4)?)?;
        bytes = bytes.get(length..)?;
        // Interface 0 is LE, 1 is BR/EDR.
        if kind != ENHANCED_PACKET || block.first_chunk() != Some(&[0; 4]) {
            continue;
        }
        let captured = u32::from_le_bytes(*block.get(12..)?.first_chunk()?) as usize;
        let packet = block.get(PACKET_AT..PACKET_AT + captured)?;
        let flags = u16::from_le_bytes(*packet.get(8..)?.first_chunk()?);
        let (address, pdu) = packet.get(PHDR..)?.split_first_chunk::<4>()?;
        if *address == ADVERTISING {
            continue;
        }
        if channel != Some(packet[0]) {
            channel = Some(packet[0]);
            events.push(Event::new());
        }
        let from_central = (flags >> 7) & 0b111 == 2;
        let [first, length, rest @ ..] = pdu else { return None };
        let payload = rest.get(..usize::from(*length))?;
        let is_data = &mut is_data[usize::from(from_central)];
        let what = match (first & 0b11, payload) {
            (0b11, _) | (0b01, []) => continue,
            (0b10, [_, _, cid @ .., _, _]) if cid.first_chunk() == Some(&SIGNALLING) => {
                *is_data = false;
                match &payload[4..] {
                    [CREDITS, _, _, _, _, _, low, high, ..] => What::Credits(u16::from_le_bytes([*low, *high])),
                    _ => What::Signal,
                }
            }
            (0b10, _) => {
                *is_data = true;
                What::Data(*length)
            }
            _ if *is_data => What::Data(*length),
            _ => What::Signal,
        };
        events.last_mut()?.push(Part { from_central, what });
    }
    Some(events)
}

/// Events at the beginning that are not compared: the programs greet each other, and the first credits come.
const BEGIN: usize = 64;
/// The model's log may begin at another place of the pattern.
const FURTHEST: usize = 512;

/// Of `count` events of `real` how many are the same in `model`, part by part and in order, from where they agree best.
/// `None` when either has not so many.
pub(super) fn agreement(real: &[Event], model: &[Event], count: usize) -> Option<usize> {
    let begin = |events: &[Event]| events.iter().position(|event| event.iter().any(is_full_data)).map(|at| at + BEGIN);
    let real = real.get(begin(real)?..)?.get(..count)?;
    let model = model.get(begin(model)?..)?;
    let last = model.len().checked_sub(count)?.min(FURTHEST);
    let equal = |at: usize| real.iter().zip(&model[at..]).filter(|(real, model)| real == model).count();
    (0..=last).map(equal).max()
}

fn is_full_data(part: &Part) -> bool {
    part.what == What::Data(251)
}

/// Events as people read them: `>251 >184 <+3 | …`, the central's with `<`.
pub(super) fn excerpt(events: &[Event], count: usize) -> String {
    listed(events, 0, count)
}

/// The same from the first event on that has a data PDU of so many bytes, where there is one.
pub(super) fn excerpt_from(events: &[Event], count: usize, length: u8) -> String {
    let has_it = |event: &Event| event.iter().any(|part| part.what == What::Data(length));
    let first = beginning(events);
    let at = events.get(first..).and_then(|events| events.iter().position(has_it));
    listed(events, at.unwrap_or(0), count)
}

fn beginning(events: &[Event]) -> usize {
    events.iter().position(|event| event.iter().any(is_full_data)).map_or(0, |at| at + BEGIN)
}

fn listed(events: &[Event], from: usize, count: usize) -> String {
    let event = |event: &Event| -> String {
        let parts: Vec<_> = event
            .iter()
            .map(|part| {
                let arrow = if part.from_central { '<' } else { '>' };
                match part.what {
                    What::Data(length) => format!("{arrow}{length}"),
                    What::Credits(credits) => format!("{arrow}+{credits}"),
                    What::Signal => format!("{arrow}signal"),
                }
            })
            .collect();
        if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
    };
    events.iter().skip(beginning(events) + from).take(count).map(event).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(channel: u8, from_central: bool, pdu: &[u8]) -> Vec<u8> {
        let flags: u16 = if from_central { 2 << 7 } else { 3 << 7 };
        let mut packet = vec![channel, 0, 0, 0, 1, 2, 3, 4];
        packet.extend(flags.to_le_bytes());
        packet.extend([1, 2, 3, 4]);
        packet.extend(pdu);
        packet.extend([0; 3]);
        let captured = packet.len() as u32;
        packet.resize(packet.len().next_multiple_of(4), 0);
        let length = (packet.len() + 32) as u32;
        let mut block = Vec::new();
        block.extend(ENHANCED_PACKET.to_le_bytes());
        block.extend(length.to_le_bytes());
        block.extend([0; 12]);
        block.extend(captured.to_le_bytes());
        block.extend(captured.to_le_bytes());
        block.extend(packet);
        block.extend(length.to_le_bytes());
        block
    }

    #[test]
    fn events_are_told_apart_and_credits_read() {
        let credit = [0b10, 12, 8, 0, 5, 0, 0x16, 9, 4, 0, 0x40, 0, 3, 0];
        let begin = [&[0b10, 251][..], &[0x40; 251]].concat();
        let more = [&[0b01, 20][..], &[0x40; 20]].concat();
        let log = [
            block(3, true, &credit),
            block(3, false, &begin),
            block(3, true, &[0b01, 0]),
            block(8, true, &[0b01, 0]),
            block(8, false, &more),
            block(13, true, &[0b11, 2, 0x02, 0x13]),
        ];
        let events = events(&log.concat()).unwrap();
        let part = |from_central, what| Part { from_central, what };
        let first = vec![part(true, What::Credits(3)), part(false, What::Data(251))];
        assert_eq!(events, [first, vec![part(false, What::Data(20))], vec![]]);
        assert!(super::events(&log.concat()[1..]).is_none());
    }

    #[test]
    fn logs_agree_when_one_is_the_other_later() {
        let full = vec![Part { from_central: false, what: What::Data(251) }];
        let credit = vec![Part { from_central: true, what: What::Credits(3) }];
        let log: Vec<Event> = std::iter::repeat_n([full.clone(), credit.clone()], 300).flatten().collect();
        let mut later = log[1..].to_vec();
        assert_eq!(agreement(&log, &later, 400), Some(400));
        later[70] = vec![];
        later[199] = vec![];
        assert_eq!(agreement(&later, &log, 400), Some(398));
        assert_eq!(agreement(&log, &later, 600), None);
        assert_eq!(excerpt(&log, 2), ">251 | <+3");
        let tail = Part { from_central: false, what: What::Data(70) };
        later[BEGIN + 2] = vec![tail, full[0]];
        assert_eq!(excerpt_from(&later, 2, 70), ">70 >251 | >251");
        assert_eq!(excerpt_from(&log, 2, 70), ">251 | <+3");
    }
}
