//! Any bytes are a frame that is written as it can be read again, a data datagram, or neither.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_link::wire::{DATA_HEADER_BYTES, Frame, HEADER_BYTES, data_header, data_sequence, frame_length};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((session, frame)) = Frame::parse(bytes) {
        assert_eq!(frame_length(&bytes[..HEADER_BYTES]), Ok(bytes.len()));
        let written = frame.emit(session);
        assert_eq!(Frame::parse(&written), Ok((session, frame)));
        assert_eq!(data_sequence(bytes), None, "both a frame and data");
    }
    if let Some((session, sequence)) = data_sequence(bytes) {
        let mut header = [0; DATA_HEADER_BYTES];
        data_header(&mut header, session, sequence);
        assert_eq!(data_sequence(&header), Some((session, sequence)));
    }
});
