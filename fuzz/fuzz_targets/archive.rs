//! Any bytes are a zip archive of which one file is read to an end, or are refused; so are any bytes as the
//! capture in an archive.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use taut_capture::Reader;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    read(&archive(bytes));
});

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::of_file(Cursor::new(bytes)) else { return };
    while let Ok(Some(_)) = reader.next_packet() {}
    // Deflate has no more.
    assert!(reader.position() <= bytes.len() as u64 * 1100);
}

/// With one file, deflated, whose lengths are not known to be right.
fn archive(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u32).to_le_bytes();
    let plain = (bytes.len() as u32).saturating_mul(2).to_le_bytes();
    let header = [&[20, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &length, &plain, &[1, 0, 0, 0]].concat();
    let mut archive = [b"PK\x03\x04", &header[..], b"x", bytes].concat();
    let place = (archive.len() as u32).to_le_bytes();
    archive.extend([b"PK\x01\x02\x14\x03", &header[..], &[0; 14], b"x"].concat());
    archive.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0\x2f\0\0\0");
    archive.extend(place);
    archive.extend([0; 2]);
    archive
}
