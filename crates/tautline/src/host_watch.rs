//! All TCP connections of this host, looked at for a time: which lose time, to what, and since when.

mod counted;

use std::collections::BTreeMap;
use std::time::Duration;

use taut_explain::socket::{Account, FEWEST_SAMPLES, Suspicion, holder, suspicions};
use taut_explain::watch::{Changes, Episode, Total, Watch};
use taut_link::clock;
use taut_record::{WatchRow, WatchedCount, WatchedLoss, WatchedPlace};
use taut_source::counting::Counter;
use taut_source::{Sampler, Seen, State};
use taut_time::Instant;

use crate::account::account;
use counted::Counted;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(20);
/// Looks at all, those at the suspicious ones, and the search for programs.
const KINDS: u32 = 3;

/// Looks at all connections again and again, and at those in which something waited more often.
pub(crate) struct HostWatch {
    sampler: Sampler,
    watch: Watch<WatchedPlace>,
    most_work: u32,
    threshold: f64,
    from: Instant,
    all_due: Instant,
    suspects_due: Instant,
    /// The last look at all, and how long before it the one before was.
    last: Instant,
    period: Duration,
    /// What all of it had taken after the last look.
    taken: Duration,
    /// The same at the begin of the interval.
    taken_before: Duration,
    suspect_looks: u32,
    /// As of the last look at all.
    counts: Counts,
    port: Option<u16>,
    /// With grade 2.
    counted: Option<Counted>,
}

/// What the connections lost in one interval, and which losses are over.
pub(crate) struct Interval {
    pub(crate) row: WatchRow,
    pub(crate) ended: Vec<Episode<WatchedPlace>>,
    /// What the kernel counted of late.
    pub(crate) counted: Vec<WatchedCount>,
}

impl HostWatch {
    /// Looks for the programs of all sockets, and begins. The looks at the suspicious ones and the search for programs
    /// take at most one part in `most_work` of a processor each. All that this thread does takes three of them: the
    /// looks at all have what the rest leaves. A loss counts from this share of a connection's time on.
    ///
    /// # Errors
    /// When the kernel's list of sockets can't be had.
    pub(crate) fn begin(port: Option<u16>, most_work: u32, threshold: f64) -> anyhow::Result<Self> {
        let mut sampler = Sampler::new(None, port, holder)?.within(most_work);
        // The first one goes through /proc and reads the options of all: it is no part of an interval.
        sampler.look(clock::now())?;
        sampler.settle();
        let (from, taken) = (clock::now(), clock::thread_cpu());
        Ok(Self {
            sampler,
            watch: Watch::default(),
            most_work,
            threshold,
            from,
            all_due: from,
            suspects_due: from,
            last: from,
            period: Duration::ZERO,
            taken,
            taken_before: taken,
            suspect_looks: 0,
            counts: Counts::default(),
            port,
            counted: None,
        })
    }

    /// The kernel counts as well, from now on.
    #[must_use]
    pub(crate) fn with(mut self, counter: Option<Counter>) -> Self {
        self.counted = counter.map(|counter| Counted::new(counter, self.port, self.from));
        self
    }

