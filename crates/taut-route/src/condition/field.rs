//! A value in the bytes of an event: where it stands, and in which form.

use std::fmt;
use std::str::FromStr;

/// The largest offset of a field's end, in bytes from the beginning of the payload: what fits into one Ethernet frame.
pub const LONGEST_PAYLOAD: usize = 1400;

/// A number in the bytes of an event: `u8@0`, `i16be@4`, `u32le@8`.
///
/// Values are 64-bit two's complement: a `u64` of 2^63 or more is read as a negative number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Field {
    /// Byte it begins at.
    pub offset: u16,
    /// How it is stored.
    pub form: Form,
}

/// How a number is stored.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Form {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether its first bit is a sign.
    pub signed: bool,
    /// Whether its first byte is the most significant one (network byte order).
    pub big_endian: bool,
}

impl Form {
    /// The form by its name, such as `u16be`; one byte needs no order.
    pub fn named(name: &str) -> Option<Self> {
        let signed = match name.as_bytes().first()? {
            b'i' => true,
            b'u' => false,
            _ => return None,
        };
        let (size, order) = match &name[1..] {
            "8" => return Some(Self { size: 1, signed, big_endian: true }),
            rest => (rest.get(..2)?, rest.get(2..)?),
        };
        let size = match size {
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => return None,
        };
        let big_endian = match order {
            "be" => true,
            "le" => false,
            _ => return None,
        };
        Some(Self { size, signed, big_endian })
    }

    /// The names, for messages.
    pub const NAMES: &'static str = "u8, i8, u16be, u16le, i16be … u64be, i64le";
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match (self.size, self.big_endian) {
            (1, _) => "",
            (_, true) => "be",
            (_, false) => "le",
        };
        write!(f, "{}{}{order}", if self.signed { 'i' } else { 'u' }, 8 * u16::from(self.size))
    }
}

impl Field {
    /// Bytes that a payload must have at least for this field.
    pub const fn end(self) -> usize {
        self.offset as usize + self.form.size as usize
    }

    /// The number in these bytes; `None` when they end before the field does.
    #[inline]
    pub fn read(self, payload: &[u8]) -> Option<i64> {
        let bytes = payload.get(self.offset as usize..self.end())?;
        let mut wide = [0; 8];
        let size = bytes.len();
        let shift = 64 - 8 * size as u32;
        // The field stands at the significant end; the shift brings it down, and its sign with it.
        let raw = if self.form.big_endian {
            wide[..size].copy_from_slice(bytes);
            u64::from_be_bytes(wide)
        } else {
            wide[8 - size..].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        Some(if self.form.signed { raw.cast_signed() >> shift } else { (raw >> shift).cast_signed() })
    }
}

impl Field {
    /// Writes a number, cut to the field's size, into bytes that reach to its end.
    pub fn write(self, payload: &mut [u8], value: i64) {
        let Some(place) = payload.get_mut(usize::from(self.offset)..self.end()) else { return };
        let size = place.len();
        if self.form.big_endian {
            place.copy_from_slice(&value.to_be_bytes()[8 - size..]);
        } else {
            place.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
}

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no field: write FORM@OFFSET, such as i16be@4 (forms: {})", Form::NAMES);
        let (form, offset) = text.split_once('@').ok_or_else(wrong)?;
        let form = Form::named(form).ok_or_else(wrong)?;
        let field = Self { offset: offset.parse().map_err(|_| wrong())?, form };
        if field.end() > LONGEST_PAYLOAD {
            return Err(format!("`{text}` ends after byte {LONGEST_PAYLOAD}, where no field may"));
        }
        Ok(field)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.form, self.offset)
    }
}
