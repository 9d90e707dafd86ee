use std::future::Future;
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::task::JoinHandle;

use crate::tree::OpenFile;

/// Whether more of an answer is to come: what is left over from full SDUs is held back then.
pub(crate) type More = Arc<AtomicBool>;

/// The content of an answer: bytes that are there, or a part of a file, read as the link takes it.
pub struct Body {
    content: Content,
    sent: u64,
    more: More,
    /// Told when the answer is over: how many bytes were handed over, and whether that is all.
    end: Option<Box<dyn FnOnce(u64, bool) + Send>>,
}

enum Content {
    Bytes(Bytes),
    File { file: Arc<OpenFile>, offset: u64, left: u64, reading: Option<JoinHandle<io::Result<Vec<u8>>>> },
}

/// Bytes that are read from a file at once.
const CHUNK: u64 = 64 << 10;

impl Body {
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::of(Content::Bytes(bytes.into()))
    }

    /// `length` bytes from `offset` on. A file that has become shorter meanwhile ends the connection,
    /// since the client has been told otherwise; of one that has grown the rest is left out.
    pub(crate) fn file(file: OpenFile, offset: u64, length: u64) -> Self {
        Self::of(Content::File { file: Arc::new(file), offset, left: length, reading: None })
    }

    fn of(content: Content) -> Self {
        Self { content, sent: 0, more: More::default(), end: None }
    }

    /// The same, which tells of itself: by `more` while it is not over, by `end` when it is.
    pub(crate) fn reporting(mut self, more: More, end: impl FnOnce(u64, bool) + Send + 'static) -> Self {
        more.store(self.left() > 0, Ordering::Relaxed);
        self.more = more;
        self.end = Some(Box::new(end));
        self
    }

    fn left(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File { left, .. } => *left,
        }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let (file, offset, left, reading) = match &mut self.content {
            Content::Bytes(bytes) => return Poll::Ready(Ok(std::mem::take(bytes))),
            Content::File { file, offset, left, reading } => (file, offset, left, reading),
        };
        let length = (*left).min(CHUNK);
        let read = match reading {
            Some(task) => {
                let read = ready!(Pin::new(task).poll(cx));
                *reading = None;
                read.unwrap_or_else(|error| Err(io::Error::other(error)))
            }
            None => match read(file, *offset, length, ReadWriteFlags::NOWAIT) {
                Ok(bytes) => Ok(bytes),
                // Not in memory, or a file system that can't tell: wait for it elsewhere.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    let (file, offset) = (Arc::clone(file), *offset);
                    *reading = Some(tokio::task::spawn_blocking(move || {
                        read(&file, offset, length, ReadWriteFlags::empty()).map_err(io::Error::from)
                    }));
                    return self.poll_bytes(cx);
                }
                Err(errno) => Err(errno.into()),
            },
        }?;
        if read.is_empty() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter")));
        }
        *offset += read.len() as u64;
        *left -= read.len() as u64;
        Poll::Ready(Ok(read.into()))
    }
}

fn read(file: &OpenFile, offset: u64, length: u64, flags: ReadWriteFlags) -> rustix::io::Result<Vec<u8>> {
    // At most `CHUNK`.
    let mut bytes = vec![0; length as usize];
    loop {
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut bytes)], offset, flags) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(count) => {
                bytes.truncate(count);
                return Ok(bytes);
            }
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        let bytes = ready!(self.poll_bytes(cx))?;
        self.sent += bytes.len() as u64;
        self.more.store(self.left() > 0, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.more.store(false, Ordering::Relaxed);
        let left = self.left();
        if let Some(end) = self.end.take() {
            end(self.sent, left == 0);
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").field("sent", &self.sent).field("left", &self.left()).finish_non_exhaustive()
    }
}
