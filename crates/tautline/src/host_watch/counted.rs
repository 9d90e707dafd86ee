//! What the kernel counts of this host's connections, by program and service: grade 2 of a watch.

use std::time::Duration;

use taut_explain::watch::{Count, Events, Tally};
use taut_record::{WatchedCount, WatchedPlace};
use taut_source::Sampler;
use taut_source::counting::{Befallen, Counter, What};
use taut_time::Instant;

/// Between two readings.
const PERIOD: Duration = Duration::from_secs(1);

/// Reads what was counted, and adds it up.
pub(crate) struct Counted {
    counter: Counter,
    tally: Tally<WatchedPlace>,
    port: Option<u16>,
    due: Instant,
}

impl Counted {
    pub(crate) fn new(counter: Counter, port: Option<u16>, now: Instant) -> Self {
        Self { counter, tally: Tally::default(), port, due: now + PERIOD }
    }

    /// When the next reading is due.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Reads.
    ///
    /// # Errors
    /// The kernel does not hand over what it counted.
    pub(crate) fn read(&mut self, sampler: &Sampler, now: Instant) -> std::io::Result<()> {
        self.due = now + PERIOD;
        // As in the looks, connections of this program are none of the host's.
        let own = std::process::id().cast_signed();
        for befallen in self.counter.read()? {
            let ends = [befallen.local, befallen.peer];
            if self.port.is_some_and(|port| ends.iter().all(|end| end.port() != port)) {
                continue;
            }
            let place = self.place(&befallen, sampler);
            if place.pid != Some(own) {
                self.tally.add(place, events(&befallen));
            }
        }
        Ok(())
    }

    /// Whose it is: the program that has the connection, else the one that opened it or that listens there. One that
    /// was refused or is over has no program any more.
    fn place(&self, befallen: &Befallen, sampler: &Sampler) -> WatchedPlace {
        let &Befallen { local, peer, .. } = befallen;
        let is_server = befallen.opener.is_none() && sampler.listens_at(local);
        let owner = sampler.program_of(local, peer).or_else(|| is_server.then(|| sampler.program_at(local)).flatten());
        let opener = befallen.opener.clone().filter(|_| self.counter.has_numbers());
        let (pid, program) = owner.map(|owner| (owner.pid, owner.name.clone())).or(opener).unzip();
        WatchedPlace {
            cause: words(befallen.what)[0].to_owned(),
            program,
            pid,
            side: if is_server { "server" } else { "client" }.to_owned(),
            service: if is_server { local } else { peer }.to_string(),
        }
    }

    /// What the interval came to that ends now.
    pub(crate) fn interval(&mut self, now: Instant) -> Vec<WatchedCount> {
        self.tally.interval(now).into_iter().map(|(place, count)| told(place, &count, now)).collect()
    }

    /// What is not in the figures, a sentence each.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.counter.missing().is_empty() {
            let missing = self.counter.missing().join(", ");
            remarks.push(format!("This kernel lacks {missing}, so less is counted."));
        }
        let lost = self.counter.unplaced().saturating_add(self.tally.forgotten());
        if lost > 0 {
            remarks.push(format!("{lost} counted events or places are left out: more than are kept."));
        }
        remarks
    }

    /// All that was counted since the beginning.
    pub(crate) fn finish(self, now: Instant) -> Vec<WatchedCount> {
        self.tally.finish().into_iter().map(|(place, count)| told(place, &count, now)).collect()
    }
}

/// Short name, what is the matter, and what to do about it.
fn words(what: What) -> [&'static str; 3] {
    match what {
        What::Loss => ["loss", "segments were lost and sent again", "find where the path drops packets"],
        What::Handshake => [
            "handshake_repeated",
            "the first segment of a connection was sent again",
            "look at the accept queue of the listening end, and at firewalls",
        ],
        What::Refused => ["refused", "nobody listens at that address", "start the service, or correct the address"],
        What::Reset => ["reset", "the other end reset the connection", "see why the program at the other end does so"],
    }
}

fn events(befallen: &Befallen) -> Events {
    Events {
        count: befallen.events,
        lost: befallen.lost,
        longest: befallen.longest,
        first: befallen.first,
        last: befallen.last,
        ends: (befallen.local, befallen.peer),
    }
}

fn told(place: WatchedPlace, count: &Count, now: Instant) -> WatchedCount {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let all = &count.all;
    let known = What::ALL.into_iter().map(words).find(|words| words[0] == place.cause);
    let [_, summary, remedy] = known.unwrap_or_default().map(str::to_owned);
    WatchedCount {
        place,
        summary,
        remedy,
        events: count.new,
        lost_ns: nanos(count.new_lost),
        total_events: all.count,
        total_lost_ns: nanos(all.lost),
        longest_ns: nanos(all.longest),
        first_ago_ns: nanos(now.saturating_since(all.first)),
        last_ago_ns: nanos(now.saturating_since(all.last)),
        last_local: all.ends.0.to_string(),
        last_peer: all.ends.1.to_string(),
        is_new: count.is_new,
    }
}
