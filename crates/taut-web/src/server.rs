use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use taut_link::{Endpoint, Link, Listener};
use taut_time::{Duration, Framing};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};

use crate::body::More;
use crate::client::Client;
use crate::connection::{Connection, Watchers};
use crate::log::Log;
use crate::packets::Packets;
use crate::served::Served;
use crate::stream::LinkStream;
use crate::watched::{self, Held};
use crate::{Limits, Site};

/// A site on listeners of any kind.
pub struct Server {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
}

struct Shared {
    site: Arc<Site>,
    limits: Arc<Limits>,
    watchers: Watchers,
    slots: Mutex<Slots>,
}

/// Clients that are connected, by number.
#[derive(Default)]
struct Slots {
    taken: HashMap<u64, Arc<Client>>,
    next: u64,
}

/// How long a client that has been told the end may take to close its side too; a link that can't
/// be closed by halves takes with it what is still on its way, and gets the time of a stall.
const LINGER: Duration = Duration::from_secs(2);
/// Wait after a failed accept: a process without free descriptors would else spin.
const PAUSE: Duration = Duration::from_millis(50);
/// Threads that move bytes. Files are looked up and, where they are not in memory, read by others, which come and go.
const MOST_WORKERS: usize = 4;

impl Server {
    /// A site on listeners.
    ///
    /// # Errors
    /// [`taut_link::Error::Input`] for one of datagrams: HTTP is for streams.
    pub fn new(listeners: Vec<Listener>, site: Site, limits: Limits, log: Log) -> Result<Self, taut_link::Error> {
        if let Some(other) = listeners.iter().find(|listener| listener.endpoint().framing() != Framing::Stream) {
            let endpoint = other.endpoint();
            let why = format!("{endpoint}: pages go over streams: tcp://, unix:, l2cap:// or rfcomm://");
            return Err(taut_link::Error::Input(why));
        }
        let watchers = Watchers { log, counts: Arc::default() };
        let shared = Shared { site: Arc::new(site), limits: Arc::new(limits), watchers, slots: Mutex::default() };
        Ok(Self { listeners, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.listeners.iter().map(Listener::endpoint)
    }

    /// Serves until `stop` has something to read, then calls `stopping`, closes the listeners, lets
    /// answers that have begun finish for as long as the limits allow, and writes the rest of the log.
    ///
    /// # Errors
    /// The host refuses threads or descriptors at the start.
    pub fn run(self, stop: OwnedFd, stopping: impl FnOnce()) -> io::Result<Served> {
        let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_WORKERS));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let shared = Arc::clone(&self.shared);
        runtime.block_on(self.serve(stop, stopping))?;
        // What has not ended by now is cut off; a thread that waits for a disk is not waited for.
        runtime.shutdown_timeout(Duration::from_millis(100));
        let Watchers { log, counts } = &shared.watchers;
        log.finish();
        Ok(counts.served(log))
    }

    async fn serve(self, stop: OwnedFd, on_stop: impl FnOnce()) -> io::Result<()> {
        let stop = watched::watch(stop)?;
        let (stopping, stopped) = watch::channel(false);
        // Closed when the last one that holds it has ended.
        let (alive, mut ended) = mpsc::channel::<()>(1);
        for listener in self.listeners {
            let accepting = accept(Listening::new(listener)?, Arc::clone(&self.shared), stopped.clone(), alive.clone());
            tokio::spawn(accepting);
        }
        drop((alive, stopped));
        stop.readable().await?.retain_ready();
        on_stop();
        // Nobody there is as good.
        let _ = stopping.send(true);
        let _ = tokio::time::timeout(self.shared.limits.grace, ended.recv()).await;
        Ok(())
    }
}

/// A listener that can be waited for.
struct Listening(AsyncFd<Held<Listener>>);

impl Listening {
    fn new(listener: Listener) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Self(watched::watch(listener)?))
    }

    async fn accept(&self) -> io::Result<Link> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(accepted) = ready.try_io(|listener| listener.get_ref().0.accept()) {
                return accepted;
            }
        }
    }
}

/// Accepts until it is stopped; the listener goes with it.
async fn accept(
    listening: Listening,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return,
            accepted = listening.accept() => accepted,
        };
        match accepted {
            Ok(link) => {
                shared.watchers.counts.connections.fetch_add(1, Ordering::Relaxed);
                let connection = begin(&shared, link, stopped.clone());
                let alive = alive.clone();
                tokio::spawn(async move {
                    connection.await;
                    drop(alive);
                });
            }
            // Gone before it was taken.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                let endpoint = listening.0.get_ref().0.endpoint().to_string();
                shared.watchers.refused(&endpoint, format!("a client could not be accepted: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Gives a client a slot, or refuses it.
fn begin(shared: &Arc<Shared>, link: Link, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + use<> {
    let shared = Arc::clone(shared);
    let delivers = link.endpoint().closes_by_halves();
    let linger = if delivers { LINGER } else { shared.limits.stall };
    if matches!(link.endpoint(), Endpoint::Tcp(_)) {
        // The answer leaves in as few writes as there are; what is in its last one should not wait
        // for an acknowledgment.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&link, true);
    }
    let slot = Slot::take(&shared, &link);
    async move {
        let Some(slot) = slot else { return shared.turn_away(&link) };
        let (more, limit) = (More::default(), Some(link.write_limit()).filter(|&limit| limit < usize::MAX));
        match LinkStream::new(link) {
            Ok(stream) => {
                let stream = Packets::new(stream, limit, Arc::clone(&more));
                let connection = Connection {
                    site: Arc::clone(&shared.site),
                    limits: Arc::clone(&shared.limits),
                    client: Arc::clone(&slot.client),
                    more,
                    linger,
                    delivers,
                    watchers: shared.watchers.clone(),
                };
                connection.run(stream, stop).await;
            }
            Err(error) => shared.watchers.refused(&format!("#{}", slot.number), error.to_string()),
        }
    }
}

/// A slot that is taken, until it is dropped.
struct Slot {
    shared: Arc<Shared>,
    number: u64,
    client: Arc<Client>,
}

impl Slot {
    /// When all are taken, whoever has been waited for the longest has to go; one that is being answered does not.
    fn take(shared: &Arc<Shared>, link: &Link) -> Option<Self> {
        let mut slots = shared.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.taken.len() >= shared.limits.clients {
            let waiting = |(&number, client): (&u64, &Arc<Client>)| Some((client.waiting_since()?, number));
            let (_, oldest) = slots.taken.iter().filter_map(waiting).min()?;
            if let Some(client) = slots.taken.remove(&oldest) {
                client.evicted.notify_one();
            }
        }
        let number = slots.next;
        slots.next += 1;
        let client = Arc::new(Client::new(name(link, number)));
        slots.taken.insert(number, Arc::clone(&client));
        Some(Self { shared: Arc::clone(shared), number, client })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // It may have been taken away already.
        self.shared.slots.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&self.number);
    }
}

impl Shared {
    /// Tells a client that there is no room, if that can be told at once.
    fn turn_away(&self, link: &Link) {
        self.watchers.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.watchers.refused(&name(link, 0), "all places are taken");
        let answer =
            b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
        if link.set_nonblocking(true).is_ok() {
            // A client that can't even take this is not told.
            let _ = link.send(answer);
            let _ = link.finish_sending();
        }
    }
}

/// What a client is called in the log.
fn name(link: &Link, number: u64) -> String {
    match link.peer_address() {
        Some(address) => address.to_string(),
        None => format!("{}#{number}", link.endpoint().transport()),
    }
}