    /// Looks, if that is due: every 20 ms, or less often where `most_work` allows no more.
    ///
    /// # Errors
    /// When the kernel's list of sockets can't be had, or what it counted.
    pub(crate) fn look(&mut self, now: Instant) -> anyhow::Result<()> {
        let before = clock::thread_cpu();
        if now >= self.all_due {
            self.sampler.look(now)?;
            (self.period, self.last) = (now.saturating_since(self.last), now);
            self.all_due = now + PERIOD;
            self.suspects_due = now + PERIOD;
        } else if now >= self.suspects_due {
            self.sampler.look_at_suspects(now)?;
            self.suspect_looks += 1;
            let took = clock::thread_cpu().saturating_sub(before);
            self.suspects_due = now + PERIOD.max(took * self.most_work);
        }
        if let Some(counted) = self.counted.as_mut().filter(|counted| now >= counted.due()) {
            counted.read(&self.sampler, now)?;
        }
        // Whatever was done puts off the next look at all: this one, and what came of the last interval.
        let taken = clock::thread_cpu();
        let work = taken.saturating_sub(self.taken);
        self.taken = taken;
        let from = if self.last == now { now } else { self.all_due };
        self.all_due = self.all_due.max(from + work * self.most_work / KINDS);
        Ok(())
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Instant {
        let due = self.all_due.min(self.suspects_due);
        self.counted.as_ref().map_or(due, |counted| due.min(counted.due()))
    }

    /// Begin of the interval.
    pub(crate) const fn from(&self) -> Instant {
        self.from
    }

    /// Whether there are enough looks for a verdict.
    pub(crate) const fn is_enough(&self) -> bool {
        self.sampler.looks() >= FEWEST_SAMPLES
    }

    /// What the interval came to, which ends now; the next one begins.
    ///
    /// # Errors
    /// When what the kernel counted can't be had.
    pub(crate) fn interval(&mut self, now: Instant) -> anyhow::Result<Interval> {
        let counted = match &mut self.counted {
            Some(counted) => {
                counted.read(&self.sampler, now)?;
                counted.interval(now)
            }
            None => Vec::new(),
        };
        let (places, counts) = places(&self.sampler, self.threshold);
        // Without a look at all in it, an interval has only suspects to tell of.
        if self.sampler.looks() > 0 {
            self.counts = counts;
        }
        let counts = &self.counts;
        let losses = places.iter().map(|(place, losses)| (place.clone(), sum(losses)));
        let Changes { begun, ended } = self.watch.interval(self.from, now, losses);
        let mut losses: Vec<WatchedLoss> = places
            .iter()
            .filter_map(|(place, losses)| {
                let episode = self.watch.standing(place)?;
                Some(loss(&self.sampler, place, losses, episode, begun.contains(place)))
            })
            .collect();
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.lost_ns));
        let row = WatchRow {
            command: "taut watch".to_owned(),
            span_ns: nanos(now.saturating_since(self.from)),
            connections: counts.connections,
            active: counts.active,
            looks: self.sampler.looks(),
            suspect_looks: self.suspect_looks,
            look_period_ns: nanos(self.period.max(now.saturating_since(self.last))),
            work_ns: nanos(self.taken.saturating_sub(self.taken_before)),
            is_enough: self.is_enough(),
            losses,
            remarks: remarks(&self.sampler, counts.without_options, self.watch.forgotten())
                .into_iter()
                .chain(self.counted.iter().flat_map(Counted::remarks))
                .collect(),
        };
        self.sampler.restart();
        (self.from, self.suspect_looks, self.taken_before) = (now, 0, self.taken);
        Ok(Interval { row, ended, counted })
    }

    /// All losses, the longest time lost first, which end here if they stand; and all that the kernel counted.
    pub(crate) fn finish(self) -> (Vec<Total<WatchedPlace>>, Vec<WatchedCount>) {
        let counted = self.counted.map(|counted| counted.finish(self.from));
        (self.watch.finish().0, counted.unwrap_or_default())
    }
}

fn places(sampler: &Sampler, threshold: f64) -> (BTreeMap<WatchedPlace, Vec<Loss<'_>>>, Counts) {
    let mut places: BTreeMap<WatchedPlace, Vec<Loss<'_>>> = BTreeMap::new();
    let mut counts = Counts::default();
    for seen in sampler.seen().filter(|seen| !is_own(sampler, seen)) {
        if seen.last.state != State::Listen {
            counts.connections += 1;
            counts.active += u64::from(is_active(seen));
        }
        let is_told = seen.options.is_some() || seen.last.inode == 0 || seen.last.state != State::Established;
        counts.without_options += u64::from(!is_told);
        // Of very many connections these are nearly all.
        if seen.samples < FEWEST_SAMPLES {
            continue;
        }
        for suspicion in suspicions(&weighed(seen)) {
            let share = suspicion.time.as_secs_f64() / seen.span.as_secs_f64();
            if share >= 0.999 * threshold {
                let place = place(sampler, seen, suspicion.cause);
                places.entry(place).or_default().push(Loss { seen, suspicion, share });
            }
        }
    }
    (places, counts)
}

/// Connections of this program are none of the host's: a survey has some of its own, and the page for collectors some
/// that it has not accepted yet.
fn is_own(sampler: &Sampler, seen: &Seen) -> bool {
    let to = || sampler.program_at(seen.last.local).filter(|_| seen.last.is_unaccepted());
    seen.owner.as_ref().or_else(to).is_some_and(|owner| owner.pid == std::process::id().cast_signed())
}

#[derive(Default)]
struct Counts {
    connections: u64,
    active: u64,
    without_options: u64,
}

