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
        (_, true) => {
            let from = Watched { from: whole, is_over: false };
            Box::new(Zstd { from, decoder: FrameDecoder::new(), is_open: false, is_cut: false })
        }
        _ => Box::new(whole),
    })
}

/// All frames of a zstd stream, one after another.
struct Zstd<R> {
    from: Watched<R>,
    decoder: FrameDecoder,
    is_open: bool,
    is_cut: bool,
}

/// A stream, and whether more was wanted of it than there is.
struct Watched<R> {
    from: R,
    is_over: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.is_over |= read == 0 && !to.is_empty();
        Ok(read)
    }
}

/// What is decoded at once.
const STEP: usize = 256 << 10;
/// An empty last block (RFC 8878, section 3.1.1.2), and a checksum, which is not looked at.
const END_OF_FRAME: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_open && !self.begin()? {
                return Ok(0);
            }
            if self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBytes(to.len().clamp(1, STEP));
                match self.decoder.decode_blocks(&mut self.from, strategy) {
                    // What later blocks might refer to is kept back until the frame ends.
                    Err(_) if self.from.is_over => {
                        self.is_cut = true;
                        let all = BlockDecodingStrategy::All;
                        self.decoder.decode_blocks(&END_OF_FRAME[..], all).map_err(wrong)?;
                    }
                    decoded => drop(decoded.map_err(wrong)?),
                }
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
        if self.is_cut {
            return Err(cut_off());
        }
        let mut first = [0];
        if self.from.read(&mut first)? == 0 {
            return Ok(false);
        }
        let frame = io::Cursor::new(first).chain(&mut self.from);
        let begun = self.decoder.reset(frame);
        begun.map_err(|error| if self.from.is_over { cut_off() } else { wrong(error) })?;
        self.is_open = true;
        Ok(true)
    }
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "its zstd compression is cut off")
}

fn wrong(error: impl std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its zstd compression is damaged: {error}"))
}
