//! Which measurement may begin now.

use std::collections::{BTreeMap, BTreeSet};

use crate::pairs::Pair;

/// A measurement that has to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Job {
    /// The work by its number in the plan.
    pub work: usize,
    /// The pair.
    pub pair: Pair,
    /// What it is alone on.
    pub alone: Alone,
}

/// What a measurement has for itself: nothing else of the mesh runs there meanwhile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Alone {
    /// Both its hosts.
    pub on_host: bool,
    /// The racks of both hosts.
    pub in_rack: bool,
}

/// How much may run at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all, at least one.
    pub at_once: usize,
    /// On one host, at least one.
    pub per_host: usize,
}

/// Jobs that wait, and leases of hosts and racks. Jobs begin in their order; one whose hosts are not free is passed by.
///
/// What it takes to find the next one does not grow with the jobs that wait, only with those of the hosts that became
/// free.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Jobs by their place in the order.
    waiting: BTreeMap<usize, Job>,
    /// Of these, the ones that may be free to begin; all others are known not to be, until a place of theirs is free.
    perhaps: BTreeSet<usize>,
    /// The jobs of each host, also those that have begun.
    of_hosts: Vec<Vec<usize>>,
    /// The jobs of each rack, where any job is alone in one.
    of_racks: Vec<Vec<usize>>,
    /// The rack of each host.
    racks: Vec<Option<usize>>,
    hosts_in_use: Vec<Use>,
    racks_in_use: Vec<Use>,
    running: usize,
    limits: Limits,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    jobs: usize,
    alone: bool,
}

impl Use {
    const fn has_room(self, alone: bool, most: usize) -> bool {
        !self.alone && if alone { self.jobs == 0 } else { self.jobs < most }
    }
}

impl Schedule {
    /// With the number of each host's rack.
    pub fn new(jobs: impl IntoIterator<Item = Job>, racks: Vec<Option<usize>>, limits: Limits) -> Self {
        let count = racks.iter().flatten().max().map_or(0, |last| last + 1);
        let waiting: BTreeMap<usize, Job> = jobs.into_iter().enumerate().collect();
        let is_any_alone = waiting.values().any(|job| job.alone.in_rack);
        let (mut of_hosts, mut of_racks) = (vec![Vec::new(); racks.len()], vec![Vec::new(); count]);
        for (&number, job) in &waiting {
            for host in [job.pair.near, job.pair.far] {
                of_hosts[host].push(number);
                if let Some(rack) = racks[host].filter(|_| is_any_alone) {
                    of_racks[rack].push(number);
                }
            }
        }
        Self {
            perhaps: waiting.keys().copied().collect(),
            waiting,
            of_hosts,
            of_racks,
            hosts_in_use: vec![Use::default(); racks.len()],
            racks_in_use: vec![Use::default(); count],
            racks,
            running: 0,
            limits,
        }
    }

    /// The next job that may begin now; its leases are taken. `None` where none may: then one that runs has to end
    /// first, or there are no more.
    pub fn take(&mut self) -> Option<Job> {
        if self.running >= self.limits.at_once {
            return None;
        }
        while let Some(number) = self.perhaps.pop_first() {
            let Some(&job) = self.waiting.get(&number) else { continue };
            if self.may_begin(&job) {
                self.waiting.remove(&number);
                self.running += 1;
                self.each_use(&job, |of, alone| *of = Use { jobs: of.jobs + 1, alone });
                return Some(job);
            }
        }
        None
    }

    /// Gives back what a job had.
    pub fn give_back(&mut self, job: &Job) {
        self.running = self.running.saturating_sub(1);
        self.each_use(job, |of, _| *of = Use { jobs: of.jobs.saturating_sub(1), alone: false });
        let (waiting, of_racks) = (&self.waiting, &self.of_racks);
        for host in [job.pair.near, job.pair.far] {
            let of_rack = self.racks[host].into_iter().flat_map(|rack| &of_racks[rack]);
            let freed = self.of_hosts[host].iter().chain(of_rack).copied();
            self.perhaps.extend(freed.filter(|number| waiting.contains_key(number)));
        }
    }

    /// Drops the jobs that have not begun.
    pub fn stop(&mut self) {
        self.waiting.clear();
        self.perhaps.clear();
    }

