//! The protocol that client and server of a test speak, version 1 (docs/protocol.md): frames parsed and emitted, no I/O.
//!
//! Every frame begins with the same 16 bytes. Handshake and control frames are [`CONTROL_BYTES`] long in both directions,
//! so that an answer is never longer than the question and a server can't be used to amplify.

mod end_mark;
mod frame;
mod hello;

pub use end_mark::EndMark;
pub use frame::{
    Frame, Record, Summary, Usage, WireError, data_header, data_sequence, frame_length, number_of, set_number,
};
pub use hello::{Accept, AckPolicy, Hello, Refusal, Shape, Shaped, Work};

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Length of the part that every frame begins with.
pub const HEADER_BYTES: usize = 16;
/// Length of every frame but data, fetch and records.
pub const CONTROL_BYTES: usize = 64;
/// Length of what precedes the payload in a data datagram: header and sequence number.
pub const DATA_HEADER_BYTES: usize = 24;
/// Length of a fetch, and the most that its answer may have.
pub const FETCH_BYTES: usize = 1232;
/// Most records in the answer to one fetch.
pub const RECORDS_PER_FETCH: usize = (FETCH_BYTES - DATA_HEADER_BYTES) / frame::RECORD_BYTES;
/// Most records in one frame on a stream.
pub const RECORDS_PER_FRAME: usize = (u16::MAX as usize - DATA_HEADER_BYTES) / frame::RECORD_BYTES;
