//! How messages of datagrams say which they are.

use taut_time::Framing;

use crate::wire;

/// How the messages of one link are numbered, and told from those of another session. On a stream they are not: there
/// their order says which they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Numbering {
    framing: Framing,
    /// `None`: no header, only the number, as many bytes of it as the message has room for.
    session: Option<u64>,
}

impl Numbering {
    /// That of a session, whose messages have a header.
    pub const fn of_session(framing: Framing, session: u64) -> Self {
        Self { framing, session: Some(session) }
    }

    /// That of a peer without the tests' protocol.
    pub const fn plain(framing: Framing) -> Self {
        Self { framing, session: None }
    }

    /// Whether messages keep their boundaries.
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the peer does without the tests' protocol.
    pub const fn is_plain(&self) -> bool {
        self.session.is_none()
    }

    /// Makes a message the one of that number. Does nothing on a stream.
    ///
    /// # Panics
    /// When a message of a session is shorter than its header ([`wire::DATA_HEADER_BYTES`]).
    #[inline]
    pub fn mark(&self, message: &mut [u8], number: u64) {
        match (self.framing, self.session) {
            (Framing::Stream, _) => {}
            (Framing::Datagram, Some(session)) => wire::data_header(message, session, number),
            (Framing::Datagram, None) => {
                let bytes = number.to_le_bytes();
                let kept = message.len().min(bytes.len());
                message[..kept].copy_from_slice(&bytes[..kept]);
            }
        }
    }

    /// Number of a datagram that came back, given about which one is expected; `None` when it is not of this session.
    #[inline]
    pub fn number_of(&self, datagram: &[u8], expected: u64) -> Option<u64> {
        if let Some(ours) = self.session {
            let (session, number) = wire::data_sequence(datagram)?;
            return (session == ours).then_some(number);
        }
        let mut bytes = expected.to_le_bytes();
        let kept = datagram.len().min(bytes.len());
        if kept == 0 {
            return None;
        }
        bytes[..kept].copy_from_slice(&datagram[..kept]);
        Some(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_its_number_back_and_that_of_another_session_none() {
        let mut message = [0xA5; 32];
        for numbering in [Numbering::of_session(Framing::Datagram, 7), Numbering::plain(Framing::Datagram)] {
            numbering.mark(&mut message, 300);
            assert_eq!(numbering.number_of(&message, 299), Some(300));
        }
        Numbering::of_session(Framing::Datagram, 8).mark(&mut message, 300);
        assert_eq!(Numbering::of_session(Framing::Datagram, 7).number_of(&message, 300), None);
        // Of a message of one byte the rest of the number is the expected one's.
        assert_eq!(Numbering::plain(Framing::Datagram).number_of(&[44], 300), Some(300));
        assert_eq!(Numbering::plain(Framing::Datagram).number_of(&[], 300), None);
    }

    #[test]
    fn a_stream_has_nothing_in_its_messages() {
        let mut message = [0xA5; 32];
        Numbering::of_session(Framing::Stream, 7).mark(&mut message, 300);
        Numbering::plain(Framing::Stream).mark(&mut message, 300);
        assert_eq!(message, [0xA5; 32]);
    }
}
