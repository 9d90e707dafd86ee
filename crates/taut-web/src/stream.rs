use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use taut_link::Link;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::More;
use crate::watched::{Held, watch};

/// A link as a stream of bytes. Where a write makes an SDU (L2CAP), bytes are collected until one is full, and what is left over leaves
/// when no more is to come: a short SDU takes a credit as a full one does.
pub(crate) struct LinkStream {
    link: AsyncFd<Held<Link>>,
    /// Length of a full SDU and what has been collected for the next one.
    sdu: Option<(usize, Vec<u8>)>,
    more: More,
}

impl LinkStream {
    /// Takes a link over.
    ///
    /// # Errors
    /// The link can't be made non-blocking, or not be waited for.
    pub(crate) fn new(link: Link, more: More) -> io::Result<Self> {
        link.set_nonblocking(true).map_err(io::Error::other)?;
        let sdu = link.write_limit().map(|limit| (limit, Vec::with_capacity(limit)));
        Ok(Self { link: watch(link)?, sdu, more })
    }

    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |link| link.send(bytes).map_err(io::Error::from))
    }

    fn poll_writing(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&Link) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.link.poll_write_ready(cx))?;
            match ready.try_io(|link| write(&link.get_ref().0)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                // The readiness was of before.
                Err(_) => {}
            }
        }
    }

    /// Sends what has been collected.
    fn poll_collected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((limit, mut collected)) = self.sdu.take() else { return Poll::Ready(Ok(())) };
        let result = loop {
            if collected.is_empty() {
                break Poll::Ready(Ok(()));
            }
            match self.poll_send(cx, &collected) {
                Poll::Ready(Ok(sent)) => drop(collected.drain(..sent)),
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.sdu = Some((limit, collected));
        result
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.link.poll_read_ready(cx))?;
            let free = buffer.initialize_unfilled();
            match ready.try_io(|link| link.get_ref().0.receive(free).map_err(io::Error::from)) {
                Ok(Ok(received)) => {
                    buffer.advance(received);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (room, is_empty) = match &self.sdu {
            None => return self.poll_send(cx, bytes),
            Some((limit, collected)) => (limit - collected.len(), collected.is_empty()),
        };
        if room == 0 {
            ready!(self.poll_collected(cx))?;
            return self.poll_write(cx, bytes);
        }
        if is_empty && bytes.len() >= room {
            return self.poll_send(cx, &bytes[..room]);
        }
        let taken = room.min(bytes.len());
        if let Some((_, collected)) = &mut self.sdu {
            collected.extend_from_slice(&bytes[..taken]);
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.sdu.is_some() {
            let first = pieces.iter().find(|piece| !piece.is_empty());
            return self.poll_write(cx, first.map_or(&[], |piece| piece));
        }
        self.poll_writing(cx, |link| link.send_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.sdu.is_none()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_full = self.sdu.as_ref().is_some_and(|(limit, collected)| collected.len() >= *limit);
        if is_full || !self.more.load(Ordering::Relaxed) { self.poll_collected(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Says that no more comes, where the link can say that.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_collected(cx))?;
        Poll::Ready(self.link.get_ref().0.finish_sending().map_err(io::Error::other))
    }
}
