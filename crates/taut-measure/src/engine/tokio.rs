#![expect(unsafe_code, reason = "tokio watches a descriptor that it does not own only by our word that it stays open")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::Poll;

use taut_link::{Link, clock};
use taut_time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;

use super::wait::Engine;

/// The tokio runtime on the calling thread. Its timers tick in milliseconds, which an open loop shows as send lateness.
pub(super) struct Tokio<'a> {
    // Before the runtime: a registration must go before the reactor it is in.
    links: Vec<AsyncFd<Borrowed<'a>>>,
    runtime: Runtime,
}

/// A descriptor that the engine watches and does not own.
struct Borrowed<'a>(&'a Link);

impl AsRawFd for Borrowed<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<'a> Tokio<'a> {
    pub(super) fn new(links: &[&'a Link]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let links = {
            let _inside = runtime.enter();
            let register = |link: &&'a Link| {
                // SAFETY: `Borrowed` holds the link for as long as the registration lives, and a `Link` keeps its one
                // descriptor open until it is dropped.
                unsafe { AsyncFd::register_with_interest(Borrowed(link), interest) }.map_err(io::Error::from)
            };
            links.iter().map(register).collect::<io::Result<_>>()?
        };
        Ok(Self { links, runtime })
    }
}

impl Engine for Tokio<'_> {
    fn wait(&mut self, until: Option<Instant>, writer: Option<usize>, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let links = &self.links;
        // The caller has just met EAGAIN on the writer: what the reactor knew of it is out of date.
        let mut stale = writer;
        let any_ready = std::future::poll_fn(|context| {
            if let Some(writer) = stale.take()
                && let Poll::Ready(guard) = links[writer].poll_write_ready(context)
            {
                guard?.clear_ready();
            }
            for (index, link) in links.iter().enumerate() {
                if let Poll::Ready(guard) = link.poll_read_ready(context) {
                    // Stays ready until a read finds nothing: `drained`.
                    guard?.retain_ready();
                    ready.push(index);
                }
            }
            let mut writable = false;
            if let Some(writer) = writer
                && let Poll::Ready(guard) = links[writer].poll_write_ready(context)
            {
                guard?.retain_ready();
                writable = true;
            }
            if ready.is_empty() && !writable { Poll::Pending } else { Poll::Ready(io::Result::Ok(())) }
        });
        self.runtime.block_on(async {
            match until {
                None => any_ready.await,
                Some(until) => {
                    let left = until.saturating_since(clock::now());
                    tokio::time::timeout(left, any_ready).await.unwrap_or(Ok(()))
                }
            }
        })
    }

    fn drained(&mut self, link: usize) {
        self.runtime.block_on(async {
            std::future::poll_fn(|context| {
                if let Poll::Ready(Ok(mut guard)) = self.links[link].poll_read_ready(context) {
                    guard.clear_ready();
                }
                Poll::Ready(())
            })
            .await;
        });
    }
}
