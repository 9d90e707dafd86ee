/// Bytes that one read takes at most.
pub(super) const BUFFER_BYTES: usize = 64;
