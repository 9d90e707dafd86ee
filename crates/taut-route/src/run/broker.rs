//! A broker as a sink. A thread of its own publishes over the connection that `taut pipe` has as well: a broker that is
//! away, or slow, holds up neither the route nor its other sinks.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use taut_link::broker::{Carrier, Directions};
use taut_link::{Endpoint, Error, Result, clock};

use super::event::LOOK_UP;
use super::status::Shared;

/// How long the broker may take to let us in when the route starts.
const OPENING: Duration = Duration::from_secs(5);
/// Messages on their way to the thread; how many wait for the broker stands in the address (`buffer=`).
const WAITING: usize = 1024;
/// How long the end may take once somebody asks for it, who waits for some seconds only (`control`): long enough to
/// find out that nobody tells what he reads, and for the broker to close.
const ENDING: Duration = Duration::from_millis(3500);
/// How long a broker that does not read may keep what a source has left that is over: as long as the carrier waits for
/// what it has itself.
const STILL: Duration = Duration::from_secs(10);
/// How often it is looked whether the end has come, or there is room again.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest message in bytes: what a reader of `taut pipe` takes.
const LONGEST: usize = 65_507;

/// The route's end of it.
pub(super) struct Broker {
    /// Whether the route waits where there is no room: what it reads from waits with it.
    waits: bool,
    messages: Option<SyncSender<Vec<u8>>>,
    bell: Arc<OwnedFd>,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Shared>,
    /// Its number in the counters.
    number: usize,
    /// Messages that were not handed over.
    not_taken: Arc<AtomicU64>,
}

/// The end of the thread.
struct Worker {
    carrier: Carrier,
    /// Readable when the carrier has something to do.
    watch: OwnedFd,
    /// Readable when there are messages, or no more will come.
    bell: Arc<OwnedFd>,
    messages: Receiver<Vec<u8>>,
    waits: bool,
    /// No more will come than there are.
    is_closed: Arc<AtomicBool>,
    /// How long it may then be that none has gone on, and when one has.
    patience: Duration,
    went: Instant,
    /// Messages may have been left where they are, without room or for the next turn.
    has_left_some: bool,
    /// No more will come, and all that came is with the carrier.
    is_over: bool,
    stop: Arc<AtomicBool>,
    counters: Arc<Shared>,
    /// Its number in the counters.
    number: usize,
    /// Messages that never came.
    not_taken: Arc<AtomicU64>,
    /// Those of the dropped messages that the route has counted as lost.
    dropped: u64,
}

impl Broker {
    /// Goes to a broker, which has to be there, to publish and to hear only what readers tell of the messages.
    pub(super) fn open(
        endpoint: &Endpoint,
        waits: bool,
        counters: &Arc<Shared>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        Self::open_with(endpoint, waits, counters, stop, STILL)
    }

    fn open_with(
        endpoint: &Endpoint,
        waits: bool,
        counters: &Arc<Shared>,
        stop: &Arc<AtomicBool>,
        patience: Duration,
    ) -> Result<Self> {
        let failed = |error: io::Error| Error::Host { what: format!("publish to {endpoint}"), error };
        let directions = Directions { writes: true, reads: false, topic_is_heard: false };
        let carrier = Carrier::open(endpoint, directions, OPENING)?;
        let watch = carrier.watch().map_err(failed)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(rustix::event::eventfd(0, flags).map_err(|errno| failed(errno.into()))?);
        let (sender, messages) = sync_channel(WAITING);
        let (number, not_taken) = (counters.add_broker(endpoint.to_string()), Arc::<AtomicU64>::default());
        let worker = Worker {
            carrier,
            watch,
            bell: Arc::clone(&bell),
            messages,
            waits,
            is_closed: Arc::default(),
            patience,
            went: Instant::now(),
            has_left_some: false,
            is_over: false,
            stop: Arc::clone(stop),
            counters: Arc::clone(counters),
            number,
            not_taken: Arc::clone(&not_taken),
            dropped: 0,
        };
        let is_closed = Arc::clone(&worker.is_closed);
        let builder = thread::Builder::new().name("route-broker".to_owned());
        let thread = builder.spawn(move || worker.run()).map_err(failed)?;
        let (messages, counters) = (Some(sender), Arc::clone(counters));
        Ok(Self { waits, messages, bell, is_closed, thread: Some(thread), counters, number, not_taken })
    }

