//! Numbers and addresses in the lines of such a file.

use std::fmt::Write;

pub(super) fn number<'t, T: std::str::FromStr>(fields: &mut impl Iterator<Item = &'t str>) -> Option<T> {
    fields.next()?.parse().ok()
}

pub(super) fn two<'t, T: std::str::FromStr>(fields: &mut impl Iterator<Item = &'t str>) -> Option<[T; 2]> {
    Some([number(fields)?, number(fields)?])
}

pub(super) fn flag<'t>(fields: &mut impl Iterator<Item = &'t str>) -> Option<bool> {
    match fields.next()? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Twelve hexadecimal digits, the last byte first as on the air.
pub(super) fn write_address(address: [u8; 6], line: &mut String) {
    address.iter().for_each(|byte| {
        let _ = write!(line, "{byte:02x}");
    });
}

pub(super) fn address(text: &str) -> Option<[u8; 6]> {
    let is_hex = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
    number.to_be_bytes().last_chunk().copied()
}
