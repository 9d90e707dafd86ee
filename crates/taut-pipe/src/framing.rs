//! How messages are told apart on a stream: no I/O.

use std::collections::VecDeque;

/// What stands between messages on the end of a pipe that is a stream, when the other end carries messages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// Nothing: a message becomes its bytes, and what one read brings becomes a message.
    #[default]
    None,
    /// Each message's length before it, four bytes in network byte order.
    Length,
    /// A newline after each message.
    Line,
}

/// Why bytes can't be made messages, or messages bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FramingError {
    /// A message has more bytes than the other end takes.
    TooLong {
        /// As many as it says, or as there are by now.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// The stream ended within a message.
    Cut {
        /// Bytes of it that were there.
        bytes: usize,
    },
    /// A message for a stream of lines has a newline within it.
    NewlineWithin,
}

impl std::fmt::Display for FramingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { bytes, limit } => write!(f, "a message of {bytes} bytes, where {limit} is the most"),
            Self::Cut { bytes } => write!(f, "the stream ended within a message, after {bytes} bytes of it"),
            Self::NewlineWithin => {
                f.write_str("a message has a newline within it: --framing length would keep it whole")
            }
        }
    }
}

/// Messages in a row, without memory of their own for each.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: VecDeque<u8>,
    lengths: VecDeque<usize>,
}

impl Messages {
    /// Adds one.
    pub fn push(&mut self, message: &[u8]) {
        self.bytes.extend(message);
        self.lengths.push_back(message.len());
    }

    /// The first one.
    pub fn first(&mut self) -> Option<&[u8]> {
        let length = *self.lengths.front()?;
        Some(&self.bytes.make_contiguous()[..length])
    }

    /// Takes the first one out.
    pub fn remove_first(&mut self) {
        if let Some(length) = self.lengths.pop_front() {
            self.bytes.drain(..length);
        }
        if self.lengths.is_empty() {
            // An idle pipe holds no memory.
            *self = Self::default();
        }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }
}

/// Makes messages of a stream, however it is cut into reads.
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    limit: usize,
    partial: Vec<u8>,
}

const HEADER: usize = 4;

impl Decoder {
    /// For messages of at most `limit` bytes.
    pub const fn new(framing: Framing, limit: usize) -> Self {
        Self { framing, limit, partial: Vec::new() }
    }

