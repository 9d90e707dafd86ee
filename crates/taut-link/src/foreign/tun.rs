//! The foreign peer at work: on a TUN device, in a network namespace of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use taut_time::Instant;

use super::device::TunDevice;
use super::machine::{Config, ForeignPeer};
use super::namespace::{self, Namespace};
use super::policy::AckTimer;
use super::record::{AckSent, Arrival};
use crate::{Endpoint, Error, Result, clock};

/// The kernel's side of the device: the address of the sender under test.
const KERNEL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The discard service (RFC 863), which is what the peer offers.
const PEER_PORT: u16 = 9;
/// More than the MTU of a TUN device, which is 1500 bytes.
const PACKET_ROOM: usize = 2048;

/// A [`ForeignPeer`] that runs in a thread, behind a TUN device in a network namespace that nothing else uses. Both go
/// away with this value; sockets that were opened in the namespace keep it alive, but reach nobody any more.
///
/// All times are `CLOCK_MONOTONIC`, read when the thread takes a packet from the device: late by the time that the
/// thread needs to wake up, some tens of microseconds on an idle machine. Between packets and deadlines the thread
/// sleeps.
#[derive(Debug)]
pub struct ForeignHost {
    namespace: Namespace,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    peer: Mutex<ForeignPeer>,
    /// An eventfd, readable once the thread is to end.
    stop: OwnedFd,
}

impl ForeignHost {
    /// Starts a peer that acknowledges by `policy`.
    ///
    /// Needs `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`. A process without them that has a single thread moves into a user
    /// namespace for them, and stays there.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when a right or `/dev/net/tun` is missing, [`Error::Io`] when the device can't be set up.
    pub fn start(policy: AckTimer) -> Result<Self> {
        namespace::acquire_right()?;
        // RFC 9293, section 3.4.1: a clock of 4 µs.
        let initial_sequence = (clock::now().as_nanos() / 4000) as u32;
        let config = Config { address: PEER_ADDRESS, port: PEER_PORT, policy, initial_sequence };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed("stop", errno))?;
        let shared = Arc::new(Shared { peer: Mutex::new(ForeignPeer::new(config)), stop });

        let (sender, receiver) = mpsc::sync_channel(1);
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("taut-foreign".into())
            .spawn(move || match set_up() {
                Ok((namespace, device, timer)) => {
                    // Fails when the starter is gone, and then the eventfd says so too.
                    let _ = sender.send(Ok(namespace));
                    for_thread.serve(&device, &timer);
                }
                Err(error) => drop(sender.send(Err(error))),
            })
            .map_err(|error| failed("run", error))?;
        match receiver.recv().unwrap_or_else(|_| Err(failed("run", io::ErrorKind::BrokenPipe))) {
            Ok(namespace) => Ok(Self { namespace, shared, thread: Some(thread) }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// Where the peer accepts TCP connections, from inside the namespace.
    pub fn address(&self) -> SocketAddr {
        (PEER_ADDRESS, PEER_PORT).into()
    }

    /// The same as an endpoint.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::of_tcp(self.address())
    }

    /// Runs `f` on a thread inside the namespace and returns what it returned; a panic in it goes on in the caller. A
    /// socket that `f` makes belongs to the namespace for ever and can be used from any thread.
    ///
    /// # Errors
    /// When the thread can't be started or may not enter the namespace. Then `f` has not run.
    pub fn in_namespace<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside = || self.namespace.enter().map(|()| f());
            let thread = thread::Builder::new().name("taut-foreign-in".into()).spawn_scoped(scope, inside);
            let thread = thread.map_err(|error| failed("enter the namespace of", error))?;
            thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
    }

    /// Takes the record of the new data that came from a client's port: see [`ForeignPeer::take_arrivals`].
    pub fn take_arrivals(&self, client_port: u16) -> Vec<Arrival> {
        self.shared.peer().take_arrivals(client_port)
    }

    /// The acknowledgements that were sent to a client's port so far, in the order of time. The record stays.
    pub fn acks_sent(&self, client_port: u16) -> Vec<AckSent> {
        self.shared.peer().acks(client_port)
    }

    /// How many entries of the records are gone because nobody took them: see [`ForeignPeer::lost_records`].
    pub fn lost_records(&self) -> u64 {
        self.shared.peer().lost_records()
    }
}

impl Drop for ForeignHost {
    fn drop(&mut self) {
        // An eventfd takes 2^64 - 2 such writes before it refuses one.
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The records are whole whatever happened to a thread that held the lock.
    fn peer(&self) -> MutexGuard<'_, ForeignPeer> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes packets between device and peer until told to stop, or until the device fails.
    fn serve(&self, device: &TunDevice, timer: &OwnedFd) {
        let mut buffer = [0; PACKET_ROOM];
        loop {
            let mut fds = [device.as_fd(), self.stop.as_fd(), timer.as_fd()].map(readable);
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            if !fds[1].revents().is_empty() {
                return;
            }
            match device.receive(&mut buffer) {
                Ok(length) => {
                    let now = clock::now();
                    self.peer().handle(now, &buffer[..length]);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            if self.emit(device, timer).is_err() {
                return;
            }
        }
    }

    /// Sends all that is due and sets the timer to the next deadline.
    fn emit(&self, device: &TunDevice, timer: &OwnedFd) -> rustix::io::Result<()> {
        let mut peer = self.peer();
        while let Some(packet) = peer.poll(clock::now()) {
            // What the kernel does not take is lost, as on any network.
            let _ = device.send(&packet);
        }
        set_timer(timer, peer.deadline())
    }
}

/// Makes the namespace of the calling thread, with a device in it, and the timer.
fn set_up() -> Result<(Namespace, TunDevice, OwnedFd)> {
    let namespace = Namespace::create()?;
    let device = TunDevice::open(KERNEL_ADDRESS, NETMASK)?;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
        .map_err(|errno| failed("make a timer for", errno))?;
    Ok((namespace, device, timer))
}

/// Sets the timer, which is readable from then on, or switches it off. A timeout of poll would be late by up to a
/// thousandth of itself, whatever the timer slack (`select_estimate_accuracy` in fs/select.c); this timer has no slack.
fn set_timer(timer: &OwnedFd, deadline: Option<Instant>) -> rustix::io::Result<()> {
    // Zero switches off.
    let nanos = deadline.map_or(0, |deadline| deadline.as_nanos().max(1));
    let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    let time = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &time).map(drop)
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

fn failed(operation: &'static str, error: impl Into<io::Error>) -> Error {
    Error::Io { operation, endpoint: "the foreign peer".into(), error: error.into() }
}

#[cfg(test)]
#[path = "tun_tests.rs"]
mod tests;
