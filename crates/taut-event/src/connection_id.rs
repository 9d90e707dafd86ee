//! By what connections of QUIC are told apart.

/// A connection ID of QUIC: at most 20 bytes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ConnectionId {
    length: u8,
    bytes: [u8; 20],
}

impl ConnectionId {
    /// `None` of more than 20 bytes.
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; 20];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { length: id.len() as u8, bytes })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

/// A connection of QUIC, logged by one of its ends. Forward is what that end sends.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct QuicKey {
    /// The original destination's connection ID, or what the log groups its events by; empty where it has neither.
    pub id: ConnectionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_id_is_as_long_as_it_was() {
        assert_eq!(ConnectionId::new(b"abc").unwrap().as_bytes(), b"abc");
        assert_eq!(ConnectionId::new(&[7; 20]).unwrap().as_bytes(), [7; 20]);
        assert_eq!(ConnectionId::new(&[7; 21]), None);
    }
}