    /// Takes what a read brought.
    ///
    /// # Errors
    /// [`FramingError::TooLong`]; the messages before it have been given out.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Messages) -> Result<(), FramingError> {
        match self.framing {
            Framing::None => bytes.chunks(self.limit.max(1)).for_each(|message| out.push(message)),
            Framing::Line => {
                while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
                    self.take(&bytes[..end])?;
                    bytes = &bytes[end + 1..];
                    out.push(&self.partial);
                    self.partial.clear();
                }
                self.take(bytes)?;
            }
            Framing::Length => {
                while !bytes.is_empty() {
                    let wanted = match self.partial.first_chunk::<HEADER>() {
                        Some(header) => HEADER + u32::from_be_bytes(*header) as usize,
                        None => HEADER,
                    };
                    let (now, rest) = bytes.split_at(bytes.len().min(wanted - self.partial.len()));
                    self.partial.extend_from_slice(now);
                    bytes = rest;
                    let Some(header) = self.partial.first_chunk::<HEADER>() else { continue };
                    let length = u32::from_be_bytes(*header) as usize;
                    if length > self.limit {
                        return Err(FramingError::TooLong { bytes: length, limit: self.limit });
                    }
                    if self.partial.len() == HEADER + length {
                        out.push(&self.partial[HEADER..]);
                        self.partial.clear();
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), FramingError> {
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > self.limit {
            return Err(FramingError::TooLong { bytes: self.partial.len(), limit: self.limit });
        }
        Ok(())
    }

    /// The stream has ended, in good order (`is_whole`) or not. In good order a last line needs no
    /// newline. What is no message stays [`held`](Self::held).
    ///
    /// # Errors
    /// [`FramingError::Cut`] when it ended within a message.
    pub fn finish(&mut self, is_whole: bool, out: &mut Messages) -> Result<(), FramingError> {
        match (self.partial.len(), self.framing) {
            (0, _) => Ok(()),
            (_, Framing::Line) if is_whole => {
                out.push(&std::mem::take(&mut self.partial));
                Ok(())
            }
            (bytes, Framing::Length) => Err(FramingError::Cut { bytes: bytes.saturating_sub(HEADER) }),
            (bytes, Framing::Line | Framing::None) => Err(FramingError::Cut { bytes }),
        }
    }

    /// Bytes that were taken and are no message yet.
    pub const fn held(&self) -> usize {
        self.partial.len()
    }
}

/// Makes bytes of a message.
///
/// # Errors
/// [`FramingError::NewlineWithin`]; [`FramingError::TooLong`] when four bytes can't tell the length.
pub fn encode(framing: Framing, message: &[u8], out: &mut Vec<u8>) -> Result<(), FramingError> {
    match framing {
        Framing::None => {}
        Framing::Length => {
            let too_long = FramingError::TooLong { bytes: message.len(), limit: u32::MAX as usize };
            out.extend_from_slice(&u32::try_from(message.len()).map_err(|_| too_long)?.to_be_bytes());
        }
        Framing::Line if message.contains(&b'\n') => return Err(FramingError::NewlineWithin),
        Framing::Line => {}
    }
    out.extend_from_slice(message);
    if framing == Framing::Line {
        out.push(b'\n');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn all(mut messages: Messages) -> Vec<Vec<u8>> {
        let mut list = Vec::new();
        while let Some(message) = messages.first() {
            list.push(message.to_vec());
            messages.remove_first();
        }
        list
    }

    #[test]
    fn too_long_is_known_from_the_length_alone() {
        let mut decoder = Decoder::new(Framing::Length, 10);
        let mut out = Messages::default();
        assert_eq!(decoder.push(&[0, 0, 0, 11], &mut out), Err(FramingError::TooLong { bytes: 11, limit: 10 }));
        let mut decoder = Decoder::new(Framing::Line, 3);
        assert!(decoder.push(b"abc\nabcd", &mut out).is_err());
        assert_eq!(all(out), [b"abc"]);
    }

    #[test]
    fn a_stream_that_ends_within_a_message_is_told() {
        let mut decoder = Decoder::new(Framing::Length, 10);
        let mut out = Messages::default();
        decoder.push(&[0, 0, 0, 3, 1], &mut out).unwrap();
        assert_eq!(decoder.finish(true, &mut out), Err(FramingError::Cut { bytes: 1 }));
        assert_eq!(encode(Framing::Line, b"a\nb", &mut Vec::new()), Err(FramingError::NewlineWithin));
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut(
            messages in vec(vec(any::<u8>().prop_filter("no newline", |&byte| byte != b'\n'), 0..20), 0..10),
            cuts in vec(1..7usize, 1..20),
            framing in prop_oneof![Just(Framing::Length), Just(Framing::Line)],
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                encode(framing, message, &mut stream).unwrap();
            }
            let (mut decoder, mut out, mut rest) = (Decoder::new(framing, 20), Messages::default(), stream.as_slice());
            for cut in cuts.iter().cycle() {
                let (now, after) = rest.split_at(rest.len().min(*cut));
                decoder.push(now, &mut out).unwrap();
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            decoder.finish(true, &mut out).unwrap();
            prop_assert_eq!((out.bytes(), out.count()), (messages.iter().map(Vec::len).sum(), messages.len()));
            prop_assert_eq!(all(out), messages);
        }

        #[test]
        fn any_bytes_are_messages_within_the_limit_or_an_error(
            reads in vec(vec(any::<u8>(), 0..12), 0..8),
            framing in prop_oneof![Just(Framing::Length), Just(Framing::Line), Just(Framing::None)],
        ) {
            let (mut decoder, mut out) = (Decoder::new(framing, 9), Messages::default());
            let taken = reads.iter().all(|read| decoder.push(read, &mut out).is_ok());
            let fine = taken && decoder.finish(true, &mut out).is_ok();
            prop_assert!(!fine || decoder.held() == 0);
            prop_assert!(all(out).iter().all(|message| message.len() <= 9));
        }
    }
}
