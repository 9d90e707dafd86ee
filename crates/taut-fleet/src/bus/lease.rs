//! Leases: who is alone on a host or in a rack.
//!
//! A lease is made by whoever comes first, and its age begins when the server has it, which is after its holder began
//! to ask for it. A holder that counts from then, and has ended what it does before the age is over, is never beside
//! the next one, however long the server is away.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::name::token;
use super::store::{Changed, LEASE_AGE, Store};
use super::until::Until;
use crate::error::Error;

/// How often a lease is prolonged.
pub(super) const PROLONG: Duration = Duration::from_secs(7);
/// Before the end of its age its holder ends what it does: that takes up to 5 s.
const MARGIN: Duration = Duration::from_secs(8);

/// By when something has to be over. It moves, and threads look at it; its clock goes on while the host is suspended.
#[derive(Clone)]
pub(super) struct Deadline(Arc<AtomicU64>);

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(boot_ns().saturating_add(ns(time)))))
    }

    pub(super) fn is_over(&self) -> bool {
        boot_ns() >= self.0.load(Ordering::Relaxed)
    }
}

/// Nanoseconds since this host was started.
fn boot_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::Boottime)).map_or(0, ns)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// All that one measurement has for itself.
pub(super) struct Lease {
    store: Store,
    /// With their revisions.
    keys: Vec<(String, u64)>,
    /// Who holds it, as no other does.
    holder: Vec<u8>,
    asked: Instant,
    deadline: Deadline,
}

/// The leases of two hosts, and of racks, in one order for all.
pub(super) fn keys(hosts: [&str; 2], racks: &[String]) -> Vec<String> {
    let hosts = hosts.iter().map(|host| format!("host.{}", token(host)));
    let mut keys: Vec<String> = hosts.chain(racks.iter().map(|rack| format!("rack.{}", token(rack)))).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Lease {
    /// Takes all of the leases or none; `None` where somebody has one of them.
    pub(super) async fn take(store: &Store, keys: &[String], holder: Vec<u8>) -> Result<Option<Self>, Error> {
        // The client would ask when it is connected again, and nobody would know that it has the lease.
        if store.is_away() {
            return Err(Error::new("taut_lease: the NATS server is away"));
        }
        let deadline = Deadline::after(LEASE_AGE - MARGIN);
        let mut lease = Self { store: store.clone(), keys: Vec::new(), holder, asked: Instant::now(), deadline };
        for key in keys {
            let found = match store.take_lease(key, lease.holder.clone()).await {
                Ok(Changed::Done(revision)) => Ok(Some(revision)),
                // The answer to an earlier question may have been lost.
                Ok(Changed::Taken) => lease.adopt(key).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(Some(revision)) => lease.keys.push((key.clone(), revision)),
                Ok(None) => {
                    lease.give_back().await;
                    return Ok(None);
                }
                Err(error) => {
                    lease.give_back().await;
                    return Err(error);
                }
            }
        }
        Ok(Some(lease))
    }

    /// By when what it is for has to be over, unless it is prolonged.
    pub(super) fn until(&self) -> Instant {
        self.asked + LEASE_AGE - MARGIN
    }

    /// The same for threads. It moves when the lease is prolonged.
    pub(super) fn deadline(&self) -> Deadline {
        self.deadline.clone()
    }

    /// Prolongs all of them; `false` where one is lost.
    ///
    /// # Errors
    /// Where that can't be known because the server is away; it is tried again until [`Lease::until`].
    pub(super) async fn prolong(&mut self) -> Result<bool, Error> {
        let (asked, asked_boot) = (Instant::now(), boot_ns());
        for number in 0..self.keys.len() {
            let (key, revision) = self.keys[number].clone();
            let revision = match self.store.keep_lease(&key, self.holder.clone(), revision).await? {
                Changed::Done(revision) => revision,
                Changed::Taken => match self.adopt(&key).await? {
                    Some(revision) => revision,
                    None => return Ok(false),
                },
            };
            self.keys[number].1 = revision;
        }
        self.asked = asked;
        self.deadline.0.store(asked_boot.saturating_add(ns(LEASE_AGE - MARGIN)), Ordering::Relaxed);
        Ok(true)
    }

    /// Gives them back; what can't be given back ends with its age.
    pub(super) async fn give_back(self) {
        for (key, revision) in &self.keys {
            let _ = self.store.give_lease_back(key, *revision).await;
        }
    }

    /// Prolongs what stands there if it is ours, and returns its revision. The answer to an earlier question was lost,
    /// and its age began then, before this one was asked.
    async fn adopt(&self, key: &str) -> Result<Option<u64>, Error> {
        let found = self.store.lease(key).await?.filter(|value| value.bytes == self.holder);
        let Some(value) = found else { return Ok(None) };
        match self.store.keep_lease(key, self.holder.clone(), value.revision).await? {
            Changed::Done(revision) => Ok(Some(revision)),
            Changed::Taken => Err(Error::new("taut_lease: it changed meanwhile")),
        }
    }

    /// Prolongs it in a task of its own.
    pub(super) fn keep(self) -> Kept {
        let (store, over, lost) = (self.store.clone(), Until::default(), Rc::new(Cell::new(false)));
        let keeper = spawn_local(keep(self, over.clone(), Rc::clone(&lost)));
        Kept { store, over, lost, keeper }
    }
}

/// A lease that is prolonged until it is given back, and taken anew where its age was over and nobody else has it.
pub(super) struct Kept {
    store: Store,
    over: Until,
    lost: Rc<Cell<bool>>,
    keeper: JoinHandle<Option<Lease>>,
}

impl Kept {
    /// Set when somebody else has it.
    pub(super) fn lost(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.lost)
    }

    pub(super) async fn give_back(self) {
        self.over.set();
        if self.store.is_away() {
            // It ends with its age.
            self.keeper.abort();
        } else if let Ok(Some(lease)) = self.keeper.await {
            lease.give_back().await;
        }
    }
}

/// Returns the lease when it is over, and nothing where it is lost.
async fn keep(mut lease: Lease, over: Until, lost: Rc<Cell<bool>>) -> Option<Lease> {
    loop {
        tokio::select! {
            () = sleep(PROLONG) => {}
            () = over.reached() => return Some(lease),
        }
        // What can't be known is tried again next time.
        if let Ok(false) = lease.prolong().await {
            let keys: Vec<String> = lease.keys.iter().map(|(key, _)| key.clone()).collect();
            match Lease::take(&lease.store, &keys, lease.holder.clone()).await {
                Ok(Some(anew)) => lease = anew,
                Ok(None) => {
                    lost.set(true);
                    return None;
                }
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_take_leases_in_one_order() {
        let racks = ["r 1".to_owned(), "r 1".to_owned()];
        assert_eq!(keys(["b", "a.x"], &racks), ["host.a=2Ex", "host.b", "rack.r=201"]);
        assert_eq!(keys(["b", "a"], &[]), keys(["a", "b"], &[]));
    }
}
