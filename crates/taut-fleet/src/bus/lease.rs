//! Leases: who is alone on a host or in a rack.
//!
//! A lease is made by whoever comes first, and its age begins when the server has it, which is after its holder began
//! to ask for it. A holder that counts from then, and has ended what it does before the age is over, is never beside
//! the next one, however long the server is away.

use std::time::Duration;

use tokio::time::Instant;

use super::name::token;
use super::store::{Changed, LEASE_AGE, Store};
use crate::error::Error;

/// How often a lease is prolonged.
pub(super) const PROLONG: Duration = Duration::from_secs(7);
/// Before the end of its age its holder ends what it does: that takes up to 5 s.
const MARGIN: Duration = Duration::from_secs(8);

/// All that one measurement has for itself.
pub(super) struct Lease {
    store: Store,
    /// With their revisions.
    keys: Vec<(String, u64)>,
    /// Who holds it, as no other does.
    holder: Vec<u8>,
    asked: Instant,
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
        let mut lease = Self { store: store.clone(), keys: Vec::new(), holder, asked: Instant::now() };
        for key in keys {
            let found = match store.take_lease(key, lease.holder.clone()).await {
                Ok(Changed::Done(revision)) => Ok(Some(revision)),
                // The answer to an earlier question may have been lost.
                Ok(Changed::Taken) => lease.is_ours(key).await,
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

    /// Prolongs all of them; `false` where one is lost.
    ///
    /// # Errors
    /// Where that can't be known because the server is away; it is tried again until [`Lease::until`].
    pub(super) async fn prolong(&mut self) -> Result<bool, Error> {
        let asked = Instant::now();
        for number in 0..self.keys.len() {
            let (key, revision) = self.keys[number].clone();
            let revision = match self.store.keep_lease(&key, self.holder.clone(), revision).await? {
                Changed::Done(revision) => revision,
                Changed::Taken => match self.is_ours(&key).await? {
                    Some(revision) => revision,
                    None => return Ok(false),
                },
            };
            self.keys[number].1 = revision;
        }
        self.asked = asked;
        Ok(true)
    }

    /// Gives them back; what can't be given back ends with its age.
    pub(super) async fn give_back(self) {
        for (key, revision) in &self.keys {
            let _ = self.store.give_lease_back(key, *revision).await;
        }
    }

    /// The revision of a lease that is there, if it is ours.
    async fn is_ours(&self, key: &str) -> Result<Option<u64>, Error> {
        let found = self.store.lease(key).await?;
        Ok(found.filter(|value| value.bytes == self.holder).map(|value| value.revision))
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