/// Whether it sent or received something, or something waited in it.
fn is_active(seen: &Seen) -> bool {
    let (first, last) = (&seen.first.info, &seen.last.info);
    let has_moved = (first.bytes_acked, first.bytes_received) != (last.bytes_acked, last.bytes_received);
    has_moved || seen.idle() < seen.span || !seen.unread.is_zero()
}

/// One suspicion of one connection.
struct Loss<'a> {
    seen: &'a Seen,
    suspicion: Suspicion,
    share: f64,
}

/// Suspicious ones are looked at more often, so their samples count by the time that they stand for.
fn weighed(seen: &Seen) -> Account {
    let plain = account(seen);
    let weigh = |time: Duration| {
        let share = time.as_secs_f64() / seen.span.as_secs_f64().max(f64::MIN_POSITIVE);
        (share * f64::from(seen.samples)).round() as u32
    };
    let unaccepted_samples = if plain.unaccepted_samples > 0 { weigh(seen.unaccepted) } else { 0 };
    let full_samples = weigh(seen.full).min(plain.full_samples);
    Account { unread_samples: weigh(seen.unread), unaccepted_samples, full_samples, ..plain }
}

fn place(sampler: &Sampler, seen: &Seen, cause: &str) -> WatchedPlace {
    let is_server = seen.last.state == State::Listen || sampler.listens_at(seen.last.local);
    WatchedPlace {
        cause: cause.to_owned(),
        program: seen.owner.as_ref().map(|owner| owner.name.clone()),
        pid: seen.owner.as_ref().map(|owner| owner.pid),
        side: if is_server { "server" } else { "client" }.to_owned(),
        service: if is_server { seen.last.local } else { seen.last.peer }.to_string(),
    }
}

fn sum(losses: &[Loss<'_>]) -> Duration {
    losses.iter().fold(Duration::ZERO, |sum, loss| sum + loss.suspicion.time)
}

fn loss(
    sampler: &Sampler,
    place: &WatchedPlace,
    losses: &[Loss<'_>],
    episode: &Episode<WatchedPlace>,
    is_new: bool,
) -> WatchedLoss {
    let worst = losses.iter().max_by(|one, other| one.share.total_cmp(&other.share));
    let suspicion = worst.map(|worst| worst.suspicion);
    let end = |of: fn(&Seen) -> String| worst.map(|worst| of(worst.seen)).unwrap_or_default();
    let peer = worst.and_then(|worst| sampler.peer_of(worst.seen));
    WatchedLoss {
        place: place.clone(),
        summary: suspicion.map(|one| one.summary.to_owned()).unwrap_or_default(),
        remedy: suspicion.map(|one| one.remedy.to_owned()).unwrap_or_default(),
        connections: losses.len() as u64,
        worst_local: end(|seen| seen.last.local.to_string()),
        worst_peer: end(|seen| seen.last.peer.to_string()),
        worst_peer_program: peer.map(|peer| format!("{} ({})", peer.name, peer.pid)),
        worst_share: worst.map_or(0.0, |worst| worst.share.min(1.0)),
        worst_look_period_ns: worst.map_or(0, |worst| nanos(worst.seen.span / worst.seen.samples.max(1))),
        lost_ns: nanos(sum(losses)),
        total_lost_ns: nanos(episode.lost),
        stands_ns: nanos(episode.stood()),
        is_new,
    }
}

/// Why options of sockets can't be looked at, or what to do; `more_rights` might help.
pub(crate) fn options_are_hidden(more_rights: bool) -> &'static str {
    if more_rights && !rustix::process::geteuid().is_root() {
        "run it as root, or with `sudo setcap cap_sys_ptrace,cap_dac_read_search+ep` on the program"
    } else {
        "their programs are not to be seen in /proc here or have closed them, they are parts of MPTCP, or \
         pidfd_getfd(2) is refused, which came with Linux 5.6"
    }
}

fn remarks(sampler: &Sampler, without_options: u64, forgotten: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if without_options > 0 {
        let connections = if without_options == 1 { "1 connection" } else { &format!("{without_options} connections") };
        remarks.push(format!(
            "The options of {connections} can't be looked at, so waits for Nagle's algorithm or TCP_CORK are not told \
             there: {}.",
            options_are_hidden(true)
        ));
    }
    let lost = u64::try_from(sampler.forgotten()).unwrap_or(u64::MAX).saturating_add(forgotten);
    if lost > 0 {
        remarks.push(format!("{lost} connections or losses are left out: more than are kept."));
    }
    remarks
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
