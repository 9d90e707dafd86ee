use std::io::{self, Read};
use std::ops::Range;

/// What is read at once: so little that what is known of connections stays in the processor's cache beside it.
const CHUNK: usize = 128 << 10;

/// A window onto a stream: as many bytes ahead as are asked for, and no more than a chunk beyond.
pub(crate) struct Buffer<R> {
    from: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Position in the stream of the first byte that is held.
    base: u64,
    is_at_end: bool,
}

impl<R: Read> Buffer<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, bytes: Vec::new(), start: 0, end: 0, base: 0, is_at_end: false }
    }

    /// Position in the stream of the next byte.
    pub(crate) const fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The bytes ahead: at least `count`, or all that are left.
    #[inline(always)]
    pub(crate) fn ahead(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.end - self.start < count {
            self.refill(count)?;
        }
        Ok(self.held())
    }

    /// The bytes ahead, as many as are held.
    #[inline(always)]
    pub(crate) fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Bytes that an earlier [`Self::take`] gave, for as long as nothing more is asked for.
    #[inline(always)]
    pub(crate) fn taken(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Consumes `count` bytes of those ahead; where they stand.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> Range<usize> {
        let count = count.min(self.end - self.start);
        let range = self.start..self.start + count;
        self.start += count;
        range
    }

    /// Consumes bytes without holding them; whether there were so many.
    pub(crate) fn skip(&mut self, mut count: u64) -> io::Result<bool> {
        while count > 0 {
            let part = usize::try_from(count).unwrap_or(CHUNK).min(CHUNK);
            let here = self.ahead(part)?.len().min(part);
            if here == 0 {
                return Ok(false);
            }
            self.take(here);
            count -= here as u64;
        }
        Ok(true)
    }

    /// Reads until there are `count` bytes ahead, or all that are left.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, count: usize) -> io::Result<()> {
        while self.end - self.start < count && !self.is_at_end {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.base += self.start as u64;
                self.end -= self.start;
                self.start = 0;
            }
            let wanted = count.max(CHUNK);
            if self.bytes.len() < wanted {
                self.bytes.resize(wanted, 0);
            }
            match self.from.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What is ahead, and then the rest.
impl<R: Read> Read for Buffer<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let ahead = self.ahead(1)?;
        let count = ahead.len().min(to.len());
        to[..count].copy_from_slice(&ahead[..count]);
        self.take(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte at a time, as a slow pipe.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let Some((&first, rest)) = self.0.split_first() else { return Ok(0) };
            to[0] = first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn bytes_come_in_order_however_they_are_read() {
        let mut buffer = Buffer::new(Drip(b"abcdefgh"));
        assert_eq!(&buffer.ahead(3).unwrap()[..3], b"abc");
        // `Read::take` has the same name.
        let taken = Buffer::take(&mut buffer, 2);
        assert_eq!(buffer.taken(taken), b"ab");
        assert!(buffer.skip(4).unwrap());
        assert_eq!(buffer.position(), 6);
        assert_eq!(buffer.ahead(10).unwrap(), b"gh");
        assert!(!buffer.skip(3).unwrap());
    }
}
