use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use hyper::body::Body as _;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use taut_link::clock;
use taut_time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::body::More;
use crate::client::Client;
use crate::guard::Guard;
use crate::log::{Entry, Log, What};
use crate::served::Counts;
use crate::site::Note;
use crate::{Body, Limits, Site};

/// Where a connection's events go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchers {
    pub(crate) log: Log,
    pub(crate) counts: Arc<Counts>,
}

impl Watchers {
    pub(crate) fn refused(&self, peer: &str, why: impl Into<String>) {
        let what = What::Refused { why: why.into() };
        self.log.take(Entry { at: SystemTime::now(), peer: peer.to_owned(), what });
    }
}

/// Everything that a connection needs beside its stream.
pub(crate) struct Connection {
    pub(crate) site: Arc<Site>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) client: Arc<Client>,
    pub(crate) more: More,
    /// Longest wait for the client's end after ours.
    pub(crate) linger: Duration,
    /// Whether what is still on its way arrives when the stream is dropped; where it can't be
    /// closed by halves it does not.
    pub(crate) delivers: bool,
    pub(crate) watchers: Watchers,
}

/// Answers requests on any stream of bytes until it ends or breaks a rule or a limit. This is what
/// a server does with each of its links, without a log.
///
/// # Errors
/// What ended it, when that was not the client's close between two requests.
pub async fn serve_stream<S>(stream: S, site: Arc<Site>, limits: Arc<Limits>) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let client = Arc::new(Client::new("stream".to_owned()));
    let linger = Duration::from_millis(100);
    let (more, watchers) = (More::default(), Watchers::default());
    let connection = Connection { site, limits, client, more, linger, delivers: true, watchers };
    let (_open, stop) = watch::channel(false);
    connection.serve(stream, stop).await
}

impl Connection {
    /// Answers requests, and says in the log why it ended when that was no good end.
    pub(crate) async fn run<S>(self, stream: S, stop: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (client, watchers, limits) = (Arc::clone(&self.client), self.watchers.clone(), Arc::clone(&self.limits));
        let outcome = tokio::select! {
            outcome = self.serve(stream, stop) => outcome,
            () = client.evicted.notified() => {
                watchers.counts.evicted.fetch_add(1, Ordering::Relaxed);
                return watchers.refused(&client.peer, "its place was wanted, and it had waited the longest");
            }
            () = tokio::time::sleep(limits.connection) => {
                watchers.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                return watchers.refused(&client.peer, "the connection is too old");
            }
        };
        let Err(error) = outcome else { return };
        let found = *client.found.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_timeout() {
            // One that had said nothing was kept alive, and that is over.
            if client.heard.load(Ordering::Relaxed) {
                watchers.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                let limit = humantime::format_duration(limits.head_time);
                watchers.refused(&client.peer, format!("no whole request within {limit}"));
            }
        } else if error.is_parse() {
            watchers.counts.malformed.fetch_add(1, Ordering::Relaxed);
            watchers.refused(&client.peer, found.map_or_else(|| error.to_string(), str::to_owned));
        } else if is_stall(&error) {
            watchers.counts.stalled.fetch_add(1, Ordering::Relaxed);
            let limit = humantime::format_duration(limits.stall);
            watchers.refused(&client.peer, format!("took nothing for {limit}"));
        }
    }

    async fn serve<S>(self, stream: S, mut stop: watch::Receiver<bool>) -> Result<(), hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let guard = Guard::new(stream, Arc::clone(&self.client), self.limits.stall, self.linger);
        let (client, delivers) = (Arc::clone(&self.client), self.delivers);
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .half_close(true)
            .header_read_timeout(self.limits.head_time)
            .max_headers(self.limits.fields)
            .max_header_size(self.limits.head_bytes)
            // Of a connection, and for heads at least what the parser asks for.
            .max_buf_size((128 << 10).max(2 * self.limits.head_bytes));
        let this = Arc::new(self);
        let service = service_fn(move |request| {
            let this = Arc::clone(&this);
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(guard), service));
        tokio::select! {
            outcome = connection.as_mut() => return outcome,
            // A server that is gone wants us to stop too.
            _ = stop.wait_for(|&stop| stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        if delivers && client.waiting_since().is_some() {
            // A head that is not whole yet might never be.
            return Ok(());
        }
        connection.await
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (began, at) = (clock::now(), SystemTime::now());
        self.client.begin();
        let (head, content) = request.into_parts();
        let (method, target) = (head.method.to_string(), head.uri.to_string());
        let answer = match Site::refuse(&head, !content.is_end_stream()) {
            Some(refusal) => refusal,
            None => self.respond(head, at).await,
        };
        let note = answer.extensions().get::<Note>().map(|note| note.0);
        let status = answer.status().as_u16();
        self.watchers.counts.answered(status);
        let (client, watchers) = (Arc::clone(&self.client), self.watchers.clone());
        let end = move |bytes, whole| {
            client.answered.store(true, Ordering::Relaxed);
            watchers.counts.bytes_out.fetch_add(bytes, Ordering::Relaxed);
            let took = clock::now().saturating_since(began);
            let what = What::Answered { method, target, status, bytes, whole, took, note };
            watchers.log.take(Entry { at, peer: client.peer.clone(), what });
        };
        answer.map(|body| body.reporting(Arc::clone(&self.more), end))
    }

    /// Files are looked up where waiting for a disk holds nobody up.
    async fn respond(&self, head: Parts, at: SystemTime) -> Response<Body> {
        let site = Arc::clone(&self.site);
        tokio::task::spawn_blocking(move || site.respond(&head, at)).await.unwrap_or_else(|_| {
            let mut answer = Response::new(Body::bytes("500 Internal Server Error\n"));
            *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            answer
        })
    }
}

/// Whether the guard ended it for want of room to write into.
fn is_stall(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::TimedOut)
}
