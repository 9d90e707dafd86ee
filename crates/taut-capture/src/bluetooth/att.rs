//! PDUs of the attribute protocol (Core Specification, Vol 3, Part F, section 3.4), as far as they tell what goes over
//! which handle.

use taut_event::{Att, AttKind, AttUuid, Characteristic};

/// Declaration of a characteristic (Assigned Numbers, section 3.7).
const CHARACTERISTIC: u16 = 0x2803;
/// Bytes of UUIDs in a PDU.
const SHORT_LENGTH: usize = 2;
const LONG_LENGTH: usize = 16;

/// What is known of the questions of a bearer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// By direction, the type that the last Read By Type Request asked for.
    asked_type: [Option<u16>; 2],
}

impl Attributes {
    /// None asked yet.
    pub(super) const NEW: Self = Self { asked_type: [None; 2] };

    /// Reads a PDU, of which `kept` were kept and which had `length` bytes.
    pub(super) fn read(
        &mut self,
        way: usize,
        kept: &[u8],
        length: usize,
        mut found: impl FnMut(Characteristic),
    ) -> Option<Att> {
        let (&opcode, rest) = kept.split_first()?;
        let word = |at: usize| rest.get(at..)?.first_chunk().map(|two| u16::from_le_bytes(*two));
        let value = |header: usize| u16::try_from(length.saturating_sub(header)).unwrap_or(u16::MAX);
        let att = |kind: AttKind, handle: Option<u16>, bytes: u16| Some(Att { kind, handle, bytes });
        match opcode {
            0x01 => att(AttKind::Error { of: *rest.first()?, code: *rest.get(3)? }, word(1), 0),
            0x02 => att(AttKind::MtuRequest { mtu: word(0)? }, None, 0),
            0x03 => att(AttKind::MtuResponse { mtu: word(0)? }, None, 0),
            0x05 => {
                information(rest, &mut found);
                att(AttKind::OtherResponse, None, 0)
            }
            0x08 => {
                self.asked_type[way] = word(4).filter(|_| length == 7);
                att(AttKind::OtherRequest, None, 0)
            }
            0x09 => {
                if self.asked_type[1 - way].take() == Some(CHARACTERISTIC) {
                    declarations(rest, &mut found);
                }
                att(AttKind::OtherResponse, None, 0)
            }
            0x0a => att(AttKind::ReadRequest, word(0), 0),
            0x0c => att(AttKind::ReadBlobRequest, word(0), 0),
            0x0b | 0x0d => att(AttKind::ReadResponse, None, value(1)),
            0x12 => att(AttKind::WriteRequest, word(0), value(3)),
            0x13 => att(AttKind::WriteResponse, None, 0),
            0x16 => att(AttKind::PrepareWriteRequest, word(0), value(5)),
            0x17 => att(AttKind::OtherResponse, word(0), 0),
            0x1b => att(AttKind::Notification, word(0), value(3)),
            0x1d => att(AttKind::Indication, word(0), value(3)),
            0x1e => att(AttKind::Confirmation, None, 0),
            0x52 => att(AttKind::WriteCommand, word(0), value(3)),
            // Signed: with twelve bytes of signature.
            0xd2 => att(AttKind::WriteCommand, word(0), value(15)),
            0x04 | 0x06 | 0x0e | 0x10 | 0x18 | 0x20 => att(AttKind::OtherRequest, None, 0),
            0x07 | 0x0f | 0x11 | 0x19 | 0x21 => att(AttKind::OtherResponse, None, 0),
            _ => None,
        }
    }
}

/// Find Information Response: handles with their types, descriptors among them.
fn information(rest: &[u8], found: &mut impl FnMut(Characteristic)) {
    let Some((&format, entries)) = rest.split_first() else { return };
    let length = match format {
        1 => SHORT_LENGTH,
        2 => LONG_LENGTH,
        _ => return,
    };
    for entry in entries.chunks_exact(2 + length) {
        if let (Some(handle), Some(uuid)) = (handle_of(entry), uuid(&entry[2..])) {
            found(Characteristic { handle, uuid });
        }
    }
}

/// Read By Type Response with declarations of characteristics: their values' handles and types.
fn declarations(rest: &[u8], found: &mut impl FnMut(Characteristic)) {
    const BEFORE_VALUE: usize = 3;
    let Some((&length, entries)) = rest.split_first() else { return };
    let length = usize::from(length);
    if length != BEFORE_VALUE + 2 + SHORT_LENGTH && length != BEFORE_VALUE + 2 + LONG_LENGTH {
        return;
    }
    for entry in entries.chunks_exact(length) {
        if let (Some(handle), Some(uuid)) = (handle_of(&entry[BEFORE_VALUE..]), uuid(&entry[BEFORE_VALUE + 2..])) {
            found(Characteristic { handle, uuid });
        }
    }
}

fn handle_of(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|two| u16::from_le_bytes(*two))
}

fn uuid(bytes: &[u8]) -> Option<AttUuid> {
    match bytes.len() {
        SHORT_LENGTH => handle_of(bytes).map(AttUuid::Short),
        LONG_LENGTH => bytes.first_chunk().map(|all| AttUuid::Long(*all)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(attributes: &mut Attributes, way: usize, bytes: &[u8]) -> (Option<Att>, Vec<Characteristic>) {
        let mut found = Vec::new();
        let att = attributes.read(way, bytes, bytes.len(), |one| found.push(one));
        (att, found)
    }

    #[test]
    fn values_have_their_handle_and_their_length() {
        let mut attributes = Attributes::NEW;
        let (att, _) = all(&mut attributes, 0, &[0x12, 0x2a, 0x01, 1, 2, 3]);
        assert_eq!(att, Some(Att { kind: AttKind::WriteRequest, handle: Some(0x012a), bytes: 3 }));
        let (att, _) = all(&mut attributes, 1, &[0x1b, 7, 0]);
        assert_eq!(att, Some(Att { kind: AttKind::Notification, handle: Some(7), bytes: 0 }));
        let (att, _) = all(&mut attributes, 1, &[0x01, 0x12, 7, 0, 3]);
        assert_eq!(att, Some(Att { kind: AttKind::Error { of: 0x12, code: 3 }, handle: Some(7), bytes: 0 }));
    }

    #[test]
    fn only_the_answer_to_the_question_for_characteristics_names_them() {
        let mut attributes = Attributes::NEW;
        let answer = [0x09, 7, 1, 0, 2, 3, 0, 0x37, 0x2a, 4, 0, 2, 5, 0, 0x38, 0x2a];
        assert_eq!(all(&mut attributes, 1, &answer).1, []);
        all(&mut attributes, 0, &[0x08, 1, 0, 0xff, 0xff, 3, 0x28]);
        let names: Vec<_> = all(&mut attributes, 1, &answer).1.iter().map(|one| (one.handle, one.uuid)).collect();
        assert_eq!(names, [(3, AttUuid::Short(0x2a37)), (5, AttUuid::Short(0x2a38))]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(
            pdus in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..30), 0..10),
        ) {
            let mut attributes = Attributes::NEW;
            for (number, pdu) in pdus.iter().enumerate() {
                attributes.read(number % 2, pdu, pdu.len() + number, |_| ());
            }
        }
    }
}
