use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use taut_time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::client::Client;

/// A stream that keeps to the rules.
///
/// - A line of a request ends in CR LF. The parser would take a lone LF too, as RFC 9112 (section
///   2.2) allows; but two that read a request differently on its way are what request smuggling
///   lives on. So a lone LF is handed on as NUL, which no part of a head may have, and the parser
///   answers 400. Contents of requests do not come into it: a request that has some is refused.
/// - A write that finds no room for too long is an error.
/// - At the end it waits until the client has closed too, for a while: a link that is closed with bytes
///   unread is reset, and one that can't be closed by halves takes what is still on its way with it.
pub(crate) struct Guard<S> {
    stream: S,
    client: Arc<Client>,
    after_cr: bool,
    stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Longest wait for the client's end.
    linger: Duration,
    ending: Option<Pin<Box<Sleep>>>,
}

impl<S> Guard<S> {
    pub(crate) const fn new(stream: S, client: Arc<Client>, stall: Duration, linger: Duration) -> Self {
        Self { stream, client, after_cr: false, stall, stalled: None, linger, ending: None }
    }

    /// Lets an operation wait for no longer than is allowed.
    fn limit<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.stall)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }

    fn check(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if *byte == b'\n' && !self.after_cr {
                *byte = 0;
                self.client.found("a line of the request ends in LF without CR");
            }
            self.after_cr = *byte == b'\r';
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let received = &mut buffer.filled_mut()[before..];
        if !received.is_empty() {
            self.client.heard();
        }
        self.check(received);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limit(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.limit(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.limit(cx, outcome))?;
        self.client.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.limit(cx, outcome))?;
            self.client.wait();
            self.ending = Some(Box::pin(sleep(self.linger)));
        }
        let mut rubbish = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut rubbish);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        // Set above.
        let Some(timer) = &mut self.ending else { return Poll::Ready(Ok(())) };
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Ok(()))
    }
}