    /// Hands over a message. What becomes of it is told in the counters; that there was no room, by
    /// [`miss`](Self::miss).
    ///
    /// # Errors
    /// `WouldBlock`: there is no room. Anything else: it is too long, or the thread is gone.
    pub(super) fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        if message.len() > LONGEST {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let Some(messages) = &self.messages else { return Err(io::ErrorKind::BrokenPipe.into()) };
        messages.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => io::ErrorKind::WouldBlock,
            TrySendError::Disconnected(_) => io::ErrorKind::BrokenPipe,
        })?;
        self.ring();
        Ok(())
    }

    /// A message was not handed over, and will not be.
    pub(super) fn miss(&self) {
        Shared::add(&self.not_taken, 1);
    }

    /// Waits a little for room; `false` where what has no room is lost.
    pub(super) fn wait(&self) -> bool {
        if self.waits {
            thread::sleep(PAUSE);
        }
        self.waits
    }

    /// No more will come: what is there is brought to the broker.
    pub(super) fn close(&mut self) {
        self.messages = None;
        self.is_closed.store(true, Ordering::Relaxed);
        self.ring();
    }

    fn ring(&self) {
        // One that rings more often than it can count rings already.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.close();
        let is_sound = self.thread.take().is_none_or(|thread| thread.join().is_ok());
        let not_taken = self.not_taken.load(Ordering::Relaxed);
        self.counters.tell_of_broker(self.number, |broker| {
            // Since the thread looked last.
            broker.not_taken = not_taken;
            if !is_sound {
                let endpoint = &broker.endpoint;
                broker.error = Some(format!("{endpoint}: the thread that publishes has failed, a mistake of taut"));
            }
        });
    }
}

impl Worker {
    fn run(mut self) {
        self.tell();
        let (mut told, mut asked, mut closed) = (Instant::now(), None::<Instant>, None::<Instant>);
        let mut is_late = false;
        loop {
            // Before it is looked what came: what comes after that rings again.
            let _ = rustix::io::read(&*self.bell, &mut [0_u8; 8]);
            if asked.is_none() && self.stop.load(Ordering::Relaxed) {
                asked = Some(Instant::now());
            }
            if closed.is_none() && self.is_closed.load(Ordering::Relaxed) {
                closed = Some(Instant::now());
            }
            is_late |= asked.is_some_and(|asked| asked.elapsed() >= ENDING);
            // From here on the carrier looks after that.
            if !self.is_over {
                is_late |= closed.is_some_and(|closed| closed.max(self.went).elapsed() >= self.patience);
            }
            if !self.is_over && self.take(is_late) {
                self.is_over = true;
                self.carrier.finish(clock::now());
            }
            self.carrier.drive(clock::now());
            self.heed();
            if self.is_over && (is_late || self.carrier.has_left()) {
                break;
            }
            // At the end what still waits would count as dropped.
            if !self.is_over && told.elapsed() >= LOOK_UP {
                self.tell();
                told = Instant::now();
            }
            self.wait();
        }
        self.tell();
    }

