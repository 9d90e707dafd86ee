//! The other side of every test: a server for any number of clients on any mix of endpoints.
//!
//! A stream endpoint has a thread for each client, a datagram endpoint one thread for all of them: a blocking read
//! wakes up sooner than any event loop, and the server must not be what is measured. Every client is bounded in
//! number, message size, rate, time and memory ([`Limits`]), however busy it is: no call waits longer than a glance,
//! and the limits are looked at after each. Nothing is sent to an address that has not shown that it gets our answers.
//!
//! [`crowd`]: the servers under test of a crowd, which are processes of their own. [`Staged`]: a client and a server
//! with a mistake on purpose.

pub mod crowd;
mod datagram;
mod ending;
mod exchange;
mod faults;
mod limits;
mod look_period;
#[cfg(test)]
mod paths_tests;
mod processor;
mod seen;
mod shape;
mod shared;
mod staged;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use serde::Serialize;
use taut_link::{Endpoint, Listener, Result};
use taut_time::Framing;

use ending::Ending;
pub use faults::{Faults, Stall};
pub use limits::Limits;
use limits::Slots;
use look_period::LOOK_PERIOD;
pub use shared::ServerConfig;
use shared::{Notices, Shared};
pub use staged::{Mistake, Staged};

/// A running server. Ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    endpoints: Vec<Endpoint>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What a server has done so far.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Served {
    /// Clients that were served.
    pub clients: u64,
    /// Clients that were refused.
    pub refused: u64,
    /// Clients that broke the protocol or did not finish their hello in time.
    pub misbehaved: u64,
    /// Bytes that arrived.
    pub bytes_in: u64,
    /// Datagrams passed over: of no session, over the rate, without room for the answer, or repeats in a stream.
    pub datagrams_dropped: u64,
    /// Options and what was negotiated of the last link of Bluetooth LE, at its end.
    pub last_link: Vec<String>,
}

impl Server {
    /// Binds all endpoints and serves them on threads of its own.
    ///
    /// # Errors
    /// An endpoint can't be bound.
    pub fn start(endpoints: &[Endpoint], config: ServerConfig) -> Result<Self> {
        let listeners = endpoints.iter().map(Listener::bind).collect::<Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            slots: Slots::new(&config.limits),
            config,
            ending: Ending::new(),
            has_crowd: AtomicBool::new(false),
            clients: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            misbehaved: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            datagrams_dropped: AtomicU64::new(0),
            last_link: Mutex::default(),
            notices: Notices::default(),
        });
        let bound = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let threads = listeners
            .into_iter()
            .map(|listener| {
                listener.set_timeout(Some(LOOK_PERIOD))?;
                let shared = Arc::clone(&shared);
                let listener = Arc::new(listener);
                Ok(thread::spawn(move || match listener.endpoint().framing() {
                    Framing::Stream => stream::accept_all(&listener, &shared),
                    Framing::Datagram => datagram::serve_all(&listener, &shared),
                }))
            })
            .collect::<Result<_>>()?;
        Ok(Self { endpoints: bound, shared, threads })
    }

    /// The endpoints served, with the ports that the kernel picked.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What the user should know and has not been told: of brokers that went away, came back, or take less than we do.
    pub fn notices(&self) -> Vec<String> {
        self.shared.notices.take()
    }

    /// What the server has done so far.
    pub fn served(&self) -> Served {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Served {
            clients: read(&self.shared.clients),
            refused: read(&self.shared.refused),
            misbehaved: read(&self.shared.misbehaved),
            bytes_in: read(&self.shared.bytes_in),
            datagrams_dropped: read(&self.shared.datagrams_dropped),
            last_link: self.shared.last_link.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ending.announce();
        for thread in self.threads.drain(..) {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}
