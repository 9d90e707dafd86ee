//! Compression, by content and not by name.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// RFC 8878, section 3.1.2: 0x184D2A50 to 0x184D2A5F.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// A stream with its compression taken off.
pub(crate) fn open<'a>(mut from: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut begin = Vec::new();
    from.by_ref().take(4).read_to_end(&mut begin)?;
    let is = |magic: &[u8]| begin.starts_with(magic);
    let (gzip, zstd) = (is(&GZIP), is(&ZSTD) || begin.get(1..) == Some(&ZSTD_SKIPPABLE[..]));
    let whole = io::Cursor::new(begin).chain(from);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(whole)),
        (_, true) => Box::new(Zstd { from: whole, decoder: FrameDecoder::new(), is_open: false }),
        _ => Box::new(whole),
    })
}

/// All frames of a zstd stream, one after another.
struct Zstd<R> {
    from: R,
    decoder: FrameDecoder,
    is_open: bool,
}

/// What is decoded at once.
const STEP: usize = 256 << 10;

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_open && !self.begin()? {
                return Ok(0);
            }
            if self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBytes(to.len().clamp(1, STEP));
                self.decoder.decode_blocks(&mut self.from, strategy).map_err(wrong)?;
            }
            let read = self.decoder.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            self.is_open = !self.decoder.is_finished();
        }
    }
}

impl<R: Read> Zstd<R> {
    /// Begins the next frame; `false` at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        let mut first = [0];
        if self.from.read(&mut first)? == 0 {
            return Ok(false);
        }
        let frame = io::Cursor::new(first).chain(&mut self.from);
        self.decoder.reset(frame).map_err(wrong)?;
        self.is_open = true;
        Ok(true)
    }
}

fn wrong(error: impl std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its zstd compression is damaged: {error}"))
}