    /// Hands on what came: where it can wait, as long as there is room or it is late. Whether no more will come.
    fn take(&mut self, is_late: bool) -> bool {
        self.has_left_some = false;
        // More than these would keep the connection from its turn.
        for _ in 0..WAITING {
            if self.waits && !is_late && !self.carrier.has_room() {
                break;
            }
            match self.messages.try_recv() {
                Ok(message) => {
                    self.carrier.press(&message);
                    self.went = Instant::now();
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
        self.has_left_some = true;
        false
    }

    /// Passes on what a user may want to read.
    fn heed(&mut self) {
        while let Some(note) = self.carrier.take_note() {
            self.counters.note(note);
        }
        if let Some(error) = self.carrier.take_error() {
            let text = error.to_string();
            self.counters.note(format!("{text}; what passes from now on is lost"));
            self.counters.tell_of_broker(self.number, |broker| broker.error = Some(text));
        }
    }

    /// Brings the counters up to date.
    fn tell(&mut self) {
        let account = self.carrier.account();
        let written = account.written.unwrap_or_default();
        let dropped = written.dropped_here.max(self.dropped);
        Shared::add(&self.counters.lost, dropped - self.dropped);
        self.dropped = dropped;
        self.counters.tell_of_broker(self.number, |broker| {
            broker.reconnections = account.reconnections;
            broker.not_taken = self.not_taken.load(Ordering::Relaxed);
            broker.written = written;
        });
    }

    /// Waits until there is something to do, for as long as nobody has to look up.
    fn wait(&self) {
        if self.has_left_some && (!self.waits || self.carrier.has_room()) {
            return;
        }
        let due = self.carrier.due().map_or(LOOK_UP, |due| due.saturating_since(clock::now()));
        let time = if self.is_over { PAUSE } else { due.min(LOOK_UP) };
        let timeout = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut polled = [PollFd::new(&self.watch, PollFlags::IN), PollFd::new(&*self.bell, PollFlags::IN)];
        // What interrupts it is a reason to look.
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::run::status::BrokerSink;

    /// A broker of MQTT 3.1.1 that lets one client in, takes what it publishes, and acknowledges nothing.
    fn broker(settings: &str) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("mqtt://{}/t?envelope=off{settings}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            // Its CONNECT.
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(&[0x20, 2, 0, 0]).unwrap();
            while stream.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {}
        });
        address.parse().unwrap()
    }

    #[test]
    fn what_never_came_to_the_thread_is_a_loss_of_the_broker_as_well() {
        let (counters, stop) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
        let mut sink = Broker::open(&broker(""), false, &counters, &stop).unwrap();
        sink.send(Vec::new()).unwrap();
        sink.send(vec![0; LONGEST]).unwrap();
        let error = sink.send(vec![0; LONGEST + 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        sink.miss();
        drop(sink);
        let told = counters.counters("").brokers.remove(0);
        assert_eq!((told.written.sent, told.written.dropped_here, told.not_taken), (2, 0, 1), "{told:?}");
        assert!(told.has_losses() && told.error.is_none(), "{told:?}");
        assert!(!BrokerSink { not_taken: 0, ..told }.has_losses());
    }

    #[test]
    fn a_source_without_events_leaves_nothing_lost() {
        let (counters, stop) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
        drop(Broker::open(&broker(""), true, &counters, &stop).unwrap());
        let told = counters.counters("").brokers.remove(0);
        assert_eq!((told.written.sent, told.not_taken, told.has_losses()), (0, 0, false), "{told:?}");
    }

    #[test]
    fn what_a_source_that_is_over_has_left_does_not_wait_for_ever() {
        let (counters, stop) = (Arc::<Shared>::default(), Arc::<AtomicBool>::default());
        let endpoint = broker("&qos=1&buffer=10");
        let patience = Duration::from_millis(300);
        let mut sink = Broker::open_with(&endpoint, true, &counters, &stop, patience).unwrap();
        (0..60).for_each(|_| sink.send(b"1".to_vec()).unwrap());
        drop(sink);
        let told = counters.counters("").brokers.remove(0);
        // All but those that it was given, which it may have.
        let written = &told.written;
        assert_eq!((written.sent, written.dropped_here, written.confirmed_by_broker), (60, 44, Some(0)), "{told:?}");
        assert!(told.has_losses());
    }
}
