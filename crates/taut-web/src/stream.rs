use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use taut_link::Link;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::watched::{Held, watch};

/// A link as a stream of bytes; a write is one of the link's, and takes what that takes.
pub(crate) struct LinkStream(AsyncFd<Held<Link>>);

impl LinkStream {
    /// Takes a link over.
    ///
    /// # Errors
    /// The link can't be made non-blocking, or not be waited for.
    pub(crate) fn new(link: Link) -> io::Result<Self> {
        link.set_nonblocking(true).map_err(io::Error::other)?;
        watch(link).map(Self)
    }

    fn poll_writing(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&Link) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            match ready.try_io(|link| write(&link.get_ref().0)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                // The readiness was of before.
                Err(_) => {}
            }
        }
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
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
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |link| link.send_now(bytes).map_err(io::Error::from))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |link| link.send_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing waits here.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Says that no more comes, where the link can say that.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.get_ref().0.finish_sending().map_err(io::Error::other))
    }
}
