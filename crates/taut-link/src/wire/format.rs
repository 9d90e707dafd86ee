//! What all frames share: lengths, numbers read and written in order, and what can be wrong with them.

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
pub const RECORDS_PER_FETCH: usize = (FETCH_BYTES - DATA_HEADER_BYTES) / RECORD_BYTES;
/// Most records in one frame on a stream.
pub const RECORDS_PER_FRAME: usize = (u16::MAX as usize - DATA_HEADER_BYTES) / RECORD_BYTES;
/// Length of a record.
pub(super) const RECORD_BYTES: usize = 24;

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// They do not begin as a frame does.
    #[error("these bytes are not of Tautline's protocol")]
    Magic,
    /// They are of another version.
    #[error("the peer speaks version {0} of the protocol, this is version {VERSION}")]
    Version(u8),
    /// The frame has another length than its kind has.
    #[error("a frame of the wrong length")]
    Length,
    /// There is no such kind of frame.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A field has a value that it can't have.
    #[error("a frame with an invalid {0}")]
    Field(&'static str),
}

/// Writes fields in network byte order.
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
}

/// Reads fields in network byte order.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(WireError::Length)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.take().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn records(&mut self) -> Result<Vec<ArrivalRecord>, WireError> {
        if !self.0.len().is_multiple_of(RECORD_BYTES) {
            return Err(WireError::Length);
        }
        (0..self.0.len() / RECORD_BYTES)
            .map(|_| Ok(ArrivalRecord { end: self.u64()?, received_ns: self.u64()?, read_ns: self.u64()? }))
            .collect()
    }
}

/// One arrival, on the server's `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ArrivalRecord {
    /// Position after the last byte that arrived, counted from the start of the work.
    pub end: u64,
    /// When the server's kernel took it in, in ns; 0 when that is not known.
    pub received_ns: u64,
    /// When the server's program read it, in ns.
    pub read_ns: u64,
}
