//! Any bytes are an L2CAP PDU or are refused; what is a signalling command is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_air::l2cap::{Frame, Reassembly, SIGNALLING_CID, Signal};

fuzz_target!(|data: &[u8]| {
    let mut reassembly = Reassembly::default();
    for (index, part) in data.chunks(27).enumerate() {
        if let Ok(Some(whole)) = reassembly.push(index == 0, part) {
            let frame = Frame::parse(whole).expect("what is whole has its header's length");
            let mut again = Vec::new();
            frame.write(&mut again);
            assert_eq!(again, whole);
            if frame.cid == SIGNALLING_CID
                && let Ok((identifier, signal)) = Signal::parse(frame.payload)
            {
                assert_eq!(Signal::parse(&signal.to_bytes(identifier)), Ok((identifier, signal)));
            }
        }
    }
    let _ = Signal::parse(data);
});
