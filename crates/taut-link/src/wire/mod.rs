//! The protocol that client and server of a test speak, version 1 (docs/protocol.md): frames parsed
//! and emitted, no I/O.
//!
//! Every frame begins with the same 16 bytes. Handshake and control frames are [`CONTROL_BYTES`] long in both
//! directions, so that an answer is never longer than the question and a server can't be used to amplify.

mod end_mark;
mod format;
mod frame;
mod hello;

pub use end_mark::EndMark;
pub use format::{
    ArrivalRecord, CONTROL_BYTES, DATA_HEADER_BYTES, FETCH_BYTES, HEADER_BYTES, RECORDS_PER_FETCH, RECORDS_PER_FRAME,
    VERSION, WireError,
};
pub use frame::{Frame, Totals, Usage, data_header, data_sequence, frame_length, number_of, set_number};
pub use hello::{Accept, AckPolicy, Hello, Refusal, Shape, Shaped, Work};
