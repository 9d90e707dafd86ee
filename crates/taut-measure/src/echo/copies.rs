//! Whether a server without our protocol sends back what it was sent.

/// What a message holds behind its number.
pub(super) const FILLER: u8 = 0xA5;
/// Bytes of a message's number.
pub(super) const NUMBER_BYTES: usize = size_of::<u64>();

/// Compares what a plain server sends with what was written. A server that speaks the tests' protocol is believed.
#[derive(Debug)]
pub(super) struct Copies {
    plain: bool,
    message_bytes: usize,
    /// Bytes of the stream seen so far.
    position: u64,
}

impl Copies {
    pub(super) fn new(plain: bool, message_bytes: usize) -> Self {
        Self { plain, message_bytes, position: 0 }
    }

    /// Numbers a message of a plain stream: a reply that nobody asked for has the wrong number.
    #[inline]
    pub(super) fn mark(&self, message: &mut [u8], number: u64) {
        if self.plain {
            let kept = message.len().min(NUMBER_BYTES);
            message[..kept].copy_from_slice(&number.to_le_bytes()[..kept]);
        }
    }

    /// Looks at the next bytes of a stream. To be called when their time of arrival has been taken.
    ///
    /// # Errors
    /// What they are, when they are not what was written at this position.
    #[inline]
    pub(super) fn stream(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        if !self.plain {
            return Ok(());
        }
        let length = self.message_bytes;
        while !bytes.is_empty() {
            let (message, offset) = (self.position / length as u64, (self.position % length as u64) as usize);
            let (here, rest) = bytes.split_at(bytes.len().min(length - offset));
            let numbered = NUMBER_BYTES.min(length).saturating_sub(offset).min(here.len());
            let number = message.to_le_bytes();
            if here[..numbered] != number[offset.min(NUMBER_BYTES)..][..numbered] || !is_filler(&here[numbered..]) {
                let what = format!("what came back as message {} is not what was sent", message + 1);
                return Err(what);
            }
            self.position += here.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Looks at a datagram of a plain server that has this number, or none, when `next` has not been sent yet. The
    /// number of the message that it is a copy of: of a short one only the last bytes are in it.
    ///
    /// # Errors
    /// What it is, when it is no copy of any message.
    pub(super) fn datagram(&self, datagram: &[u8], number: Option<u64>, next: u64) -> Result<u64, String> {
        let length = self.message_bytes;
        if datagram.len() != length {
            let bytes = if datagram.len() == 1 { "1 byte".to_owned() } else { format!("{} bytes", datagram.len()) };
            let what = format!("a datagram of {bytes} came back, and the messages have {length}");
            return Err(what);
        }
        let numbered = NUMBER_BYTES.min(length);
        // Its upper bytes are those of the message that was expected, which may be one further.
        let wrapped = |number: u64| 1_u64.checked_shl(8 * numbered as u32).and_then(|wrap| number.checked_sub(wrap));
        let earlier = number.and_then(|number| if number < next { Some(number) } else { wrapped(number) });
        match earlier.filter(|&number| number < next) {
            Some(number) if is_filler(&datagram[numbered..]) => Ok(number),
            _ => Err("a datagram came back that was never sent".to_owned()),
        }
    }
}

/// Compares with a short piece, over and over: one as long as the message would take its place in the caches.
fn is_filler(bytes: &[u8]) -> bool {
    static PIECE: [u8; 1024] = [FILLER; 1024];
    bytes.chunks(PIECE.len()).all(|bytes| bytes == &PIECE[..bytes.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_datagram_whose_number_has_wrapped_is_a_copy_of_the_one_before() {
        let copies = Copies::new(true, 1);
        let number = |number, next| copies.datagram(&[number as u8], Some(number), next).ok();
        assert_eq!((number(255, 256), number(256, 257)), (Some(255), Some(256)));
        // Message 256 is expected, and what comes is 255.
        assert_eq!((number(511, 257), number(200, 100)), (Some(255), None));
        // What holds its whole number can't have wrapped.
        let whole = [&300_u64.to_le_bytes()[..], &[FILLER]].concat();
        let copies = Copies::new(true, whole.len());
        assert!(copies.datagram(&whole, Some(300), 301).is_ok());
        assert!(copies.datagram(&whole, Some(300), 300).is_err());
    }
}