    /// Whether no job is left to begin.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    fn may_begin(&self, job: &Job) -> bool {
        let Job { pair: Pair { near, far }, alone, .. } = *job;
        let host = |host: usize| self.hosts_in_use[host].has_room(alone.on_host, self.limits.per_host);
        let rack = |host: usize| {
            self.racks[host].is_none_or(|rack| self.racks_in_use[rack].has_room(alone.in_rack, usize::MAX))
        };
        host(near) && host(far) && rack(near) && rack(far)
    }

    /// A rack that has both hosts is leased once.
    fn each_use(&mut self, job: &Job, change: impl Fn(&mut Use, bool)) {
        let Job { pair: Pair { near, far }, alone, .. } = *job;
        let racks = [self.racks[near], self.racks[far].filter(|_| self.racks[far] != self.racks[near])];
        [near, far].into_iter().for_each(|host| change(&mut self.hosts_in_use[host], alone.on_host));
        racks.into_iter().flatten().for_each(|rack| change(&mut self.racks_in_use[rack], alone.in_rack));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(near: usize, far: usize, on_host: bool, in_rack: bool) -> Job {
        Job { work: 0, pair: Pair { near, far }, alone: Alone { on_host, in_rack } }
    }

    #[test]
    fn who_is_alone_waits_for_all_others_and_they_for_him() {
        let racks = vec![Some(0), Some(0), Some(1), Some(1), None];
        let limits = Limits { at_once: 9, per_host: 2 };
        let jobs = [job(0, 2, false, false), job(1, 3, true, true), job(0, 4, true, false), job(1, 3, false, false)];
        let mut schedule = Schedule::new(jobs, racks, limits);
        assert_eq!(schedule.take(), Some(jobs[0]));
        // Its racks are in use, and so is host 0; the last one is free to go.
        assert_eq!(schedule.take(), Some(jobs[3]));
        assert_eq!(schedule.take(), None);
        schedule.give_back(&jobs[0]);
        assert_eq!(schedule.take(), Some(jobs[2]));
        schedule.give_back(&jobs[3]);
        assert_eq!(schedule.take(), None);
        schedule.give_back(&jobs[2]);
        assert_eq!(schedule.take(), Some(jobs[1]));
        assert!(schedule.is_over());
    }

    proptest! {
        #[test]
        fn leases_never_overlap_and_every_job_is_done(
            racks in prop::collection::vec(prop::option::of(0_usize..4), 2..12),
            jobs in prop::collection::vec((any::<(usize, usize)>(), any::<(bool, bool)>()), 0..60),
            at_once in 1_usize..9,
            per_host in 1_usize..4,
            order in prop::collection::vec(any::<usize>(), 60),
        ) {
            let hosts = racks.len();
            let jobs: Vec<Job> = jobs
                .into_iter()
                .map(|((near, far), (on_host, in_rack))| {
                    let near = near % hosts;
                    job(near, (near + 1 + far % (hosts - 1)) % hosts, on_host || in_rack, in_rack)
                })
                .collect();
            let mut schedule = Schedule::new(jobs.clone(), racks.clone(), Limits { at_once, per_host });
            let (mut running, mut done): (Vec<Job>, usize) = (Vec::new(), 0);
            let mut order = order.into_iter().cycle();
            while !schedule.is_over() || !running.is_empty() {
                while let Some(next) = schedule.take() {
                    let ends = |job: &Job| [job.pair.near, job.pair.far];
                    for other in &running {
                        let same_host = ends(&next).iter().any(|host| ends(other).contains(host));
                        prop_assert!(!same_host || !(next.alone.on_host || other.alone.on_host));
                        let racks_of = |job: &Job| ends(job).map(|host| racks[host]);
                        let others = racks_of(other);
                        let same_rack = racks_of(&next).iter().flatten().any(|rack| others.contains(&Some(*rack)));
                        prop_assert!(!same_rack || !(next.alone.in_rack || other.alone.in_rack));
                    }
                    running.push(next);
                    prop_assert!(running.len() <= at_once);
                    for host in 0..hosts {
                        prop_assert!(running.iter().filter(|job| ends(job).contains(&host)).count() <= per_host);
                    }
                }
                // With nothing running, something can always begin.
                prop_assert!(!running.is_empty());
                let ended = running.swap_remove(order.next().unwrap() % running.len());
                schedule.give_back(&ended);
                done += 1;
            }
            prop_assert_eq!(done, jobs.len());
        }
    }
}
