use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::More;

/// A stream whose writes are packets, filled: where a write makes an SDU (L2CAP), bytes are collected until one
/// is full, and what is left over leaves when no more is to come. A short SDU takes a credit as a full one does.
pub(crate) struct Packets<S> {
    stream: S,
    /// Length of a full packet; `None` where the stream has no packets.
    limit: Option<usize>,
    /// The begin of the next packet, at most a full one.
    collected: Vec<u8>,
    more: More,
}

impl<S: AsyncWrite + Unpin> Packets<S> {
    /// Takes a stream over, which has packets of at most `limit` bytes.
    pub(crate) fn new(stream: S, limit: Option<usize>, more: More) -> Self {
        let limit = limit.map(|limit| limit.max(1));
        Self { stream, limit, collected: Vec::with_capacity(limit.unwrap_or(0)), more }
    }

    fn poll_collected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.collected.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.collected))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.collected.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Packets<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Packets<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(limit) = self.limit else { return Pin::new(&mut self.stream).poll_write(cx, bytes) };
        if self.collected.len() >= limit {
            ready!(self.poll_collected(cx))?;
        }
        if self.collected.is_empty() && bytes.len() >= limit {
            return Pin::new(&mut self.stream).poll_write(cx, &bytes[..limit]);
        }
        let taken = bytes.len().min(limit - self.collected.len());
        self.collected.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.limit.is_none() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        }
        let first = pieces.iter().find(|piece| !piece.is_empty());
        self.poll_write(cx, first.map_or(&[], |piece| piece))
    }

    fn is_write_vectored(&self) -> bool {
        self.limit.is_none() && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_full = self.limit.is_some_and(|limit| self.collected.len() >= limit);
        if is_full || !self.more.load(Ordering::Relaxed) {
            ready!(self.poll_collected(cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_collected(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};

    use taut_time::Duration;
    use tokio::sync::watch;

    use super::*;
    use crate::client::Client;
    use crate::connection::{Connection, Watchers};
    use crate::{Limits, Options, Site, Tree};

    /// A link that has a request to read, takes one packet at a time, stands still after each, and keeps what it took.
    struct Link {
        request: Vec<u8>,
        packets: Arc<Mutex<Vec<Vec<u8>>>>,
        stands: bool,
    }

    impl AsyncRead for Link {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            buffer.put_slice(&std::mem::take(&mut self.request));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Link {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.stands = !self.stands;
            if self.stands {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.packets.lock().unwrap().push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn only_the_last_packet_of_an_answer_is_short() {
        let directory = tempfile::tempdir().unwrap();
        // Longer than what is read from a file at once, and no multiple of the packet.
        let contents: Vec<u8> = (0..200_001_u32).map(|index| (index % 251) as u8).collect();
        fs::write(directory.path().join("data"), &contents).unwrap();
        let packets = Arc::new(Mutex::new(Vec::new()));
        let request = b"GET /data HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec();
        let link = Link { request, packets: Arc::clone(&packets), stands: false };
        let more = More::default();
        let stream = Packets::new(link, Some(672), Arc::clone(&more));
        let connection = Connection {
            site: Arc::new(Site::new(Tree::open(directory.path()).unwrap(), Options::default())),
            limits: Arc::new(Limits::default()),
            client: Arc::new(Client::new(String::new())),
            more,
            linger: Duration::from_millis(1),
            delivers: true,
            watchers: Watchers::default(),
        };
        let (_open, stop) = watch::channel(false);
        connection.run(stream, stop).await;
        let packets = packets.lock().unwrap();
        let (last, full) = packets.split_last().unwrap();
        assert!(
            full.iter().all(|packet| packet.len() == 672),
            "{:?}",
            packets.iter().map(Vec::len).collect::<Vec<_>>()
        );
        assert!((1..=672).contains(&last.len()));
        assert!(packets.concat().ends_with(&contents));
    }
}
